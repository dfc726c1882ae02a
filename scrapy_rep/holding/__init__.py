"""Requests set aside until the robots.txt of their origin can be fetched, and what
becomes of them when the spider closes, by Ctrl-C for example (REP.md section 4). Read
holding.py first: its docstring follows a held request through five steps."""
