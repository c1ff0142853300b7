"""What the commands' arguments have in common: a parser with one-line errors, number types, the watch list. No command is in here."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import BinaryIO, NoReturn

from spvfilter.errors import ParameterError, SourceError
from spvfilter.network import MAINNET, NETWORKS, Network
from spvfilter.watch.textfile import read_into
from spvfilter.watch.watchlist import WatchList


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are ParameterErrors of one line that repeat no positional argument, which may be a secret."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog=prog, allow_abbrev=False)

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """Options and positional arguments in any order. Raises ParameterError, SystemExit after --help."""
        arguments, extra = self.parse_known_intermixed_args(argv)
        if extra:
            options = [item.partition("=")[0][:40] for item in extra if item.startswith("-")]
            self.error(f"unknown option {' '.join(options)}" if options else f"{len(extra)} argument(s) too many")
        return arguments

    def error(self, message: str) -> NoReturn:
        raise ParameterError(f"{message} (see '{self.prog} --help')")


def add_network(parser: argparse.ArgumentParser) -> None:
    names = ", ".join(known.name for known in NETWORKS)
    parser.add_argument("--network", metavar="NAME", type=network, default=MAINNET, help=f"{names}; default mainnet")


def add_watch_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--watch", metavar="FILE", help="a watch list, never changed: one address, or script:HEX, pubkey:HEX, data:HEX, "
        "outpoint:TXID:N a line, each with ,LABEL behind it or not; # starts a comment; - is standard input",
    )  # fmt: skip


def watch_list(network: Network, path: str | None, addresses: Iterable[str], others: Iterable[str] = ()) -> WatchList:
    """The list in the file, if one is named, `-` for standard input unless the command reads `others` from it, and the addresses.

    Raises ParameterError, WatchFileError, AddressError, OSError.
    """
    if path == "-":
        if "-" in others:
            raise ParameterError("'-' is standard input: it cannot be both --watch and what is searched")
        watch = WatchList(network)
        read_into(watch, standard_input(), "standard input")
    else:
        watch = WatchList(network) if path is None else WatchList.load(path, network)
    for address in addresses:
        watch.add_address(address)
    return watch


def standard_input() -> BinaryIO:
    """Standard input as bytes, by a reader of its own: at exit the interpreter takes the lock of sys.stdin, which a read may hold."""
    if sys.stdin is None:  # the shell closed it
        raise SourceError("standard input is closed")
    return io.BufferedReader(io.FileIO(sys.stdin.fileno(), closefd=False), 1 << 20)


def network(text: str) -> Network:
    try:
        return Network.named(text)
    except ParameterError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def whole(least: int, most: int) -> Callable[[str], int]:
    """The type of a whole number, decimal or 0x…, in a range."""

    def parse(text: str) -> int:
        try:
            value = int(text[:24], 0) if text.isascii() and text[:1].isdigit() else -1
        except ValueError:  # also leading zeros
            value = -1
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"a whole number from {least} to {most} expected, not {text[:40]!r}")
        return value

    return parse


def probability(text: str) -> float:
    try:
        value = float(text[:40])
    except ValueError:
        value = -1.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"a number between 0 and 1 expected, such as 0.0001, not {text[:40]!r}")
    return value


def hex_bytes(text: str) -> bytes:
    """Bytes in hex; an error does not repeat them, as they may be a secret."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"hex digits in pairs expected, these {len(text)} characters are not") from None
