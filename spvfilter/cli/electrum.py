"""`spvfilter electrum`: an Electrum server for wallets on this machine, and its status."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

from spvfilter.cli.arguments import add_network, add_watch_file, cannot_listen, network_of, options_of, whole
from spvfilter.cli.interrupts import on_signal
from spvfilter.cli.nodes import ClientOptions, PeerMessages, add_connections, add_mempool_groups, in_use
from spvfilter.cli.nodesource import Helper, NodeSource, ServerSource, add_node, warn_of_server
from spvfilter.cli.term.balances import Balances
from spvfilter.cli.term.page import Page, complain
from spvfilter.cli.watch.command import add_start, tick
from spvfilter.cli.watch.status import StatusDisplay, status
from spvfilter.electrum.limits import ElectrumLimits
from spvfilter.electrum.server import LOCAL, TCP_PORT, TLS_PORT, ElectrumServer
from spvfilter.electrum.status import METHOD, ElectrumStatus
from spvfilter.errors import ParameterError, StoreLockedError
from spvfilter.light.client import LightClient
from spvfilter.light.events import (
    BroadcastChanged,
    BroadcastProgress,
    FeeWarning,
    Mode,
    PeerChanged,
    PeerWarning,
    PendingWarning,
    Progress,
    Synced,
)
from spvfilter.wallet.events import WalletEvent

_ANSWER_S = 10.0  # seconds that `status` waits for the server
_MAX_ANSWER = 10_000_000  # largest answer, in bytes
_SHOWN = 20  # unknown script hashes that the server names
_LOOK_S = 0.5  # seconds between two checks for unknown script hashes


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "spvfilter electrum --watch FILE --db FILE --connect HOST:PORT [OPTION]\n"
        "       spvfilter electrum status [--port N]"
    )
    parser.description = (
        "Run an Electrum server on this machine. Electrum, Sparrow and other wallets that connect to it see the"
        " payments of the watch list. The server knows no other scripts. `status` shows what a running server does."
        " Press Ctrl-C to stop the server."
    )
    parser.add_argument(
        "action", nargs="?", choices=("serve", "status"), default="serve", help="serve (default), or status"
    )
    add_watch_file(parser)
    parser.add_argument("--db", metavar="FILE", help="keep headers, matches and proofs in FILE")
    add_connections(parser)
    parser.add_argument(
        "--mode",
        choices=(Mode.COMPACT.value, Mode.BIP37.value),
        default=Mode.COMPACT.value,
        help=(
            "With compact (default), nodes learn only which blocks are fetched. With bip37, nodes get a filter that"
            " matches the wallet"
        ),
    )
    add_network(parser, has_database=True)
    add_mempool_groups(parser)
    add_start(parser)
    parser.add_argument(
        "--listen",
        metavar="ADDRESS",
        default=LOCAL[0],
        help="address to listen on; every program that can connect to it sees the wallet; default %(default)s",
    )
    parser.add_argument(
        "--port", metavar="N", type=whole(0, 65_535), default=TCP_PORT, help="port for TCP; default %(default)s"
    )
    parser.add_argument(
        "--tls-port",
        metavar="N",
        type=whole(0, 65_535),
        help=f"port for TLS, which needs --certificate; default {TLS_PORT}",
    )
    parser.add_argument(
        "--certificate", metavar="FILE", help="a certificate in PEM format; the server then also listens with TLS"
    )
    limits = ElectrumLimits()
    for option, default, said in (
        ("--max-sessions", limits.sessions, "maximum number of simultaneous connections"),
        ("--max-subscriptions", limits.subscriptions, "maximum number of scripts that one session may subscribe to"),
        ("--max-all-subscriptions", limits.all_subscriptions, "maximum number of subscriptions across all sessions"),
        ("--max-memory", limits.memory, "maximum memory for large requests and answers across all sessions, in bytes"),
        ("--max-request", limits.request_size, "maximum size of a request or a batch, in bytes"),
        ("--max-answer", limits.response_size, "maximum size of an answer, in bytes"),
    ):
        parser.add_argument(
            option, metavar="N", type=whole(1, 1 << 40), default=default, help=f"{said}; default {default:,}"
        )
    parser.add_argument("--key", metavar="FILE", help="private key of the certificate; default: the same file")
    add_node(parser)


@dataclass(frozen=True, kw_only=True)
class ElectrumOptions(ClientOptions):
    """The options of the server. Each field holds the option of the same name.

    Raises ParameterError if the options contradict each other.
    """

    listen: str
    port: int
    tls_port: int | None
    certificate: str | None
    key: str | None
    max_sessions: int
    max_subscriptions: int
    max_all_subscriptions: int
    max_memory: int
    max_request: int
    max_answer: int

    def __post_init__(self) -> None:
        if self.certificate is None and (self.tls_port is not None or self.key is not None):
            raise ParameterError("TLS needs a certificate: give --certificate FILE")
        if self.db is None:
            raise ParameterError("the server needs --db FILE, which keeps the wallet's transactions and proofs")
        if self.watch is None and not Path(self.db).exists():
            raise ParameterError(f"nothing to watch for: {self.db} does not exist yet: give --watch FILE")
        super().__post_init__()

    @property
    def tls_port_used(self) -> int | None:
        """The port for TLS, or None if there is no certificate."""
        if self.certificate is None:
            return None
        return TLS_PORT if self.tls_port is None else self.tls_port

    @property
    def limits(self) -> ElectrumLimits:
        """The limits of the server."""
        return ElectrumLimits(
            sessions=self.max_sessions,
            subscriptions=self.max_subscriptions,
            all_subscriptions=self.max_all_subscriptions,
            memory=self.max_memory,
            request_size=self.max_request,
            response_size=self.max_answer,
        )


def run(args: argparse.Namespace) -> int:
    page = Page(sys.stdout)
    if args.action == "status":
        _show_status(page, asyncio.run(_ask_status(args.listen, args.port)))
        return 0
    options = options_of(ElectrumOptions, args, network=None if args.db is None else network_of(args))
    source = options.source()
    client = LightClient(
        options.watch_list(),
        peers=options.connect,
        store=options.db,
        mode=Mode(options.mode),
        from_height=options.from_height,
        birthday=options.birthday,
        proxy=options.proxy,
        discover=options.discover,
        v2=options.v2,
        mempool_groups=options.mempool_groups,
        spent_source=source if isinstance(source, NodeSource) else None,
        tweak_source=source if isinstance(source, ServerSource) else None,
    )
    server = ElectrumServer(
        client,
        host=options.listen,
        port=options.port,
        tls_port=options.tls_port_used,
        certificate=options.certificate,
        key=options.key,
        limits=options.limits,
    )
    if options.mode == Mode.BIP37:
        complain("warning: --mode bip37 gives nodes a filter that matches the wallet")
    warn_of_server(source)
    if options.listen not in LOCAL:
        complain(f"warning: every program that can connect to {options.listen} sees the wallet and its addresses")
    asyncio.run(_serve(client, source, server, options, page))
    return 0


async def _serve(
    client: LightClient,
    source: Helper | None,
    server: ElectrumServer,
    options: ElectrumOptions,
    page: Page,
) -> None:
    """Serve until a signal arrives, or until the client stops on its own."""
    stopped = asyncio.Event()
    async with AsyncExitStack() as stack:
        for number in (signal.SIGINT, signal.SIGTERM):
            stack.callback(on_signal(number, stopped.set))
        if source is not None:
            await stack.enter_async_context(source)
        try:
            await stack.enter_async_context(client)
        except StoreLockedError as error:
            raise in_use(error, str(options.db), "stop it first") from None
        if options.rescan:
            await client.rescan(from_height=options.from_height, birthday=options.birthday)
        try:
            await stack.enter_async_context(server)
        except UnicodeError:
            raise ParameterError("--listen is not a host name or an address") from None
        except OSError as error:
            raise cannot_listen(options.listen, options.port, error) from error
        for port, name in ((server.port, "TCP"), (server.tls_port, "TLS")):
            if port is not None:
                page.line(f"Electrum server on {options.listen} port {port} ({name})")
        with status(page.console, Balances()) as shown:
            tasks = [
                asyncio.create_task(each)
                for each in (
                    stopped.wait(),
                    server.wait_closed(),
                    _follow(client, shown, page),
                    _name_unknown(server, shown),
                    tick(shown),
                )
            ]
            try:
                done, _ = await asyncio.wait(tasks[:3], return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        for task in done:
            task.result()
    page.line("stopped")


async def _follow(client: LightClient, shown: StatusDisplay, page: Page) -> None:
    """Show the progress of the search, and problems with nodes."""
    peers, is_synced = PeerMessages(), False
    async for event in client.events(since=(await client.balance()).sequence):
        match event:
            case Progress(phase, done, total):
                shown.progress(phase.value, done, total)
            case Synced(height):
                shown.synced(height, sees_unconfirmed=event.sees_unconfirmed)
                if not is_synced:
                    is_synced = True
                    shown.clear()
                    page.line(f"up to date, height {height:,}")
            case PeerChanged(address, agent, transport):
                shown.peer(address, agent, transport)
                if address is not None:
                    peers.connected(address)
            case PeerWarning():
                if (message := peers.of(event)) is not None:
                    shown.complain(message)
            case FeeWarning() | PendingWarning() | BroadcastProgress() | BroadcastChanged():
                pass
            case _ if isinstance(event, WalletEvent):
                pass
            case _:
                assert_never(event)


async def _name_unknown(server: ElectrumServer, shown: StatusDisplay) -> None:
    """Name the first few script hashes that wallets ask for but the watch list lacks."""
    named: dict[str, None] = {}
    while len(named) < _SHOWN:
        for script_hash in server.status.unknown:
            if script_hash not in named and len(named) < _SHOWN:
                named[script_hash] = None
                shown.complain(
                    f"unknown script hash {script_hash}: a wallet asked for it, but no entry of the watch list has it"
                )
        await asyncio.sleep(_LOOK_S)


async def _ask_status(host: str, port: int) -> ElectrumStatus:
    """Ask a running server for its status. Raises ParameterError if no server answers."""
    request = json.dumps({"jsonrpc": "2.0", "id": 0, "method": METHOD, "params": []}).encode("ascii")
    try:
        async with asyncio.timeout(_ANSWER_S):
            reader, writer = await asyncio.open_connection(host, port, limit=_MAX_ANSWER)
            try:
                writer.write(request + b"\n")
                answer = json.loads(await reader.readuntil(b"\n"))["result"]
            finally:
                writer.close()
        return ElectrumStatus(**{**answer, "unknown": tuple(answer["unknown"])})
    except (asyncio.IncompleteReadError, ConnectionResetError):
        raise ParameterError(
            f"the server on {host} port {port} closed the connection: it may have reached its session limit"
        ) from None
    except (OSError, asyncio.LimitOverrunError, UnicodeError):
        raise ParameterError(f"no server answers on {host} port {port}: start spvfilter electrum") from None
    except (ValueError, TypeError, KeyError):
        raise ParameterError(f"the server on {host} port {port} is not spvfilter electrum") from None


def _show_status(page: Page, found: ElectrumStatus) -> None:
    others = found.sessions - 1  # not counting the connection that asked
    page.line(f"sessions: {others}, subscriptions: {found.subscriptions}")
    page.line(f"blocks searched: {found.searched_height:,} of {found.tip_height:,}")
    page.line(f"unknown script hashes: {found.unknown_count:,}")
    if found.unknown_count:
        page.line("Wallets asked for them, but none is in the watch list. The server's terminal names the first few.")
        page.line("Add the descriptor of that wallet, or the file that it exports, to --watch FILE.")
