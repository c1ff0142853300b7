"""Packed hits: the hits of a block as bytes, not objects, in the order of the scan. Also their sums and lines.

Integers are little endian. The hits follow each other without gaps:

| bytes | field |
|---|---|
| 4 | position u32 |
| 4 | n u32 |
| 4 | entry u32, at most 0x7FFFFFFE |
| 4 | size of the script u32; 0xFFFFFFFF if the script is not known |
| 8 | value i64, NO_VALUE if it is not known |
| 8 | fee i64, NO_VALUE if it is not known |
| 1 | 1 for a spend, 0 for an output |
| 32 | txid |
| 36 | only for a spend: the outpoint that it spends; the outpoint of an output is its txid and n |
| size | script |
"""

from __future__ import annotations

import operator
import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from spvfilter.errors import FormatError, ParameterError
from spvfilter.kernel.pure.address import address_of, check_network
from spvfilter.kernel.pure.arguments import snapshot, whole
from spvfilter.kernel.values import NO_VALUE, Hit
from spvfilter.primitives import utc_of
from spvfilter.protocol import HASH_SIZE, OUTPOINT_SIZE

if TYPE_CHECKING:
    from typing_extensions import Buffer

MAX_ENTRY = 0x7FFFFFFE  # Largest number of an entry.
MAX_VALUE = 0x7FFFFFFFFFFFFFFF  # Largest value in satoshi, an i64.
MAX_U32 = 0xFFFFFFFF
_MAX_U64 = 0xFFFFFFFFFFFFFFFF
_NO_SCRIPT = 0xFFFFFFFF
_HEAD = struct.Struct("<IIIIqqB32s")
_U32 = struct.Struct("=I")
SUMS = struct.Struct("=4Q")  # The numbers of an entry: matches, received, spent, unknown.
_ENTRY_AT, _VALUE_AT, _FEE_AT, _SPEND_AT = 8, 16, 24, 32  # Offsets of these fields in a packed hit.


def hit_of(hit: object) -> Hit:
    """Return the argument. Raises TypeError if it is not a Hit."""
    if not isinstance(hit, Hit) or len(hit) != len(Hit._fields):
        raise TypeError(f"expected a Hit, not {type(hit).__name__}")
    return hit


def pack_hits(hits: Iterable[Hit], /) -> bytes:
    """Pack hits. Raises TypeError or ParameterError for a value that no scan returns."""
    return b"".join(packed_hit(_checked(hit)) for hit in [hit_of(hit) for hit in hits])


def packed_hit(hit: Hit) -> bytes:
    """Pack one hit of a scan.

    Raises OverflowError for a script of 4 GiB, which is impossible in a block, but not in a coin.
    """
    script = hit.script or b""
    if len(script) >= _NO_SCRIPT:
        raise OverflowError("the data is larger than the kernel can handle")
    size = _NO_SCRIPT if hit.script is None else len(script)
    head = _HEAD.pack(hit.position, hit.n, hit.entry, size, hit.value, hit.fee, hit.spend, hit.txid)
    return head + (hit.outpoint if hit.spend else b"") + script


def _checked(hit: Hit) -> Hit:
    position = whole(hit.position, 0, MAX_U32, "a position in a block must be from 0 to 2^32 - 1")
    n = whole(hit.n, 0, MAX_U32, "the number of an output or input must be from 0 to 2^32 - 1")
    txid, outpoint = snapshot(hit.txid), snapshot(hit.outpoint)
    if len(txid) != HASH_SIZE:
        raise ParameterError(f"a txid must be {HASH_SIZE} bytes long, not {len(txid)}")
    if len(outpoint) != OUTPOINT_SIZE:
        raise ParameterError(f"an outpoint must be {OUTPOINT_SIZE} bytes long, not {len(outpoint)}")
    if not hit.spend and outpoint != txid + n.to_bytes(4, "little"):
        raise ParameterError(f"the outpoint of an output must be its txid and number, not {outpoint.hex()}")
    script = None if hit.script is None else snapshot(hit.script)
    if script is not None and len(script) >= _NO_SCRIPT:
        raise ParameterError(f"a script must be shorter than 2^32 - 1 bytes, not {len(script)} bytes long")
    value, fee = (
        whole(number, NO_VALUE, MAX_VALUE, "a value or fee must be at least 0 satoshi, or -1 if it is not known")
        for number in (hit.value, hit.fee)
    )
    return Hit(
        bool(hit.spend),
        position,
        txid,
        n,
        outpoint,
        value,
        script,
        whole(hit.entry, 0, MAX_ENTRY, "the number of an entry must be from 0 to 2^31 - 2"),
        fee,
    )


def _walk(packed: bytes) -> Iterator[tuple[int, Hit]]:
    """Yield each hit and the offset of its first byte. Raises FormatError."""
    at, end = 0, len(packed)
    while at < end:
        start = at
        _check_left(at, _HEAD.size, end, "hit")
        position, n, entry, size, value, fee, spend, txid = _HEAD.unpack_from(packed, at)
        if entry > MAX_ENTRY:
            raise FormatError(f"must be at most 2^31 - 2, not {entry}", offset=at + _ENTRY_AT, field="entry")
        if value < NO_VALUE:
            raise FormatError(
                f"must be at least 0 satoshi, or -1 if it is not known, not {value}",
                offset=at + _VALUE_AT,
                field="value",
            )
        if fee < NO_VALUE:
            raise FormatError(
                f"must be at least 0 satoshi, or -1 if it is not known, not {fee}", offset=at + _FEE_AT, field="fee"
            )
        if spend > 1:
            raise FormatError(f"must be 0 or 1, not {spend}", offset=at + _SPEND_AT, field="spend")
        at += _HEAD.size
        outpoint = txid + n.to_bytes(4, "little")
        if spend:
            _check_left(at, OUTPOINT_SIZE, end, "outpoint")
            outpoint = packed[at : at + OUTPOINT_SIZE]
            at += OUTPOINT_SIZE
        script = None
        if size != _NO_SCRIPT:
            _check_left(at, size, end, "script")
            script = packed[at : at + size]
            at += size
        yield start, Hit(bool(spend), position, txid, n, outpoint, value, script, entry, fee)


def hits_in(packed: bytes) -> Iterator[Hit]:
    """Yield the hits in packed bytes. Raises FormatError if the bytes are malformed."""
    return (hit for _, hit in _walk(packed))


def block_hash_of(given: object) -> bytes:
    """Return a block hash as bytes. Raises ParameterError unless it is 32 bytes long."""
    block_hash = snapshot(given)
    if len(block_hash) != HASH_SIZE:
        raise ParameterError(f"a block hash must be {HASH_SIZE} bytes long, not {len(block_hash)}")
    return block_hash


def _check_left(at: int, wanted: int, end: int, field: str) -> None:
    if wanted > end - at:
        raise FormatError(f"truncated: expected {wanted} bytes, {end - at} left", offset=at, field=field)


def unpack_hits(packed: bytes, /) -> list[Hit]:
    """Unpack hits. Raises FormatError if the bytes are not packed hits."""
    return list(hits_in(snapshot(packed)))


def hit_sums(packed: bytes, /) -> list[tuple[int, int, int, int, int]]:
    """Return the sums over the hits of each entry, in the order of the entries.

    Returns:
        Tuples (entry, matches, received, spent, unknown): the number of hits, the satoshi of the outputs, the satoshi
        of the spends, and the number of hits without a value.

    Raises:
        FormatError: The bytes are not packed hits, or a sum exceeds 64 bits.
    """
    sums: dict[int, list[int]] = {}
    for at, hit in _walk(snapshot(packed)):
        of = sums.setdefault(hit.entry, [0, 0, 0, 0])
        of[0] += 1
        if hit.value == NO_VALUE:
            of[3] += 1
            continue
        of[1 + hit.spend] += hit.value
        if of[1 + hit.spend] > _MAX_U64:
            raise FormatError(f"a sum for entry {hit.entry} exceeds 64 bits", offset=at + _VALUE_AT, field="value")
    return [
        (entry, matches, received, spent, unknown)
        for entry, (matches, received, spent, unknown) in sorted(sums.items())
    ]


def count_hits(packed: bytes, /) -> int:
    """Return the number of packed hits. Raises FormatError if the bytes are not packed hits."""
    return sum(1 for _ in _walk(snapshot(packed)))


def is_ascending(numbers: Buffer, /) -> bool:
    """Return True if each number is larger than the number before it.

    Args:
        numbers: The numbers, as u32 in the byte order of the machine.

    Raises:
        ParameterError: The size is not a multiple of 4 bytes.
    """
    raw = snapshot(numbers)
    if len(raw) % _U32.size:
        raise ParameterError(f"numbers must be a multiple of 4 bytes long, not {len(raw)}")
    found = memoryview(raw).cast("I")
    return all(map(operator.lt, found, found[1:]))


def add_hit_sums(packed: bytes, sums: Buffer, /) -> list[int]:
    """Add packed hits to the sums of their entries.

    Each entry has four unsigned 64-bit numbers, in the byte order of the machine: the fields matches, received, spent
    and unknown of `hit_sums`. No other thread may change the sums during the call.

    Args:
        packed: The packed hits.
        sums: A writable buffer with the numbers of all entries.

    Returns:
        The index of each satoshi sum that reached 2**64 and wrapped around, once for each time that it did.

    Raises:
        FormatError: The bytes are not packed hits. The sums are unchanged.
        IndexError: A hit belongs to an entry that has no sums. The sums are unchanged.
        ParameterError: The size of the buffer is not a multiple of 32 bytes.
        TypeError: An argument has the wrong type.
        BufferError: The buffer is not writable.
    """
    hits = list(hits_in(snapshot(packed)))
    view = _writable(sums)
    check_sums(view.nbytes)
    most, entries = max((hit.entry for hit in hits), default=-1), view.nbytes // SUMS.size
    if most >= entries:
        raise IndexError(f"a hit belongs to entry {most}, but there are sums of {entries} entries")
    wrapped: list[int] = []
    for hit in hits:
        numbers = list(SUMS.unpack_from(view, SUMS.size * hit.entry))
        field, more = (3, 1) if hit.value == NO_VALUE else (1 + hit.spend, hit.value)
        numbers[0] += 1
        numbers[field] += more
        if field < 3 and numbers[field] > _MAX_U64:
            wrapped.append(len(numbers) * hit.entry + field)
        SUMS.pack_into(view, SUMS.size * hit.entry, *(number & _MAX_U64 for number in numbers))
    return wrapped


def check_sums(size: int) -> None:
    """Raise ParameterError unless `size` bytes can be the sums of a whole number of entries."""
    if size % SUMS.size:
        raise ParameterError(f"sums must be a multiple of {SUMS.size} bytes long, not {size}")


def _writable(sums: Buffer) -> memoryview:
    """Return the bytes of a writable buffer. Raises TypeError or BufferError if it is not one."""
    view = memoryview(sums)
    if view.readonly or not view.c_contiguous:
        raise BufferError("Object is not writable.")
    return view.cast("B")


class _Block(NamedTuple):
    """The parts that all lines of a block have in common, as text."""

    hash: str
    """Hash of the block as block explorers show it."""
    height: str
    """Height; empty if it is not known."""
    time: str
    """Time of the block (Unix time)."""
    utc: str
    """The same time as a date and a time of day."""


def hit_lines(
    packed: bytes,
    form: int,
    label_places: bytes,
    label_texts: bytes,
    block_hash: bytes,
    height: int | None,
    time: int,
    p2pkh_version: int,
    p2sh_version: int,
    hrp: str,
) -> bytes:
    """Return the packed hits of a block as lines of CSV or JSON. Each line ends with a newline.

    The columns are kind (output or input), block_hash, height, time, txid, index, outpoint_txid, outpoint_index, value,
    script_pubkey, address, label, coinbase (true if the position is 0) and fee. In CSV, time_utc follows the time: the
    same time as text. Hashes are in hex as block explorers show them. An unknown value is an empty cell or null.

    Args:
        packed: The packed hits.
        form: 0 for CSV, 1 for JSON objects.
        label_places: For each entry with a label, its number and the offset of its label in `label_texts`, both as u32
            in the byte order of the machine. The numbers ascend.
        label_texts: Labels as the lines show them: a CSV cell with its quotes, or a JSON string with its quotes. The
            size of each label, as a u32 like the offsets, precedes it.
        block_hash: Hash of the block, 32 bytes in wire order.
        height: Height of the block, or None if it is not known.
        time: Time of the block (Unix time).
        p2pkh_version: Version byte of the network's P2PKH addresses.
        p2sh_version: Version byte of the network's P2SH addresses.
        hrp: Human-readable part of the network's bech32 addresses.

    Raises:
        FormatError: The bytes are not packed hits, or the label of a hit is outside `label_texts`.
        ParameterError: An argument is out of range, or an address cannot be encoded.
        TypeError: An argument has the wrong type.
    """
    packed = snapshot(packed)
    write = _csv_line if whole(form, 0, 1, "a form must be 0 or 1") == 0 else _json_line
    places, texts = snapshot(label_places), snapshot(label_texts)
    shown_hash = block_hash_of(block_hash)[::-1].hex()
    high = None if height is None else whole(height, 0, MAX_U32, "a height must be from 0 to 2^32 - 1")
    seconds = whole(time, 0, MAX_U32, "a block's time must be from 0 to 2^32 - 1")
    block = _Block(shown_hash, "" if high is None else str(high), str(seconds), utc_of(seconds))
    check_network(p2pkh_version, p2sh_version, hrp)
    hits = list(hits_in(packed))
    return b"".join(
        write(
            hit,
            block,
            label=label_of(places, texts, hit.entry),
            address=address_of(hit.script or b"", p2pkh_version, p2sh_version, hrp) or "",
        )
        for hit in hits
    )


def label_of(places: bytes, texts: bytes, entry: int) -> bytes:
    """Return the label of an entry, or "" if it has none. Raises FormatError if it is outside `texts`."""
    numbers = memoryview(places)[: len(places) // 8 * 8].cast("I")
    place = bisect_left(numbers[::2], entry)
    if place == len(numbers) // 2 or numbers[2 * place] != entry:
        return b""
    at = numbers[2 * place + 1]
    size = _U32.unpack_from(texts, at)[0] if at + 4 <= len(texts) else len(texts)
    if at + 4 + size > len(texts):
        raise FormatError(f"the label of entry {entry} is outside the texts", offset=8 * place, field="labels")
    return texts[at + 4 : at + 4 + size]


def _known(satoshi: int, unknown: str) -> str:
    return unknown if satoshi == NO_VALUE else str(satoshi)


def _csv_line(hit: Hit, block: _Block, address: str, label: bytes) -> bytes:
    before = (
        *("input" if hit.spend else "output", block.hash, block.height, block.time, block.utc),
        *(hit.txid[::-1].hex(), str(hit.n)),
        *(hit.outpoint[31::-1].hex(), str(int.from_bytes(hit.outpoint[32:], "little")), _known(hit.value, "")),
        *((hit.script or b"").hex(), address, ""),
    )
    return (
        f"{','.join(before)}".encode()
        + label
        + f",{'true' if hit.position == 0 else 'false'},{_known(hit.fee, '')}\n".encode()
    )


def _json_line(hit: Hit, block: _Block, address: str, label: bytes) -> bytes:
    kind = "input" if hit.spend else "output"
    before = (
        f'{{"kind":"{kind}","block_hash":"{block.hash}","height":{block.height or "null"},"time":{block.time},'
        f'"txid":"{hit.txid[::-1].hex()}","index":{hit.n},"outpoint_txid":"{hit.outpoint[31::-1].hex()}",'
        f'"outpoint_index":{int.from_bytes(hit.outpoint[32:], "little")},"value":{_known(hit.value, "null")},'
        f'"script_pubkey":{"null" if hit.script is None else _quoted(hit.script.hex())},'
        f'"address":{_quoted(address) if address else "null"},"label":'
    )
    after = f',"coinbase":{"true" if hit.position == 0 else "false"},"fee":{_known(hit.fee, "null")}}}\n'
    return before.encode() + (label or b"null") + after.encode()


def _quoted(text: str) -> str:
    return f'"{text}"'
