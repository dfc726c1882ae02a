"""Reads what site owners say about the use of fetched pages, as in training, search or
answering (REP.md section 11).

The drafts for this still change: ``statements`` names them, and their dates.

>>> from scrapy_rep.preferences import read_robots
>>> robots = read_robots(b"User-agent: *\\nContent-Signal: search=yes, ai-train=no\\n", "*")
>>> [(str(one), one.says) for one in robots.about("/page", allowed=True)]
[('robots.txt, line 2: Content-Signal: search=yes, ai-train=no', {'search': 'y', 'train-ai': 'n'})]
"""

from scrapy_rep.preferences.statements import (
    PURPOSES,
    RobotsUsage,
    Statement,
    Usage,
    read_robots,
)

__all__ = ["PURPOSES", "RobotsUsage", "Statement", "Usage", "read_robots"]
