"""Lines of totals of scripts, in both kernels."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable
from typing import Any

import pytest

from spvfilter.address import script_to_address
from spvfilter.errors import FormatError, ParameterError
from spvfilter.kernel import EntryKind
from spvfilter.network import MAINNET
from support.blocks import build
from support.kernels.kernelentries import Kernel, native, outcome, reference
from support.kernels.linelabels import packed_labels
from support.vectors import effort

both = pytest.mark.parametrize("kernel", [pytest.param(native, marks=pytest.mark.native), reference])
LABELS = {0: b"first", 3: b'"a, ""b"""', 5: b""}


def table_of(kernel: Kernel, rng: random.Random) -> Any:
    table = kernel.WatchTable()
    for _ in range(40):
        table.add(EntryKind.SCRIPT, rng.choice((build.p2pkh, build.p2sh, build.p2wpkh))(rng.randbytes(20)))
        if rng.random() < 0.1:
            table.add(EntryKind.DATA, rng.randbytes(9))
    return table


@both
def test_scripts_with_matches_have_lines(kernel: Callable[[], Kernel]) -> None:
    table, scripts = kernel().WatchTable(), [build.p2wpkh(bytes(20)), b"\x51", build.p2pkh(bytes(20)), b"", b"\x52"]
    for script in scripts:
        table.add(EntryKind.SCRIPT, script)
    table.add(EntryKind.DATA, b"data")
    sums = array("Q", [1, 2, 3, 4, 0, 9, 9, 9, 2**64 - 1, 5, 6, 7, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0])
    text, following = table.script_totals(sums, 0, *packed_labels(LABELS), 0, 5, "bc")
    assert following == 5
    assert text.decode() == (
        f"script:{scripts[0].hex()},{script_to_address(scripts[0], MAINNET)},first,2,3,4,1\n"
        f"script:{scripts[2].hex()},{script_to_address(scripts[2], MAINNET)},,5,6,7,{2**64 - 1}\n"
        'script:,,"a, ""b""",0,0,0,1\n'
        "script:52,,,0,0,0,1\n"
    )
    assert table.script_totals(sums[8:12], 2, b"", b"", 0, 5, "bc")[1] == 3
    assert table.script_totals(b"", 9, b"", b"", 0, 5, "bc") == (b"", 9)
    assert table.script_totals(array("Q", [0] * 4 + [1] * 4), 5, b"", b"", 0, 5, "bc") == (b"", 6)  # no such entry


@pytest.mark.native
@pytest.mark.parametrize("seed", range(effort(10, 50, 500)))
def test_lines_of_totals_are_the_same_from_both_kernels(seed: int) -> None:
    tables = [table_of(kernel(), random.Random(seed)) for kernel in (native, reference)]
    rng = random.Random(-seed)
    labels = packed_labels({entry: rng.randbytes(rng.randrange(9)) for entry in range(0, 40, 3)})
    first = rng.randrange(50)
    sums = array("Q", [rng.choice((0, 1, rng.randrange(2**64))) for _ in range(4 * rng.randrange(60))])
    for hrp in ("bc", "", "BC", "q" * 80):
        one, other = (outcome(table.script_totals, sums, first, *labels, 0, 5, hrp) for table in tables)
        assert one == other


@both
def test_unsuitable_sums_and_labels_are_refused(kernel: Callable[[], Kernel]) -> None:
    table, sums = table_of(kernel(), random.Random(1)), bytes(31) + b"\1" + bytes(31) + b"\1"
    call = table.script_totals
    assert outcome(call, sums[1:], 0, b"", b"", 0, 5, "bc") == (
        ParameterError,
        "sums must be a multiple of 32 bytes long, not 63",
    )
    assert outcome(call, sums, -1, b"", b"", 0, 5, "bc") == (
        ParameterError,
        "the number of an entry must be from 0 to 2^31 - 2, not -1",
    )
    ones = array("Q", [1] * 4)
    with pytest.raises(FormatError, match="the label of entry 0 is outside the texts"):
        call(ones, 0, bytes(4) + b"\x01\x01\x01\x01", bytes(9), 0, 5, "bc")
    with pytest.raises(TypeError, match="expected a bytes-like object, not str"):
        call("sums", 0, b"", b"", 0, 5, "bc")
