"""The scripts that compact filters are matched with: those of entries, of own payments and of foreign ones."""

from __future__ import annotations

import random
from typing import Any

import pytest

from spvfilter.errors import InexpressibleError
from spvfilter.filters.batch import match_filters
from spvfilter.filters.bip158 import basic_data
from spvfilter.kernel import GcsQuery
from spvfilter.light.engine.filterscripts import MAX_OVERLAY, FilterScripts, Position
from spvfilter.network import REGTEST
from spvfilter.wallet.books import Books
from spvfilter.wallet.entries import Renumbering
from spvfilter.wallet.saved import SavedBooks
from spvfilter.watch.watchlist import WatchList
from support.blocks.build import TxIn, TxOut, p2wpkh, tx
from support.client.engineparts import keep_queries_in

OURS = p2wpkh(b"\x01" * 20)
RNG = random.Random(1)


def books() -> Books:
    watch = WatchList(REGTEST)
    watch.add_script(OURS)
    return Books(watch, SavedBooks())


def test_wanted_scripts_of_foreign_payments_are_bounded_unlike_own_scripts() -> None:
    made = books()
    wanted = FilterScripts(made)
    wanted.load()
    for at in range(0, 4 * MAX_OVERLAY, 100):
        outputs = [TxOut(1_000, OURS), *(TxOut(1, p2wpkh(RNG.randbytes(20))) for _ in range(100))]
        made.observe(tx([TxIn(RNG.randbytes(32), 0)], outputs), at)
        wanted.refresh()
    query_all = wanted.queries(Position(), 10 * MAX_OVERLAY)
    assert query_all is not None
    assert MAX_OVERLAY - 101 <= sum(len(query) for _, query in query_all()) <= MAX_OVERLAY + 1  # and our own script
    assert wanted.position.base == 1
    before = wanted.position
    made.broadcast(tx([TxIn(RNG.randbytes(32), 0)], [TxOut(1_000, p2wpkh(b"\x07" * 20))]), 1)
    wanted.refresh()
    assert wanted.position.base == before.base + 1


def test_a_foreign_script_is_wanted_above_its_payment_height() -> None:
    made = books()
    made.searches.skip_to(100)
    wanted = FilterScripts(made)
    wanted.load()
    start = wanted.position
    made.observe(tx([TxIn(RNG.randbytes(32), 0)], [TxOut(1_000, OURS)]), 5)
    wanted.refresh()
    assert wanted.queries(start, 100) is None
    make = wanted.queries(start, 300)  # a batch of blocks may begin below that height
    assert make is not None
    assert [above for above, _ in make()] == [100]
    made.intake.pool.remove(next(iter(made.intake.pool)))
    wanted.refresh()
    assert wanted.queries(start, 101) is None


def test_a_query_from_before_a_removal_covers_no_new_entry() -> None:
    """A thread may make the query after another entry was added. Blocks would count as searched for that entry."""
    made = books()
    wanted = FilterScripts(made)
    wanted.add(p2wpkh(b"\x01" * 20))
    make = wanted.queries(Position(), 1)
    assert make is not None
    wanted.entries_removed(Renumbering(made.watch, []))
    wanted.add(other := p2wpkh(b"\x02" * 20))
    make()
    again = wanted.queries(Position(), 1)
    assert again is not None
    ((above, query),) = again()
    assert above == -1
    block_hash = RNG.randbytes(32)
    assert list(match_filters([(block_hash, basic_data(block_hash, [other]))], query)) == [block_hash]


def test_removed_entries_leave_the_wanted_scripts() -> None:
    """If an entry is removed, the scripts of outpoints and of our own transactions are still wanted."""
    scripts = [p2wpkh(bytes((number,)) * 20) for number in range(4)]
    watch = WatchList(REGTEST)
    for script in scripts:
        watch.add_script(script)
    watch.add_outpoint(f"{'07' * 32}:1", "coin", value=5, script_pubkey=scripts[1])
    made = Books(watch, SavedBooks(ids=range(1, 6)))
    made.broadcast(tx([TxIn(RNG.randbytes(32), 0)], [TxOut(1_000, scripts[2])]), 1)
    wanted = FilterScripts(made)
    wanted.load()
    remove(made, wanted, [0, 1, 2])
    wanted.load()
    assert are_wanted(wanted, scripts) == [False, True, True, True]
    assert wanted.position.base == 3


@pytest.mark.parametrize("removed", [[0], [3], [0, 3]])
def test_new_entries_become_wanted_after_a_removal(removed: list[int]) -> None:
    """The last two entries came after the scripts were loaded. Their payments would be lost if they stayed unwanted."""
    scripts = [p2wpkh(bytes((number,)) * 20) for number in range(5)]
    watch = WatchList(REGTEST)
    for script in scripts[:3]:
        watch.add_script(script)
    made = Books(watch, SavedBooks(ids=range(1, 6)))
    wanted = FilterScripts(made)
    wanted.load()
    for script in scripts[3:]:
        watch.add_script(script)
    remove(made, wanted, removed)
    wanted.load()
    assert are_wanted(wanted, scripts) == [number not in removed for number in range(5)]


def test_a_removal_does_not_report_errors_of_unloaded_entries() -> None:
    """Compact filters cannot find an outpoint without a script. The next load raises the error."""
    watch, other = WatchList(REGTEST), p2wpkh(b"\x09" * 20)
    watch.add_script(OURS)
    watch.add_script(other)
    made = Books(watch, SavedBooks(ids=range(1, 4)))
    wanted = FilterScripts(made)
    wanted.load()
    watch.add_outpoint(f"{'07' * 32}:1")
    remove(made, wanted, [0])
    for _ in range(2):
        with pytest.raises(InexpressibleError, match=f"compact filters cannot find: {'07' * 32}:1"):
            wanted.load()
    remove(made, wanted, [1])
    wanted.load()
    assert are_wanted(wanted, [OURS, other]) == [False, True]


def remove(made: Books, wanted: FilterScripts, numbers: list[int]) -> None:
    change = Renumbering(made.watch, numbers)
    made.remove_entries(change, lambda *events: None)
    wanted.entries_removed(change)


def are_wanted(wanted: FilterScripts, scripts: list[bytes]) -> list[bool]:
    """For each script, return True if a block with it would be fetched."""
    make = wanted.queries(Position(), 1)
    assert make is not None
    ((_, query),) = make()
    block_hash = RNG.randbytes(32)
    return [bool(list(match_filters([(block_hash, basic_data(block_hash, [each]))], query))) for each in scripts]


class _Shared(dict[int, tuple[int, GcsQuery]]):
    """A cache from which another thread removes each key just before this thread does."""

    def pop(self, key: int, *default: Any) -> Any:
        super().pop(key)
        return super().pop(key, *default)


def test_two_threads_may_evict_the_same_query() -> None:
    """The second thread ended the client with KeyError."""
    wanted = FilterScripts(books())
    kept = _Shared()
    keep_queries_in(wanted, kept)
    for number in range(8):
        wanted.add(p2wpkh(bytes((number,)) * 20))
        make = wanted.queries(Position(number), 1)
        assert make is not None
        make()
    assert list(kept) == [4, 5, 6, 7]
