"""Damaged transactions and blocks: every truncation, every mutation and every absurd count is refused with its own
error.
"""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, strategies as st

from spvfilter import kernel
from spvfilter.errors import FormatError
from spvfilter.filters.bip37 import Bip37Filter
from spvfilter.watch.watchlist import WatchList
from support.blocks import build
from support.blocks.build import TxIn, TxOut
from support.blocks.realdata import RealBlock, all_blocks, real_block_cases
from support.vectors import EFFORT, effort

KEY = b"\x02" + bytes(32)
LEGACY = build.tx([TxIn(b"\x11" * 32, 1, b"\x01\x02"), TxIn(b"\x22" * 32, 2)], [TxOut(5, b"\x51"), TxOut(6, b"")])
SEGWIT = build.tx(
    [TxIn(b"\x33" * 32, 0, witness=(b"sig", KEY)), TxIn(b"\x44" * 32, 1)], [TxOut(7, build.p2wpkh(bytes(20)))]
)
LONG = build.tx([TxIn(b"\x11" * 32, 1, b"\x51" * 50), TxIn(b"\x22" * 32, 2)], [TxOut(5, b"\x51"), TxOut(6, b"")])
BLOCK = build.block_of(build.GENESIS, 5, [LEGACY, SEGWIT])


def readers() -> list[Callable[[bytes], object]]:
    """Functions that read a complete block."""
    watch = WatchList()
    watch.add_script(b"\x51")
    found = Bip37Filter(10, 0.01)
    found.insert(KEY)
    return [lambda raw: list(kernel.walk_block(raw)), kernel.check_block, watch.match_block, found.scan_block]


def whole(raw: bytes) -> list[kernel.TxSpan]:
    return list(kernel.walk_block(raw))


def refusal(call: Callable[[bytes], object], raw: bytes) -> FormatError:
    with pytest.raises(FormatError) as caught:
        call(raw)
    assert 0 <= caught.value.offset <= len(raw)
    assert caught.value.field
    return caught.value


def refused(call: Callable[[bytes], object], raw: bytes) -> bool:
    """Return True if the call raises FormatError. Faster than `refusal`."""
    try:
        call(raw)
    except FormatError:
        return True
    return False


# Truncation


@pytest.mark.slow
@pytest.mark.vectors
def test_truncation_at_every_byte_of_a_small_real_block_raises() -> None:
    small = [block.raw for block in all_blocks() if len(block.raw) <= 10_000]
    assert len(small) > 1_500
    if EFFORT != "full":  # one of the blocks whose parts have equal offsets
        small = list({repr(whole(raw)): raw for raw in small}.values())
    scans = readers()
    for raw in small:
        assert_cuts_raise(raw, range(81, len(raw)))
        cuts = [*range(90), *range(90, len(raw), effort(211, 37, 1))]
        assert all(refused(scan, raw[:cut]) for cut in cuts for scan in scans)


@pytest.mark.vectors
def test_truncation_of_large_real_blocks_raises_at_sampled_bytes() -> None:
    rng = random.Random(2_000)
    scans = readers()
    large = [block.raw for block in all_blocks() if len(block.raw) > 10_000]
    assert len(large) > 20
    for raw in large:
        cuts = rng.sample(range(83, len(raw)), effort(200, 2_000, 2_000))
        assert_cuts_raise(raw, sorted(cuts))
        assert all(refused(scan, raw[:cut]) for cut in cuts[: effort(1, 3, 2_000)] for scan in scans)


def assert_cuts_raise(raw: bytes, cuts: Sequence[int]) -> None:
    """Check that the transaction at each cut is refused if it is cut there. `cuts` ascend."""
    spans = iter(whole(raw))
    tx = next(spans)
    for cut in cuts:
        while tx.end <= cut:
            tx = next(spans)
        assert cut < tx.start or refused(kernel.walk_tx, raw[tx.start : cut])


@real_block_cases()
def test_an_additional_byte_raises(block: RealBlock) -> None:
    for scan in readers():
        assert refusal(scan, block.raw + b"\x00").offset == len(block.raw)


@pytest.mark.parametrize("raw", [LEGACY, SEGWIT])
def test_truncated_or_longer_transactions_raise(raw: bytes) -> None:
    assert kernel.parse_tx(raw).end == len(raw)
    for end in range(len(raw)):
        refusal(kernel.parse_tx, raw[:end])
    assert refusal(kernel.parse_tx, raw + b"\x00").offset == len(raw)


@given(st.data())
def test_changed_bytes_are_read_or_refused(data: st.DataObject) -> None:
    raw = bytearray(BLOCK)
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    for scan in readers():
        try:
            scan(bytes(raw))
        except FormatError as error:
            assert 0 <= error.offset <= len(raw)


@pytest.mark.vectors
def test_mutations_of_a_real_block_raise_only_format_errors() -> None:
    rng = random.Random(37)
    raw = next(block.raw for block in all_blocks() if block.name == "mainnet-482683")
    read = refused = 0
    for at in rng.sample(range(80, len(raw)), effort(200, 1_000, len(raw) - 80)):
        mutated = raw[:at] + bytes((raw[at] ^ 1 << rng.randrange(8),)) + raw[at + 1 :]
        try:
            whole(mutated)
            read += 1
        except FormatError:
            refused += 1
        with pytest.raises(FormatError):  # no change after the header goes unnoticed
            kernel.check_block(mutated)
    assert read
    assert refused


COUNTS = [2**64 - 1, 2**63, 2**32 - 1, 2**31 - 1, 2**25 + 1, 2**25]
HEAD = BLOCK[:80]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(
    ("field", "before"),
    [
        ("transaction count", HEAD),
        ("input count", HEAD + b"\x01" + LEGACY[:4]),
        ("scriptSig length", HEAD + b"\x01" + LEGACY[:41]),
        ("output count", HEAD + b"\x01" + LEGACY[:4] + b"\x01" + bytes(36) + b"\x00" + bytes(4)),
        (
            "scriptPubKey length",
            HEAD + b"\x01" + LEGACY[:4] + b"\x01" + bytes(36) + b"\x00" + bytes(4) + b"\x01" + bytes(8),
        ),
        ("witness item count", HEAD + b"\x01" + build.tx([TxIn(bytes(32), 0, witness=(b"x",))], [])[:-7]),
        ("witness item length", HEAD + b"\x01" + build.tx([TxIn(bytes(32), 0, witness=(b"x",))], [])[:-6]),
    ],
)
def test_absurd_counts_raise_without_an_allocation(count: int, field: str, before: bytes) -> None:
    raw = before + build.var_int(count) + bytes(50_000)
    for scan in readers():
        tracemalloc.start()
        error = refusal(scan, raw)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 1 << 20
        # the offset of a length is the start of its script
        assert error.offset == len(before) or error.field == field.removesuffix(" length")
        assert error.field.startswith(field.removesuffix(" length"))


def sized(value: int, width: int) -> bytes:
    """A CompactSize of `width` more bytes, even if a shorter form exists."""
    return {2: b"\xfd", 4: b"\xfe", 8: b"\xff"}[width] + value.to_bytes(width, "little")


@pytest.mark.parametrize("width", [2, 4, 8])
def test_non_canonical_sizes_are_refused_everywhere(width: int) -> None:
    plain = build.tx([TxIn(b"\x11" * 32, 0, b"\x51", witness=(b"x",))], [TxOut(1, b"\x51")])
    places = {6: "input count", 43: "scriptSig length", 49: "output count", 58: "scriptPubKey length"}
    places |= {60: "witness item count", 61: "witness item length"}
    for at, field in places.items():
        error = refusal(kernel.parse_tx, plain[:at] + sized(plain[at], width) + plain[at + 1 :])
        assert (error.offset, error.field) == (at, field)
    error = refusal(whole, BLOCK[:80] + sized(BLOCK[80], width) + BLOCK[81:])
    assert (error.offset, error.field) == (80, "transaction count")


@pytest.mark.parametrize(
    ("end", "field"),
    [
        (3, "version"),
        (4, "input count"),
        (4 + 1 + 81, "input count"),  # the rest cannot hold two inputs
        (4 + 1 + 82, "scriptSig"),
        (4 + 1 + 36 + 1 + 50 + 3, "sequence"),
        (4 + 1 + 91 + 35, "outpoint"),
        (4 + 1 + 91 + 36, "scriptSig length"),
        (4 + 1 + 91 + 41, "output count"),
        (len(LONG) - 4 - 9 - 1, "output count"),
        (len(LONG) - 5, "scriptPubKey length"),
        (len(LONG) - 1, "lock time"),
    ],
)
def test_a_truncation_names_its_field(end: int, field: str) -> None:
    assert refusal(kernel.parse_tx, LONG[:end]).field == field


@pytest.mark.parametrize("end", [0, 1, 79])
def test_a_short_header_raises(end: int) -> None:
    for scan in readers():
        assert refusal(scan, BLOCK[:end]).field == "header"


def test_a_block_without_transactions_raises() -> None:
    for scan in readers():
        assert refusal(scan, BLOCK[:80] + b"\x00" + bytes(100)).field == "transaction count"
