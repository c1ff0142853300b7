"""Planted bugs: changes of the engine that lives must notice. Each shows that an invariant can fail."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple  # a planted method takes the arguments of the original
from unittest.mock import patch

from spvfilter.errors import PeerError, UselessPeerError
from spvfilter.light import lies
from spvfilter.light.engine import (
    blocks,
    bloomsearch,
    broadcaster,
    filterquestions,
    peers,
    reveals,
    windowgrowth,
)
from spvfilter.light.engine.bloomlink import BloomLink
from spvfilter.light.engine.bloomsearch import BloomSearch
from spvfilter.light.engine.broadcaster import Broadcaster
from spvfilter.light.engine.coverage import Coverage
from spvfilter.light.engine.effects import Effect
from spvfilter.light.engine.engine import ClientEngine
from spvfilter.light.engine.filterheaders import FilterHeaders
from spvfilter.light.engine.filterquestions import FilterQuestions
from spvfilter.light.engine.filterscripts import FilterScripts
from spvfilter.light.engine.filtersearch import FilterSearch
from spvfilter.light.engine.headers import PeerHeaders
from spvfilter.light.engine.inputs import Input, Instant, Tick
from spvfilter.light.engine.mempool import MempoolWatch
from spvfilter.light.engine.outbox import Outbox
from spvfilter.light.engine.owntxs import OwnTx
from spvfilter.light.engine.peers import PeerPool
from spvfilter.light.engine.privatebroadcast import PrivateBroadcast
from spvfilter.light.engine.reveals import Reveals
from spvfilter.light.engine.silentblocks import SilentBlock, SilentBlocks
from spvfilter.light.engine.status import StatusReports
from spvfilter.light.engine.tasks import Tasks, Wait
from spvfilter.light.engine.tweakblocks import TweakBlocks
from spvfilter.light.engine.verdicts import Outcome
from spvfilter.light.engine.watchchanges import WatchChanges
from spvfilter.light.engine.windowgrowth import WindowGrowth
from spvfilter.light.events import Mode
from spvfilter.light.running import Running
from spvfilter.store import accounts, ledger, store
from spvfilter.store.events import EventRows
from spvfilter.store.keychains import KeychainChange, KeychainRows
from spvfilter.store.searched import Searched
from spvfilter.store.store import Store
from spvfilter.wallet import canonical, journal, txrows
from spvfilter.wallet.admission import MempoolLayer
from spvfilter.wallet.books import Books
from spvfilter.wallet.canonical import Status as TxVerdict, Verdict, _Judgement
from spvfilter.wallet.entries import Renumbering
from spvfilter.wallet.events import MatchWithdrawn, WalletEvent
from spvfilter.wallet.hits import Hits
from spvfilter.wallet.intake import Intake
from spvfilter.wallet.journal import Journal
from spvfilter.wallet.parts import Parts
from spvfilter.wallet.rows import row_of
from spvfilter.wallet.searches import Searches
from spvfilter.wallet.txgraph import Signatures, TxRecord
from spvfilter.wallet.txrows import TxRows
from spvfilter.watch.index import TxOutIndex
from spvfilter.watch.keychain import Keychain
from spvfilter.watch.match import Completeness

Change = tuple[object, str, object]  # owner, attribute, replacement


class Bug(NamedTuple):
    """A planted bug: its changes, and the lives that notice it."""

    changes: Callable[[], list[Change]]
    """Makes the changes."""
    mode: Mode
    """The way in which these lives search."""
    peers: tuple[str, ...] | None
    """Behaviours of peers that make lives notice it."""
    kinds: tuple[str, ...] = ()
    """Fields of `Plan` that are true for these lives."""
    seed: int = 1
    """Seed of a life that notices it, or of an earlier one."""


BUGS: dict[str, Bug] = {}


def bug(
    mode: Mode, *peers: str, kinds: tuple[str, ...] = (), seed: int = 1
) -> Callable[[Callable[[], list[Change]]], Callable[[], list[Change]]]:
    """Register the bug that a function plants, under the function's name."""

    def register(changes: Callable[[], list[Change]]) -> Callable[[], list[Change]]:
        BUGS[changes.__name__] = Bug(changes, mode, peers or None, kinds, seed)
        return changes

    return register


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """Plant a bug of the registry in the engine. None plants nothing."""
    with ExitStack() as stack:
        for owner, attribute, instead in changes_of(name) if name is not None else ():
            stack.enter_context(patch.object(owner, attribute, instead))
        yield


def changes_of(name: str) -> list[Change]:
    """The changes of a bug. Raises LookupError if the engine lacks an attribute: no life could notice the bug."""
    changes = BUGS[name].changes()
    for owner, attribute, _ in changes:
        if not hasattr(owner, attribute):
            raise LookupError(f"{name}: {owner!r} has no {attribute}")
    return changes


def _nothing(*arguments: Any, **options: Any) -> None:
    """Do nothing, in place of another method."""


async def _no_task(*arguments: Any, **options: Any) -> None:
    """Do nothing, in place of a task."""


def _yes(*arguments: Any, **options: Any) -> bool:
    return True


def _no(*arguments: Any, **options: Any) -> bool:
    return False


# True


@bug(Mode.COMPACT, seed=4)
def matches_stay_after_a_reorganisation() -> list[Change]:
    def disconnect(self: Books, fork: int, hashes: Any, headers: bytes, now: int) -> list[Any]:
        self._changes.disconnect(fork, headers)
        searches = self.searches
        searches.cursor, searches.searched = min(searches.cursor, fork), min(searches.searched, fork)
        return []

    return [(Books, "disconnect", disconnect)]


@bug(Mode.COMPACT, seed=4)
def new_entries_are_not_searched_for() -> list[Change]:
    true = Searches.search_again

    def search_again(self: Searches, height: int) -> None:
        if self.cursor - height > 3:
            true(self, self.cursor - 3)

    return [(Searches, "search_again", search_again)]


@bug(Mode.COMPACT, seed=9)
def blocks_count_as_searched_for_entries_that_come_later() -> list[Change]:
    true = Searched.add_entries

    def add_entries(self: Searched, number: int, like: int | None = None) -> int:
        first = true(self, number, like)
        if first > 1 and number:
            groups = self.groups()
            self._set([*groups[:-1], groups[-1]._replace(ranges=groups[0].ranges)])
        return first

    return [(Searched, "add_entries", add_entries)]


@bug(Mode.COMPACT, seed=13)
def a_rescan_is_forgotten() -> list[Change]:
    return [(WatchChanges, "_search_from", lambda self, start, below=None: 0)]


@bug(Mode.BIP37)
def what_matched_removed_entries_stays() -> list[Change]:
    return [(WatchChanges, "_remove", _no_task)]


@bug(Mode.COMPACT, seed=70)
def blocks_below_the_start_count_as_searched() -> list[Change]:
    true = Searches.skip_to

    def skip_to(self: Searches, height: int) -> None:
        self.blocks.record(height, height)
        true(self, height)

    return [(Searches, "skip_to", skip_to)]


@bug(Mode.COMPACT, "OtherFilters", "OtherFilters")
def filters_are_not_checked_against_their_headers() -> list[Change]:
    return [(filterquestions, "filter_hashes", lambda data: _Anything())]


class _Anything(bytes):
    """Equal to every value."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = bytes.__hash__


@bug(Mode.COMPACT, "HidesBehindDoubt", "HidesBehindDoubt", "HidesBehindDoubt", seed=14)
def only_the_first_difference_is_looked_at() -> list[Change]:
    return [(FilterHeaders, "_compare", _no_task)]


@bug(Mode.COMPACT, seed=3)
def peers_are_not_heard_about_filter_headers() -> list[Change]:
    return [(FilterHeaders, "_hear", _no_task), (FilterHeaders, "_agreed_height", lambda self, number: -1)]


@bug(Mode.COMPACT, "WrongBlocks", "WrongBlocks")
def blocks_are_not_checked() -> list[Change]:
    return [(blocks, "flaw_in", _nothing)]


@bug(Mode.COMPACT)
def synced_is_said_before_the_search_ends() -> list[Change]:
    return [(StatusReports, "may_say_synced", _yes)]


@bug(Mode.COMPACT, seed=3)
def a_reorganisation_leaves_filter_headers() -> list[Change]:
    return [(FilterHeaders, "disconnect_to", _nothing)]


@bug(Mode.COMPACT, kinds=("reorgs",), seed=19)
def a_reorganisation_leaves_searched_filters() -> list[Change]:
    return [(FilterSearch, "disconnect_to", _nothing)]


@bug(Mode.COMPACT, "Honest", "Honest", seed=60)
def conflicts_stay_pending() -> list[Change]:
    true = Books._anchor_all

    def anchor_matches(self: Books, block: Any, hits: Any) -> Parts[list[bytes]]:
        known, self.facts.without_block = self.facts.without_block, {}
        try:
            return (yield from true(self, block, hits))
        finally:
            self.facts.without_block = known

    return [(Books, "_anchor_all", anchor_matches)]


@bug(Mode.COMPACT, "Honest", seed=5)
def what_was_replaced_counts_on() -> list[Change]:
    def choose_all(self: _Judgement) -> None:
        self.verdicts |= {txid: Verdict(TxVerdict.CANONICAL) for txid in self._order if txid not in self.verdicts}

    return [(_Judgement, "choose", choose_all)]


@bug(Mode.COMPACT)
def some_blocks_whose_filters_match_are_not_fetched() -> list[Change]:
    true = FilterSearch._candidates
    return [(FilterSearch, "_candidates", lambda self, part: [height for height in true(self, part) if height % 7 > 0])]


@bug(Mode.COMPACT, seed=2)
def a_reorganisation_is_not_stored() -> list[Change]:
    true = Books.disconnect

    def disconnect(self: Books, *arguments: Any) -> list[Any]:
        events = true(self, *arguments)
        self.batch.fork, self.batch.headers = None, b""
        return events

    return [(Books, "disconnect", disconnect)]


@bug(Mode.COMPACT)
def headers_are_not_stored() -> list[Change]:
    true = Books.extend

    def extend(self: Books, headers: bytes) -> None:
        if self.cursor < 150:
            true(self, headers)

    return [(Books, "extend", extend)]


@bug(Mode.COMPACT)
def events_come_before_their_commit() -> list[Change]:
    def take(self: Outbox) -> list[Any]:
        effects, self._effects = self._effects, []
        self.flush()
        commits, self._effects = self._effects, []
        return [*effects, *commits]

    def emit(self: Outbox, *events: Any) -> None:
        from spvfilter.light.engine.effects import Emit

        self._effects.extend(map(Emit, events))

    return [(Outbox, "take", take), (Outbox, "emit", emit)]


@bug(Mode.COMPACT)
def events_are_kept_one_commit_late() -> list[Change]:
    true, late = Journal._number, list[Any]()

    def number(self: Journal, event: Any, batch: Any, **given: Any) -> Any:
        numbered = true(self, event, batch, **given)
        late.append(batch.events.pop())
        batch.events.extend([late.pop(0)] if len(late) > 1 else [])
        return numbered

    return [(Journal, "_number", number)]


@bug(Mode.COMPACT)
def a_number_is_left_out() -> list[Change]:
    true = Journal._number

    def number(self: Journal, event: Any, batch: Any, **given: Any) -> Any:
        self.sequence += self.sequence % 50 == 20
        return true(self, event, batch, **given)

    def write(self: EventRows, events: Any, told: Any) -> None:
        for event in events:
            self._rows.insert("events", event)
            self._log = self._log._replace(last=event.sequence)
        self._is_changed = True

    return [(Journal, "_number", number), (EventRows, "write", write)]


@bug(Mode.COMPACT, seed=2)
def what_is_kept_is_not_what_was_told() -> list[Change]:
    true = journal.encode
    return [
        (journal, "encode", lambda event: true(replace(event, by=None) if isinstance(event, MatchWithdrawn) else event))
    ]


@bug(Mode.COMPACT, seed=2)
def withdrawals_are_told_but_not_kept() -> list[Change]:
    true = Journal._number

    def number(self: Journal, event: Any, batch: Any, **given: Any) -> Any:
        return event if isinstance(event, MatchWithdrawn) else true(self, event, batch, **given)

    return [(Journal, "_number", number)]


@bug(Mode.COMPACT, seed=526)
def a_block_that_waits_to_be_told_is_forgotten() -> list[Change]:
    return [(Journal, "flush", lambda self, batch: iter(()))]


@bug(Mode.BIP37, "OmitsTxs", "OmitsAll")
def no_witnesses() -> list[Change]:
    return [(bloomsearch, "WITNESSES", 1), (Coverage, "unwitnessed_for", _nothing)]


@bug(Mode.BIP37, "OmitsTxs", "OmitsTxs")
def answers_are_not_compared() -> list[Change]:
    return [(BloomSearch, "_compare", _nothing)]


@bug(Mode.BIP37, "WithholdsTxs", "WithholdsTxs")
def a_withheld_transaction_is_forgotten() -> list[Change]:
    """Only one peer is asked: witnesses would make up for it."""
    true = BloomLink._close

    def close(self: BloomLink) -> None:
        if self._open is not None:
            matched = tuple(proved for proved in self._open.proof.matched if proved.txid in self._open.raws)
            self._open.proof = self._open.proof._replace(matched=matched)
        true(self)

    return [(BloomLink, "_close", close), *no_witnesses()]


@bug(Mode.BIP37, "Honest", "Honest", seed=39)
def filters_are_not_taught() -> list[Change]:
    return [(BloomLink, "teach", lambda self, elements: [])]


@bug(Mode.BIP37, "Slow", "Honest", seed=6)
def a_reorganisation_leaves_answers() -> list[Change]:
    return [(BloomSearch, "disconnect_to", _nothing)]


# Alive


@bug(Mode.COMPACT, "Silent", "Mute")
def silence_is_suffered_for_ever() -> list[Change]:
    return [(PeerPool, "check_timeouts", _no)]


@bug(Mode.COMPACT, "Breaking", "Breaking", seed=12)
def a_lost_question_stays_open() -> list[Change]:
    return [(FilterSearch, "_gone", _nothing), (blocks.BlockRequests, "_gone", _nothing)]


@bug(Mode.AUTO, kinds=("keychain",), seed=432004175)
def peers_keep_the_filter_of_before() -> list[Change]:
    return [(BloomSearch, "disarm", lambda search: [])]


@bug(Mode.COMPACT)
def nobody_is_asked_for_headers_again() -> list[Change]:
    return [(PeerHeaders, "announced", _nothing), (PeerHeaders, "advance", _nothing)]


@bug(Mode.COMPACT, seed=2)
def a_commit_never_counts_as_durable() -> list[Change]:
    return [(Outbox, "committed", _nothing)]


@bug(Mode.COMPACT, "Honest", "Honest", seed=12)
def own_transactions_are_offered_to_nobody() -> list[Change]:
    return [(Broadcaster, "_announce", _nothing)]


@bug(Mode.COMPACT, "FalseEcho", "FalseEcho", "FalseEcho", seed=31)
def an_echo_ends_all_offers() -> list[Change]:
    return [(broadcaster, "ECHOED_DELAY_S", 1e12)]


@bug(Mode.COMPACT, "Drops", "Drops", "Drops", seed=23)
def what_a_peer_fetched_it_keeps() -> list[Change]:
    def probe(self: Broadcaster, own: Any, peer: Any, record: Any) -> None:
        self._accepted(own)  # as if the peer had no other requests
        for other in own.due:
            own.due[other] = math.inf

    return [(Broadcaster, "_probe", probe)]


@bug(Mode.COMPACT, "Honest", "Honest")
def mempool_transactions_are_not_recorded() -> list[Change]:
    return [(MempoolWatch, "record", _nothing)]


# Just


@bug(Mode.COMPACT)
def silence_is_a_lie() -> list[Change]:
    return [(lies, "_LIES", (*lies._LIES, UselessPeerError))]


@bug(Mode.COMPACT)
def a_damaged_line_is_a_lie() -> list[Change]:
    return [(lies, "_LIES", (*lies._LIES, PeerError))]


@bug(Mode.COMPACT, seed=2)
def the_dropped_do_not_come_back() -> list[Change]:
    true = PeerPool._remove

    def remove(self: PeerPool, peer: Any, error: Exception, now: Any) -> None:
        true(self, peer, error, now)
        self._states[peer.address].next_try = math.inf

    return [(PeerPool, "_remove", remove)]


@bug(Mode.COMPACT, "AddsScripts", "OmitsSpent")
def an_unproven_dispute_condemns() -> list[Change]:
    true = FilterHeaders._judged

    def judged(self: FilterHeaders, case: Any, outcome: Any, reason: str) -> None:
        if outcome is Outcome.UNDECIDED:
            outcome = Outcome.THEIRS_FALSE
        true(self, case, outcome, reason)

    return [(FilterHeaders, "_judged", judged)]


# Honest about itself


@bug(Mode.COMPACT, seed=2)
def one_peer_proves() -> list[Change]:
    return [(Coverage, "completeness", lambda self, height: Completeness.PROVEN)]


@bug(Mode.COMPACT, "FloodsPings")
def one_host_counts_twice() -> list[Change]:
    numbers = iter(range(10**9))
    return [(peers, "netgroup", lambda host: f"{host} {next(numbers)}")]


@bug(Mode.COMPACT, seed=2)
def the_proven_height_is_the_tip() -> list[Change]:
    true = StatusReports.say_synced

    def say_synced(self: StatusReports, members: Any, *, proven: bool) -> None:
        self._coverage.proven = self._context.chain.height
        true(self, members, proven=proven)

    return [(StatusReports, "say_synced", say_synced)]


@bug(Mode.BIP37, "Downloading", "Downloading", seed=4)
def an_empty_answer_counts_as_our_tip() -> list[Change]:
    def take_nothing(self: PeerHeaders, peer: Any, view: Any) -> None:
        view.best = self._context.chain.tip_hash

    return [(PeerHeaders, "_take_nothing", take_nothing)]


# Modest


@bug(Mode.COMPACT, "FloodsInv", "FloodsInv", seed=8)
def what_nobody_asked_for_is_kept() -> list[Change]:
    kept: list[object] = []
    true = ClientEngine._receive

    def receive(self: ClientEngine, peer: Any, message: Any) -> None:
        kept.append([message, *range(1_000, 1_200)])  # as if the engine kept a note of it
        self._timers.kept = kept  # type: ignore[attr-defined]  # a planted one
        true(self, peer, message)

    return [(ClientEngine, "_receive", receive)]


@bug(Mode.COMPACT, kinds=("keychain",), seed=5)
def a_window_grows_without_a_new_search() -> list[Change]:
    true = WindowGrowth.__init__

    def init(self: WindowGrowth, context: Any, first_to_search: Any, search_from: Any, grown: Any) -> None:
        true(self, context, first_to_search, _nothing, grown)

    return [(WindowGrowth, "__init__", init)]


@bug(Mode.BIP37, kinds=("keychain",), seed=5)
def windows_do_not_move() -> list[Change]:
    def advance(self: WindowGrowth) -> None:
        self._context.books.is_window_due = False

    return [(WindowGrowth, "advance", advance)]


@bug(Mode.COMPACT, kinds=("keychain",))
def a_window_that_moved_is_not_kept() -> list[Change]:
    return [(KeychainRows, "change", _nothing)]


@bug(Mode.COMPACT, kinds=("user",), seed=17)
def what_was_given_up_comes_back() -> list[Change]:
    return [(TxRecord, "active_drop", None)]


@bug(Mode.COMPACT, kinds=("user",), seed=20)
def what_was_replaced_is_offered() -> list[Change]:
    return [(Broadcaster, "_is_announceable", lambda self, own: True)]


@bug(Mode.COMPACT, kinds=("user",), seed=4)
def a_private_transaction_is_public_after_a_restart() -> list[Change]:
    return [(PrivateBroadcast, "_returned", _nothing)]


@bug(Mode.COMPACT, kinds=("user",), seed=436)
def a_child_announces_its_private_parent() -> list[Change]:
    return [(OwnTx, "is_hidden", False)]


@bug(Mode.COMPACT, kinds=("user",), seed=1)
def a_broadcast_is_announced_before_it_is_stored() -> list[Change]:
    def is_announceable(self: Broadcaster, own: Any) -> bool:
        return own.private is None and self._books.is_announceable(own.tx.txid)

    return [(Broadcaster, "_is_announceable", is_announceable)]


@bug(Mode.COMPACT, "DropsAsCore", "DropsAsCore", kinds=("user",), seed=5)
def a_rejection_by_one_peer_is_enough() -> list[Change]:
    return [(Broadcaster, "_may_accept", _no)]


# Twins: the layers of foreign and own transactions


@bug(Mode.BIP37, kinds=("twins",))
def foreign_outpoints_are_elements_of_the_filter() -> list[Change]:
    true = Books._own_inputs

    def inputs(self: Books) -> Iterator[bytes]:
        yield from true(self)
        for record in self.facts.unconfirmed():
            yield from record.inputs

    return [(Books, "_own_inputs", inputs)]


@bug(Mode.BIP37, kinds=("twins",))
def the_watch_table_learns_outputs_of_foreign_transactions() -> list[Change]:
    true = Hits.enter

    def enter(self: Hits, record: TxRecord, hits: Any) -> None:
        true(self, record, hits)
        self._watch.table.learn([hit for hit in hits.values() if not hit.spend])

    return [(Hits, "enter", enter)]


@bug(Mode.COMPACT, kinds=("twins",))
def foreign_payments_move_windows() -> list[Change]:
    true = Books._settling

    def settling(self: Books, touched: Any, *given: Any) -> Parts[list[WalletEvent]]:
        known = list(touched)
        hits = [hit for txid in known for hit in self.hits.of(txid).values()]
        self.is_window_due = self.watch.windows.note(hits) or self.is_window_due
        return true(self, known, *given)

    return [(Books, "_settling", settling)]


@bug(Mode.COMPACT, kinds=("twins",))
def scripts_of_foreign_transactions_are_wanted_in_all_blocks() -> list[Change]:
    true = FilterScripts.queries

    def queries(self: FilterScripts, done: Any, last: int) -> Any:
        self._overlay = {txid: each._replace(height=-1) for txid, each in self._overlay.items()}
        return true(self, done, last)

    return [(FilterScripts, "queries", queries)]


@bug(Mode.BIP37, kinds=("twins",))
def a_foreign_conflict_ends_announcements() -> list[Change]:
    def rank(record: TxRecord) -> tuple[int, int, bytes]:
        return 1, max(record.last_seen, record.broadcast_seq or 0), record.txid

    return [(canonical, "_rank", rank)]


# Modest: whole blocks


@bug(Mode.COMPACT, "Honest", "Honest")
def blocks_whose_filters_do_not_match_are_fetched() -> list[Change]:
    true = FilterSearch._candidates

    def candidates(self: FilterSearch, part: Any) -> list[int]:
        return sorted({*true(self, part), *range(-(-part.first // 50) * 50, part.last + 1, 50)})

    return [(FilterSearch, "_candidates", candidates)]


@bug(Mode.COMPACT, "Honest", "Honest", kinds=("user",))
def a_rescan_asks_for_scripts_of_foreign_transactions() -> list[Change]:
    return scripts_of_foreign_transactions_are_wanted_in_all_blocks()


# True: restored databases


@bug(Mode.COMPACT, kinds=("restores",), seed=2)
def a_run_continues_the_numbers_of_the_database() -> list[Change]:
    true = Journal.start

    def start(self: Journal, run_id: bytes, clock_us: int, batch: Any) -> WalletEvent:
        return true(self, bytes(16), 0, batch)

    return [(Journal, "start", start)]


# Accounts


@bug(Mode.COMPACT, "Honest", "Honest", kinds=("accounts",))
def each_account_has_the_effect_of_the_whole_transaction() -> list[Change]:
    def effects(found: Any, tx: Any) -> dict[int, accounts.TxEffect]:
        every = list(found)
        whole = accounts.effect_of(every, tx)
        return {each.account: whole for each in every if each.account is not None}

    return [(ledger, "effects_by_account", effects)]


@bug(Mode.COMPACT, "Honest", "Honest", kinds=("accounts",), seed=2)
def events_of_an_account_are_those_of_all() -> list[Change]:
    true = EventRows.read

    def read(self: EventRows, since: int, limit: int, account: int | None = None) -> Any:
        return true(self, since, limit)

    return [(EventRows, "read", read)]


@bug(Mode.COMPACT, "Honest", "Honest", kinds=("accounts",), seed=18)
def a_new_account_has_the_events_of_a_removed_one() -> list[Change]:
    true = accounts.AccountRows.add

    def add(self: accounts.AccountRows, name: str | None) -> int | None:
        (self._highest,) = self._db.execute("SELECT coalesce(max(id), 0) FROM accounts").fetchone()
        return true(self, name)

    return [(accounts.AccountRows, "add", add)]


@bug(Mode.COMPACT, "Honest", "Honest", kinds=("accounts",), seed=5)
def a_restart_forgets_revealed_addresses() -> list[Change]:
    return [(store, "take_revealed", _nothing)]


@bug(Mode.COMPACT, "Honest", "Honest", kinds=("accounts",), seed=5)
def an_address_is_given_before_it_is_stored() -> list[Change]:
    async def change(self: Reveals, changed: Any) -> None:
        self._context.books.batch.keychains += (
            KeychainChange(each.name, revealed=each.revealed, exclusive=each.is_exclusive) for each in changed
        )

    def answer(self: WatchChanges, token: int, address: str | None) -> None:
        self._context.out.finish(token, address)

    return [(Reveals, "_change", change), (WatchChanges, "_answer", answer)]


@bug(Mode.COMPACT, "Honest", "Honest", kinds=("accounts",), seed=13)
def windows_do_not_follow_revealed_addresses() -> list[Change]:
    def required(self: Keychain) -> int:
        return min(self.size, max(self.floor, self.last_used + 1 + self.lookahead))

    return [(Keychain, "required", property(required))]


@bug(Mode.COMPACT, "Honest", "Honest", kinds=("accounts",))
def windows_that_grow_are_not_searched() -> list[Change]:
    return [(Reveals, "first_to_search", _nothing)]


@bug(Mode.COMPACT, "Honest", "Honest", kinds=("accounts",), seed=13)
def windows_of_older_accounts_are_searched_from_the_wallets_start() -> list[Change]:
    def start_of(books: Books, keychain: Keychain) -> int:
        return books.blocks.start or 0

    return [(windowgrowth, "start_of", start_of), (reveals, "start_of", start_of)]


@bug(Mode.COMPACT, "Honest", "Honest", kinds=("accounts",))
def a_new_account_is_searched_from_the_next_block() -> list[Change]:
    def search_for(self: WatchChanges, first: int, missing: Any, start: Any) -> int:
        return first

    return [(WatchChanges, "_search_for", search_for)]


@bug(Mode.COMPACT, "Honest", "Honest", kinds=("accounts",), seed=6)
def a_renamed_account_loses_its_keychains() -> list[Change]:
    def rename_account(self: TxOutIndex, old: str, new: str) -> None:
        self.owners.rename(old, new)

    return [(TxOutIndex, "rename_account", rename_account)]


@bug(Mode.COMPACT, "Honest", "Honest", kinds=("accounts",))
def removal_of_an_account_is_not_reported() -> list[Change]:
    true = Books.remove_entries_in_parts

    def remove_entries(self: Books, change: Renumbering, tell: Any) -> Parts[None]:
        return true(self, change, _nothing if change.name else tell)

    return [(Books, "remove_entries_in_parts", remove_entries)]


# Modest: floods


@bug(Mode.COMPACT, kinds=("floods",))
def the_mempool_layer_has_no_bound() -> list[Change]:
    return [(MempoolLayer, "is_over", False)]


@bug(Mode.COMPACT, kinds=("floods",), seed=4)
def each_block_judges_all_unconfirmed_transactions() -> list[Change]:
    true = Books.connect_empty

    def connect_empty(self: Books, height: int, filtered: int = 0) -> None:
        for _ in range(self.cursor, height):
            self._settle(list(self.facts.without_block))
        true(self, height, filtered)

    return [(Books, "connect_empty", connect_empty)]


# Cancels


@bug(Mode.COMPACT, kinds=("cancels",))
def a_broadcast_waits_before_it_is_recorded() -> list[Change]:
    true = Running.broadcast

    async def broadcast(self: Running, tx: Any, input_values: Any, **options: Any) -> Any:
        await self._database.drain()
        await asyncio.sleep(0)
        return await true(self, tx, input_values, **options)

    return [(Running, "broadcast", broadcast)]


@bug(Mode.COMPACT, kinds=("cancels",))
def a_cancelled_call_loses_its_label() -> list[Change]:
    true = Running.ask

    async def ask(self: Running, request: Any) -> object:
        try:
            return await true(self, request)
        except asyncio.CancelledError:
            books = self.engine.books
            books.relabel({books.watch.table.find(*each[:2]): None for each in getattr(request, "entries", ())})
            raise

    return [(Running, "ask", ask)]


# Verdicts


@bug(Mode.COMPACT, kinds=("twins",), seed=17)
def own_and_foreign_transactions_rank_alike() -> list[Change]:
    def rank(record: TxRecord) -> tuple[int, int, bytes]:
        return 1, max(record.last_seen, record.broadcast_seq or 0), record.txid

    return [(canonical, "_rank", rank)]


@bug(Mode.COMPACT, kinds=("user",))
def a_child_of_an_inactive_transaction_counts() -> list[Change]:
    true = _Judgement._ruled_out

    def ruled_out(self: _Judgement, txid: bytes) -> Verdict | None:
        verdict = true(self, txid)
        is_dropped = self._records[txid].active_drop is not None
        is_ended = verdict is not None and verdict.status is not TxVerdict.CONFLICTED
        return None if is_ended and not is_dropped else verdict

    return [(_Judgement, "_ruled_out", ruled_out)]


@bug(Mode.COMPACT, "Honest", "Honest", seed=3)
def a_coinbase_without_its_block_counts() -> list[Change]:
    return [(_Judgement, "_impossible", lambda self: set())]


# Long changes and stories


@bug(Mode.COMPACT, "Honest", "Honest", kinds=("small",), seed=6)
def inputs_during_a_long_change_are_lost() -> list[Change]:
    true = ClientEngine.step

    def step(self: ClientEngine, event: Input, now: Instant) -> list[Effect]:
        return true(self, Tick() if self._context.change.is_under_way else event, now)

    return [(ClientEngine, "step", step)]


@bug(Mode.COMPACT, "Honest", "Honest", kinds=("stops", "keychain"))
def windows_are_stored_without_a_shield() -> list[Change]:
    return [(Tasks, "shield", lambda self: nullcontext())]


@bug(Mode.COMPACT, "Honest", "Honest", kinds=("keychain",))
def a_thread_has_no_result() -> list[Change]:
    return [(Outbox, "worked", lambda self, function, what: Wait(what))]


# The ledger


@bug(Mode.COMPACT, kinds=("user",))
def a_row_has_no_matches() -> list[Change]:
    def rows(record: Any, status: Any, conflicts_with: Any, anchor: Any, hits: Any, *, is_listed: bool) -> Any:
        return row_of(record, status, conflicts_with, anchor, (), is_listed=is_listed)

    return [(txrows, "row_of", rows)]


@bug(Mode.COMPACT, kinds=("user",))
def rows_of_replaced_transactions_are_not_written() -> list[Change]:
    true = TxRows.write

    def write(self: TxRows, txid: bytes) -> None:
        if self._judgement._verdicts[txid].status is not TxVerdict.REPLACED:
            true(self, txid)

    return [(TxRows, "write", write)]


@bug(Mode.COMPACT, kinds=("user",), seed=4)
def commits_of_one_transaction_keep_the_first_searched_blocks() -> list[Change]:
    write, commit = Store._write, Store.commit

    def write_batch(self: Store, batch: Any) -> None:
        batch = copy(batch)  # the other database gets the original
        if self.__dict__["is_written"]:
            batch.searched = None
        self.__dict__["is_written"] |= batch.searched is not None
        write(self, batch)

    def commit_all(self: Store, *batches: Any) -> None:
        self.__dict__["is_written"] = False
        commit(self, *batches)

    return [(Store, "_write", write_batch), (Store, "commit", commit_all)]


# Questions about filters


@bug(Mode.COMPACT, kinds=("reorgs",))
def ignored_questions_wait_for_the_end_of_the_connection() -> list[Change]:
    return [(FilterQuestions, "advance", _nothing)]


# The broadcaster


@bug(Mode.COMPACT, "Honest", "Honest", seed=5)
def a_restart_forgets_own_transactions() -> list[Change]:
    return [(Broadcaster, "start", _nothing), (Broadcaster, "look", _nothing)]


@bug(Mode.COMPACT, kinds=("user",), seed=118)
def a_replaced_transaction_is_served() -> list[Change]:
    true = Broadcaster.serve

    def serve(self: Broadcaster, peer: Any, items: Any) -> None:
        is_announceable = self._is_announceable
        self.__dict__["_is_announceable"] = lambda own: True
        try:
            true(self, peer, items)
        finally:
            del self.__dict__["_is_announceable"]
        assert self._is_announceable == is_announceable

    return [(Broadcaster, "serve", serve)]


@bug(Mode.COMPACT, "Honest", "Honest", kinds=("user",))
def a_call_of_broadcast_gets_no_answer() -> list[Change]:
    return [(Broadcaster, "answer", _nothing)]


# Signatures


@bug(Mode.COMPACT, "SpendsUnsigned", "SpendsWronglySigned", "SpendsUnsigned")
def wrong_signatures_are_unknown() -> list[Change]:
    return [(Intake, "_verified", lambda self, record, hits: record)]


@bug(Mode.BIP37, "SpendsUnsigned", "SpendsWronglySigned", "SpendsUnsigned", seed=2)
def any_signature_is_valid() -> list[Change]:
    def verified(self: Intake, record: TxRecord, hits: Any) -> TxRecord:
        is_spend = any(hit.spend for hit in hits.values()) and not record.is_own
        return record._replace(signatures=Signatures.VALID, counts_since=self._facts.number) if is_spend else record

    return [(Intake, "_verified", verified)]


# Silent payments


@bug(Mode.COMPACT, "Honest", kinds=("silent",), seed=2)
def a_source_that_fails_has_no_payments() -> list[Change]:
    true = SilentBlocks._failed

    def failed(self: SilentBlocks, block: SilentBlock, error: Exception) -> None:
        true(self, block, error)
        block.searched = block.judged = self._labels()

    return [(SilentBlocks, "_failed", failed)]


@bug(Mode.COMPACT, kinds=("silent",), seed=46)
def blocks_with_any_tweak_are_downloaded() -> list[Change]:
    return [(TweakBlocks, "matches", staticmethod(lambda block_hash, filter, answer, scanners: bool(answer[1])))]


@bug(Mode.COMPACT, "Honest", kinds=("silent",))
def the_source_of_silent_payments_is_not_named() -> list[Change]:
    return [(each, "source", property(lambda self: None)) for each in (SilentBlocks, TweakBlocks)]
