"""Partial merkle trees on both kernels: the proved transactions, or the first flaw, with equal messages."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, strategies as st

from spvfilter.errors import FormatError, ParameterError, ProofError
from spvfilter.kernel import Flaw, ProvedTx
from spvfilter.protocol import MAX_BLOCK_TRANSACTIONS
from support.blocks import build
from support.blocks.merkletree import extracted, partial_tree
from support.kernels.kernelentries import Kernel, native, outcome, reference
from support.vectors import effort

pytestmark = pytest.mark.native
FEW = [bytes([number]) * 32 for number in range(3)]
# 64 bytes: two hashes and a transaction
HALVES = build.tx([build.TxIn(bytes([7]) * 32, 0)], [build.TxOut(0, b"\x51" * 4)])
NO_OUTPUT = build.tx([build.TxIn(bytes([7]) * 32, 0, b"\x51" * 13)], [])  # 64 bytes, too


@pytest.fixture(params=["native", "pure"])
def kernel(request: pytest.FixtureRequest) -> Kernel:
    return native() if request.param == "native" else reference()


def txids(count: int) -> list[bytes]:
    source = random.Random(count)
    return [source.randbytes(32) for _ in range(count)]


def judged(root: bytes, total: int, hashes: Sequence[bytes], flags: bytes) -> tuple[object, object]:
    """The results of both kernels for a tree, or their errors with causes."""

    def judge(kernel: Kernel) -> object:
        try:
            return kernel.extract_matches(root, total, tuple(hashes), flags)
        except ProofError as error:
            return type(error), str(error), error.cause, type(error.cause)

    return judge(native()), judge(reference())


def flaw_of(root: bytes, total: int, hashes: Sequence[bytes], flags: bytes) -> tuple[str, str]:
    """The flaw and the message, which must be the same in both kernels."""
    one, other = judged(root, total, hashes, flags)
    assert one == other
    assert isinstance(one, tuple)
    assert one[0] is ProofError
    assert one[3] is Flaw
    return one[2], one[1]


@pytest.mark.parametrize("count", [*range(1, 18), 31, 32, 33, 127, 128, 129, 1_000])
def test_a_sound_tree_proves_its_matches(kernel: Kernel, count: int) -> None:
    ids = txids(count)
    for some in {0, 1, 2, count // 2, count}:
        positions = sorted(random.Random(some).sample(range(count), min(some, count)))
        total, hashes, flags = kernel.parse_merkleblock(bytes(80) + partial_tree(ids, positions))
        assert total == count
        matched, ambiguous = kernel.extract_matches(build.merkle_root(ids), total, hashes, flags)
        assert matched == tuple((position, ids[position]) for position in positions)
        assert all(type(tx) is ProvedTx for tx in matched)
        assert ambiguous is False


@given(st.integers(0, 40), st.lists(st.sampled_from(FEW), max_size=20), st.binary(max_size=6), st.data())
def test_both_kernels_judge_any_tree_the_same(
    total: int, hashes: list[bytes], flags: bytes, data: st.DataObject
) -> None:
    expected = extracted(total, hashes, flags)
    root = expected[0] if expected else data.draw(st.sampled_from(FEW))
    one, other = judged(root, total, hashes, flags)
    assert one == other


def test_both_kernels_judge_changed_trees_the_same() -> None:
    """Flags, hashes and counts are slightly changed. The first flaw is the same, although one kernel works by depth and
    the other by levels.
    """
    rng = random.Random(12)
    causes: set[object] = set()
    for _ in range(effort(500, 4_000, 100_000)):
        count = rng.choice((rng.randint(1, 9), rng.randint(1, 300)))
        ids = [rng.choice(FEW) for _ in range(count)] if rng.random() < 0.5 else txids(count)
        raw = bytearray(bytes(80) + partial_tree(ids, rng.sample(range(count), min(count, rng.randrange(6)))))
        total, hashes, flags = native().parse_merkleblock(bytes(raw))
        changed, bits = list(hashes), bytearray(flags)
        for _ in range(rng.randrange(3)):
            match rng.randrange(5):
                case 0:
                    bits[rng.randrange(len(bits))] ^= 1 << rng.randrange(8)
                case 1:
                    changed[rng.randrange(len(changed))] = rng.choice(changed)
                case 2:
                    changed.insert(rng.randrange(len(changed) + 1), rng.choice(FEW))
                case 3:
                    total = max(0, total + rng.choice((-1, 1, rng.randrange(-20, 20))))
                case _:
                    bits.append(rng.randrange(256))
        one, other = judged(build.merkle_root(ids), total, changed, bytes(bits))
        assert one == other
        assert isinstance(one, tuple)
        causes.add(one[2] if one[0] is ProofError else None)
    assert causes >= {None, *Flaw} - {Flaw.NO_TRANSACTIONS, Flaw.TOO_MANY_TRANSACTIONS, Flaw.TOO_FEW_BITS}


@pytest.mark.parametrize(
    ("total", "hashes", "flags", "flaw", "said"),
    [
        # Equal siblings, then too few bits or hashes: the error names the first flaw in the tree.
        (9, [FEW[1], FEW[1]], b"\x0f", Flaw.EQUAL_SIBLINGS, "height 1, position 0"),
        (8, [FEW[1], FEW[1]], b"\x07", Flaw.EQUAL_SIBLINGS, "height 1, position 0"),
        (8, [FEW[1], FEW[2]], b"\x07", Flaw.HASHES_EXHAUSTED, "more than 2 hashes"),
        (16, [FEW[1], FEW[2], *FEW], b"\xff", Flaw.BITS_EXHAUSTED, "more than 8 flag bits"),
        (16, [FEW[1], FEW[1], *FEW], b"\xff", Flaw.EQUAL_SIBLINGS, "height 1, position 0"),
        # two nodes with equal children that end at the same leaf, and two that end apart
        (4, [*FEW[:2], *FEW[:2]], b"\x7f", Flaw.EQUAL_SIBLINGS, "height 2, position 0"),
        (4, [FEW[0], FEW[0], FEW[1], FEW[1]], b"\x7f", Flaw.EQUAL_SIBLINGS, "height 1, position 0"),
        (4, [FEW[0], FEW[1], FEW[1], FEW[1]], b"\x7f", Flaw.EQUAL_SIBLINGS, "height 1, position 1"),
        (4, [FEW[1], FEW[1], FEW[1], FEW[1]], b"\x7f", Flaw.EQUAL_SIBLINGS, "height 1, position 0"),
        (4, [build.sha256d(FEW[1] * 2), FEW[1], FEW[1]], b"\x05", Flaw.EQUAL_SIBLINGS, "height 1, position 1"),
    ],
)
def test_the_first_flaw_in_depth_first_order_is_named(
    total: int, hashes: list[bytes], flags: bytes, flaw: Flaw, said: str
) -> None:
    cause, message = flaw_of(bytes(32), total, hashes, flags)
    assert cause is flaw
    assert said in message


@pytest.mark.parametrize("tx", [HALVES, NO_OUTPUT], ids=["output", "no-output"])
def test_a_64_byte_transaction_is_noticed_at_every_level(kernel: Kernel, tx: bytes) -> None:
    one, two = tx[:32], tx[32:]
    pair = build.sha256d(one + two)
    for hashes, total, flags, root in [
        ((one, two), 2, b"\x07", pair),
        ((one, two, FEW[0]), 4, b"\x07", build.sha256d(pair + FEW[0])),
        ((FEW[0], one, two), 4, b"\x1d", build.sha256d(FEW[0] + pair)),
        ((one, two), 4, b"\x01", pair),
    ]:
        assert kernel.extract_matches(root, total, hashes, flags)[1] is True
    assert kernel.extract_matches(build.sha256d(two + one), 2, (two, one), b"\x01")[1] is False


@pytest.mark.parametrize(
    "change",
    [list, iter, lambda hashes: map(bytearray, hashes), lambda hashes: tuple(memoryview(hash) for hash in hashes)],
)
def test_hashes_come_from_any_iterable_and_return_as_bytes(kernel: Kernel, change: Callable[[object], object]) -> None:
    ids = txids(5)
    total, hashes, flags = kernel.parse_merkleblock(bytearray(80) + partial_tree(ids, [1, 4]))
    matched, _ = kernel.extract_matches(bytearray(build.merkle_root(ids)), total, change(hashes), bytearray(flags))
    assert matched == ((1, ids[1]), (4, ids[4]))
    assert all(type(tx.txid) is bytes for tx in matched)


@pytest.mark.parametrize(
    "arguments",
    [
        (bytes(31), 1, (bytes(32),), b"\x01"),
        (bytes(32), 1, (bytes(32), bytes(33)), b"\x01"),
        (bytes(32), -1, (bytes(32),), b"\x01"),
        (bytes(32), 1 << 32, (bytes(32),), b"\x01"),
        (bytes(32), "1", (bytes(32),), b"\x01"),
        (bytes(32), 1, bytes(32), b"\x01"),
        (bytes(32), 1, (1,), b"\x01"),
        (bytes(32), 1, None, b"\x01"),
        (bytes(32), 1, (bytes(32),), None),
        (None, 1, (bytes(32),), b"\x01"),
    ],
)
def test_arguments_out_of_range_are_refused_by_both_kernels(arguments: tuple[object, ...]) -> None:
    one, other = (outcome(kernel.extract_matches, *arguments) for kernel in (native(), reference()))
    assert one == other
    assert isinstance(one, tuple)
    assert one[0] in (ParameterError, TypeError)


def payload() -> bytes:
    return bytes(range(80)) + partial_tree(txids(40), [3, 17])


def test_truncations_and_changed_counts_are_refused_by_both_kernels() -> None:
    raw = payload()
    cases = [raw[:size] for size in range(len(raw))] + [raw + b"\0"]
    for at in (84, raw.rindex(native().parse_merkleblock(raw)[2]) - 1):
        counts = (
            0,
            1,
            0xFC,
            MAX_BLOCK_TRANSACTIONS,
            MAX_BLOCK_TRANSACTIONS + 1,
            4_168,
            4_169,
            1 << 25,
            (1 << 25) + 1,
            1 << 40,
        )
        cases += [raw[:at] + build.var_int(count) + raw[at + 1 :] for count in counts]
        cases += [raw[:at] + first + raw[at + 1 :] for first in (b"\xfd\1\0", b"\xfe\1\0\0\0", b"\xff" + bytes(8))]
    for case in cases:
        one, other = (outcome(kernel.parse_merkleblock, case) for kernel in (native(), reference()))
        assert one == other
        assert isinstance(one, tuple)
        assert one[0] is FormatError or case[84] == 0


def test_parsing_returns_the_fields_of_the_payload(kernel: Kernel) -> None:
    raw = payload()
    total, hashes, flags = kernel.parse_merkleblock(raw)
    assert (type(total), type(hashes), type(flags)) == (int, tuple, bytes)
    assert (
        raw[80:] == total.to_bytes(4, "little") + bytes([len(hashes)]) + b"".join(hashes) + bytes([len(flags)]) + flags
    )
