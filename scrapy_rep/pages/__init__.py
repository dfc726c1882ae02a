"""Page-level rules in a crawl (REP.md section 10)."""
