"""Inscriptions in witnesses: envelopes that ord accepts or refuses, in both kernels."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import given, strategies as st

from spvfilter.kernel import block_columns
from spvfilter.kernel.pure.envelopes import Inscription, inscription_in, leaf_script
from spvfilter.network import MAINNET
from support.blocks import build
from support.blocks.blocktables import of_network, serialized, values
from support.blocks.build import TxIn, TxOut
from support.blocks.realdata import RealBlock, real_block_cases
from support.kernels.kernelentries import Kernel, native, reference

NAMES = [f"inputs.{name}" for name in ("inscription_count", "content_type", "content_size", "content_hash", "witness")]
CONTROL = b"\xc0" + bytes(32)
MARK = b"\x00\x63\x03ord"
END = b"\x68"
PNG = MARK + b"\x01\x01\x09image/png" + b"\x00"
both = pytest.mark.parametrize("kernel", [pytest.param(native, marks=pytest.mark.native), reference])


def facts(kernel: Kernel, *stacks: list[bytes]) -> list[tuple[Any, ...]]:
    """The columns of the inputs of one transaction with these witness stacks."""
    inputs = [TxIn(bytes([1]) * 32, number, witness=tuple(stack)) for number, stack in enumerate(stacks)]
    block = build.block_of(build.GENESIS, 1, [build.tx(inputs, [TxOut(1, b"")])])
    columns = kernel.block_columns([block], None, [1], NAMES, *of_network(MAINNET), None)
    return list(zip(*(values(name, column) for name, column in zip(NAMES, columns, strict=True)), strict=True))


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


@both
@pytest.mark.parametrize(
    ("script", "count", "content_type", "body"),
    [
        (PNG + b"\x02ab\x01c" + END, 1, "image/png", b"abc"),
        (b"\x20" + bytes(32) + b"\xac" + PNG + b"\x01a" + END, 1, "image/png", b"a"),
        (MARK + b"\x51\x04text\x4c\x00\x53\x4f" + END, 1, "text", b"\x03\x81"),
        (MARK + b"\x01\x02\x01p" + END, 1, None, None),
        (MARK + END, 1, None, None),
        (MARK + b"\x00" + END, 1, None, b""),
        (MARK + b"\x01\x01\x01a\x01\x01\x01b\x00" + END, 1, "a", b""),
        (MARK + b"\x01\x01\x00\x00\x01x" + END, 1, "", b"x"),
        (MARK + b"\x01\x01" + END, 1, None, None),
        (MARK + b"\x01\x01\x02\xc3\xa9\x00" + END, 1, None, b""),
        (MARK + b"\x01\x01\x51\x00\x01x" + END, 1, None, b"x"),
        (PNG + b"\x01a" + END + MARK + b"\x00\x01b" + END + b"\x51", 2, "image/png", b"a"),
        (PNG + b"\x01a" + b"\xac" + END, 0, None, None),
        (PNG + b"\x01a", 0, None, None),
        (PNG + b"\x01a" + END + b"\x05abc", 0, None, None),
        (PNG + b"\x05ab", 0, None, None),
        (b"\x00" + MARK + b"\x00\x01a" + END, 1, None, b"a"),
        (b"\x00\x63\x00\x63\x03ord\x00\x01a" + END, 1, None, b"a"),
        (b"\x51\x63\x03ord\x00\x01a" + END, 0, None, None),
        (b"\x00\x63\x04ords\x00\x01a" + END, 0, None, None),
        (b"", 0, None, None),
    ],
)
def test_envelopes_are_those_of_ord(
    kernel: Any, script: bytes, count: int, content_type: str | None, body: bytes | None
) -> None:
    size, digest = (None, None) if body is None else (len(body), sha256(body))
    for stack in ([script, CONTROL], [b"signature", script, CONTROL], [script, CONTROL, b"\x50annex"]):
        assert facts(kernel(), stack) == [(count, content_type, size, digest, serialized(stack))]
    none = (0, None, None, None)
    assert [row[:4] for row in facts(kernel(), [script], [CONTROL, script], [script, CONTROL, b"", b""])] == [none] * 3


@both
def test_an_input_without_witness_has_none(kernel: Any) -> None:
    assert facts(kernel(), []) == [(0, None, None, None, None)]


def test_a_long_body_is_joined() -> None:
    pieces = [bytes([number]) * 520 for number in range(100)]
    script = PNG + b"".join(b"\x4d\x08\x02" + piece for piece in pieces) + END
    assert inscription_in(script) == Inscription(1, b"image/png", b"".join(pieces))


OPCODES = st.sampled_from([b"\x00", b"\x63", END, MARK, MARK, b"\x51", b"\x4f", b"\xac", b"\x01\x01", b"\x4c\x02ab"])
SCRIPT = st.lists(st.one_of(OPCODES, st.binary(max_size=3)), max_size=20).map(b"".join)
STACK = st.lists(st.one_of(SCRIPT, st.just(CONTROL), st.just(b"\x50")), max_size=4)


@pytest.mark.native
@given(stacks=st.lists(STACK, min_size=1, max_size=3))
def test_both_kernels_agree_on_any_witness(stacks: list[list[bytes]]) -> None:
    assert facts(native(), *stacks) == facts(reference(), *stacks)


@real_block_cases()
def test_real_blocks_have_the_inscriptions_that_a_search_finds(block: RealBlock) -> None:
    columns = block_columns([block.raw], None, [1], NAMES, *of_network(block.network), None)
    found = {name: values(name, column) for name, column in zip(NAMES, columns, strict=True)}
    for witness, count in zip(found["inputs.witness"], found["inputs.inscription_count"], strict=True):
        script = leaf_script(witness or b"") or b""
        assert (count > 0) == (MARK in script)
