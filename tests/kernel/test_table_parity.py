"""The compiled WatchTable against its reference: the same results and errors for any arguments in any order."""

from __future__ import annotations

import pytest

from spvfilter.errors import FormatError, SpvFilterError
from spvfilter.kernel import EntryKind, Hit, WatchTable
from spvfilter.kernel.pure.blocks import txid, walk_block
from spvfilter.kernel.pure.table import WatchTable as Reference
from support.blocks.realdata import RealBlock, real_block_cases
from support.blocks.worlds import World, contents
from support.vectors import effort

pytestmark = pytest.mark.native
SEEDS = range(effort(5, 20, 100))
STEPS = effort(20, 100, 1_000)  # 100,000 cases in full


def compiled() -> type[WatchTable]:
    from spvfilter.kernel import native

    table: type[WatchTable] = native.WatchTable
    return table


def outcome(table: WatchTable, method: str, *arguments: object) -> object:
    """The result of a call, or its error."""
    try:
        return getattr(table, method)(*arguments)
    except FormatError as error:
        return type(error), error.offset, error.field, error.message
    except (SpvFilterError, ValueError, IndexError) as error:
        return type(error), str(error)


class Twins:
    """A compiled table and its reference. Both get the same calls."""

    def __init__(self, *tables: WatchTable) -> None:
        self.tables = tables or (compiled()(), Reference())

    def same(self, method: str, *arguments: object) -> object:
        """The result or the error of a method, which must be the same in both. A twin among the arguments is resolved
        for each.
        """
        one, other = (
            outcome(table, method, *(item.tables[kind] if isinstance(item, Twins) else item for item in arguments))
            for kind, table in enumerate(self.tables)
        )
        assert one == other
        return one

    def copies(self) -> Twins:
        return Twins(*(table.copy() for table in self.tables))

    def without(self, outpoints: list[bytes]) -> Twins:
        return Twins(*(table.without(outpoints) for table in self.tables))

    def contents(self) -> object:
        """The contents of both, which must be the same."""
        one, other = contents(self.tables)
        assert one == other
        return one


def test_the_two_tables_are_of_different_classes() -> None:
    assert compiled() is not Reference


@pytest.mark.parametrize("seed", SEEDS)
def test_both_kernels_give_a_table_the_same_life(seed: int) -> None:
    world = World(seed)
    rng = world.rng
    for step in range(STEPS):
        if step % 20 == 0:  # another wallet; found coins stay
            table, found = Twins(*world.tables(compiled(), Reference)), Twins()
        hits: object = None
        match rng.randrange(12):
            case 0:
                table.same("add", *world.entry())
            case 1:
                table.same("find", *world.entry())
                table.same("match_script", rng.choice(world.scripts))
            case 2:
                table.same("set_coin", *world.coin(len(table.tables[0])))
                table.same("coin", world.point())
                found.same("set_coin", *world.coin(len(table.tables[0])))
            case 3:
                table.same("entry", rng.randrange(-1, len(table.tables[0]) + 1))
            case 4:
                hits = table.same("scan_tx", world.damaged(world.tx(), 0.3))
            case 5:
                before, table = table, table.copies()
                assert before.contents() == table.contents()
                before.same("add", EntryKind.SCRIPT, b"of the original alone")
                known = [outpoint for outpoint, _ in table.tables[0].coins()]
                table = table.without([*rng.sample(known, rng.randrange(len(known) + 1)), world.point()])
                table.contents()
            case 6:
                table.same("scan_block", world.block(), table)
            case 7:
                found.same("scan_block", world.block(), table)
            case 8:
                hits = table.same("scan_block", world.damaged(world.block(), 0.3))
            case _:
                hits = table.same("scan_block", world.damaged(world.block(), 0.3), found)
        if isinstance(hits, list) and rng.random() < 0.3:
            table.same("learn", hits)
        if step % 20 == 19:
            table.contents()
            found.contents()


@pytest.mark.long
@real_block_cases()
def test_real_blocks_are_scanned_the_same(block: RealBlock) -> None:
    world = World(block.height)
    rng = world.rng
    txs = list(walk_block(block.raw))
    scripts = [block.raw[start:end] for tx in txs for _, start, end in tx.outputs]
    points = [block.raw[at : at + 36] for tx in txs for at, _, _ in tx.inputs]
    for share in (0, 1, 3, len(scripts)):  # from no watched script to all scripts
        twins = Twins()
        for script in rng.sample(scripts, min(share, len(scripts))):
            twins.same("add", EntryKind.SCRIPT, script)
        coins = rng.sample(points, min(share, len(points)))
        for point in coins:
            twins.same("set_coin", point, 0, 7, None)
        hits = twins.same("scan_block", block.raw)
        assert isinstance(hits, list)
        assert len(hits) >= len(coins)
        for _ in range(effort(1, 2, 30)):
            twins.same("scan_block", world.damaged(block.raw, 1.0))
        twins.same("learn", hits)
        twins.contents()
        one = rng.choice(txs)
        found = twins.same("scan_tx", block.raw[one.start : one.end])
        assert isinstance(found, list)
        assert all(isinstance(hit, Hit) and hit.txid == txid(block.raw, one) for hit in found)


HIT = Hit(False, 0, bytes(32), 0, bytes(36), 5, b"", 0)
WRONG: list[tuple[object, ...]] = [
    ("add", EntryKind.OUTPOINT, bytes(35)),
    ("add", len(EntryKind), b"data"),
    ("add", EntryKind.DATA_PREFIX, bytes(65)),
    ("add", EntryKind.SCRIPT_TYPE, b"data"),
    ("find", -1, b"data"),
    ("set_coin", bytes(37), 0, 0, None),
    ("set_coin", bytes(36), -1, 0, None),
    ("set_coin", bytes(36), 2**31 - 1, 0, None),
    ("set_coin", bytes(36), 0, -2, None),
    ("set_coin", bytes(36), 0, 2**63, None),
    ("set_coin", bytes(36), 2**64, 2**64, None),
    ("learn", [HIT, HIT._replace(value=-5)]),
    ("learn", [HIT, HIT._replace(outpoint=b"")]),
    ("entry", 0),
    ("entry", -1),
    ("scan_tx", b""),
    ("scan_block", bytes(81)),
]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_out_of_range_arguments_are_refused_by_both_kernels(wrong: tuple[str, object]) -> None:
    twins = Twins()
    refusal = twins.same(*wrong)
    assert isinstance(refusal, tuple)
    assert issubclass(refusal[0], Exception)
    assert twins.contents() == (0, [], [])
