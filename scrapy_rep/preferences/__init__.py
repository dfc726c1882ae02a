"""What site owners say about use after the fetch: training, search, answering (REP.md section 11).

The drafts still change: the module that reads one names it, and its date.

>>> from scrapy_rep.preferences import read_robots
>>> robots = read_robots(b"User-agent: *\\nContent-Signal: search=yes, ai-train=no\\n", "*")
>>> [(str(one), one.says) for one in robots.about("/page", allowed=True)]
[('robots.txt, line 2: Content-Signal: search=yes, ai-train=no', {'search': 'y', 'train-ai': 'n'})]
"""

from scrapy_rep.preferences.sources import RobotsUsage, read_robots
from scrapy_rep.preferences.statements import PURPOSES, Statement, Usage

__all__ = ["PURPOSES", "RobotsUsage", "Statement", "Usage", "read_robots"]
