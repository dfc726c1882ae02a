"""Requests set aside until the robots.txt of their origin can be fetched (REP.md section 4).

Read deferral.py first: it has the walk of a held request, in five steps.
"""
