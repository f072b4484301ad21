"""`Warning` headers: what a client is told beside its answer, and kubectl prints.

The texts quote what clients sent, and clients send anything: a key of control characters, ten
thousand unknown fields. A header is one line, and the headers of one answer are few kilobytes, or
clients refuse the whole answer. Kubernetes' bounds are kept, and one more: Python's clients take
no answer with more than a hundred headers.
"""

import re
from collections.abc import Iterator, Sequence

# As kube-apiserver: this much in all; when it is more, this much of each, while there is room.
TOTAL = 4096
EACH = 256
MOST = 64
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def values(texts: Sequence[str]) -> Iterator[bytes]:
    """The header's values, in RFC 7234's form with Kubernetes' code."""
    if sum(map(len, texts)) > TOTAL:
        texts = _shortened(texts)
    for text in texts[:MOST]:
        quoted = _CONTROL.sub(" ", text).replace("\\", "\\\\").replace('"', '\\"')
        yield b'299 - "%b"' % quoted.encode("ascii", "replace")


def _shortened(texts: Sequence[str]) -> list[str]:
    kept: list[str] = []
    written = 0
    for text in texts:
        if written >= TOTAL:
            break
        kept.append(text[:EACH])
        written += len(kept[-1])
    return kept
