"""`/decisions` of a running scheduler: what it remembers, as a list of Decision objects.

`?pod=NAMESPACE/NAME` answers with the last decisions about that pod, oldest first; without it the
last decision about every pod, newest first, at most `limit` (100 unless given) of them.
"""

from typing import Any
from urllib.parse import parse_qs

import msgspec

from motley.api.views.base import Key
from motley.api.views.decisions import Decision
from motley.lib.health import Answer
from motley.scheduler.publishing import document
from motley.scheduler.records import Record, Records

_LIMIT = 100


def answer(records: Records, query: str) -> Answer:
    """Status code, content type and body for a query."""
    asked = {name: values[-1] for name, values in parse_qs(query).items()}
    if "pod" in asked:
        namespace, slash, name = asked["pod"].partition("/")
        if not slash or not name:
            return 400, "text/plain", b"pod must be NAMESPACE/NAME\n"
        return _listing(list(records.of(Key(namespace, name))))
    limit = asked.get("limit", str(_LIMIT))
    if not limit.isdecimal():
        return 400, "text/plain", b"limit must be a whole number\n"
    return _listing(
        [record for _, record in zip(range(int(limit)), records.latest(), strict=False)]
    )


def _listing(records: list[Record]) -> Answer:
    items = [
        {"apiVersion": Decision.API_VERSION, "kind": Decision.KIND, **document(record)}
        for record in records
    ]
    body: dict[str, Any] = {
        "apiVersion": Decision.API_VERSION,
        "kind": f"{Decision.KIND}List",
        "metadata": {},
        "items": items,
    }
    return 200, "application/json", msgspec.json.encode(body)
