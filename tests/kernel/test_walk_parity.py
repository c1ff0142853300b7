"""Transactions and blocks, sound and damaged, on both kernels: equal results, or equal errors at the same offset."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from spvfilter.protocol import HEADER_SIZE
from support.blocks import build
from support.blocks.build import TxIn, TxOut
from support.kernels.kernelentries import Kernel, native, outcome, reference

pytestmark = pytest.mark.native
LEGACY = build.tx([TxIn(b"\x11" * 32, 1, b"\x51" * 50), TxIn(b"\x22" * 32, 2)], [TxOut(5, b"\x52" * 30), TxOut(6, b"")])
SEGWIT = build.tx(
    [TxIn(b"\x33" * 32, 0, witness=(b"sig" * 20, b"")), TxIn(b"\x44" * 32, 1)], [TxOut(7, build.p2wpkh(bytes(20)))]
)
BLOCK = build.block_of(build.GENESIS, 5, [LEGACY, SEGWIT])
COUNTS = [0, 1, 2, 0xFC, 0xFD, 0xFFFF, 0x10000, 2**25, 2**25 + 1, 2**31 - 1, 2**32 - 1, 2**63, 2**64 - 1]


def judged(kernel: Kernel, raw: bytes) -> list[object]:
    """A kernel's results for the bytes as a transaction, as the first of several, and as a block."""
    readers = (
        kernel.parse_tx,
        kernel.spent_outpoints,
        kernel.walk_tx,
        lambda raw: list(kernel.walk_block(raw)),
        kernel.block_txids,
        lambda raw: kernel.block_txs(raw, [1, 0]),
        kernel.check_amounts,
        kernel.check_block,
    )
    return [outcome(read, raw) for read in readers]


def same(raw: bytes) -> None:
    assert judged(native(), raw) == judged(reference(), raw)


@pytest.mark.parametrize("raw", [LEGACY, SEGWIT, BLOCK], ids=["legacy", "segwit", "block"])
def test_every_truncation_is_refused_by_both_kernels(raw: bytes) -> None:
    for end in range(len(raw) + 1):
        same(raw[:end])
    same(raw + b"\x00")


@pytest.mark.long
@pytest.mark.parametrize("raw", [LEGACY, SEGWIT, BLOCK[HEADER_SIZE:]], ids=["legacy", "segwit", "block"])
def test_a_count_at_any_byte_is_judged_the_same(raw: bytes) -> None:
    head = BLOCK[:HEADER_SIZE]
    for at in range(len(raw)):
        for count in COUNTS:
            for size in (
                build.var_int(count),
                b"\xff" + count.to_bytes(8, "little"),
                b"\xfd" + (count & 0xFFFF).to_bytes(2, "little"),
            ):
                damaged = raw[:at] + size + raw[at + 1 :]
                same(head + damaged if raw == BLOCK[HEADER_SIZE:] else damaged)


@given(
    st.sampled_from([LEGACY, SEGWIT, BLOCK]), st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 255)), max_size=4)
)
def test_changed_bytes_are_judged_the_same(raw: bytes, changes: list[tuple[int, int]]) -> None:
    damaged = bytearray(raw)
    for at, value in changes:
        damaged[at % len(raw)] = value
    same(bytes(damaged))
