"""Inner parts of an open client and its engine, for tests that cause a fault there or count what is kept.

The engine has a door for each fact that the client needs. A part here has no such door, as only its own rules need it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import pytest

from spvfilter import LightClient, WatchList
from spvfilter.filters import GcsQuery
from spvfilter.light.blocking import EventIterator
from spvfilter.light.engine import filterrows
from spvfilter.light.engine.addressbook import BUCKET_SIZE, NEW_BUCKETS, TRIED_BUCKETS, AddressBook
from spvfilter.light.engine.addresses import Discovery
from spvfilter.light.engine.blocks import BlockRequests
from spvfilter.light.engine.bloomlink import BloomLink
from spvfilter.light.engine.bloomsearch import BloomSearch
from spvfilter.light.engine.broadcaster import Broadcaster
from spvfilter.light.engine.context import Context
from spvfilter.light.engine.engine import ClientEngine, SearchMode
from spvfilter.light.engine.filterheaders import FilterHeaders, _Divergence
from spvfilter.light.engine.filterrows import FilterRows
from spvfilter.light.engine.filterscripts import FilterScripts
from spvfilter.light.engine.filtersearch import FilterSearch
from spvfilter.light.engine.mempool import MempoolWatch
from spvfilter.light.engine.outboundslots import OutboundSlots
from spvfilter.light.engine.owntxs import OwnTx
from spvfilter.light.engine.peers import Peer, PeerPool
from spvfilter.light.engine.watchchanges import WatchChanges
from spvfilter.light.running import Running
from spvfilter.store.addresses import KnownAddress
from spvfilter.store.store import Store
from spvfilter.transaction import Transaction
from spvfilter.wallet.queue import Queue
from spvfilter.wire.messages.addresses import PeerAddress

T = TypeVar("T")


def running_of(client: LightClient) -> Running:
    """The run that an entered client shows."""
    return client._checked()


def engine_of(client: LightClient) -> ClientEngine:
    return running_of(client).engine


def store_of(client: LightClient) -> Store:
    """The open database, which a thread writes."""
    return running_of(client)._store


class HasContext(Protocol):
    @property
    def _context(self) -> Context: ...


def context_of(engine: HasContext) -> Context:
    """The time, the books, the outbox and the tasks, which all parts share."""
    return engine._context


def filter_headers_of(engine: ClientEngine) -> FilterHeaders:
    return engine._filter_headers


def filter_search_of(engine: ClientEngine) -> FilterSearch:
    return engine._compact


def bloom_search_of(engine: ClientEngine) -> BloomSearch:
    return engine._bloom


def block_requests_of(engine: ClientEngine) -> BlockRequests:
    """Blocks that were requested and have not come."""
    return engine._blocks


def is_judging(engine: ClientEngine) -> bool:
    """True while blocks decide between filter headers of several peers."""
    return bool(engine._filter_headers.verdicts._cases)


def undecided_blocks(engine: ClientEngine) -> dict[str, set[bytes]]:
    """Blocks whose disputes were not decided, by the address of the peer that disputed them."""
    return engine._filter_headers._undecided


def commits_issued(engine: ClientEngine) -> int:
    """Number of the latest commit."""
    return engine._context.out._issued


def delay_commits(engine: ClientEngine, number: int) -> None:
    """Make the database busy, as if this many earlier commits were still under way."""
    engine._context.out._issued += number


def mempool_of(engine: ClientEngine) -> MempoolWatch:
    return engine._mempool


def queue_of(engine: ClientEngine) -> Queue:
    """Received transactions that have not been recorded."""
    return engine._mempool._queue


def receive(engine: ClientEngine, raw: bytes, group: str) -> None:
    """Put a transaction into the queue, as when a peer of this network group has sent it."""
    tx = Transaction.parse(raw)
    assert queue_of(engine).put(raw, group) == []
    engine._mempool._heard.update(dict.fromkeys((tx.txid, tx.wtxid)))


def await_transactions(engine: ClientEngine, peer: Peer, *raws: bytes) -> None:
    """Expect transactions from a peer, as when it was asked for them."""
    engine._mempool._inventory(peer).asked.update(dict.fromkeys(Transaction.parse(raw).txid for raw in raws))


def forget_received(engine: ClientEngine, peer: Peer) -> None:
    """Forget the transactions that a peer has sent or announced."""
    engine._mempool._inventory(peer).heard.clear()


def searched_parts(engine: ClientEngine) -> Collection[Any]:
    """Ranges of blocks that were requested as filtered blocks, in ascending order."""
    return engine._bloom._parts


def bloom_links(engine: ClientEngine) -> Mapping[Peer, BloomLink]:
    """Each peer's filter and open requests."""
    return engine._bloom._links


def leave_undecided(engine: ClientEngine, address: str, block_hash: bytes) -> None:
    """Note that a peer disputes a block, and that nothing decides who is right."""
    engine._filter_headers._undecided_of(address).add(block_hash)


def take_back_filter_headers(engine: ClientEngine, height: int) -> None:
    """Distrust our filter headers from a height on, as when all their supporters are gone."""
    engine._filter_headers._take_back(height)


def never_ask_seeds(engine: ClientEngine) -> None:
    """Let the client know no addresses but those of its book."""
    assert engine.pool.discovery is not None
    engine.pool.discovery._seeds._not_before = 1e12


def search_by(monkeypatch: pytest.MonkeyPatch, way: list[SearchMode]) -> None:
    """Let engines prefer the way that the list contains at the moment, whatever their peers serve."""
    monkeypatch.setattr(ClientEngine, "_preferred_mode", lambda engine: way[0])


def note_learned(monkeypatch: pytest.MonkeyPatch, engine: ClientEngine) -> list[PeerAddress]:
    """Return the list of the addresses that the engine accepts from now on. The book does not get them."""
    learned: list[PeerAddress] = []
    monkeypatch.setattr(engine.pool.discovery, "_learn", lambda told, source, now: learned.append(told))
    return learned


def _anywhere(self: AddressBook, known: KnownAddress) -> tuple[int, int]:
    buckets = TRIED_BUCKETS if known.tried else NEW_BUCKETS
    return self._hash("any", known.address) % buckets, self._hash("at", known.tried, known.address) % BUCKET_SIZE


BUCKETS_BY_SOURCE: tuple[object, str, Callable[..., object]] = (AddressBook, "_slot", _anywhere)
"""Takes away the rule that all addresses of one source share few buckets: an object, its attribute and the new one."""
ANCHORS: tuple[object, str, Callable[..., object]] = (Discovery, "_note_anchors", lambda self, now, there: None)
"""Takes away the rule that peers which have been useful for long are dialled first after a restart."""


def named_slots(pool: PeerPool) -> OutboundSlots:
    """The slots of the addresses that the user named."""
    return pool._named()


def locate(context: Context, heard: FilterHeaders, peer: Peer, below: int, above: int, header: bytes) -> None:
    """Search the block at which the filter headers of a peer begin to differ from ours."""
    context.tasks.begin(partial(heard._locate, peer, below, above, header), "locate")
    context.tasks.run()


class EndedDispute:
    """A dispute with a peer that has ended, after blocks above it were compared."""

    def __init__(self, heard: FilterHeaders, peer: Peer, height: int, resumed: int) -> None:
        self._heard = heard
        self._divergence = _Divergence(height, height, None, is_ended=True, resumed=resumed)
        heard._stated_by(peer).divergence = self._divergence

    def resume(self) -> int:
        """Continue with the blocks above it, and return the height up to which they are compared."""
        self._heard._resume(self._divergence)
        return self._divergence.compared


async def add_to_watch_list(client: LightClient, change: Callable[[WatchList], None]) -> None:
    """Add the entries that a function adds, which may be of a kind that no method of the client adds."""
    await client._add(change, None, None)


def before_growth(monkeypatch: pytest.MonkeyPatch, call: Callable[[Sequence[bytes]], None]) -> None:
    """Call a function with the scripts that windows have gained, before the engine handles them."""
    grown = WatchChanges._grown

    def called(changes: WatchChanges, scripts: Sequence[bytes]) -> None:
        call(scripts)
        grown(changes, scripts)

    monkeypatch.setattr(WatchChanges, "_grown", called)


def after_waiting_labels(monkeypatch: pytest.MonkeyPatch, call: Callable[[object], None]) -> None:
    """Call a function with labels that had waited for scripts, once the engine has them."""
    take = WatchChanges._take_labels

    def called(changes: WatchChanges, waiting: object) -> None:
        take(changes, waiting)
        call(waiting)

    monkeypatch.setattr(WatchChanges, "_take_labels", called)


def tracked_txs(engine: ClientEngine) -> list[OwnTx]:
    """The wallet's own transactions that the broadcaster keeps in memory."""
    return list(engine.broadcaster._owns)


def note_planned(monkeypatch: pytest.MonkeyPatch) -> list[OwnTx]:
    """Return the list of the transactions whose announcements a broadcaster plans from now on."""
    planned, plan = list[OwnTx](), Broadcaster._plan_announcements

    def noted(broadcaster: Broadcaster, own: OwnTx, peers: Collection[Peer]) -> None:
        planned.append(own)
        plan(broadcaster, own, peers)

    monkeypatch.setattr(Broadcaster, "_plan_announcements", noted)
    return planned


def depart(engine: ClientEngine, peer: Peer) -> None:
    """Tell the broadcaster that a peer is gone."""
    engine.broadcaster._gone(peer)


def keep_events_in(iterator: EventIterator[T], kept: deque[T]) -> None:
    """Replace the queue of events whose wait was interrupted."""
    iterator._kept = kept


async def written(client: LightClient) -> None:
    """Wait until the database has everything that was decided so far."""
    await running_of(client)._database.drain()


def keep_queries_in(scripts: FilterScripts, kept: dict[int, tuple[int, GcsQuery]]) -> None:
    """Replace the cache of queries, which several threads use."""
    scripts._queries = kept


def segments_of(rows: FilterRows) -> list[tuple[int, bytes]]:
    """The identity and the last filter header of each segment, which clients may share."""
    return [(id(each), each.headers[-32:]) for each in rows._segments]


def shared_segments() -> set[bytes]:
    """The last filter headers of the segments that a client of the process has."""
    return {*filterrows._SEGMENTS}
