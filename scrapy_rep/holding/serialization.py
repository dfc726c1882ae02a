"""Requests as bytes: JSON if that preserves them exactly, else pickle, as in Scrapy's own queues.

Reading a pickle can run code, reading JSON can't. But JSON turns tuples into lists and numeric keys
into strings, and has no bytes: such requests are pickled. Headers and body, always bytes, are written
as Latin-1.
"""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any

from scrapy.utils.request import request_from_dict

if TYPE_CHECKING:
    from scrapy import Request, Spider

_PLAIN = {str, int, float, bool, type(None)}


def dumps(request: Request, spider: Spider) -> bytes:
    """Return *request* as bytes.

    :raises Exception: from pickling a user's meta
    """
    fields = request.to_dict(spider=spider)
    data = _as_json(fields)
    return pickle.dumps(fields, pickle.HIGHEST_PROTOCOL) if data is None else data


def is_serialisable(request: Request, spider: Spider) -> bool:
    """Whether :func:`dumps` can write *request*."""
    try:
        dumps(request, spider)
    except Exception:  # noqa: BLE001 (from pickling a user's meta)
        return False
    return True


def loads(data: bytes, spider: Spider) -> Request:
    """Return the request in *data*.

    :raises Exception: if it can't be read, or the spider no longer has its callback
    """
    # How all pickles of this and earlier versions begin.
    if data[:1] == b"\x80":
        # Write access to JOBDIR allows running code anyway: Scrapy's own queues are pickles.
        fields = pickle.loads(data)  # noqa: S301
    else:
        fields = _from_json(data)
    return request_from_dict(fields, spider=spider)


def _as_json(fields: dict[str, Any]) -> bytes | None:
    """Return *fields* as JSON, None if JSON would change them."""
    fields = dict(fields)
    headers, body = fields.pop("headers", None), fields.pop("body", None)
    try:
        if type(headers) is not dict or type(body) is not bytes or not _is_exact(fields):
            return None
        fields["headers"] = [
            [_text(name), [_text(value) for value in values]] for name, values in headers.items()
        ]
        fields["body"] = _text(body)
        # Half a surrogate pair can't be encoded: two of them would come back as one character.
        return json.dumps(fields, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError):
        return None


def _text(value: Any) -> str:
    if type(value) is not bytes:
        raise TypeError
    return value.decode("latin-1")


def _is_exact(value: Any) -> bool:
    kind = type(value)
    if kind in _PLAIN:
        return True
    if kind is dict:
        return all(type(key) is str and _is_exact(one) for key, one in value.items())
    return kind is list and all(_is_exact(one) for one in value)


def _from_json(data: bytes) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(data)
    fields["headers"] = {
        name.encode("latin-1"): [value.encode("latin-1") for value in values]
        for name, values in fields["headers"]
    }
    fields["body"] = fields["body"].encode("latin-1")
    return fields
