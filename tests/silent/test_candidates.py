"""Candidates for silent payments: both kernels agree on any inputs, and the rules of BIP-352 hold."""

from __future__ import annotations

import random

import pytest

from spvfilter.errors import FormatError
from spvfilter.kernel import SilentCandidate, silent_candidate
from spvfilter.kernel.pure.silent import NUMS_KEY
from support.blocks import build
from support.kernels.kernelentries import native, outcome, reference
from support.project.installed import is_compiled
from support.vectors import effort

KEYS = [b"\x02" + bytes([number]) * 32 for number in range(1, 9)]
HASH = bytes(range(20))
TAPROOT = b"\x51\x20" + bytes(range(32))
PAYS = build.TxOut(1_000, TAPROOT)
CONTROL = b"\xc0" + bytes(range(1, 33))
NUMS_CONTROL = b"\xc1" + NUMS_KEY + bytes(32)
ANNEX = b"\x50annex"
SIGNATURE = b"\x30" + bytes(70)


def spending(*inputs: build.TxIn, outputs: tuple[build.TxOut, ...] = (PAYS,)) -> bytes:
    return build.tx(list(inputs), list(outputs))


def txin(script_sig: bytes = b"", *stack: bytes, number: int = 0) -> build.TxIn:
    return build.TxIn(bytes([number + 1]) * 32, number, script_sig, witness=stack)


def candidate(raw: bytes, spent: list[bytes | None] | None) -> SilentCandidate | None:
    end, found = silent_candidate(raw, 0, spent)
    assert end == len(raw)
    return found


PUSHED = build.push(SIGNATURE) + build.push(KEYS[0])
SHAPES = [  # each row: input, spent script, field that shows the key, content of the field
    (txin(b"", SIGNATURE, KEYS[0]), b"\0\x14" + HASH, "keys", KEYS[0]),
    (txin(b"", SIGNATURE, b"\x04" + bytes(64)), b"\0\x14" + HASH, None, None),
    (txin(b"\x16\0\x14" + HASH, SIGNATURE, KEYS[0]), b"\xa9\x14" + HASH + b"\x87", "keys", KEYS[0]),
    (txin(b"\x22\0\x20" + bytes(32), SIGNATURE, KEYS[0]), b"\xa9\x14" + HASH + b"\x87", None, None),
    (txin(PUSHED), b"\x76\xa9\x14" + HASH + b"\x88\xac", "hashed", [(PUSHED, HASH)]),
    (txin(b"", bytes(64)), TAPROOT, "taproot_keys", TAPROOT[2:]),
    (txin(b"", bytes(64), ANNEX), TAPROOT, "taproot_keys", TAPROOT[2:]),
    (txin(b"", b"\x51", CONTROL), TAPROOT, "taproot_keys", TAPROOT[2:]),
    (txin(b"", b"\x51", NUMS_CONTROL), TAPROOT, None, None),
    (txin(b"", b"\x51", NUMS_CONTROL, ANNEX), TAPROOT, None, None),
    (txin(), TAPROOT, None, None),
    (txin(), b"\x51\x02\x4e\x73", None, None),  # P2A has version 1
    (txin(b"", SIGNATURE, build.multisig(1, KEYS[:1])), b"\0\x20" + bytes(32), None, None),
    (txin(build.push(SIGNATURE)), build.p2pk(KEYS[0]), None, None),
]


@pytest.mark.parametrize(("spend", "script", "field", "shown"), SHAPES)
def test_an_input_shows_its_key_if_it_is_eligible(
    spend: build.TxIn, script: bytes, field: str | None, shown: object
) -> None:
    found = candidate(spending(spend), [script])
    if field is None:
        assert found is None
        return
    assert found is not None
    assert getattr(found, field) == shown
    assert found.outpoint == bytes([1]) * 32 + bytes(4)
    assert (found.outputs, found.unknown) == ([(0, TAPROOT[2:])], 0)


@pytest.mark.parametrize(
    ("spend", "field", "shown"),
    [
        (SHAPES[0][0], "keys", KEYS[0]),
        (SHAPES[2][0], "keys", KEYS[0]),
        (SHAPES[4][0], "keys", KEYS[0]),
        (SHAPES[5][0], "unknown", 1),
        (SHAPES[6][0], "unknown", 1),
        (SHAPES[7][0], "paths", [(CONTROL, b"\x51")]),
        (txin(build.push(SIGNATURE)), "unknown", 1),
    ],
)
def test_an_input_shows_its_key_without_its_spent_script(spend: build.TxIn, field: str, shown: object) -> None:
    found = candidate(spending(spend), None)
    assert found is not None
    assert getattr(found, field) == shown
    assert candidate(spending(spend), [None]) == found


def test_a_later_witness_version_rules_a_transaction_out() -> None:
    eligible = txin(b"", SIGNATURE, KEYS[0], number=1)
    raw = spending(txin(), eligible)
    assert candidate(raw, [b"\x52\x02\0\0", b"\0\x14" + HASH]) is None
    assert candidate(raw, [b"\x51\x02\0\0", b"\0\x14" + HASH]) is not None


def test_a_transaction_without_taproot_outputs_shows_nothing() -> None:
    spend = txin(b"", SIGNATURE, KEYS[0])
    for script in (b"", TAPROOT[:-1], b"\x52" + TAPROOT[1:], b"\x6a\x01x"):
        assert candidate(spending(spend, outputs=(build.TxOut(1, script),)), [b"\0\x14" + HASH]) is None


def test_outputs_keep_their_index_and_outpoints_are_compared_as_bytes() -> None:
    inputs = [build.TxIn(bytes(32), number, witness=(SIGNATURE, KEYS[0])) for number in (255, 256, 1)]
    raw = spending(*inputs, outputs=(build.TxOut(1, b"\x6a"), PAYS, build.TxOut(1, b""), PAYS))
    found = candidate(raw, [b"\0\x14" + HASH] * 3)
    assert found is not None
    assert found.outpoint == bytes(32) + (256).to_bytes(4, "little")
    assert [index for index, _ in found.outputs] == [1, 3]


def test_a_wrong_number_of_spent_outputs_is_refused() -> None:
    for scripts in ([], [None, None]):
        with pytest.raises(FormatError, match=r"spent outputs at byte 0: expected 1 spent outputs, not \d"):
            silent_candidate(spending(txin()), 0, scripts)


@pytest.mark.native
@pytest.mark.skipif(not is_compiled(), reason="needs the compiled kernel")
def test_both_kernels_read_any_inputs_alike() -> None:
    draw = random.Random(352)
    items = [
        b"",
        b"\x50",
        ANNEX,
        bytes(64),
        bytes(65),
        SIGNATURE,
        *KEYS[:2],
        b"\x04" + bytes(64),
        CONTROL,
        NUMS_CONTROL,
    ]
    items += [b"\xc0" + bytes(64), b"\x02" + bytes(31), bytes(33)]
    sigs = [
        b"",
        PUSHED,
        b"\x16\0\x14" + HASH,
        b"\x16\0\x14",
        build.push(SIGNATURE),
        b"\x09" + bytes(9) + b"\x21" + KEYS[0],
    ]
    scripts = [script for _, script, _, _ in SHAPES] + [
        None,
        None,
        b"",
        b"\x52",
        b"\x52\x02ab",
        b"\x60\x28" + bytes(40),
    ]
    seen = set()
    for _ in range(effort(500, 3_000, 30_000)):
        inputs = [
            build.TxIn(
                bytes([draw.randrange(4)]) * 32,
                draw.randrange(300),
                draw.choice(sigs),
                witness=tuple(draw.choices(items, k=draw.choice((0, 1, 2, 2, 3)))),
            )
            for _ in range(draw.choice((1, 1, 2, 5)))
        ]
        raw = build.tx(inputs, [draw.choice((PAYS, build.TxOut(3, b"\x51"))) for _ in range(3)])
        spent = draw.choice((None, [draw.choice(scripts) for _ in inputs]))
        one, other = (outcome(kernel.silent_candidate, b"ahead" + raw, 5, spent) for kernel in (native(), reference()))
        assert one == other
        seen.add(type(one[1]) if isinstance(one, tuple) else one)
    assert len(seen) > 1
