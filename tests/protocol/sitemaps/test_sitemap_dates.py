"""REP.md section 9: `lastmod` can be used to choose."""

from __future__ import annotations

from datetime import timezone

import pytest

from scrapy_rep.protocol.freshness import latest
from tests.protocol.tables import check

# (text, its last moment in UTC, why)
DATES = [
    ("2026", "2026-12-31 23:59:59.999999", "a year"),
    ("2026-02", "2026-02-28 23:59:59.999999", "a month"),
    ("2028-02", "2028-02-29 23:59:59.999999", "a month of a leap year"),
    (" 2026-1-3 ", "2026-01-03 23:59:59.999999", "a day may mean its evening"),
    ("2026-01-31T12:30Z", "2026-01-31 12:30:00", "no seconds"),
    ("2026-01-31T12:30:15", "2026-01-31 12:30:15", "no zone"),
    ("2026-01-31 12:30:15.123456789Z", "2026-01-31 12:30:15", "parts of a second"),
    ("2026-01-31T12:30:15+02:00", "2026-01-31 10:30:15", "another zone"),
    ("2026-01-31T12:30:15-0530", "2026-01-31 18:00:15", "another, without the colon"),
    ("31 Jan 2026 12:30:15 +0100", "2026-01-31 11:30:15", "as in mails"),
    *((text, "2024-05-08 23:59:59.999999", text) for text in ("20240508", "May 8, 2024", "08.05.2024")),
    ("Wed May  8 08:53:11 UTC 2024", "2024-05-08 08:53:11", "as date(1) prints it"),
    *(
        (text, "None", text[:40])
        for text in ("", "yesterday", "2026-13", "2026-02-30", "0000-01-01", "2026-01-31T25:00Z",
                     "2026-01-31T12:30:15+99:99", "9" * 5000)
    ),
]  # fmt: skip


@pytest.mark.python
def test_a_date_means_its_last_moment() -> None:
    def in_utc(text: str) -> str:
        moment = latest(text)
        return str(moment and moment.astimezone(timezone.utc).replace(tzinfo=None))

    check(DATES, in_utc)
