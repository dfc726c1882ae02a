"""Requests set aside until the robots.txt of their origin can be fetched (REP.md section 4)."""
