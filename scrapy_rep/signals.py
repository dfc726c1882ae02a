"""Signals, for Scrapy's ``crawler.signals``. Arguments are passed by keyword."""

robots_resolved = object()
"""Each time that a robots.txt was asked for, when it is known what came of it.

Arguments: ``origin`` (:class:`~scrapy_rep.protocol.Origin`), ``outcome``
(:class:`~scrapy_rep.protocol.availability.Outcome`), ``status`` (int, None if there was no
answer), ``url`` (str, after redirects), ``hops`` (int), ``robots``
(:class:`~scrapy_rep.protocol.RobotsTxt`, None without a file), ``error`` (str or None),
``attempts`` (int, failures in a row), ``spider``.
"""

sitemap_discovered = object()
"""Once for each sitemap that a robots.txt lists, however many list it.

Arguments: ``origin`` (whose robots.txt it was), ``url`` (str, absolute), ``spider``.
"""

request_deferred = object()
"""When a request begins to be held because its robots.txt is unreachable.

Arguments: ``request``, ``origin``, ``spider``.
"""

request_released = object()
"""When a held request goes back to the scheduler, to be decided like any other.

Arguments: ``request``, ``origin``, ``spider``.
"""

request_given_up = object()
"""When a held request is dropped after all: its errback is about to get ``RobotsUnreachable``.

Arguments: ``request``, ``origin``, ``reason`` (str), ``attempts`` (int, failures in a row),
``spider``.
"""
