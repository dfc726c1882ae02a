"""REP.md section 9: `lastmod` can be used to choose."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from scrapy_rep.protocol.freshness import latest

pytestmark = pytest.mark.python

UTC = timezone.utc


def end(*date: int) -> datetime:
    return datetime(*date, 23, 59, 59, 999999, tzinfo=UTC)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026", end(2026, 12, 31)),
        ("2026-02", end(2026, 2, 28)),
        ("2028-02", end(2028, 2, 29)),
        ("2026-01-31", end(2026, 1, 31)),
        (" 2026-1-3 ", end(2026, 1, 3)),
        ("2026-01-31T12:30Z", datetime(2026, 1, 31, 12, 30, tzinfo=UTC)),
        ("2026-01-31T12:30:15", datetime(2026, 1, 31, 12, 30, 15, tzinfo=UTC)),
        ("2026-01-31 12:30:15", datetime(2026, 1, 31, 12, 30, 15, tzinfo=UTC)),
        ("2026-01-31T12:30:15.123456789Z", datetime(2026, 1, 31, 12, 30, 15, tzinfo=UTC)),
        (
            "2026-01-31T12:30:15+02:00",
            datetime(2026, 1, 31, 12, 30, 15, tzinfo=timezone(timedelta(hours=2))),
        ),
        ("2026-01-31T12:30:15-0530", datetime(2026, 1, 31, 18, 0, 15, tzinfo=UTC)),
        ("Sat, 31 Jan 2026 12:30:15 GMT", datetime(2026, 1, 31, 12, 30, 15, tzinfo=UTC)),
        ("31 Jan 2026 12:30:15 +0100", datetime(2026, 1, 31, 11, 30, 15, tzinfo=UTC)),
        # What people write.
        *[
            (text, end(2024, 5, 8))
            for text in ("2024/05/08", "20240508", "May 8, 2024", "8 May 2024", "08.05.2024")
        ],
        *[
            (text, datetime(2024, 5, 8, 8, 53, 11, tzinfo=UTC))
            for text in (
                "May 8, 2024 08:53:11 AM",
                "2024-05-08T08:53:11+00",
                "2024-05-08 08:53:11 UTC",
                "2024/05/08 08:53:11",
                "Wed May  8 08:53:11 UTC 2024",
            )
        ],
        *[
            (text, None)
            for text in (
                "",
                "yesterday",
                "2026-13",
                "2026-02-30",
                "0000-01-01",
                "2026-01-31T25:00Z",
            )
        ],
        ("2026-01-31T12:30:15+99:99", None),
        ("9" * 5000, None),
    ],
)
def test_a_date_means_its_last_moment(text: str, moment: datetime | None) -> None:
    """A day may mean its evening."""
    assert latest(text) == moment
