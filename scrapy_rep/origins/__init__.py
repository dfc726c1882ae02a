"""What is known of each origin's robots.txt, and how it is found out (REP.md sections 1
to 5)."""
