"""Memory of the compiled WatchTable: bytes for each entry, and no leak in failing or finished calls. Uses Linux's
/proc.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from spvfilter.errors import FormatError, ParameterError
from spvfilter.kernel import EntryKind, Hit
from support.blocks import build
from support.blocks.build import TxIn, TxOut
from support.vectors import effort

pytestmark = pytest.mark.native
CALLS = effort(2_000, 20_000, 1_000_000)
PER_SCRIPT = 80  # bytes, including the script
MANY = effort(100_000, 1_000_000, 1_000_000)


def resident() -> int:
    """The resident memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.parametrize("kind", ["script", "coin"])
def test_an_entry_takes_80_bytes_at_any_count(kind: str) -> None:
    from spvfilter.kernel.native import WatchTable

    table = WatchTable()
    largest = 0.0
    for number in range(20_000):
        if kind == "script":
            table.add(EntryKind.SCRIPT, build.p2tr(number.to_bytes(32, "big")))
        else:
            table.set_coin(number.to_bytes(36, "big"), 0, 5, None)
        if number >= 1_000:
            largest = max(largest, sys.getsizeof(table) / (number + 1))
    assert largest <= (PER_SCRIPT if kind == "script" else 90)  # a coin has 52 bytes for its outpoint, value and entry
    sizes = [sys.getsizeof(table.copy()), sys.getsizeof(table)]
    assert max(sizes) < 1.1 * min(sizes)


GROW = """
import sys
from spvfilter.kernel import EntryKind
from spvfilter.kernel.native import WatchTable

def of(name):
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith(name))

table = WatchTable()
table.add(EntryKind.SCRIPT, b"first")
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")  # the peak counts from here
before, count = of("VmRSS"), int(sys.argv[1])
for number in range(count):
    table.add(EntryKind.SCRIPT, b"\\x51\\x20" + number.to_bytes(32, "big"))
print(of("VmHWM") - before)
"""


def test_growth_has_no_peak_above_80_bytes_a_script() -> None:
    for count in (MANY, MANY * 855 // 1000):  # 855,000 is the worst case: the index has just been doubled
        grown = subprocess.run(
            [sys.executable, "-c", GROW, str(count)], capture_output=True, text=True, check=True
        ).stdout
        assert int(grown) <= PER_SCRIPT * count + (1 << 20)


SCRIPT = build.p2wpkh(bytes(20))
FUNDING = build.tx([TxIn(b"\x11" * 32, 0)], [TxOut(5, SCRIPT), TxOut(6, build.multisig(1, [b"\x02" * 33]))])
SPENDING = build.tx([TxIn(build.txid(FUNDING), 0)], [TxOut(5, SCRIPT)])
BLOCK = build.block_of(build.GENESIS, 1, [FUNDING, SPENDING])
TWICE = build.block_of(build.GENESIS, 1, [FUNDING, FUNDING])
ADDRESS = b"1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa"


def test_a_million_calls_leave_no_memory() -> None:
    from spvfilter.kernel.native import WatchTable, decode_address

    table = WatchTable()
    table.add(EntryKind.SCRIPT, SCRIPT)
    table.add(EntryKind.MULTISIG_KEY, b"\x02" * 33)
    table.add(EntryKind.DATA, b"data")
    table.add(EntryKind.OUTPOINT, bytes(36))
    table.learn(table.scan_block(BLOCK))
    hits = table.scan_block(BLOCK)
    wrong_hit = hits[0]._replace(value=-5)

    def refused(error: type[Exception], call: Callable[..., object], *arguments: object) -> None:
        with pytest.raises(error):
            call(*arguments)

    def fails() -> object:
        yield hits[0]
        raise KeyError

    def round_of_calls() -> None:
        # called for its effect
        table.add(EntryKind.SCRIPT, SCRIPT), table.add(3, bytes(36)), table.find(EntryKind.DATA, b"none")  # type: ignore[arg-type]
        (
            table.entry(0),
            table.coin(hits[0].outpoint),
            table.coin(b""),
            table.match_script(b""),
            len(table),
            sys.getsizeof(table),
        )
        list(table.entries()), list(table.coins()), next(table.entries()), next(table.coins())
        # called for its effect
        table.set_coin(hits[0].outpoint, 0, 5, SCRIPT), table.learn(hits), table.copy().scan_block(BLOCK, WatchTable())  # type: ignore[func-returns-value]
        table.scan_block(BLOCK, table), table.scan_tx(FUNDING), table.scan_block(raw=BLOCK, found=None)
        (
            table.add_address_lines(b"x" + ADDRESS + b",label\nother", 1, 0, 5, "bc", 2),
            decode_address(ADDRESS.decode(), 0, 5, "bc"),
        )
        decode_address("\ud800", 0, 5, "bc"), decode_address(ADDRESS.decode(), 0, 5, "long" * 9)
        for raw in (BLOCK[:-1], BLOCK + b"x", TWICE, b""):
            refused(FormatError, table.scan_block, raw, table)
        refused(FormatError, table.scan_tx, FUNDING[:-1])
        refused(ParameterError, table.add, EntryKind.OUTPOINT, b"")
        refused(ParameterError, table.set_coin, bytes(36), -1, 0, None)
        refused(ParameterError, table.set_coin, bytes(36), 0, 2**70, None)
        refused(ParameterError, table.learn, [*hits, wrong_hit])
        refused(KeyError, table.learn, fails())
        refused(IndexError, table.entry, 99)
        refused(IndexError, table.add_address_lines, b"", 1, 0, 5, "bc", 1)
        refused(ValueError, table.find, 9, b"")
        refused(ValueError, table.add, "x", b"")
        refused(ParameterError, decode_address, "", 256, 0, "bc")
        for call, arguments in (
            *(
                (table.add, (0,)),
                (table.add, (0, "text")),
                (table.find, (0, None)),
                (table.entry, ("x",)),
                (table.coin, (7,)),
            ),
            *(
                (table.set_coin, (bytes(36), "x", 0, None)),
                (table.set_coin, (bytes(36), 0, None, None)),
                (table.learn, (7,)),
            ),
            *((table.set_coin, (bytes(36), 0, 0, "x")), (table.learn, ([7],)), (table.scan_tx, (80,))),
            *(
                (table.scan_block, (BLOCK, 7)),
                (table.scan_block, ()),
                (table.match_script, (None,)),
                (WatchTable, (7,)),
            ),
            *(
                (table.add_address_lines, (b"", 0, 0, 5)),
                (decode_address, ("", None, 5, "bc")),
                (decode_address, ("", 0, 5, None)),
            ),
        ):
            refused(TypeError, call, *arguments)

    for _ in range(200):
        round_of_calls()
    before, blocks = resident(), sys.getallocatedblocks()
    for _ in range(CALLS // 50):
        round_of_calls()
    assert sys.getallocatedblocks() - blocks < 500
    assert resident() - before < 1 << 20
    assert table.scan_block(BLOCK) == hits
    assert isinstance(hits[0], Hit)
