"""Options of commands that connect to full nodes (`watch`, `electrum`, `broadcast`), and messages about those nodes."""

from __future__ import annotations

import argparse
import datetime
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from spvfilter.cli.arguments import seconds, watch_list
from spvfilter.cli.credentials import check_credentials, credentials_of
from spvfilter.cli.nodesource import Helper, NodeSource, ServerSource
from spvfilter.cli.secrets import Secrets
from spvfilter.cli.term.page import shorten
from spvfilter.errors import ParameterError, PrivacyError, StoreLockedError, counted
from spvfilter.light.events import Mode, PeerWarning
from spvfilter.network import Network
from spvfilter.p2p.address import Address
from spvfilter.p2p.proxy import Proxy
from spvfilter.store.lock import SUFFIX
from spvfilter.watch.watchlist import WatchList
from spvfilter.wire.transport import V2Policy

LOCAL = ("127.0.0.1", "::1", "localhost")
"""Host names and addresses that mean this computer."""
_LONGEST_NAME = 25
"""Largest number of characters in a host name without a dot (our choice). A longer name is probably a Bitcoin address
or a key, so it is not resolved: no resolver must see it.
"""
_LONGEST_COMMAND = 200  # largest number of characters of another process's command line in a message
_CREDENTIALS = re.compile(r"(?<=//)[^/@\s]*@")  # USER:PASSWORD@ in a URL
_PASSWORD = re.compile(r"(-[\w-]*(?:pass|secret|seed|mnemonic|token)[\w-]*[= ])(?!-)\S+", re.IGNORECASE)
"""An option of another program whose value is probably a secret."""


def add_nodes(parser: argparse.ArgumentParser) -> None:
    """Add --connect, --discover, --proxy, --v2 and --mode."""
    add_connections(parser)
    parser.add_argument(
        "--mode",
        choices=[str(mode) for mode in Mode],
        default=Mode.AUTO,
        help=(
            "With compact, nodes learn only which blocks are fetched. With bip37, nodes get a filter that matches the"
            " wallet. auto (default) is compact if a node serves compact filters that can find every watched entry,"
            " else bip37"
        ),
    )


def add_mempool_groups(parser: argparse.ArgumentParser) -> None:
    """Add --mempool-groups."""
    parser.add_argument(
        "--mempool-groups",
        metavar="N",
        type=int,
        choices=(1, 2),
        default=2,
        help=(
            "count other people's unconfirmed transactions once N network groups have announced them: 2 (default) or"
            " 1. With a single --connect, or if all nodes are in the same group, one announcement is always enough"
        ),
    )


def add_connections(parser: argparse.ArgumentParser) -> None:
    """Add --connect, --discover, --proxy and --v2."""
    parser.add_argument(
        "--connect",
        metavar="HOST:PORT",
        type=peer,
        action="append",
        default=[],
        help="a full node; PORT defaults to the network's; repeatable",
    )
    parser.add_argument(
        "--discover",
        action="store_true",
        help=(
            "find more nodes: ask other nodes, and DNS seeds, which learn that you use Bitcoin; --db keeps the"
            " addresses"
        ),
    )
    add_proxy(parser)
    parser.add_argument(
        "--v2",
        choices=[str(policy) for policy in V2Policy],
        default=V2Policy.PREFER,
        help=(
            "encrypt connections (BIP-324): prefer (default) tries this with nodes that offer it and with those given"
            " by --connect; require uses only encrypted connections; off uses none. Without the bip324 extra, prefer"
            " means off"
        ),
    )


@dataclass(frozen=True, kw_only=True)
class ClientOptions:
    """The options of a command that runs a light client. Each field holds the option of the same name.

    Raises ParameterError if the options contradict each other.
    """

    watch: str | None
    strict: bool
    max_derivations: int
    network: Network
    connect: list[str]
    discover: bool
    proxy: str | None
    v2: str
    mode: str
    mempool_groups: int
    db: str | None
    from_height: int | None
    birthday: datetime.date | int | None
    rescan: bool
    node: str | None
    tweaks: str | None
    cookie: str | None
    user: str | None

    def __post_init__(self) -> None:
        check_nodes(self.connect, discover=self.discover)
        if self.node is None and (self.cookie is not None or self.user is not None):
            raise ParameterError("--cookie and --user need --node")
        check_credentials(self.cookie, self.user)
        if self.node is not None and self.tweaks is not None:
            raise ParameterError("give either --node or --tweaks: each of them finds all silent payments")

    def source(self) -> Helper | None:
        """Return the source that --node or --tweaks names.

        Raises ParameterError if a URL is wrong or a password is missing.
        """
        if self.tweaks is not None:
            server = ServerSource(self.tweaks, self.network)
            if self.proxy is not None and server.endpoint.host not in LOCAL:
                raise ParameterError(
                    "--proxy does not apply to --tweaks, so the server would see your address: open a tunnel on this"
                    " computer and pass its address to --tweaks, or omit --proxy"
                )
            return server
        if self.node is None:
            return None
        return NodeSource(self.node, self.network, credentials_of(self.cookie, self.user))

    def watch_list(self, addresses: Iterable[str] = ()) -> WatchList:
        """Return the watch list that the options describe, with these addresses added.

        Raises ParameterError, WatchFileError or OSError.
        """
        is_since_known = self.from_height is not None or self.birthday is not None
        return watch_list(
            self.network,
            self.watch,
            addresses,
            strict=self.strict,
            max_derivations=self.max_derivations,
            birthday_option=None if is_since_known else "--birthday",
        )


def add_proxy(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--proxy",
        metavar="URL",
        type=proxy,
        help="socks5://[USER:PASSWORD@]HOST:PORT, such as Tor's; it also resolves host names",
    )


def add_timeout(parser: argparse.ArgumentParser, default: float, help: str) -> None:
    parser.add_argument("--timeout", metavar="SECONDS", type=seconds(), default=default, help=help)


def check_nodes(connect: Sequence[str], *, discover: bool) -> None:
    """Raise ParameterError if the options name no node and do not allow a search for nodes."""
    if not connect and not discover:
        raise ParameterError("no node to connect to: give --connect HOST:PORT, or --discover")


def peer(text: str) -> str:
    """Argument type: HOST or HOST:PORT. An error does not repeat the text, which may be a key."""
    try:
        host = Address.parse(text, 1).host
    except ParameterError:
        host = ""
    if "://" in text:
        raise argparse.ArgumentTypeError("expected the HOST:PORT of a node's peer-to-peer port, not a URL")
    if not host or (len(host) > _LONGEST_NAME and not {".", ":"} & set(host)):
        raise argparse.ArgumentTypeError(
            f"expected HOST or HOST:PORT (1 to 65535), got {counted(len(text), 'character')}"
        )
    return text


def proxy(text: str) -> str:
    """Argument type: the URL of a SOCKS5 proxy."""
    try:
        Proxy.parse(text)
    except ParameterError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


class PeerMessages:
    """Turns warnings about peers into messages. A warning that repeats for the same peer yields only one message."""

    def __init__(self) -> None:
        self._last: dict[str, str] = {}  # the last warning about each address, without its numbers

    def connected(self, address: str) -> None:
        """Record that a peer is connected: its next warning yields a message even if it repeats the previous one."""
        self._last.pop(address, None)

    def of(self, event: PeerWarning) -> str | None:
        """Return the message for a warning, or None if it repeats the previous warning about this peer."""
        kind = re.sub(r"[0-9.]+", "#", event.cause)
        if self._last.get(event.address) == kind:
            return None
        self._last[event.address] = kind
        if ":" not in event.address:  # only a peer's address has a port
            return f"DNS seed {event.address}: {event.cause}"
        if isinstance(event.error, PrivacyError):  # the connection continues
            return f"{event.address}: {event.cause}"
        end = "banned for a day" if event.banned else "it will be retried"
        return f"{event.address}: {event.cause}; {end}"


def in_use(error: StoreLockedError, db: str, advice: str) -> StoreLockedError:
    """Return the error for a database that another process has open.

    It includes that process's command line if known.
    """
    process = _holder(db)
    if process is None or process == os.getpid():
        return error
    command = _command_line(process)
    named = f"process {process}{f' ({command})' if command else ''}"
    return StoreLockedError(f"{db}: in use by {named}: {advice}")


def _holder(db: str) -> int | None:
    """Return the id of the process that has the database open, or None if it is unknown.

    The id is read from the lock file next to the database.
    """
    try:
        text = Path(os.path.realpath(db) + SUFFIX).read_text(encoding="ascii")
    except (OSError, ValueError):
        return None
    return int(text) if text.isdigit() else None


def _command_line(process: int) -> str:
    """Return the command line of a process without passwords, keys and seed phrases.

    The result is empty on systems without /proc.
    """
    try:
        raw = Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return ""
    words = raw.decode("utf-8", "replace").rstrip("\0").split("\0")
    # an argument with blanks, such as a program after -c, may look like a phrase: then it is hidden as a whole, not
    # word by word
    unquoted = Secrets([word if len(word.split()) == 1 else "" for word in words])
    shown = " ".join(
        word if Secrets([word]).hide(word) == unquoted.hide(word) == word else "(hidden)" for word in words
    )
    return shorten(_PASSWORD.sub(r"\1(hidden)", _CREDENTIALS.sub("", shown)), _LONGEST_COMMAND)
