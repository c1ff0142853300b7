"""Blocks on a stream that is read once: lines of hex, or the records of a blk*.dat, plain or compressed."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import BinaryIO

from spvfilter._public import public
from spvfilter.compression import begun, unpacked
from spvfilter.errors import FormatError, SourceError
from spvfilter.network import Network
from spvfilter.protocol import HEADER_SIZE, MAX_BLOCK_SIZE
from spvfilter.scan.wrongnetwork import A_TRANSACTION, contradiction, is_mined, is_tx

TEXT = frozenset((*range(0x20, 0x7F), 0x09, 0x0A, 0x0D))  # Printable ASCII, tab and line endings.
_HEX = frozenset(b"0123456789abcdefABCDEF \t")


@public
def stream_blocks(stream: BinaryIO, network: Network, bad: Callable[[str], None] | None = None) -> Iterator[bytes]:
    """Yield the raw blocks in a stream of hex lines or a blk*.dat, which may be compressed with gzip or zstd.

    Before Python 3.14, a zstd stream needs the zstandard package (`zstd` extra).

    Args:
        stream: The stream, open for reading bytes.
        network: The network of the blocks.
        bad: Called with a message for each line that is not hex and each record that is cut off. Reading then continues
            with the next one. If this is None, such a line or record is an error.

    Raises:
        FormatError: A line is not hex. The field is "hex line", and the offset is the line number.
        SourceError: The blocks are from a different network, the stream is neither hex nor a blk*.dat, or its
            compressed data is damaged.
    """
    plain, head = begun(unpacked(stream))
    owner = Network.of_magic(head, network)
    if owner is network:
        yield from _records(plain, network, bad)
    elif owner is not None:
        raise SourceError(f"these are {owner} blocks, but the network is {network}: choose {owner} instead")
    elif TEXT.issuperset(head):
        yield from hex_blocks(plain, bad, network)
    elif is_tx(plain.read(MAX_BLOCK_SIZE)):
        raise SourceError(A_TRANSACTION)
    else:
        raise SourceError(
            "neither lines of hex nor a blk*.dat (since version 28, Bitcoin Core obfuscates these files with XOR: pass"
            " the file's name instead)"
        )


@public
def hex_blocks(
    stream: BinaryIO, bad: Callable[[str], None] | None = None, network: Network | None = None
) -> Iterator[bytes]:
    """Yield raw blocks from lines of hex. Blank lines are skipped.

    Args:
        stream: The stream, open for reading bytes.
        bad: Called with a message for each line that is not hex, or that is certainly not a block of `network`. Reading
            then continues with the next line. If this is None, such a line is an error.
        network: The network of the blocks. By default, blocks of any network are accepted.

    Raises:
        FormatError: A line is not hex, is too long, or contains a block of another network. The field is "hex line",
            and the offset is the line number.
    """
    limit = 2 * MAX_BLOCK_SIZE + 2
    for number, line in enumerate(iter(lambda: stream.readline(limit + 1), b""), 1):
        if len(line) > limit:
            raise FormatError(f"the line is longer than {limit} digits", offset=number, field="hex line")
        text = line.strip()
        if not text:
            continue
        raw, message = _block_of(text, network)
        if message is None:
            yield raw
        elif bad is None:
            raise FormatError(message, offset=number, field="hex line")
        else:
            bad(f"line {number}: {message}")


def hex_fault(text: bytes) -> str:
    """Say what is wrong with text that is not hex. The text may be a secret, so the message does not repeat it."""
    wrong = next((at for at, char in enumerate(text, 1) if char not in _HEX), None)
    digits = sum(char not in b" \t" for char in text)
    return f"an odd number of hex digits: {digits:,}" if wrong is None else f"character {wrong:,} is not a hex digit"


def _block_of(text: bytes, network: Network | None) -> tuple[bytes, str | None]:
    """Return the block in a line, and a sentence that says what is wrong with the line, if anything."""
    try:
        raw = bytes.fromhex(text.decode("ascii"))
    except ValueError:
        return b"", f"not hex: {hex_fault(text)}"
    if network is None:
        return raw, None
    return raw, A_TRANSACTION if not is_mined(raw) and is_tx(raw) else contradiction(raw, network)


def _records(stream: io.BufferedReader, network: Network, bad: Callable[[str], None] | None) -> Iterator[bytes]:
    """Yield the blocks of a blk*.dat. Raises SourceError."""
    at = 0
    while True:
        while (zeros := stream.peek(1)) and not zeros[0]:
            at += len(stream.read(len(zeros) - len(zeros.lstrip(b"\0"))))
        head = stream.read(8)
        if not head:
            return
        size = int.from_bytes(head[4:], "little")
        if head[:4] != network.magic or len(head) < 8 or not HEADER_SIZE < size <= MAX_BLOCK_SIZE:
            raise SourceError(f"no block record of {network} at byte {at}")
        raw = stream.read(size)
        if len(raw) < size:
            message = f"the record at byte {at} is cut off: {len(raw)} of {size} bytes"
            if bad is None:
                raise SourceError(message)
            bad(message)
            return
        at += 8 + size
        yield raw
