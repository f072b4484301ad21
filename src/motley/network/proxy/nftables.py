"""libnftables, called in one worker thread: text commands in, errors with the command out.

The library is the one `nft` itself is made of; loading it saves a process per change. Its context
is not thread-safe, so it lives in a thread of its own and the event loop never waits for it.
Invariant: `apply` runs its text as one transaction; it happens whole or not at all.
"""

import asyncio
import ctypes
import ctypes.util
import functools
import os
import socket
import struct
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

import msgspec

from motley.network.proxy.ruleset import Applied, Element

P = ParamSpec("P")
R = TypeVar("R")

_JSON = 1 << 4  # NFT_CTX_OUTPUT_JSON
_NETLINK_NETFILTER = 12
_GET_GENERATION = (10 << 8) | 16  # NFNL_SUBSYS_NFTABLES, NFT_MSG_GETGEN
_GENERATION_ID = 1  # NFTA_GEN_ID


class NftError(Exception):
    """nftables refused a command; the message holds its words and the command."""


class Nft:
    """One libnftables context. `close` it; the rules stay."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "nft")
        self._library: Any = None
        self._context: Any = None

    async def run(self, commands: str) -> str:
        """Run commands as one transaction and return what they print."""
        return await self._in_thread(self._run, commands, 0)

    async def apply(self, commands: str) -> None:
        """Run commands as one transaction."""
        await self._in_thread(self._run, commands, 0)

    async def read(self, table: str) -> Applied:
        """What the kernel has of this table, by the fingerprints that we left in it."""
        try:
            text = await self._in_thread(self._run, f"list table ip {table}", _JSON)
        except NftError as error:
            if "No such file or directory" in str(error):
                return Applied()
            raise
        return parse_listing(msgspec.json.decode(text), table)

    async def generation(self) -> int:
        """A number that changes whenever anybody changes this namespace's nftables rules."""
        return await self._in_thread(_generation)

    async def remove(self, table: str) -> None:
        """Delete the table, also when it does not exist."""
        await self.apply(f"add table ip {table}\ndelete table ip {table}\n")

    async def close(self) -> None:
        """Free the context."""
        await self._in_thread(self._free)
        self._thread.shutdown(wait=False)

    async def _in_thread(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        # Shielded: a cancelled caller must not leave a transaction whose outcome nobody awaits.
        loop = asyncio.get_running_loop()
        call = functools.partial(function, *args, **kwargs)
        return await asyncio.shield(loop.run_in_executor(self._thread, call))

    def _run(self, commands: str, flags: int) -> str:
        library, context = self._open()
        library.nft_ctx_output_set_flags(context, flags)
        # From a file: given a buffer, the library blames the first line for every error.
        with os.fdopen(os.memfd_create("nft"), "wb") as file:
            file.write(commands.encode())
            file.flush()
            path = f"/proc/self/fd/{file.fileno()}"
            failed = library.nft_run_cmd_from_filename(context, path.encode())
        output = library.nft_ctx_get_output_buffer(context).decode()
        errors = library.nft_ctx_get_error_buffer(context).decode()
        if failed:
            raise NftError(explain(errors))
        return str(output)

    def _open(self) -> tuple[Any, Any]:
        if self._context is None:
            self._library = _load()
            self._context = self._library.nft_ctx_new(0)
            if not self._context:
                raise NftError("libnftables: no context (is this process allowed CAP_NET_ADMIN?)")
            self._library.nft_ctx_buffer_output(self._context)
            self._library.nft_ctx_buffer_error(self._context)
        return self._library, self._context

    def _free(self) -> None:
        if self._context is not None:
            self._library.nft_ctx_free(self._context)
            self._context = None


def _load() -> Any:
    name = ctypes.util.find_library("nftables") or "libnftables.so.1"
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        raise NftError(f"libnftables is not installed: {error}") from error
    pointer, text = ctypes.c_void_p, ctypes.c_char_p
    signatures: Mapping[str, tuple[Any, list[Any]]] = {
        "nft_ctx_new": (pointer, [ctypes.c_uint32]),
        "nft_ctx_free": (None, [pointer]),
        "nft_ctx_output_set_flags": (None, [pointer, ctypes.c_uint]),
        "nft_ctx_buffer_output": (ctypes.c_int, [pointer]),
        "nft_ctx_buffer_error": (ctypes.c_int, [pointer]),
        "nft_ctx_get_output_buffer": (text, [pointer]),
        "nft_ctx_get_error_buffer": (text, [pointer]),
        "nft_run_cmd_from_filename": (ctypes.c_int, [pointer, text]),
    }
    for function, (result, arguments) in signatures.items():
        getattr(library, function).restype = result
        getattr(library, function).argtypes = arguments
    return library


def explain(errors: str) -> str:
    """nft's first complaint with the command it is about.

    It writes `FILE:LINE:COLUMNS: Error: …`, the command, a line of `^^^`, and so on; in a long
    transaction the other complaints are consequences of the first.
    """
    lines = errors.strip().splitlines()
    if not lines:
        return "nftables failed without a message"
    message = lines[0].rpartition("Error: ")[2]
    return f"{message}; command: {lines[1].strip()[:500]}" if len(lines) > 1 else message


def parse_listing(document: Mapping[str, Any], table: str) -> Applied:
    """The `Applied` in nft's JSON listing of a table."""
    applied = Applied()
    rules: dict[str, list[str]] = {}
    for item in document["nftables"]:
        ((kind, body),) = item.items()
        if kind == "table":
            applied.exists = applied.exists or body["name"] == table
        elif kind in ("set", "map"):
            applied.sets[body["name"]] = body.get("comment") or f"{kind}:?"
            if "timeout" not in body:  # what the kernel itself adds is not ours to compare
                for element in body.get("elem", ()):
                    key, value = element if kind == "map" else (element, None)
                    applied.elements[Element(body["name"], _key(key))] = _verdict(value)
        elif kind == "chain":
            rules.setdefault(body["name"], [])
        elif kind == "rule":
            rules.setdefault(body["chain"], []).append(body.get("comment") or "")
    for name, comments in rules.items():
        mark = comments[0] if comments else ""
        applied.chains[name] = mark if mark.endswith(f"/{len(comments)}") else ""
    return applied


def _key(key: Any) -> str:
    parts = key["concat"] if isinstance(key, dict) else [key]
    return " . ".join(str(part) for part in parts)


def _verdict(value: Any) -> str:
    if value is None:
        return ""
    ((verb, target),) = value.items()
    return f"{verb} {target['target']}" if target else str(verb)


def _generation() -> int:
    """Ask the kernel for the ruleset's generation: one small message instead of a listing."""
    request = struct.pack("=IHHII", 20, _GET_GENERATION, 1, 1, 0) + struct.pack("=BBH", 0, 0, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER) as netlink:
        netlink.settimeout(2.0)
        netlink.sendto(request, (0, 0))
        answer = netlink.recv(4096)
    offset = 20  # message header and nfgenmsg
    while offset + 4 <= len(answer):
        length, kind = struct.unpack_from("=HH", answer, offset)
        if kind == _GENERATION_ID:
            (number,) = struct.unpack_from(">I", answer, offset + 4)
            return int(number)
        offset += max(4, (length + 3) & ~3)
    raise NftError("nftables told no generation")
