"""What pages say of themselves, in a crawl (REP.md section 10): asked for, and obeyed on request."""
