"""`spvfilter broadcast`: send a transaction to full nodes and print whether one of them accepts it."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import assert_never

from spvfilter.cli.arguments import add_format, add_network, format_of, network_of, read_hex_or_bytes
from spvfilter.cli.delivery import deliver
from spvfilter.cli.interrupts import terminable
from spvfilter.cli.nodes import PeerMessages, add_nodes, add_timeout, check_nodes, in_use
from spvfilter.cli.term.page import Page, complain
from spvfilter.cli.watch.command import sending
from spvfilter.errors import (
    FormatError,
    ParameterError,
    StoreLockedError,
    TxConflictError,
    TxRefusedError,
    UselessPeerError,
    counted,
)
from spvfilter.light.client import LightClient
from spvfilter.light.events import (
    Broadcast,
    BroadcastChanged,
    BroadcastProgress,
    BroadcastStep,
    Event,
    FeeWarning,
    Mode,
    PeerChanged,
    PeerWarning,
    PendingWarning,
    Progress,
    Synced,
)
from spvfilter.p2p.address import Address
from spvfilter.primitives import hash_to_hex
from spvfilter.protocol import MAX_BLOCK_SIZE
from spvfilter.store.txcheck import CheckWeight
from spvfilter.transaction import Transaction
from spvfilter.wallet.events import WalletEvent
from spvfilter.watch.watchlist import WatchList

ACCEPTED, NOT_ACCEPTED = 0, 1  # exit codes
_TIMEOUT_S = 150.0
"""Default of --timeout: LightClient itself gives up after the same time."""
_PRIVATE_TIMEOUT_S = 300.0
"""Default of --timeout with --private: other nodes announce the transaction within two to four minutes."""
_KEEP_S = 45.0
"""If a node that received a transaction does not refuse it within this time, the node has accepted it. LightClient
takes 40 s to see that a node does not keep a transaction.
"""
_PAUSE_S = 0.2  # time between two checks of the clock (our choice)
_MAX_PEERS = 8  # LightClient's default
_KEPT = "the balance includes it, and spvfilter watch --db sends it again"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "spvfilter broadcast TX --db FILE --connect HOST:PORT [OPTION ...]"
    parser.description = (
        "Send a signed transaction to full nodes and wait until one of them accepts it. The wallet stores it first:"
        " its balance includes it, and every later `spvfilter watch --db FILE` sends it again until it is"
        " confirmed, replaced or 336 hours old. Exit codes: 0 a node accepted it, 1 all nodes refused it or"
        " none confirmed receiving it, 2 an error."
    )
    parser.add_argument(
        "tx", metavar="TX", help="the transaction: hex digits, a file of hex or bytes, or - for standard input"
    )
    parser.add_argument(
        "--db", metavar="FILE", required=True, help="the wallet's database, which spvfilter watch created"
    )
    add_nodes(parser)
    add_network(parser, has_database=True)
    parser.add_argument(
        "--private",
        action="store_true",
        help=(
            "send it to one node only, over a new connection, through --proxy if there is one. It is accepted once"
            " another node announces it. This needs nodes on two hosts, and changes --mode auto to compact"
        ),
    )
    parser.add_argument(
        "--parent",
        metavar="FILE",
        action="append",
        default=[],
        help=(
            "a transaction that TX spends from, given in the same way as TX: it is sent with TX, and their fees count"
            " together. Repeat the option for each parent; if one parent spends from another, give it after the other"
        ),
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="connect and print any problems with the transaction, but do not send it; exit with 1 if it would fail",
    )
    parser.add_argument("--force", action="store_true", help="send it even if all nodes will refuse it")
    add_timeout(
        parser,
        0.0,
        f"give up after this long without an answer; default {_TIMEOUT_S:g}, with --private {_PRIVATE_TIMEOUT_S:g}",
    )
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    tx = _transaction(args.tx)
    parents = [_transaction(each) for each in args.parent]
    if args.private and parents:
        raise ParameterError("--private: a package cannot be sent privately; send the parents first")
    check_nodes(args.connect, discover=args.discover)
    hosts = {Address.parse(peer, 1).host for peer in args.connect}
    if args.private and not args.discover and len(hosts) < 2:
        raise ParameterError(
            "--private needs a node on a second host, to confirm that the first relays it: give another --connect"
        )
    if not Path(args.db).is_file():
        raise ParameterError(f"there is no database at {args.db}: create one with spvfilter watch --db {args.db}")
    # one host is left unconnected for the private connection
    most = len(hosts) - 1 if args.private and not args.discover else _MAX_PEERS
    client = LightClient(
        WatchList(network_of(args)),
        peers=args.connect,
        store=args.db,
        mode=_mode(args),
        proxy=args.proxy,
        v2=args.v2,
        discover=args.discover,
        max_peers=min(most, _MAX_PEERS),
    )
    return asyncio.run(terminable(_Sending(client, tx, parents, Page(sys.stdout), args).run()))


def _transaction(text: str) -> Transaction:
    """The transaction in the TX argument. Raises ParameterError, SourceError or OSError."""
    raw = read_hex_or_bytes(text, MAX_BLOCK_SIZE, "a transaction")
    try:
        return Transaction.parse(raw)
    except FormatError as error:
        raise ParameterError(f"TX is not a transaction: {error}") from None


def _mode(args: argparse.Namespace) -> Mode:
    """The mode that --mode names. With --private, auto becomes compact: in auto mode, peers may get a filter."""
    mode = Mode(args.mode)
    return Mode.COMPACT if args.private and mode is Mode.AUTO else mode


class _Sending:
    """Sends one transaction, and prints what happens to it."""

    def __init__(
        self,
        client: LightClient,
        tx: Transaction,
        parents: Sequence[Transaction],
        page: Page,
        args: argparse.Namespace,
    ) -> None:
        self._client = client
        self._tx = tx
        self._parents = parents
        self._is_check: bool = args.check
        self._is_forced: bool = args.force
        self._page = page
        self._db: str = args.db
        self._private: bool = args.private
        self._timeout_s: float = args.timeout or (_PRIVATE_TIMEOUT_S if args.private else _TIMEOUT_S)
        self._json = format_of(args.format, page) == "jsonl"
        self._messages = PeerMessages()
        self._peers: dict[BroadcastStep, dict[str, str]] = {step: {} for step in BroadcastStep}
        """For each step, its peers and why they refused, or an empty string if they did not."""
        self._is_known = False  # the wallet already has the transaction, so LightClient.broadcast returns immediately
        self._sent_at: dict[str, float] = {}
        """For each node, when it received the transaction (seconds of the event loop's clock)."""

    async def run(self) -> int:
        """Send the transaction, print what peers do with it and the result, and return the exit code."""
        try:
            async with self._client:
                code = await self._send()
                if code == ACCEPTED and not self._is_check:
                    await deliver(self._client, complain, (self._tx.txid,))
                return code
        except StoreLockedError as error:
            raise in_use(error, self._db, "stop it, then send the transaction") from None

    async def _check(self) -> int:
        """Print any problems with the transaction, and return the exit code."""
        await self._client.wait_synced()
        found = await self._client.check(self._tx, parents=self._parents)
        if self._json:
            fields = [{"cause": each.cause, "weight": each.weight, "message": each.message} for each in found]
            self._line({"event": "check", "txid": hash_to_hex(self._tx.txid), "findings": fields})
        else:
            for each in found:
                self._page.line(f"{each.weight}: {each.message}")
            if not found:
                self._page.line("found no problem with the transaction")
        return NOT_ACCEPTED if any(each.weight is not CheckWeight.WARNING for each in found) else ACCEPTED

    async def _send(self) -> int:
        try:
            async with asyncio.timeout(self._timeout_s) as timeout:
                if self._is_check:
                    return await self._check()
                await self._until_accepted()
        except TimeoutError:
            if not timeout.expired():
                raise
            if self._is_check:
                raise ParameterError(
                    f"the client could not catch up with the nodes within {self._timeout_s:g} s"
                ) from None
            reason = f"no node confirmed within {self._timeout_s:g} s that it has the transaction; {_KEPT}"
            return self._failed("unconfirmed", reason)
        except UselessPeerError as error:
            return self._failed("unconfirmed", str(error))
        except TxRefusedError as error:
            for peer, reason in error.refusals:
                self._step(BroadcastStep.REFUSED, peer, reason)  # the event may not have been read yet
            return self._failed("refused", str(error))
        except TxConflictError as error:
            return self._failed("conflicted", str(error))
        return ACCEPTED

    async def _until_accepted(self) -> None:
        """Wait until a node accepts the transaction, and print the result.

        Raises TxRefusedError, TxConflictError, UselessPeerError, and ParameterError if the transaction is impossible.
        """
        entry = await self._client.transaction(self._tx.txid)
        self._is_known = entry is not None and entry.status.is_open
        sending = asyncio.ensure_future(
            self._client.broadcast(self._tx.raw, parents=self._parents, private=self._private, force=self._is_forced)
        )
        events = self._client.events()
        reading = asyncio.ensure_future(anext(events))
        try:
            while not self._is_accepted(sending):
                if sending.done() and (height := await self._confirmed_at()) is not None:
                    self._result("confirmed", height=height)
                    return
                waiting = {reading} if sending.done() else {reading, sending}
                pause_s = _PAUSE_S if self._is_known else None
                await asyncio.wait(waiting, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
                if reading.done():
                    self._take(reading.result())
                    reading = asyncio.ensure_future(anext(events))
        finally:
            for task in (sending, reading):
                task.cancel()
            await asyncio.gather(sending, reading, return_exceptions=True)
        self._result("accepted")

    def _is_accepted(self, sending: asyncio.Future[Broadcast]) -> bool:
        """True if a node has the transaction; with --private, only if the node received it from another node.

        Raises TxRefusedError if the wallet already had the transaction and all nodes that received it refused it.
        """
        if not sending.done():
            return False
        known = sending.result()
        for step, peers in ((BroadcastStep.SENT, known.sent), (BroadcastStep.ECHOED, known.echoed)):
            for peer in peers:
                self._step(step, peer)  # the event may not have been read yet
        if self._peers[BroadcastStep.ECHOED]:
            return True
        if self._private or not self._is_known:
            return bool(self._sent_at) and not self._private
        refused = self._peers[BroadcastStep.REFUSED]
        since = asyncio.get_running_loop().time() - _KEEP_S
        if any(at <= since and peer not in refused for peer, at in self._sent_at.items()):
            return True
        if self._sent_at and refused.keys() >= self._sent_at.keys() and min(self._sent_at.values()) <= since:
            said = "; ".join(f"{peer}: {reason}" for peer, reason in refused.items())
            raise TxRefusedError(f"every peer that received it rejected it: {said}; {_KEPT}", tuple(refused.items()))
        return False

    async def _confirmed_at(self) -> int | None:
        """The height of the block that contains the transaction, or None."""
        entry = await self._client.transaction(self._tx.txid)
        return None if entry is None else entry.height

    def _take(self, event: Event) -> None:
        match event:
            case BroadcastProgress(txid, peer, step, reason) if txid == self._tx.txid:
                self._step(step, peer, reason)
            case FeeWarning(txid, rate, floor) if txid == self._tx.txid:
                complain(
                    f"warning: fee rate {rate}, in satoshi per 1,000 vbytes, is below {floor.rate}, the lowest rate"
                    f" that half of {counted(floor.peers, 'node')} relay"
                )
            case PeerChanged(address) if address is not None:
                self._messages.connected(address)
            case PeerWarning():
                if (message := self._messages.of(event)) is not None:
                    complain(message)
            case Progress() | Synced() | PeerChanged() | FeeWarning() | PendingWarning():
                pass
            case BroadcastProgress() | BroadcastChanged():
                pass
            case _ if isinstance(event, WalletEvent):
                pass
            case _:
                assert_never(event)

    def _step(self, step: BroadcastStep, peer: str, reason: str = "") -> None:
        """Print what a peer did with the transaction, once."""
        if peer in self._peers[step]:
            return
        self._peers[step][peer] = reason
        if step is BroadcastStep.SENT:
            self._sent_at[peer] = asyncio.get_running_loop().time()
        if self._json:
            self._line(sending(BroadcastProgress(self._tx.txid, peer, step, reason)))
        else:
            self._page.line(f"{_DONE[step]} {peer}{f': {reason}' if reason else ''}")

    def _failed(self, status: str, reason: str) -> int:
        """Print the result of a transaction that no node accepted, and return the exit code."""
        self._result(status, reason=reason)
        complain(f"not accepted: {reason}")
        return NOT_ACCEPTED

    def _result(self, status: str, **more: object) -> None:
        """Print the last line, or the table, about the transaction."""
        txid = hash_to_hex(self._tx.txid)
        if self._json:
            sent, echoed, refused = (self._peers[step] for step in BroadcastStep)
            refusals = [{"peer": peer, "reason": reason} for peer, reason in refused.items()]
            peers = {"sent": list(sent), "echoed": list(echoed), "refused": refusals}
            self._line({"event": "result", "txid": txid, "status": status, **peers, **more})
            return
        facts = [("txid", txid), ("status", status)]
        facts += [(_DONE[step], ", ".join(peers)) for step, peers in self._peers.items() if peers]
        facts += [(name, str(value)) for name, value in more.items() if name != "reason"]
        self._page.line()
        self._page.facts(facts)

    def _line(self, fields: dict[str, object]) -> None:
        self._page.record(fields)


_DONE = {BroadcastStep.SENT: "sent to", BroadcastStep.ECHOED: "announced by", BroadcastStep.REFUSED: "refused by"}
"""The words that describe each step of a peer."""
