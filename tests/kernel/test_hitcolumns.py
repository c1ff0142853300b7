"""Columns of packed hits, in both kernels, against the lines of the same hits."""

from __future__ import annotations

import csv
import io
import random
import struct
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from spvfilter.errors import FormatError, ParameterError
from spvfilter.kernel import NO_VALUE, Hit
from support.blocks import build
from support.kernels.kernelentries import Kernel, native, outcome, reference
from support.kernels.linelabels import packed_labels
from support.vectors import effort

both = pytest.mark.parametrize("kernel", [pytest.param(native, marks=pytest.mark.native), reference])
HASHES = (1, 4, 6)  # numbers of the columns with hashes
NUMBERS = {2: "i", 3: "q", 5: "q", 7: "q", 8: "q", 13: "q"}  # struct's code of other columns, by number
COINBASE = 12
MAINNET = 0, 5, "bc"
Blocks = list[tuple[bytes, int | None, int, bytes]]


def hit_of(rng: random.Random) -> Hit:
    spend, txid, n = rng.random() < 0.5, rng.randbytes(32), rng.choice((0, 1, 2**32 - 1))
    scripts = None, b"", build.p2pkh(rng.randbytes(20)), build.p2wpkh(rng.randbytes(20)), rng.randbytes(60)
    value, fee = (rng.choice((NO_VALUE, 0, 1, 2**63 - 1)) for _ in range(2))
    outpoint = rng.randbytes(36) if spend else build.outpoint(txid, n)
    return Hit(spend, rng.choice((0, 7)), txid, n, outpoint, value, rng.choice(scripts), rng.randrange(4), fee)


def blocks_of(rng: random.Random, kernel: Kernel) -> Blocks:
    return [
        (
            *(rng.randbytes(32), rng.choice((None, 0, 2**31 - 1)), rng.choice((0, 2**32 - 1))),
            kernel.pack_hits([hit_of(rng) for _ in range(rng.choice((0, 1, 70)))]),
        )
        for _ in range(rng.randrange(5))
    ]


def cells_of(column: tuple[int, bytes | None, bytes | None, bytes], number: int, binary: bool) -> list[str]:
    """The values of a column as cells of CSV."""
    rows, validity, offsets, data = column
    if offsets is not None:
        ends = struct.unpack(f"<{rows + 1}i", offsets)
        values: list[Any] = [data[start:end].decode() for start, end in pairwise(ends)]
        assert (ends[0], ends[-1]) == (0, len(data))
    elif number == COINBASE:
        values = [str(bool(data[row >> 3] >> (row & 7) & 1)).lower() for row in range(rows)]
    elif number in HASHES and binary:
        values = [data[at : at + 32].hex() for at in range(0, len(data), 32)]
    else:
        values = [*struct.unpack(f"<{rows}{NUMBERS[number]}", data)]
    if number == 3:
        values = [value / 1000 for value in values]
    known = [validity is None or bool(validity[row >> 3] >> (row & 7) & 1) for row in range(rows)]
    assert validity is None or not all(known)
    return [
        "" if not is_known else f"{value:.0f}" if number == 3 else str(value)
        for value, is_known in zip(values, known, strict=True)
    ]


@both
@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("seed", range(effort(5, 30, 400)))
def test_columns_have_the_cells_of_the_lines(kernel: Callable[[], Kernel], seed: int, binary: bool) -> None:
    rng = random.Random(seed)
    blocks = blocks_of(rng, kernel())
    text = {0: b"savings", 2: "Ünï ☃".encode(), 3: b""}
    plain, quoted = (
        packed_labels(text),
        packed_labels({entry: b'"' + label + b'"' for entry, label in text.items() if label}),
    )
    lines = b"".join(
        kernel().hit_lines(packed, 0, *quoted, block, height, time, *MAINNET) for block, height, time, packed in blocks
    )
    rows = [[*row[:4], *row[5:]] for row in csv.reader(io.StringIO(lines.decode(), newline=""))]  # without time_utc
    start, most = rng.randrange(len(rows) + 2), rng.choice((0, 1, 65, 2**40))
    columns = kernel().hit_columns(iter(blocks), start, most, binary, *plain, *MAINNET)
    cells = [cells_of(column, number, binary) for number, column in enumerate(columns)]
    assert [list(row) for row in zip(*cells, strict=True)] == rows[start:][:most]


@pytest.mark.native
@pytest.mark.parametrize("seed", range(effort(20, 100, 1_000)))
def test_columns_of_both_kernels_have_the_same_bytes(seed: int) -> None:
    rng = random.Random(seed)
    blocks, labels = blocks_of(rng, native()), packed_labels({1: b"one", 2: rng.randbytes(99)})
    arguments = (blocks, rng.randrange(90), rng.choice((5, 10**6)), rng.random() < 0.5, *labels, 0, 5)
    for hrp in ("bc", "", "BC", "q" * 19):
        assert outcome(native().hit_columns, *arguments, hrp) == outcome(reference().hit_columns, *arguments, hrp)


@both
@pytest.mark.parametrize("binary", [True, False])
def test_malformed_hits_are_refused_before_labels_and_addresses(kernel: Callable[[], Kernel], binary: bool) -> None:
    outside = struct.pack("=I", 99), b""
    packed = kernel().pack_hits([hit_of(random.Random(1))._replace(entry=0)] * 70)
    for hits in (packed[:-1], packed + b"\0"):
        with pytest.raises(FormatError, match="truncated"):
            kernel().hit_columns([(bytes(32), 1, 2, hits)], 0, 9, binary, *outside, 0, 5, "q" * 80)


PACKED = reference().pack_hits([hit_of(random.Random(1))])
WRONG: dict[str, tuple[int, object, type[Exception], str]] = {
    "a list for a block": (
        *(0, [[bytes(32), 1, 2, b""]], TypeError),
        "a block must be a tuple (hash, height, time, packed), not list",
    ),
    "a short tuple": (
        *(0, [(bytes(32), 1, 2)], TypeError),
        "a block must be a tuple (hash, height, time, packed), not tuple",
    ),
    "a short hash": (0, [(bytes(31), 1, 2, b"")], ParameterError, "a block hash must be 32 bytes long, not 31"),
    "a height beyond 31 bits": (
        0,
        [(bytes(32), 2**31, 2, b"")],
        ParameterError,
        "a height must be from 0 to 2^31 - 1, not 2147483648",
    ),
    "no time": (0, [(bytes(32), 1, -1, b"")], ParameterError, "a block's time must be from 0 to 2^32 - 1, not -1"),
    "text for hits": (0, [(bytes(32), 1, 2, "hits")], TypeError, "expected a bytes-like object, not str"),
    "a negative start": (1, -1, ParameterError, "an offset or a count must be from 0 to sys.maxsize, not -1"),
    "no number of rows": (
        2,
        None,
        TypeError,
        "an offset or a count must be from 0 to sys.maxsize: expected an int, not NoneType",
    ),
    "labels that are text": (5, "label", TypeError, "expected a bytes-like object, not str"),
}


@both
@pytest.mark.parametrize("name", WRONG)
def test_columns_refuse_unsuitable_arguments(kernel: Callable[[], Kernel], name: str) -> None:
    at, value, kind, message = WRONG[name]
    arguments: list[object] = [[(bytes(32), 1, 2, PACKED)], 0, 9, True, b"", b"", *MAINNET]
    arguments[at] = value
    assert outcome(kernel().hit_columns, *arguments) == (kind, message)
