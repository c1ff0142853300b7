"""BIP-37 connection Bloom filters, built, serialized, tested and updated exactly as in Bitcoin Core."""

from __future__ import annotations

import hashlib
import json
import math
import secrets
import warnings
from collections.abc import Iterable
from enum import IntEnum
from typing import ClassVar, NamedTuple, Protocol, Self

from spvfilter._public import public
from spvfilter.bloom.attributes import added_attributes, with_attributes_of
from spvfilter.bloom.filter import BloomBits
from spvfilter.errors import FormatError, FpRateWarning, LostSpendsWarning, ParameterError, counted
from spvfilter.filters.fprate import DEFAULT_FP_RATE
from spvfilter.kernel import Family, bip37_scan_block, bip37_scan_tx, is_pubkey, parse_tx, strip_witness, txid
from spvfilter.primitives import OutPoint, Serializable, hash_to_hex, to_bytes
from spvfilter.protocol import MAX_FILTER_SIZE, MAX_HASH_FUNCS, OUTPOINT_SIZE
from spvfilter.wire.codec import Decoder
from spvfilter.wire.messages.filters import FilterLoad

MIN_CAPACITY = 256
"""Smallest default capacity of a filter, in elements (our choice).

A smaller filter misses its requested false-positive rate, and a peer can work out its few elements.
"""
MIN_DECOY_KEY = 16
"""Smallest size of a decoy key, the secret from which decoys are derived, in bytes (our choice)."""
LOW_RATE = 0.1
"""Fraction of the requested false-positive rate below which a filter counts as hiding nothing (our choice)."""
NO_DECOYS = "the filter has no decoys"
"""Start of the warning about missing decoys."""
_WALLET_CAPACITY = 1_024
"""Smallest capacity of LightClient's filter, in elements (our choice).

It leaves room for the outpoints that a peer inserts.
"""
_COMMAND = b"filterload\x00\x00"
"""Command field of a filterload message, which follows the network's magic."""
_SHA256_BLOCK = 64
"""Block size of SHA-256 in bytes."""
# RFC 2104 § 2: tables that XOR each byte with ipad and opad
_INNER, _OUTER = (bytes(each ^ pad for each in range(256)) for pad in (0x36, 0x5C))

# Source: Core bloom.cpp. Each literal rounds to the nearest double, as in Core.
_LN2SQUARED = 0.4804530139182014246671025263266649717305529515945455
_LN2 = 0.6931471805599453094172321214581765680755001343602552


@public
class UpdateFlags(IntEnum):
    """The outpoints that a peer inserts into a filter when an output matches (BIP-37 § Filter matching algorithm)."""

    NONE = 0
    """The peer inserts nothing."""
    ALL = 1
    """The peer inserts the outpoint of every matching output."""
    P2PUBKEY_ONLY = 2
    """The peer inserts the outpoints of matching P2PK and bare multisig outputs only."""
    UNDEFINED = 3
    """An undefined value, found only in received filters. The peer inserts nothing."""


@public
class MatchedTx(NamedTuple):
    """A transaction of a block that matches a filter."""

    position: int
    """Index in the block, from 0."""
    txid: bytes
    """Transaction id, 32 bytes in wire order."""
    raw: bytes
    """Serialized transaction with witnesses, as in the block."""

    @property
    def txid_hex(self) -> str:
        """The field `txid` in hex, as block explorers show it."""
        return hash_to_hex(self.txid)

    @property
    def stripped(self) -> bytes:
        """The serialized transaction without witnesses, as a node sends it after a merkleblock message."""
        return strip_witness(self.raw, parse_tx(self.raw))


@public
class BloomSource(Protocol):
    """An object that lists the elements of a BIP-37 filter, such as a WatchList."""

    def bloom_elements(self) -> Iterable[bytes]:
        """Return the elements to insert into a filter.

        Raises:
            InexpressibleError: The object has entries that BIP-37 filters cannot find.
        """
        ...


@public
def filter_size(elements: int, fp_rate: float) -> int:
    """Return the size of a BIP-37 filter in bytes, from 0 to 36,000. Core's formula rounds it down.

    Args:
        elements: Number of elements that the filter is sized for, from 1 to 2^32 - 1.
        fp_rate: False-positive rate for this number of elements, between 0 and 1, exclusive.

    Raises:
        ParameterError: An argument is out of range.
    """
    _check_sizing(elements, fp_rate)
    bits = -1 / _LN2SQUARED * elements * math.log(fp_rate)
    return int(min(bits, MAX_FILTER_SIZE * 8)) // 8


@public
def filter_hash_funcs(size: int, elements: int) -> int:
    """Return the number of hash functions of a BIP-37 filter, from 0 to 50. Core's formula divides *integers*.

    Args:
        size: Size of the filter in bytes.
        elements: Number of elements that the filter is sized for, at least 1.
    """
    return min(int(size * 8 // elements * _LN2), MAX_HASH_FUNCS)


def _check_sizing(elements: int, fp_rate: float) -> None:
    if not isinstance(elements, int) or not 1 <= elements <= 0xFFFFFFFF:
        raise ParameterError(f"the number of elements must be an integer from 1 to 2^32 - 1, not {elements!r}")
    if not isinstance(fp_rate, (int, float)) or not 0 < fp_rate < 1:  # also refuses NaN
        raise ParameterError(f"the false-positive rate must be between 0 and 1, not {fp_rate!r}")


def _degenerate(elements: int, fp_rate: float) -> bool:
    """Return True if Core's formula results in a filter without bytes or without hash functions."""
    size = filter_size(elements, fp_rate)
    return not size or not filter_hash_funcs(size, elements)


def _refuse_degenerate(elements: int, fp_rate: float) -> ParameterError:
    """Return the error for a filter that would match everything. Its message suggests the nearest valid parameters."""
    size = filter_size(elements, fp_rate)
    # in elements: with 2 bits for each element, Core's integer division still gives one function
    most = MAX_FILTER_SIZE * 4
    rate = _highest_rate(min(elements, most))
    if elements <= most:
        remedy = f"the rate for {counted(elements, 'element')} must be at most {rate}"
    else:
        remedy = f"a filter of {MAX_FILTER_SIZE} bytes can contain at most {most} elements" + (
            f" at rate {rate}" if fp_rate > rate else ""
        )
    result = "0 hash functions" if size else "0 bytes"
    return ParameterError(
        f"a filter for {counted(elements, 'element')} at rate {fp_rate} would have {result} and match everything;"
        f" {remedy}"
    )


def _highest_rate(elements: int) -> float:
    """Return the highest false-positive rate at which Core's formula reserves 2 bits for each element.

    The result is rounded down to 6 decimal places.
    """
    least = (elements + 3) // 4  # bytes
    return math.floor(math.exp(-8 * least * _LN2SQUARED / elements) * 1e6) / 1e6


@public
class Bip37Filter(BloomBits):
    """A BIP-37 Bloom filter; `bytes(f)` is its filterload payload.

    The payload consists of these parts, with little-endian integers:

    - the length of the bit field as CompactSize, then the bit field of at most 36,000 bytes
    - the number of hash functions as u32, at most 50
    - the tweak as u32
    - the update flags as u8

    Hash function i is murmur3 with seed i * 0xFBA4C795 + tweak. As in Core since 0.21, a received filter without bytes
    or without functions matches everything and ignores inserts.

    Args:
        elements: Number of elements to size the filter for, by Core's formula; at least 1.
        fp_rate: False-positive rate for this number of elements, between 0 and 1, exclusive.
        tweak: Number from which the seeds of the hash functions are derived, a u32.
        flags: Outpoints that a peer inserts when an output matches.

    Raises:
        ParameterError: An argument is out of range, or Core's formula results in a filter that a peer treats as
            match-all. To make such a filter, call `match_all`.
    """

    __slots__ = ("_field", "_raw_flags", "capacity", "nominal_fp_rate")

    def __init__(self, elements: int, fp_rate: float, tweak: int = 0, flags: int = UpdateFlags.ALL) -> None:
        if _degenerate(elements, fp_rate):
            raise _refuse_degenerate(elements, fp_rate)
        size = filter_size(elements, fp_rate)
        self._set_up(bytearray(size), filter_hash_funcs(size, elements), tweak, flags)
        self.capacity: int | None = elements
        """Number of elements that the filter is sized for, or None for a received filter."""
        self.nominal_fp_rate: float | None = fp_rate
        """Requested false-positive rate of the filter, between 0 and 1, or None for a received filter."""

    def _set_up(self, field: bytearray, hash_funcs: int, tweak: int, flags: int) -> None:
        if not isinstance(tweak, int) or not 0 <= tweak <= 0xFFFFFFFF:
            raise ParameterError(f"tweak must be from 0 to 2^32 - 1, not {tweak}")
        if not isinstance(flags, int) or flags not in (0, 1, 2):
            raise ParameterError(f"flags must be 0 (NONE), 1 (ALL) or 2 (P2PUBKEY_ONLY), not {flags}")
        super().__init__(len(field) * 8, hash_funcs, Family.BIP37, tweak.to_bytes(16, "little"), field)
        self._field = field
        self._raw_flags = int(flags)

    @classmethod
    def for_watchlist(
        cls,
        watch: BloomSource,
        fp_rate: float = DEFAULT_FP_RATE,
        tweak: int | None = None,
        flags: int = UpdateFlags.ALL,
        *,
        elements: int | None = None,
        decoy_key: bytes | None = None,
    ) -> Self:
        """Create a filter that finds every entry of `watch`, with room for future outpoints.

        While the filter has free room, its real rate (`current_fp_rate`) is far below `fp_rate`, and it hides nothing.
        With a `decoy_key`, random elements fill the free room until the real rate reaches `fp_rate`. These decoys make
        other people's addresses match. When the wallet grows, later elements replace decoys. Decoys are not part of
        BIP-37.

        Keep the tweak, size and decoy key the same: a peer that has two different filters of a wallet can intersect
        them.

        The method issues these warnings:

        - FpRateWarning: `decoy_key` is missing, and the real rate is below a tenth of `fp_rate`.
        - FpRateWarning: 36,000 bytes or 50 functions are not enough, and the real rate is more than twice `fp_rate`.
        - LostSpendsWarning: `flags` let a peer miss spends.

        Args:
            watch: Source of the elements, such as a WatchList.
            fp_rate: Requested false-positive rate, between 0 and 1, exclusive.
            tweak: Number from which the seeds of the hash functions are derived, a u32; random by default.
            flags: Outpoints that a peer inserts when an output matches.
            elements: Number of elements to size the filter for. The default, which hides the number of addresses, is a
                power of two, at least 256 and at least twice the number of elements in `watch`.
            decoy_key: Secret of the wallet, at least 16 bytes, from which decoys are derived. Equal keys give equal
                decoys.

        Raises:
            ParameterError: The watch list is empty or larger than `elements`, or an argument is out of range.
            TypeError: `watch` is not a source of elements.
        """
        if not hasattr(watch, "bloom_elements"):
            found = type(watch).__name__
            raise TypeError(f"watch: expected a WatchList, such as WatchList.from_addresses(addresses), not {found}")
        wanted = list(watch.bloom_elements())
        if not wanted:
            raise ParameterError("nothing to watch for: the watch list is empty")
        if elements is not None and elements < len(wanted):
            raise ParameterError(
                f"a filter for {counted(elements, 'element')} is too small: the watch list contains {len(wanted)}"
            )
        capacity = reserve(len(wanted), fp_rate) if elements is None else elements
        made = cls(capacity, fp_rate, secrets.randbits(32) if tweak is None else tweak, flags)
        for element in wanted:
            made.add(element)
        if decoy_key is not None:
            made._add_decoys(decoy_key, fp_rate)
        expected = (-math.expm1(-made.hash_funcs * capacity / made.bits)) ** made.hash_funcs
        real = max(made.current_fp_rate, expected if elements is not None else 0.0)
        if real > 2 * fp_rate and (made.size == MAX_FILTER_SIZE or made.hash_funcs == MAX_HASH_FUNCS):
            caps = f"{MAX_FILTER_SIZE} bytes and {MAX_HASH_FUNCS} functions"
            message = (
                f"{capacity} elements in the {caps} that BIP-37 allows: the real rate is {real:.3g}, not {fp_rate:g}"
            )
            warnings.warn(message, FpRateWarning, stacklevel=3)
        if decoy_key is None and made.current_fp_rate < fp_rate * LOW_RATE:
            message = (
                f"{NO_DECOYS} and hides nothing from the peer: its real false-positive rate is"
                f" {made.current_fp_rate:.2g}, not {fp_rate:g}; pass decoy_key, a secret of at least"
                f" {MIN_DECOY_KEY} bytes"
            )
            warnings.warn(message, FpRateWarning, stacklevel=3)
        if lost := _lost_spends(wanted, flags):
            message = (
                f"with flags {UpdateFlags(flags).name} a peer will not report the spends of {lost} watched elements:"
                " use ALL"
            )
            warnings.warn(message, LostSpendsWarning, stacklevel=3)
        return made

    def _add_decoys(self, key: bytes, fp_rate: float) -> None:
        if len(key) < MIN_DECOY_KEY:
            raise ParameterError(f"a decoy key must be at least {MIN_DECOY_KEY} bytes long, not {len(key)}")
        # the number of set bits X for which (X/m)^k is the requested rate
        target = self.bits * fp_rate ** (1 / self.hash_funcs)
        have, number = self.set_bits(), 0
        while have < target:
            before = bytes(self._field) if target - have <= self.hash_funcs else b""
            # this number of decoys cannot set more bits than are missing
            some = max(1, int(target - have) // self.hash_funcs)
            self.update(decoys(key, number, some))
            number += some
            was, have = have, self.set_bits()
            if have - target > target - was:  # without the last decoy the rate is closer to the requested one
                self._field[:] = before

    @classmethod
    def match_all(cls, tweak: int = 0, flags: int = UpdateFlags.NONE) -> Self:
        """Create a filter that matches everything: one byte, ff, and one hash function. Every node accepts it.

        Args:
            tweak: Number from which the seeds of the hash functions are derived, a u32.
            flags: Outpoints that a peer inserts when an output matches.

        Raises:
            ParameterError: The tweak or the flags are out of range.
        """
        made = cls.__new__(cls)
        made._set_up(bytearray(b"\xff"), 1, tweak, flags)
        made.capacity = made.nominal_fp_rate = None
        return made

    @classmethod
    def parse(cls, payload: bytes | str) -> Self:
        """Parse a filterload payload, checking it as a node that receives it does.

        The flags byte is kept unchanged.

        Args:
            payload: The payload as bytes, or the output of `spvfilter filterload`: the payload as hex, the whole
                message as hex, or a JSON object.

        Raises:
            FormatError: The payload is truncated or has trailing bytes, more than 36,000 bytes of bits, or more than 50
                functions. Also raised if the text is neither hex nor such a JSON object.
            EnvelopeError: The text is a whole message, but a damaged one.
        """
        load = FilterLoad.parse(_payload_of(payload) if isinstance(payload, str) else to_bytes(payload))
        made = cls.__new__(cls)
        made._set_up(bytearray(load.data), load.hash_funcs, load.tweak, UpdateFlags.NONE)
        made._raw_flags = load.flags
        made.capacity = made.nominal_fp_rate = None
        return made

    def __bytes__(self) -> bytes:
        return bytes(FilterLoad(bytes(self._field), self.hash_funcs, self.tweak, self._raw_flags))

    def __eq__(self, other: object) -> bool:
        """Return True if both filters have the same filterload payload."""
        if not isinstance(other, Bip37Filter):
            return NotImplemented
        return bytes(self) == bytes(other)

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # a filter changes

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.size} bytes, {self.hash_funcs} functions, tweak {self.tweak}, flags"
            f" {self.flags.name}>"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return (
            type(self).parse,
            (bytes(self),),
            (None, {"capacity": self.capacity, "nominal_fp_rate": self.nominal_fp_rate, **added_attributes(self)}),
        )

    @property
    def tweak(self) -> int:
        """The number from which the seeds of the hash functions are derived, a u32."""
        return int.from_bytes(self.key[:4], "little")

    @property
    def estimated_elements(self) -> float:
        """The number of elements in the filter, estimated from its set bits; infinite if every bit is set."""
        return self.approx_len

    @property
    def size(self) -> int:
        """The size of the filter's bit field in bytes."""
        return self.bits // 8

    @property
    def flags(self) -> UpdateFlags:
        """The update flags: the low two bits of the flags byte, as in Core."""
        return UpdateFlags(self._raw_flags & 3)

    def copy(self) -> Self:
        """Return an independent copy of the filter. Use one copy for each peer, because peers update their filters."""
        twin = type(self).parse(bytes(self))
        twin.capacity, twin.nominal_fp_rate = self.capacity, self.nominal_fp_rate
        return with_attributes_of(twin, self)

    def insert(self, element: bytes | OutPoint) -> None:
        """Insert an element into the filter.

        Args:
            element: Data of a push in a script, a txid in wire order, or an outpoint (36 bytes).
        """
        self.add(bytes(element) if isinstance(element, OutPoint) else element)

    def __contains__(self, element: object) -> bool:
        return super().__contains__(bytes(element) if isinstance(element, OutPoint) else element)

    def matches_tx(self, tx: bytes | Serializable) -> bool:
        """Return True if a node with this filter reports the transaction.

        The method also inserts the outpoints of matching outputs, as the update flags require. It computes the same
        bits as Core's IsRelevantAndUpdate (bloom.cpp).

        Raises:
            FormatError: The transaction is malformed. The filter is unchanged.
        """
        matched, bits = bip37_scan_tx(to_bytes(tx), bytes(self._field), self.hash_funcs, self.tweak, self.flags)
        self._field[:] = bits
        return matched

    def match_txs(self, batch: Iterable[bytes | Serializable]) -> list[MatchedTx]:
        """Return the transactions of a batch that a node with this filter sends, in the order of the batch.

        A matching transaction updates the filter, as its update flags require, before the next transaction is tested.
        `MatchedTx.position` is the transaction's number in the batch, from 0.

        Raises:
            FormatError: A transaction is malformed. The filter is unchanged.
        """
        before = bytes(self._field)
        found = []
        try:
            for position, tx in enumerate(map(to_bytes, batch)):
                if self.matches_tx(tx):
                    found.append(MatchedTx(position, txid(tx, parse_tx(tx)), tx))
        except FormatError:
            self._field[:] = before
            raise
        return found

    def scan_block(self, block: bytes | Serializable) -> list[MatchedTx]:
        """Return the transactions of a block that a node with this filter reports, in block order.

        The method also inserts the outpoints of matching outputs, as the node does with its own copy of the filter.

        Raises:
            FormatError: The block is malformed. The filter is unchanged.
        """
        raw = to_bytes(block)
        matches, bits = bip37_scan_block(raw, bytes(self._field), self.hash_funcs, self.tweak, self.flags)
        self._field[:] = bits
        return [MatchedTx(match.position, match.txid, raw[match.start : match.end]) for match in matches]


def _payload_of(text: str) -> bytes:
    """Return the filterload payload in text that `spvfilter filterload` printed.

    Raises FormatError if the text has a different form, and EnvelopeError if it is a damaged message.
    """
    try:
        raw = bytes.fromhex(json.loads(text)["payload"] if text.lstrip().startswith("{") else text)
    except (ValueError, KeyError, TypeError):
        raise FormatError(
            "expected hex, or a JSON object with the hex of a filterload payload", offset=0, field="filterload"
        ) from None
    if raw[4 : 4 + len(_COMMAND)] != _COMMAND:
        return raw
    decoder = Decoder(raw[:4])
    decoder.feed(raw)
    frame = decoder.next_frame()
    if frame is None or decoder.buffered:
        raise FormatError("expected exactly one whole message", offset=0, field="filterload")
    return frame.payload


def decoys(key: bytes, first: int, count: int) -> list[bytes]:
    """Return `count` decoys, random 20-byte elements that are derived from `key`.

    Decoys are numbered, and `first` is the number of the first decoy. A decoy is the start of an HMAC-SHA-256 (RFC
    2104) with `key`. The message of the HMAC is b"spvfilter decoy" and the decoy's number as u32 LE.
    """
    sha256 = hashlib.sha256
    padded = (key if len(key) <= _SHA256_BLOCK else sha256(key).digest()).ljust(_SHA256_BLOCK, b"\x00")
    # the key is hashed once for all decoys, which takes a fifth of the time of hmac.digest for each
    inner = sha256(padded.translate(_INNER) + b"spvfilter decoy")
    outer = sha256(padded.translate(_OUTER))
    found = []
    for number in range(first, first + count):
        within, without = inner.copy(), outer.copy()
        within.update(number.to_bytes(4, "little"))
        without.update(within.digest())
        found.append(without.digest()[:20])
    return found


def reserve(wanted: int, fp_rate: float, least: int = MIN_CAPACITY) -> int:
    """Return the capacity of a wallet's filter in elements: `wanted` elements and room to grow.

    There is less room, or none, if a filter of 36,000 bytes would otherwise exceed `fp_rate`. `least` is the smallest
    capacity that includes room.

    Raises ParameterError if `wanted` is below 1, or if `fp_rate` is not between 0 and 1.
    """
    _check_sizing(wanted, fp_rate)
    roomy = max(least, 1 << (2 * wanted - 1).bit_length())
    return max(wanted, min(roomy, most_elements(fp_rate)))


def wallet_capacity(wanted: int, fp_rate: float) -> int:
    """Return the capacity, in elements, of LightClient's filter for `wanted` elements.

    The filter has plenty of room, because each payment inserts an outpoint, and an overfull filter exceeds its rate.
    """
    return reserve(wanted, fp_rate, _WALLET_CAPACITY)


def most_elements(fp_rate: float) -> int:
    """Return the largest number of elements for which a filter of 36,000 bytes stays within the false-positive rate."""
    return int(MAX_FILTER_SIZE * 8 * _LN2SQUARED / -math.log(fp_rate))


def _lost_spends(wanted: list[bytes], flags: int) -> int:
    """Return the number of elements whose spends a peer misses.

    Outputs with such elements match, but with these update flags the peer does not insert their outpoints.
    """
    if flags == UpdateFlags.ALL:
        return 0
    return sum(
        1
        for element in wanted
        if len(element) != OUTPOINT_SIZE and not (flags == UpdateFlags.P2PUBKEY_ONLY and is_pubkey(element))
    )
