"""A world: the true chain, honest and lying nodes, and a client that runs, is killed and runs again."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from pathlib import Path

from simulation import invariants, oracle
from simulation.accounts import Accounts
from simulation.agreement import Agreement, group_of
from simulation.balance import check_rivals, check_verdicts
from simulation.behaviours.base import Behaviour
from simulation.discovery import Discovery
from simulation.fetched import Fetched
from simulation.host import KilledError, Make, Process
from simulation.keychain import Keychain
from simulation.log import Log
from simulation.node import Node
from simulation.record import Record
from simulation.restore import Copy
from simulation.silent import Silent
from simulation.timeline import Timeline
from simulation.truth import START, Truth, begin
from simulation.user import User
from simulation.violation import Violation
from simulation.wishes import Wishes
from spvfilter.errors import FormatError, PeerError, StoreError
from spvfilter.hashes import sha256d
from spvfilter.light.engine.coverage import WITNESSES
from spvfilter.light.engine.options import Options
from spvfilter.light.engine.requests import Request
from spvfilter.light.engine.status import MIN_CLOCKS
from spvfilter.light.events import Broadcast as Known, Event, Mode, PeerWarning, Synced
from spvfilter.node.blocktree import TreeBlock
from spvfilter.node.scripts import Lock
from spvfilter.wallet.events import BlockDisconnected, MatchFound
from spvfilter.watch.watchlist import WatchList
from spvfilter.wire.messages.table import Message

# A little more than reply_s: the user must have an answer to a broadcast by then if a peer was always connected.
_TAKEN_S = 125.0
_RESTART_S = 30.0  # longest time until the client restarts
_RIVALS_S = 1.0  # interval between checks for conflicts: there may be thousands of transactions


@dataclass(frozen=True, slots=True)
class Placed:
    """A future node: its behaviour, its host and its addresses."""

    behave: Callable[[random.Random, World], Behaviour]
    host: str
    addresses: list[str]


class World:
    """Everything of one life. All chance comes from `rng`."""

    def __init__(
        self,
        rng: random.Random,
        make: Make,
        options: Options,
        placed: list[Placed],
        path: Path,
        record: Callable[[Timeline], Record],
        *,
        is_prompt: bool = False,
        keychain: Keychain | None = None,
        accounts: Accounts | None = None,
        discovery: random.Random | None = None,
        turns: random.Random | None = None,
        user: random.Random | None = None,
        is_high: bool = False,
        silent: Silent | None = None,
    ) -> None:
        """Build the nodes, the chain and the client.

        With `is_prompt`, the client's disk, timers and threads take no time. With `discovery`, it finds addresses
        itself. With `turns`, its mode, and whether it keeps filters, change with each run after the first. With `user`,
        its user is active. With `is_high`, the chain is long.
        """
        self.rng = rng
        self.options = options
        self.timeline = Timeline()
        self.record = record(self.timeline)
        self.truth: Truth = begin(random.Random(rng.random()), lambda: self.timeline.now, is_high=is_high)
        self.skew_s = 0.0  # error of the client's wall clock
        self.skewed_at = 0.0  # when the error changed
        self.is_calm = False  # True: faults have ended
        self.accounts = accounts
        if accounts is not None:
            accounts.begin(self.truth)
        self.silent = silent
        if silent is not None:
            silent.begin(self.truth)
        # scripts that the client is started with
        self.scripts = list(dict.fromkeys(lock.script_pubkey for lock in self.truth.locks))
        self.keychain = keychain
        more = (*(keychain.scripts if keychain is not None else ()), *(accounts.first_scripts() if accounts else ()))
        more += tuple(silent.first_scripts() if silent is not None else ())
        self.wishes = Wishes((*self.scripts, *more), options.from_height)
        for lock in keychain.locks if keychain is not None else ():
            self.truth.learn(lock)
        self.nodes = [self._node(number, each) for number, each in enumerate(placed)]
        self.directory = {address: node for node in self.nodes for address in node.addresses}
        self.discovery = Discovery(discovery, self.nodes, self.true_wall) if discovery is not None else None
        self.agreed = Agreement(self.truth)
        self.privacy = invariants.Privacy(self)
        self.fetched = Fetched(self)
        self.user = User(user, self) if user is not None else None
        if accounts is not None:
            accounts.enter(self)
        if silent is not None:
            silent.enter(self)
        self.forged: dict[bytes, bytes] = {}  # spends without valid signatures, which no block may contain, by txid
        self.restarts = 0
        self.restored_at = -inf  # when an earlier copy of the database was restored
        self._copies: list[Copy] = []
        self.answered: dict[bytes, bytes] = {}  # own transactions that a peer accepted, as the user was told; by txid
        self.searched: dict[
            bytes, bytes
        ] = {}  # last searched block when a transaction was first reported as unconfirmed, by txid
        self.log = Log(options.from_height)
        self._rivals_at = 0.0  # when conflicts are checked next
        self.process: Process | None = None
        self._make = make
        self._path = path
        self._is_prompt = is_prompt
        self._turns = turns
        self.modes: set[Mode] = set()  # of all runs so far
        for node in self.nodes:
            node.behaviour.begin(node)

    def _node(self, number: int, placed: Placed) -> Node:
        behaviour = placed.behave(random.Random(self.rng.random()), self)
        rng = random.Random(self.rng.random())
        return Node(
            number, placed.host, placed.addresses, behaviour, behaviour.view(), self.timeline, rng, self.true_wall
        )

    def true_wall(self) -> float:
        """Seconds since 1970."""
        return START + self.timeline.now

    def wall(self) -> float:
        """The time of the client's clock."""
        return START + self.timeline.now + self.skew_s

    # The client

    def boot(self) -> None:
        """Start the client from its database."""
        if self.process is not None:
            return
        if self._turns is not None and self.modes:
            self.options = replace(
                self.options, mode=self._turns.choice(list(Mode)), keep_filters=self._turns.random() < 0.5
            )
        if self.silent is not None:
            self.options = self.silent.sources.choose(self.options)
        self.modes.add(self.options.mode)
        self.record.note("boot", self.options.mode)
        try:
            self.process = process = self._make_process()
        except (StoreError, FormatError) as error:
            raise Violation("alive", f"the client cannot be started from its database: {error!r}") from error
        self.log.booted(process.disk.store)
        self.wishes.begin()
        if self.keychain is not None:
            self.keychain.check_start(process)
        if self.accounts is not None:
            self.accounts.check_start(process)
        if not (self.is_calm and self.may_lie()):  # otherwise the client may still lack matches that a liar has hidden
            invariants.check_claims(self, "at the start")
        # otherwise the last run may have ended before it matched the scripts of a new account
        if self.accounts is None:
            check_verdicts(process.disk.store)
        # a window that grows at the start may watch an output of a pending transaction for the first time
        has_windows = self.keychain is not None or self.accounts is not None
        if not has_windows and (opening := process.engine.books.opening):
            raise Violation("true", f"a restart changes what is told: {opening[0]}")
        process.start()
        for token, request in list(self.wishes.waiting.items()):
            if self.process is process:
                self._request(process, token, request)

    def _make_process(self) -> Process:
        return Process(
            self._make,
            self.options,
            self._path,
            self.scripts,
            self.options.from_height,
            self.directory,
            self.timeline,
            self.rng,
            self.wall,
            self.record,
            self._hear,
            self._ended,
            self._overheard,
            self.sent,
            self._answered,
            self._is_prompt,
            self._give,
            self.discovery,
            self._path.with_suffix(".shadow") if self.user is not None else None,
            self.silent.sources.ask if self.silent is not None else None,
        )

    def _give(self, watch: WatchList) -> None:
        if self.keychain is not None:
            self.keychain.give(watch)
        if self.accounts is not None:
            self.accounts.give(watch, self._path)
        if self.silent is not None:
            self.silent.give(watch, self._path)

    def _answered(self, token: int, value: object) -> None:
        request = self.wishes.waiting.get(token)
        self.wishes.answered(token, value)
        if self.accounts is not None:
            assert request is not None
            self.accounts.answered(token, request, value)
        if self.silent is not None:
            assert request is not None
            self.silent.answered(request, value)

    def kill(self) -> None:
        """End the client at once."""
        if self.process is not None:
            self.process.stop(KilledError())

    def _ended(self, process: Process, error: Exception) -> None:
        self.process = None
        self.restarts += 1
        if not isinstance(error, (KilledError, StoreError)) or self.is_calm:
            raise Violation("alive", f"the client ended: {error!r}")
        self.timeline.after(self.rng.random() * _RESTART_S, self.boot)

    def _overheard(self, host: str, message: Message) -> None:
        self.agreed.heard(host, message)
        self.fetched.heard(message)

    def sent(self, peer: int, message: Message, is_private: bool) -> None:
        self.privacy.sent(message)
        self.fetched.sent(peer, message)
        if self.user is not None:
            self.user.announced(message, is_private=is_private)

    def _hear(self, process: Process, event: Event) -> None:
        self.record.note("told", event)
        if isinstance(event, PeerWarning) and event.banned:
            invariants.check_just(event, self.directory[event.address].behaviour)
        invariants.check_told(event, self.truth, self.agreed)
        invariants.check_signed(event, self.forged)
        if self.accounts is not None:
            self.accounts.told(event)
        if self.silent is not None:
            self.silent.told(event)
        process.books.take(event)
        process.books.compare(event, process.disk.store)
        self.log.told(event, process.disk.store)
        if isinstance(event, BlockDisconnected):
            self.fetched.disconnected(event.height, event.hash)
        if isinstance(event, MatchFound) and event.match.height is None:
            active, cursor = self.truth.regtest.chain.active, process.engine.books.cursor
            self.searched.setdefault(event.match.txid, active[cursor].hash if 0 <= cursor < len(active) else b"")
        if isinstance(event, MatchFound) and event.match.height is None and self.timeline.now >= self._rivals_at:
            self._rivals_at = self.timeline.now + _RIVALS_S
            check_rivals(process.disk.unconfirmed())
        if isinstance(event, Synced):
            if self.keychain is not None:
                self.keychain.check_kept(process)
            invariants.check_synced(self, process, event)

    def came_after(self, txid: bytes, block: TreeBlock) -> bool:
        """Return True if a transaction arrived after its block was searched. The client does not search the block
        again.
        """
        tip = self.truth.block(self.searched.get(txid, b""))
        return (
            tip is not None
            and tip.height >= block.height
            and self.truth.regtest.chain.ancestor(tip, block.height) is block
        )

    def is_of_keychain(self, script: bytes) -> bool:
        """Return True if the keychain or an account has a script."""
        return (self.keychain is not None and script in self.keychain.scripts) or (
            self.accounts is not None and self.accounts.has(script)
        )

    def has_owner(self, script: bytes) -> bool:
        """Return True if the keychain or an account has a script. The wallet may have it as well."""
        return self.is_of_keychain(script) or (self.accounts is not None and self.accounts.owner(script) is not None)

    def is_wanted(self, script: bytes) -> bool:
        """Return True if the client must find a script. A keychain's script must be in the window."""
        if self.is_of_keychain(script):
            return self.process is not None and script in self.process.watch
        if self.silent is not None and self.silent.has(script):
            return self.silent.is_wanted(script)
        # an account may have been removed with a script that the wallet had before
        return self.accounts is None or self.accounts.owner(script) is None or script in self.wishes.watched

    def is_awaited(self, script: bytes) -> bool:
        """Return True if the client must report an unconfirmed payment to a script. It finds silent ones in blocks."""
        is_known = self.silent is None or not self.silent.has(script) or script in self.process.watch  # type: ignore[union-attr]
        return is_known and self.is_wanted(script)

    def has_prompt_peer(self, seconds: float) -> bool:
        """Return True if a prompt, honest node with all services has been connected for a number of seconds."""
        if self.process is None or self.skew_s:
            return False
        since = self.timeline.now - seconds
        return any(
            each.is_ready and not each.is_dead and each.since <= since and each.node.behaviour.is_prompt
            for each in self.process.connections.values()
        )

    def prompt_groups(self, seconds: float) -> set[str]:
        """The network groups of prompt, honest nodes that have been connected for a number of seconds."""
        since = self.timeline.now - seconds
        return {
            group_of(each.node.host)
            for each in (self.process.connections.values() if self.process is not None else ())
            if each.is_ready and not each.is_dead and each.since <= since and each.node.behaviour.is_prompt
        }

    def most_clocks_are_right(self) -> bool:
        """Return True if most network groups with connections of some age have the right time."""
        if self.process is None:
            return False
        since, groups = self.timeline.now - 10.0, dict[str, bool]()
        for each in self.process.connections.values():
            if each.is_ready and each.since > since:
                return False
            if each.is_ready:
                groups.setdefault(group_of(each.node.host), not each.node.behaviour.clock_skew_s)
        return len(groups) >= MIN_CLOCKS and sum(groups.values()) > len(groups) / 2 + 0.5

    def may_withhold_synced(self) -> bool:
        """Return True if at least half of the clocks are wrong, because the client then distrusts its own."""
        wrong = {group_of(node.host) for node in self.nodes if node.behaviour.clock_skew_s}
        right = {group_of(node.host) for node in self.nodes if node.behaviour.is_prompt} - wrong
        return len(wrong) >= len(right)

    def may_lie(self) -> bool:
        """Return True if any node lies."""
        return not all(node.behaviour.is_honest for node in self.nodes)

    def may_miss(self) -> bool:
        """Return True if all witnesses of a filtered block may leave out transactions, so that the client cannot notice
        it.
        """
        groups = {group_of(node.host) for node in self.nodes if node.behaviour.omits}
        return Mode.BIP37 in self.modes and len(groups) >= WITNESSES

    def doubted(self, synced: Synced | None) -> set[int]:
        """Heights reported as disputed while liars have at least as many network groups as honest nodes.

        Nobody can end such a dispute. If it begins after Synced, the status and a warning report it at once. A new
        Synced for the same tip reports it after a pause.
        """
        honest = {group_of(node.host) for node in self.nodes if node.behaviour.is_full and node.behaviour.is_honest}
        lying = {group_of(node.host) for node in self.nodes if not node.behaviour.is_honest}
        if synced is None or len(lying) < len(honest):
            return set()
        ranges = (*synced.disputed, *(self.process.disputed if self.process is not None else ()))
        return {height for first, last in ranges for height in range(first, last + 1)}

    def absent_peers(self) -> list[Node]:
        """Honest nodes with all services that are not connected although the client has room for all."""
        if self.process is None or self.discovery is not None or len(self.directory) > self.options.max_peers:
            return []
        there = {id(each.node) for each in self.process.connections.values() if each.is_ready}
        return [
            node for node in self.nodes if node.behaviour.is_full and node.behaviour.is_honest and id(node) not in there
        ]

    # Events in the world

    def watch_lock(self, lock: Lock, first: int | None = None) -> None:
        """The user watches another script. Blocks may have paid it before."""
        self.truth.learn(lock)
        self._ask(self.wishes.add(lock.script_pubkey, first))

    def forget_lock(self, lock: Lock) -> None:
        """The user stops watching a script."""
        self.truth.forget(lock)
        self.scripts = [script for script in self.scripts if script != lock.script_pubkey]
        self._ask(self.wishes.remove(lock.script_pubkey))

    def rescan(self, first: int) -> None:
        """The user requests a rescan."""
        self._ask(self.wishes.rescan(first))

    def relabel(self, script: bytes, label: str | None) -> None:
        """The user gives a script another label."""
        self._ask(self.wishes.relabel(script, label))

    def ask_for(self, request: Request) -> int:
        """The user asks for something. Returns the number of the request."""
        wish = self.wishes.ask(request)
        self._ask(wish)
        return wish[0]

    def _ask(self, wish: tuple[int, Request]) -> None:
        if self.process is not None:
            self._request(self.process, *wish)

    def _request(self, process: Process, token: int, request: Request) -> None:
        process.ask(token, request if self.accounts is None else self.accounts.prepared(request, process))

    def broadcast(self, raw: bytes, *, is_private: bool = False) -> None:
        """The user sends a transaction."""
        process = self.process
        if process is not None:
            # now, too: nodes keep no orphans
            is_public = not is_private and (self.user is None or self.truth.would_take(raw))
            if self.user is not None:
                self.user.broadcast(raw, process, is_private=is_private)
            self.fetched.broadcast(raw)
            process.broadcast(raw, is_private=is_private, is_forced=True)  # the process may end here
            self.timeline.after(_TAKEN_S, partial(self._check_taken, process, raw, is_public=is_public))

    def _check_taken(self, process: Process, raw: bytes, *, is_public: bool) -> None:
        txid = oracle.txid(raw)
        answer = process.answers.get(txid)
        if self.restored_at > self.timeline.now - _TAKEN_S:
            return  # the database is older than the broadcast
        if isinstance(answer, Known):
            self.answered[txid] = raw
        if self.process is not process or not self.has_prompt_peer(2 * _TAKEN_S):
            return
        if answer is None:
            raise Violation("alive", f"nothing was said of our transaction {txid[::-1].hex()} in {_TAKEN_S:.0f} s")
        if self.user is not None and self.truth.replaced_at > self.timeline.now - 2 * _TAKEN_S:
            return  # a conflicting transaction may have been in the mempools when this one was refused
        if isinstance(answer, PeerError) and is_public and self.truth.would_take(raw):
            raise Violation("true", f"our transaction {txid[::-1].hex()}, which is valid, was not sent: {answer!r}")

    def back_up(self) -> None:
        """The user copies the database."""
        copy = Copy.make(self, self._path.with_name(f"copy{len(self._copies)}.db"))
        if copy is not None:
            self._copies.append(copy)

    def restore(self) -> None:
        """The user replaces the database by a copy."""
        if self._copies:
            self.rng.choice(self._copies).restore(self, self._path)

    def cut_lines(self) -> None:
        """Make every connection half-open."""
        if self.process is not None:
            self.process.cut_lines()

    def break_lines(self) -> None:
        """Every connection ends."""
        for node in self.nodes:
            node.hang_up()

    def set_skew(self, skew_s: float) -> None:
        """Set the error of the client's clock."""
        if not self.is_calm:
            self.skew_s, self.skewed_at = skew_s, self.timeline.now

    def set_disk_full(self, is_full: bool) -> None:
        """Set whether the disk is full."""
        if self.process is not None and not (is_full and self.is_calm):
            self.process.disk.set_full(is_full)

    def at(self, time: float, what: str, call: Callable[[], object]) -> None:
        """Schedule something, with a note in the record."""
        self.timeline.at(time, partial(self._happen, what, call))

    def _happen(self, what: str, call: Callable[[], object]) -> None:
        self.record.note(what, f"height {self.truth.height}")
        call()

    def outgrow(self) -> None:
        """Mine a block if the client follows a block that no honest miner made, with as much work.

        Otherwise such a block would stay the tip for ever. It costs an attacker as much as any other block.
        """
        store = self.process.disk.store if self.process is not None else None
        if (
            store is not None
            and store.tip >= self.truth.height
            and self.truth.block(sha256d(b"".join(store.headers(store.tip)))) is None
        ):
            self.truth.mine()

    def calm(self) -> None:
        """End the faults: disks, lines and clocks are sound, and all nodes are up. Liars continue to lie."""
        self.is_calm = True
        self.skew_s = 0.0
        for node in self.nodes:
            node.is_up = True
            node.behaviour.calm()
        if self.process is not None:
            invariants.check_modest(self.process.engine, self.process.disk.unconfirmed())
            self.process.steps_left = None
            self.process.disk.fails_at = None
            self.process.disk.set_full(False)
        else:
            self.boot()
