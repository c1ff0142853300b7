"""Transactions on a stream that is read once: lines of hex or JSON, or the bytes of one transaction."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from typing import BinaryIO

from spvfilter._public import public
from spvfilter.compression import begun, unpacked
from spvfilter.errors import FormatError, SourceError
from spvfilter.kernel import spent_outpoints
from spvfilter.network import Network
from spvfilter.protocol import HASH_SIZE, MAX_BLOCK_SIZE
from spvfilter.scan.pull import pull_ahead
from spvfilter.scan.streams import TEXT, hex_fault
from spvfilter.scan.wrongnetwork import is_block

MAX_TX_LINE = 2 * MAX_BLOCK_SIZE + 1_000_000
"""Largest size of a line in bytes: the hex of the largest transaction, and 1 MB for other fields (our choice)."""
_FIELDS = ("hex", "rawtx", "result")
"""Fields of a JSON object that may contain the transaction. Bitcoin Core's RPC uses `hex` and `result`."""
_BOM = b"\xef\xbb\xbf"
"""The byte order mark with which some editors begin a text file."""
_PSBT, _PSBT_BASE64 = b"psbt\xff", b"cHNidP"
"""First bytes of a partially signed transaction (BIP-174), and the first characters of its base64 form."""
_OF_PSBT = "a partially signed transaction (PSBT): finalize it first, and pass its hex"


@public
def stream_txs(stream: BinaryIO, bad: Callable[[str], None] | None = None) -> Iterator[bytes]:
    """Yield the raw transactions in a stream: one on each line, or the bytes of a single transaction.

    A line contains hex, optionally after 0x or in quotes, or a JSON object with the hex in a field "hex", "rawtx" or
    "result", or a list of these. It is at most 9 MB long. The stream may also be one JSON value on several lines.

    Blank lines are skipped. The stream may be compressed with gzip or zstd. Reading may block, so use `read_txs` with
    asyncio.

    Args:
        stream: The stream, open for reading bytes.
        bad: Called with a message for each line that is not a transaction, such as "line 7: …". Reading then continues
            with the next line. If this is None, such a line is an error.

    Raises:
        FormatError: A line, or the whole stream, is not a transaction. The offset is that of the line in the stream.
        SourceError: The stream contains blocks, or its compressed data is damaged.
    """
    for item in _items(stream):
        if isinstance(item, bytes):
            yield item
        else:
            _refuse(item, bad)


@public
async def read_txs(stream: BinaryIO, bad: Callable[[str], None] | None = None) -> AsyncGenerator[bytes]:
    """Yield the transactions that `stream_txs` yields. A thread reads the stream, up to 1 MB ahead.

    Raises FormatError and SourceError in the same cases as `stream_txs`.
    """
    async with aclosing(pull_ahead(_items(stream), _weight)) as items:
        async for item in items:
            if isinstance(item, bytes):
                yield item
            else:
                _refuse(item, bad)


def _refuse(error: FormatError, bad: Callable[[str], None] | None) -> None:
    if bad is None:
        raise error
    bad(error.message)


def _weight(item: bytes | FormatError) -> int:
    """Return approximately how many bytes of memory an item takes."""
    return (len(item) if isinstance(item, bytes) else 0) + 100


def _items(stream: BinaryIO) -> Iterator[bytes | FormatError]:
    """Yield each transaction, and an error for each line that contains none."""
    plain, head = begun(unpacked(stream))
    if owner := Network.of_magic(head):
        raise SourceError(f"these are {owner} blocks, not transactions")
    if head.startswith(_BOM):
        plain.read(len(_BOM))
    elif not TEXT.issuperset(head):
        raw = plain.read(MAX_BLOCK_SIZE + 1)
        yield raw if (problem := problem_of(raw)) is None else _error(problem, 0)
        return
    yield from _lines(plain)


def _lines(stream: BinaryIO) -> Iterator[bytes | FormatError]:
    number = at = 0
    while line := stream.readline(MAX_TX_LINE + 1):
        number += 1
        start, size = at, len(line)
        is_long = size > MAX_TX_LINE
        at += size
        while is_long and not line.endswith(b"\n") and (line := stream.readline(MAX_TX_LINE)):
            at += len(line)
        if is_long:
            yield _error(f"line {number}: longer than {MAX_TX_LINE:,} bytes", start)
        elif text := line.strip():
            if start == 0 and not _is_whole(text):  # JSON on several lines
                text += stream.read(MAX_TX_LINE)
                if stream.read(1):
                    yield _error(f"line {number}: JSON of more than {MAX_TX_LINE:,} bytes", start)
                    return
            for raw, problem in _txs_of(text):
                yield raw if problem is None else _error(f"line {number}: {problem}", start)


def _is_whole(line: bytes) -> bool:
    """Return False if a line can only be the start of a JSON value."""
    if not line.startswith((b"{", b"[")) or line.count(b'"') % 2:
        return True
    return line.count(b"{") + line.count(b"[") <= line.count(b"}") + line.count(b"]")


def _txs_of(text: bytes) -> Iterator[tuple[bytes, str | None]]:
    """Yield what `_tx_of` returns for each transaction in a line, which may be a list of several."""
    if not text.startswith(b"["):
        yield _tx_of(text)
        return
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        yield b"", "not a JSON list"
        return
    for each in found:
        yield _tx_of_value(each)


def _error(problem: str, at: int) -> FormatError:
    return FormatError(problem, offset=at, field="transaction")


def _tx_of(text: bytes) -> tuple[bytes, str | None]:
    """Return the transaction in a line, or a sentence that says what is wrong.

    The sentence does not repeat the line.
    """
    if text.startswith(b"{"):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            return b"", "not a JSON object on one line (`jq -c` prints objects that way)"
        return _tx_of_value(found)
    if len(text) > 1 and text[:1] == text[-1:] == b'"':
        text = text[1:-1]
    text = text[2:] if text[:2] in (b"0x", b"0X") else text
    try:
        raw = bytes.fromhex(text.decode("ascii"))
    except ValueError:
        return b"", _not_hex(text)
    return raw, problem_of(raw)


def _tx_of_value(found: object) -> tuple[bytes, str | None]:
    """Do the work of `_tx_of` for a JSON value."""
    if isinstance(found, dict) and isinstance(error := found.get("error"), dict):
        return b"", f"a node's answer with error {error.get('code')!r:.20} instead of a transaction: ask it again"
    if isinstance(found, dict) and isinstance(found.get("result"), dict):  # the whole answer of the RPC
        found = found["result"]
    if isinstance(found, dict):
        values = [found[field] for field in _FIELDS if field in found]
        if not values:
            return b"", f"a JSON object without a {' or '.join(_FIELDS)} field"
        found = values[0]
    if not isinstance(found, str):
        return b"", "the transaction in the JSON object is not a string of hex digits"
    return _tx_of(b'"%b"' % found.encode("utf-8", "replace"))


def _not_hex(text: bytes) -> str:
    if text.startswith(_PSBT_BASE64):
        return _OF_PSBT
    return hex_fault(text)


def problem_of(raw: bytes) -> str | None:
    """Return a sentence that says why these bytes are not one transaction, or None if they are."""
    try:
        if spent_outpoints(raw):
            return None
        return "not a transaction: it has no inputs"
    except FormatError as error:
        if raw.startswith(_PSBT):
            return _OF_PSBT
        if len(raw) == HASH_SIZE:
            return f"{HASH_SIZE} bytes: this may be a txid, but it is not the transaction itself"
        if len(raw) > MAX_BLOCK_SIZE:
            return f"more than {MAX_BLOCK_SIZE:,} bytes, too long for a transaction"
        return "a block, not a transaction" if is_block(raw) else f"not a transaction: {error}"
