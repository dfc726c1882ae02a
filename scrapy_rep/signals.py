"""Signals, for Scrapy's ``crawler.signals``. Arguments are passed by keyword."""

robots_resolved = object()
"""Sent after each fetch of a robots.txt.

Arguments: ``origin`` (:class:`~scrapy_rep.protocol.Origin`), ``outcome``
(:class:`~scrapy_rep.protocol.availability.Outcome`), ``status`` (int, None if there was
no answer), ``url`` (str, after redirects), ``hops`` (int), ``robots``
(:class:`~scrapy_rep.protocol.RobotsTxt`, None without a file), ``error`` (str or None),
``attempts`` (int, failures in a row), ``spider``.
"""

sitemap_discovered = object()
"""Sent once for each sitemap that any robots.txt lists.

Arguments: ``origin`` (whose robots.txt it was), ``url`` (str, absolute), ``spider``.
"""

request_held = object()
"""Sent when a request is held, since its robots.txt is unreachable, or hasn't answered
within half a second.

Arguments: ``request``, ``origin``, ``spider``.
"""

request_released = object()
"""Sent when a held request goes on, to be judged like any other.

Arguments: ``request``, ``origin``, ``held_for`` (seconds, in earlier runs too),
``spider``.
"""

request_given_up = object()
"""Sent when a held request is dropped, before its errback gets ``RobotsUnreachable``.

Arguments: ``request``, ``origin``, ``reason`` (str), ``attempts`` (int, failures in a
row), ``held_for`` (seconds, in earlier runs too), ``spider``.
"""
