"""Files of `spvfilter cfilter`: compact filters as JSON lines."""

from __future__ import annotations

import json
import re
from binascii import unhexlify
from codecs import BOM_UTF8
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from spvfilter.cli.arguments import standard_input
from spvfilter.errors import ParameterError, SourceError
from spvfilter.filters.bip158 import filter_hash
from spvfilter.network import NETWORKS, Network
from spvfilter.primitives import hash_from_hex, hash_to_hex
from spvfilter.protocol import MAX_BLOCK_SIZE

_MAX_LINE = 2 * MAX_BLOCK_SIZE + 1_000
"""Longest line in bytes: a filter in hex is smaller than two blocks."""
_GENESIS = {network.genesis_hash: network.name for network in NETWORKS}
"""The name of each network, keyed by the hash of its genesis block."""
_FIRST = {bytes(32), *_GENESIS}
"""Hashes that reveal the network of a filter if its block, or the block before it, has one of them."""
_START = 4_096
"""Most bytes to read at a time while only white space has been found in a file."""
_BUFFER = 1 << 20
"""Size of a file's buffer in bytes: several lines with large filters."""
_HASH = rb'"([0-9a-fA-F]{64})"'
_COUNT = rb"(?:0|[1-9][0-9]{0,17})"
# The text before and after the digits of the filter in a line that this program wrote: the compact JSON of
# `FilterRecord.line`. Only other lines need the JSON parser.
_BEFORE = re.compile(
    rb'\{"block":'
    + _HASH
    + rb',"previous":(?:null|'
    + _HASH
    + rb'),"height":(?:null|('
    + _COUNT
    + rb')),"n":'
    + _COUNT
    + rb',"filter":"'
)
_AFTER = re.compile(rb'","filter_hash":' + _HASH + rb',"filter_header":(?:null|' + _HASH + rb")\}[ \t\r\n]*")
# the start of a JSON object; only one filter in ten million has bytes that begin like this
_OBJECT = re.compile(rb'\{\s*"[a-z]')


class FilterRecord(NamedTuple):
    """One filter, as a line of the file. Hashes are in wire order."""

    block: bytes
    """Hash of the block."""
    previous: bytes | None
    """Hash of the previous block. None if the line does not give it."""
    height: int | None
    """Height of the block. None if it is unknown."""
    data: bytes
    """The filter's bytes."""
    header: bytes | None
    """Filter header. None if the earlier filter headers are unknown."""

    def line(self, n: int) -> dict[str, str | int | None]:
        """Return the names and values of the line, with hashes in display order. `n` is the number of items."""
        return {
            "block": hash_to_hex(self.block),
            "previous": None if self.previous is None else hash_to_hex(self.previous),
            "height": self.height,
            "n": n,
            "filter": self.data.hex(),
            "filter_hash": hash_to_hex(filter_hash(self.data)),
            "filter_header": None if self.header is None else hash_to_hex(self.header),
        }


def read_records(name: str) -> Iterator[tuple[int, FilterRecord]]:
    """Read the records of a file, or of standard input for `-`, with their line numbers.

    Raises SourceError if a line isn't a record, and OSError if the file cannot be read.
    """
    if name == "-":
        yield from _records(standard_input(), "standard input")
        return
    with Path(name).open("rb", _BUFFER) as file:
        yield from _records(file, name)


def _records(stream: BinaryIO, name: str) -> Iterator[tuple[int, FilterRecord]]:
    for number, line in enumerate(iter(lambda: stream.readline(_MAX_LINE + 1), b""), 1):
        if len(line) > _MAX_LINE:
            raise SourceError(f"{name}: line {number}: longer than {_MAX_LINE:,} bytes")
        if number == 1:
            line = line.removeprefix(BOM_UTF8)
        if (written := _as_written(line)) is not None:
            yield number, written
        elif line.strip():
            try:
                yield number, _record(line)
            except ValueError as error:  # a ParameterError too
                raise SourceError(f"{name}: line {number}: {error}") from None


def is_of_lines(name: str) -> bool:
    """Return True if a file starts like JSON lines: with an object, possibly after a byte order mark and white space.

    The result is True for standard input (`-`) and pipes, which cannot be read twice. It is False for a file that
    cannot be opened.
    """
    try:
        if name == "-" or Path(name).is_fifo():
            return True
        with Path(name).open("rb") as file:
            start = file.read(_START).removeprefix(BOM_UTF8)
            while start and not (start := start.lstrip()):
                start = file.read(_START)
            return _OBJECT.match(start + file.read(_START)) is not None
    except (OSError, ValueError):
        return False


def _as_written(line: bytes) -> FilterRecord | None:
    """Read a valid line in the form that `build` and `export` write. Return None for any other line.

    `_record` then reads or refuses it.
    """
    before = _BEFORE.match(line)
    if before is None:
        return None
    end = line.find(b'"', before.end())
    after = _AFTER.fullmatch(line, max(end, 0))
    if after is None:
        return None
    try:
        data = unhexlify(line[before.end() : end])
    except ValueError:
        return None
    block, previous, height = before.groups()
    stated, header = after.groups()
    if unhexlify(stated)[::-1] != filter_hash(data):
        return None
    return FilterRecord(
        unhexlify(block)[::-1],
        None if previous is None else unhexlify(previous)[::-1],
        None if height is None else int(height),
        data,
        None if header is None else unhexlify(header)[::-1],
    )


def _record(line: bytes) -> FilterRecord:
    try:
        fields = json.loads(line)
    except ValueError:
        raise ParameterError("not JSON") from None
    if not isinstance(fields, dict) or not all(isinstance(fields.get(name), str) for name in ("block", "filter")):
        raise ParameterError('not an object with "block" and "filter"')

    def hash_field(name: str) -> bytes | None:
        value = fields.get(name)
        return hash_from_hex(value) if isinstance(value, str) else None

    block, height = hash_field("block"), fields.get("height")
    assert block is not None
    try:
        data = bytes.fromhex(fields["filter"])
    except ValueError:
        raise ParameterError('"filter" is not hex') from None
    stated = hash_field("filter_hash")
    if stated not in (None, filter_hash(data)):
        raise ParameterError("the filter does not match its filter_hash: the line is damaged")
    return FilterRecord(
        block, hash_field("previous"), height if type(height) is int else None, data, hash_field("filter_header")
    )


def check_network(name: str, record: FilterRecord, network: Network) -> None:
    """Raise SourceError if a record belongs to another network.

    The check is possible only if the record's block or the previous block is a genesis block.
    """
    if record.height not in (0, 1) and record.block not in _FIRST and record.previous not in _FIRST:
        return
    genesis = network.genesis_hash
    first = None  # the block at height 0
    if record.height == 0 or record.previous == bytes(32) or record.block in _GENESIS:
        first = record.block
    elif record.previous is not None and (record.height == 1 or record.previous in _GENESIS):
        first = record.previous
    if first not in (None, genesis):
        whose = f", but of {_GENESIS[first]}" if first in _GENESIS else ""
        raise SourceError(f"{name}: block 0 is {hash_to_hex(first)}: these filters are not for {network}{whose}")
