"""How long answers hold, when outages are checked again (REP.md sections 4, 5); dates (section 9)."""

from __future__ import annotations

from datetime import timezone
from functools import partial

import pytest

from scrapy_rep.protocol.freshness import backoff, fresh_seconds, latest, retry_after
from tests.protocol.tables import check

DEFAULT, MINIMUM, MAXIMUM = 86_400.0, 300.0, 604_800.0
fresh = partial(fresh_seconds, default=DEFAULT, minimum=MINIMUM, maximum=MAXIMUM)
FRESH = [
    (None, None, DEFAULT, "24 hours by default"),
    ("max-age=0", None, MINIMUM, "zero can't force a fetch per page"),
    ("max-age=" + "9" * 5000, None, MAXIMUM, "more than Python converts"),
    ("no-store", None, MINIMUM, "no-store"),
    ("No-Cache, Max-Age=3600", None, MINIMUM, "no-cache beside max-age, in capitals"),
    ('max-age = "3600"', None, 3600.0, "in quotes, with blanks"),
    ("max-age=7200, max-age=3600", None, 3600.0, "the smallest of two"),
    ("s-maxage=3600", None, DEFAULT, "meant for proxies"),
    ("s-maxage=60; max-age=3600", None, 3600.0, "semicolons"),
    ("max-age=soon", None, DEFAULT, "nonsense"),
    ("max-age=3600", "600", 3000.0, "less the age"),
    ("max-age=3600", "3500", MINIMUM, "the floor after the age is subtracted"),
    ("max-age=1000000", "500000", 500_000.0, "the age before the ceiling"),
    ("max-age=3600", "old", 3600.0, "an age that is nonsense"),
]


def test_cache_control_and_age_decide_how_long_an_answer_is_fresh() -> None:
    check(FRESH, fresh)


NOW = 1_445_412_480.0  # Wed, 21 Oct 2015 07:28:00 GMT
RETRY_AFTER = [
    (None, None, "no header"),
    (" 120 ", 120.0, "blanks around"),
    ("Wed, 21 Oct 2015 07:30:00 GMT", 120.0, "a date"),
    ("Wed Oct 21 07:30:00 2015", 120.0, "a date as in C"),
    ("Wed, 21 Oct 2015 07:00:00 GMT", 0.0, "a date in the past"),
    *(
        (text, 5.0, "as people write it")
        for text in ("5.0", "5s", "+5", '"5"', "5.", " 5 seconds; ")
    ),
    ("5, 120", 120.0, "the longest of two headers"),
    ('"Wed, 21 Oct 2015 07:30:00 GMT"', 120.0, "a date in quotes"),
    *(
        (text, None, "nonsense")
        for text in ("-5", "5e3", "0x5", "5 apples", "5.5.5", ",", "5,soon")
    ),
    ("soon", None, "nonsense"),
    ("\u0661\u0662", None, "digits that are not ASCII"),
    ("Wed, 21 Oct 99999 07:30:00 GMT", None, "no such year"),
]


def test_retry_after_is_read_as_seconds_from_now() -> None:
    check(RETRY_AFTER, lambda value: retry_after(value, NOW))


def test_a_long_retry_after_is_the_ceiling() -> None:
    """The politest reading of a number that means "not for a very long time"."""
    for digits in (10, 25, 400, 5000):
        seconds = retry_after("9" * digits, NOW)
        assert backoff(1, base=5, maximum=600, jitter=0.0, retry_after=seconds) == 600


wait = partial(backoff, base=5.0, maximum=600.0)


def test_backoff_doubles_up_to_the_ceiling() -> None:
    """With jitter: origins that failed together are not asked together, nor much too early."""
    waits = [wait(attempts, jitter=0.0) for attempts in range(1, 11)]
    assert waits == [5, 10, 20, 40, 80, 160, 320, 600, 600, 600]
    for attempts in (1, 5, 60):
        waits = [
            wait(attempts, jitter=jitter) for jitter in (0.0, 0.25, 0.5, 0.75, 0.999)
        ]
        assert len(set(waits)) == len(waits)
        assert max(waits) <= 600
        assert min(waits) >= max(waits) / 2


def test_retry_after_is_a_lower_bound() -> None:
    asked = {60.0: 60.0, 1.0: 5.0, 0.0: 5.0, None: 5.0, 9999.0: 600.0}
    assert {one: wait(1, jitter=0.0, retry_after=one) for one in asked} == asked
    assert wait(1, jitter=0.999, retry_after=60.0) == 60.0
    assert wait(10**9, jitter=0.999, retry_after=1e12) == 600


# (text, its last moment in UTC, why)
LAST_MOMENTS = [
    ("2026", "2026-12-31 23:59:59.999999", "a year"),
    ("2028-02", "2028-02-29 23:59:59.999999", "a month of a leap year"),
    (" 2026-1-3 ", "2026-01-03 23:59:59.999999", "a day may mean its evening"),
    ("2026-01-31T12:30Z", "2026-01-31 12:30:00", "no seconds"),
    ("2026-01-31T12:30:15", "2026-01-31 12:30:15", "no zone"),
    ("2026-01-31 12:30:15.123456789Z", "2026-01-31 12:30:15", "parts of a second"),
    ("2026-01-31T12:30:15+02:00", "2026-01-31 10:30:15", "another zone"),
    ("2026-01-31T12:30:15-0530", "2026-01-31 18:00:15", "another, without the colon"),
    ("31 Jan 2026 12:30:15 +0100", "2026-01-31 11:30:15", "as in mails"),
    ("2026-01-31T24:00:00Z", "2026-02-01 00:00:00", "the day's end, by ISO 8601"),
    ("2026-12-31T24:00", "2027-01-01 00:00:00", "the year's end"),
    ("2026-01-31 24:00:00+02:00", "2026-01-31 22:00:00", "the day's end in another zone"),
    *((text, "2024-05-08 23:59:59.999999", text) for text in ("20240508", "May 8, 2024", "08.05.2024")),
    ("Wed May  8 08:53:11 UTC 2024", "2024-05-08 08:53:11", "as date(1) prints it"),
    *(
        (text, "None", text[:40])
        for text in ("", "yesterday", "2026-13", "2026-02-30", "0000-01-01", "2026-01-31T25:00Z",
                     "2026-01-31T24:00:01Z", "2026-01-31T24:01Z", "9999-12-31T24:00:00Z",
                     "2026-01-31T12:30:15+99:99", "9" * 5000)
    ),
]  # fmt: skip


@pytest.mark.python
def test_a_date_means_its_last_moment() -> None:
    def in_utc(text: str) -> str:
        moment = latest(text)
        return str(moment and moment.astimezone(timezone.utc).replace(tzinfo=None))

    check(LAST_MOMENTS, in_utc)
