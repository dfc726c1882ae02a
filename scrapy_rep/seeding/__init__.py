"""From discovered sitemaps to page requests (REP.md section 9)."""
