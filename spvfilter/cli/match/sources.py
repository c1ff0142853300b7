"""The sources of `spvfilter match`: arguments, files, standard input, ZMQ, mempools and peers."""

from __future__ import annotations

import argparse
import asyncio
import logging
import re
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from spvfilter.cli.arguments import standard_input
from spvfilter.cli.credentials import credentials_of
from spvfilter.cli.nodes import peer
from spvfilter.cli.term.logs import UnrepeatedMessages, handled_by
from spvfilter.cli.term.page import complain
from spvfilter.errors import ParameterError, SourceError, counted
from spvfilter.network import Network
from spvfilter.p2p.proxy import Proxy
from spvfilter.p2p.relayed import RelayedTransactions
from spvfilter.primitives import TxOut
from spvfilter.rpc.credentials import Credentials
from spvfilter.rpc.endpoint import Endpoint, is_url
from spvfilter.rpc.fullnode import FullNode
from spvfilter.rpc.patience import Patience
from spvfilter.rpc.txnotices import TxNotices
from spvfilter.scan.txlines import problem_of, read_txs

STDIN = "-"
_HEX = re.compile(r"[0-9a-fA-F\s]+")
_POLL_S = 10.0
"""Seconds between two listings of a mempool with --follow (our choice)."""
_SILENCE_S = 30.0
"""If no transaction arrives for this many seconds, a message says which option the node needs (our choice)."""
_WAITING = 10
"""Maximum number of transactions from all sources that wait to be matched (our choice)."""
MOST_ARRIVALS = 200_000
"""Number of transactions whose times of arrival are kept (our choice). They take about 30 MB."""
_SCHEMES = "tcp://, ipc://, http://, https:// or p2p://"

Txs = AsyncGenerator[bytes]
"""The raw transactions from one source."""
Bad = Callable[[str], None]
"""A function to call with a message about input that is not a transaction."""


class Arrivals:
    """The times at which transactions from nodes and peers first arrived. Only the most recent are kept."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._times: OrderedDict[int, int] = OrderedDict()  # by the hash of the raw transaction

    def note(self, raw: bytes) -> None:
        """Record that a transaction has arrived."""
        self._times.setdefault(hash(raw), int(self._now()))
        if len(self._times) > MOST_ARRIVALS:
            self._times.popitem(last=False)

    def time_of(self, raw: bytes) -> int | None:
        """Return the time at which a transaction first arrived (Unix time), or None if it is unknown."""
        return self._times.get(hash(raw))


@dataclass(slots=True)
class Sources:
    """The sources named in the command's arguments."""

    network: Network
    """The network of nodes and peers."""
    texts: list[bytes] = field(default_factory=list)
    """The transactions given as arguments."""
    files: list[str] = field(default_factory=list)
    """Paths of files, and `-` for standard input."""
    publishers: list[str] = field(default_factory=list)
    """Addresses where nodes publish transactions over ZMQ."""
    nodes: list[str] = field(default_factory=list)
    """URLs of nodes with a mempool."""
    arrivals: Arrivals = field(default_factory=Arrivals)
    """The times at which transactions from nodes and peers arrived."""
    peers: list[str] = field(default_factory=list)
    """The HOST or HOST:PORT of each node that relays transactions."""
    follows: bool = False
    """True if mempools are listed repeatedly."""
    credentials: Credentials | None = None
    """Credentials of the nodes."""
    proxy: Proxy | None = None
    """The proxy through which peers are reached."""
    opened: list[FullNode] = field(default_factory=list)
    """The nodes that `open` has connected to."""

    @property
    def endless(self) -> list[str]:
        """The sources that deliver transactions until Ctrl-C."""
        return [*self.publishers, *self.peers, *(self.nodes if self.follows else ())]

    @classmethod
    def of(cls, args: argparse.Namespace) -> Sources:
        """Collect the sources named in the arguments. Errors never repeat an argument that may be a secret.

        Raises ParameterError if an argument isn't a source, or if an option applies to no source.
        """
        made = cls(args.network, follows=args.follow)
        for text in args.sources:
            made._add(text)
        if made.files.count(STDIN) > 1:
            raise ParameterError("'-' is standard input: give it only once")
        for option in ("cookie", "user", "follow"):
            if getattr(args, option) and not made.nodes:
                raise ParameterError(f"--{option} is for the mempool of a node: give http://HOST:PORT as a SOURCE")
        if args.proxy is not None:
            if not made.peers:
                raise ParameterError("--proxy is for peers: give p2p://HOST:PORT as a SOURCE")
            made.proxy = Proxy.parse(args.proxy)
        if len(made.nodes) > 1 and (args.cookie is not None or args.user is not None):
            raise ParameterError(
                "--cookie and --user are for one node: give only one http:// SOURCE, so that no other node gets them"
            )
        made.credentials = credentials_of(args.cookie, args.user)
        return made

    def _add(self, text: str) -> None:
        scheme = text.partition("://")[0].lower() if is_url(text) else ""
        match scheme:
            case "tcp" | "ipc":
                self.publishers.append(text)
            case "http" | "https":
                Endpoint.parse(text)
                self.nodes.append(text)
            case "p2p":
                try:
                    self.peers.append(peer(text.partition("://")[2].rstrip("/")))
                except argparse.ArgumentTypeError:
                    raise ParameterError(
                        "a p2p:// SOURCE must be p2p://HOST or p2p://HOST:PORT, with a PORT from 1 to 65535"
                    ) from None
            case "":
                self._add_plain(text)
            case _:
                raise ParameterError(f"a SOURCE has an unknown scheme: expected {_SCHEMES}")

    def _add_plain(self, text: str) -> None:
        """Add a file, standard input, or a transaction in hex."""
        try:
            is_path = text == STDIN or (text != "" and Path(text).exists())
        except (OSError, ValueError):  # too long for a file name, or invalid as one
            is_path = False
        if is_path:
            self.files.append(text)
            return
        text = text[2:] if text[:2] in ("0x", "0X") else text
        if not _HEX.fullmatch(text):
            raise ParameterError(
                f"a SOURCE of {counted(len(text), 'character')} is neither an existing file nor hex digits nor a URL"
            )
        try:
            raw = bytes.fromhex(text)
        except ValueError:
            digits = len("".join(text.split()))
            raise ParameterError(f"a SOURCE has an odd number of hex digits: {digits:,}") from None
        if (problem := problem_of(raw)) is not None:
            raise ParameterError(f"a SOURCE in hex: {problem}")
        self.texts.append(raw)

    async def spent_by(self, raw: bytes) -> list[TxOut] | None:
        """Return the outputs that a transaction spends, from the first node that knows all of them, or None.

        Raises FormatError if the transaction is malformed, and NodeError if a node fails.
        """
        for node in self.opened:
            if (found := await node.outputs_spent_by(raw)) is not None:
                return found
        return None

    async def open(self, stack: AsyncExitStack, bad: Bad) -> Txs:
        """Open all sources, and return their transactions as they arrive.

        Subscriptions come before mempools, so that no transaction is missed between them.

        Args:
            stack: Closes the sources.
            bad: Called with a message about input that is not a transaction.

        Raises ParameterError, NodeError, SourceError or OSError.
        """
        found: list[Txs] = []
        # other messages about gaps name the address
        stack.enter_context(handled_by("spvfilter.rpc.txnotices", logging.NullHandler()))
        stack.enter_context(handled_by("spvfilter.p2p.relayed", UnrepeatedMessages()))
        for address in self.publishers:
            notices = await stack.enter_async_context(TxNotices.subscribed([address]))
            found.append(self._live(_published(notices, address, bad)))
        if self.peers:
            relayed = RelayedTransactions(self.peers, self.network, proxy=self.proxy)
            found.append(self._live(await stack.enter_async_context(relayed)))
        for url in self.nodes:
            patience = Patience(None if self.follows else Patience().seconds, complain)
            node = await stack.enter_async_context(
                FullNode.open(url, self.network, credentials=self.credentials, patience=patience)
            )
            self.opened.append(node)
            found.append(self._live(node.mempool_txs(poll_s=_POLL_S if self.follows else None)))
        for path in self.files:
            stream, name = _opened(path, stack)
            found.append(_read(stream, name, bad))
        if self.texts:
            found.append(_given(self.texts))
        for txs in found:
            stack.push_async_callback(txs.aclose)
        return found[0] if len(found) == 1 else merged(found)

    async def _live(self, txs: AsyncIterator[bytes]) -> Txs:
        """Yield the transactions from a node or from peers, and record when they arrive."""
        try:
            async for raw in txs:
                self.arrivals.note(raw)
                yield raw
        finally:
            if isinstance(txs, AsyncGenerator):
                await txs.aclose()


def _opened(path: str, stack: AsyncExitStack) -> tuple[BinaryIO, str]:
    """Return the open file, and its name in messages. Raises SourceError or OSError."""
    if path == STDIN:
        return standard_input(), "standard input"
    return stack.enter_context(Path(path).open("rb")), path


async def _read(stream: BinaryIO, name: str, bad: Bad) -> Txs:
    """Yield the transactions in a stream. Messages and errors begin with its name."""
    async with aclosing(read_txs(stream, lambda problem: bad(f"{name}: {problem}"))) as txs:
        try:
            async for raw in txs:
                yield raw
        except SourceError as error:
            raise SourceError(f"{name}: {error}") from None


async def _given(raws: Sequence[bytes]) -> Txs:
    for raw in raws:
        yield raw


async def _published(notices: TxNotices, address: str, bad: Bad) -> Txs:
    """Yield the transactions that a node publishes, and print messages about gaps and silence."""
    lost = restarts = 0
    is_told = False  # True after the message about silence
    while True:
        try:
            async with asyncio.timeout(None if notices.received or is_told else _SILENCE_S):
                raw = await anext(notices)
        except TimeoutError:
            is_told = True
            complain(
                f"{address}: no transaction yet. The node must be running with -zmqpubrawtx={address}; it publishes"
                " each transaction that its mempool accepts"
            )
            continue
        if notices.lost > lost:
            complain(f"{address}: missed {counted(notices.lost - lost, 'published transaction')}")
        if notices.restarts > restarts:
            complain(f"{address}: the node was restarted, so published transactions may be missing")
        lost, restarts = notices.lost, notices.restarts
        if (problem := problem_of(raw)) is None:
            yield raw
        else:
            bad(f"{address}: {problem}")


async def merged(found: Sequence[Txs]) -> Txs:
    """Yield the transactions from several sources as they arrive. An error in one source ends them all."""
    arrived: asyncio.Queue[bytes | Exception | None] = asyncio.Queue(_WAITING)

    async def pump(txs: Txs) -> None:
        try:
            async for raw in txs:
                await arrived.put(raw)
        except Exception as error:
            await arrived.put(error)
        else:
            await arrived.put(None)

    tasks = [asyncio.create_task(pump(txs)) for txs in found]
    left = len(tasks)
    try:
        while left:
            match await arrived.get():
                case bytes() as raw:
                    yield raw
                case None:
                    left -= 1
                case error:
                    raise error
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
