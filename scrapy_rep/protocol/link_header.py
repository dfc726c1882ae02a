"""The ``Link`` header of HTTP (RFC 8288): where a response links to."""

from __future__ import annotations

import re
from collections.abc import Iterable

# So many bytes are read of all lines of a header together.
_MAX_HEADER_BYTES = 16 * 1024

# A link. Groups: its target; its parameters, up to the comma before the next link.
_LINK = re.compile(r"<([^<>]*)>((?:[^,<>\"]|\"[^\"]*\")*)")
# A parameter of a link. Groups: name, and the value with or without quotes.
_PARAMETER = re.compile(
    r";\s*([a-z0-9*_-]+)\s*(?:=\s*(?:\"([^\"]*)\"|([^\s;\",]*)))?", re.IGNORECASE
)


def targets_of(values: Iterable[bytes], relation: str) -> list[str]:
    """Return the targets of links with this *relation* (in lower case), as they stand
    in the lines *values* of a header, mostly relative. Never raises."""
    header = b",".join(values)[:_MAX_HEADER_BYTES]
    targets = []
    for target, parameters in _LINK.findall(header.decode("latin-1")):
        if relation in _relations_in(parameters):
            targets.append(target.strip())
    return targets


def _relations_in(parameters: str) -> list[str]:
    """Return the relations, in lower case, that a link's first ``rel`` names. A second
    ``rel`` doesn't count."""
    for name, quoted, bare in _PARAMETER.findall(parameters):
        if name.lower() == "rel":
            relations: str = quoted or bare
            return relations.lower().split()
    return []
