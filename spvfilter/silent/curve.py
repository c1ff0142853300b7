"""The curve arithmetic for silent payments, done by libsecp256k1 from btclib-secp256k1 (the `silent` extra)."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import cache
from typing import Any  # cffi's objects have no types

from spvfilter.errors import ParameterError, remedy

Point = Any
"""A parsed public key, x-only key or summary, as a cffi object."""


@cache
def library() -> Any:
    """Import and return the package btclib_secp256k1. Raises ParameterError if it is not installed."""
    try:
        import btclib_secp256k1.silentpayments
    except ImportError:
        raise ParameterError(f"silent payments need btclib-secp256k1; {remedy('silent')}") from None
    return btclib_secp256k1


def parse_key(raw: bytes) -> Point | None:
    """Return a parsed compressed public key, or None if it is not a point on the curve."""
    try:
        return library().keys.parse(raw)
    except ValueError:
        return None


def parse_xonly(raw: bytes) -> Point | None:
    """Return a parsed 32-byte x-only public key, or None if it is not a point on the curve."""
    try:
        return library().xonly.parse(raw)
    except ValueError:
        return None


def public_key(private: bytes) -> bytes:
    """Return the compressed public key of a 32-byte private key. Raises ParameterError if it is out of range."""
    try:
        return bytes(library().keys.pubkey_from_prvkey(private))
    except ValueError:
        raise ParameterError("the private scan key must be above zero and below the order of the curve") from None


def shared_point(tweak: bytes, scan_key: bytes) -> bytes | None:
    """Multiply a compressed key by a private key in constant time. Returns None if the key is not on the curve."""
    from btclib_secp256k1 import ecdh

    try:
        return bytes(ecdh.shared_point(tweak, scan_key))
    except ValueError:
        return None


def plus_private(public: bytes, private: bytes) -> bytes | None:
    """Add a private key's public key to a compressed key. Returns None if the sum is the point at infinity."""
    try:
        return bytes(library().keys.pubkey_tweak_add(public, private))
    except ValueError:
        return None


def sum_of(first: bytes, second: bytes) -> bytes | None:
    """Return the sum of two compressed keys, or None if it is the point at infinity."""
    try:
        return bytes(library().keys.pubkey_combine([first, second]))
    except ValueError:
        return None


def private_sum(first: bytes, second: bytes) -> bytes | None:
    """Return the sum of two private keys, or None if it is zero."""
    try:
        return bytes(library().keys.prvkey_tweak_add(first, second))
    except ValueError:
        return None


def tweaked_xonly(internal: bytes, tweak: bytes) -> Point | None:
    """Return the x-only key that a tweak added to an internal key results in (BIP-341); None if either is invalid."""
    key = parse_xonly(internal)
    try:
        return None if key is None else library().xonly.parse(library().xonly.tweak_add(internal, tweak)[0])
    except ValueError:
        return None


def summary_of(outpoint: bytes, taproot_keys: list[Point], keys: list[Point]) -> Point | None:
    """Add the keys of a transaction's inputs. Returns None if there are none or the sum is the point at infinity."""
    try:
        return library().silentpayments._prevouts_summary_(outpoint, taproot_keys, keys)
    except ValueError:
        return None


class LabelTable:
    """The labels of one scan key, sorted for libsecp256k1's lookup. The table is filled once and then only read."""

    def __init__(self, scan_key: bytes, numbers: Iterable[int]) -> None:
        ours = library().silentpayments
        self.numbers: dict[bytes, int] = {}
        """Number of each label, by the label's 33 bytes."""
        self.tweaks: dict[int, bytes] = {}
        """Tweak of each label, by the label's number."""
        for number in numbers:
            label, tweak = ours.label(scan_key, number)
            self.numbers[label], self.tweaks[number] = number, tweak
        self._fill({label: (0, number, self.tweaks[number]) for label, number in self.numbers.items()})

    def _fill(self, rows: dict[bytes, tuple[int, int | None, bytes]]) -> None:
        """Fill the table. Each row contains the number of the spend key, the number of the label, and its tweak."""
        self.owners: dict[bytes, tuple[int, int | None]] = {label: row[:2] for label, row in rows.items()}
        """Number of the spend key (0 unless keys are joined) and number of the label, by the label's 33 bytes."""
        self.memory: Any = library().ffi.NULL
        """The table, or NULL if there are no labels."""
        if rows:
            ordered = sorted(rows)
            raw = len(ordered).to_bytes(library().ffi.sizeof("size_t"), sys.byteorder)
            raw += b"".join(ordered) + b"".join(rows[label][2] for label in ordered)
            self.memory = library().ffi.new("unsigned char[]", raw)

    def joined(self, others: Iterable[tuple[bytes, LabelTable]], spend_pubkey: bytes) -> LabelTable:
        """Return a table that also finds outputs for other spend keys with the same scan key.

        The difference between another spend key and `spend_pubkey` acts as one more label, whose tweak is zero.
        """
        keys, made = library().keys, LabelTable(b"", ())
        rows: dict[bytes, tuple[int, int | None, bytes]] = {
            label: (0, number, self.tweaks[number]) for label, number in self.numbers.items()
        }
        negated = bytes(keys.pubkey_negate(spend_pubkey))
        for owner, (other, table) in enumerate(others, 1):
            if (difference := sum_of(other, negated)) is None:
                continue
            rows[difference] = (owner, None, bytes(32))
            for label, number in table.numbers.items():
                if (point := sum_of(difference, label)) is not None:
                    rows[point] = (owner, number, table.tweaks[number])
        made._fill(rows)
        return made


def scan(scan_key: bytes, summary: Point, spend_pubkey: Point, outputs: list[Point], labels: LabelTable) -> list[Any]:
    """Return the outputs that libsecp256k1 finds, in order, at most 2,323 of them (BIP-352 K_max)."""
    package = library()
    ffi, lib = package.ffi, package.lib
    found = ffi.new("secp256k1_silentpayments_found_output[]", len(outputs))
    pointers = ffi.new("secp256k1_silentpayments_found_output *[]", [found + n for n in range(len(outputs))])
    count = ffi.new("uint32_t *")
    has_labels = labels.memory != ffi.NULL
    done = lib.secp256k1_silentpayments_recipient_scan_outputs(
        package.context.ctx,
        pointers,
        count,
        ffi.new("secp256k1_xonly_pubkey *[]", outputs),
        len(outputs),
        scan_key,
        summary,
        spend_pubkey,
        lib.btclib_secp256k1_label_lookup_sorted if has_labels else ffi.NULL,
        labels.memory,
    )
    if not done:
        return []
    ours = package.silentpayments
    return [ours._found_output(found + n) for n in range(count[0])]
