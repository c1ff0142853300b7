"""Command-line arguments shared by the commands: the parser, argument types, the watch list, hex input."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn  # argparse's own types

from spvfilter._public import deferred
from spvfilter.errors import ParameterError, SourceError
from spvfilter.network import MAINNET, NETWORKS, Network

if TYPE_CHECKING:
    import datetime
    import difflib
    import pathlib

    from spvfilter.watch import entry, textfile, watchlist
    from spvfilter.watch.watchlist import WatchList
else:  # to show --help, they are not needed
    datetime = deferred("datetime")
    difflib = deferred("difflib")
    pathlib = deferred("pathlib")
    entry = deferred("spvfilter.watch.entry")
    textfile = deferred("spvfilter.watch.textfile")
    watchlist = deferred("spvfilter.watch.watchlist")

FORMATS = ("table", "jsonl", "csv")  # in which term.matches prints

_HEX_TEXT = frozenset(b"0123456789abcdefABCDEF \t\r\n")
_TEXT = frozenset(range(32, 127)) | frozenset(b"\t\r\n")


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that takes options and positional arguments in any order and raises every error as a
    ParameterError.

    An error is one line and never repeats a positional argument, which may be a secret.
    """

    def __init__(self, **details: Any) -> None:
        super().__init__(allow_abbrev=False, **details)
        self._subcommands: argparse._SubParsersAction[Parser] | None = None
        self._is_intermixed = False

    def add_action(self, name: str, help: str, description: str) -> Parser:
        """A subcommand with arguments and --help of its own; `arguments.action` holds its name."""
        if self._subcommands is None:
            self._subcommands = self.add_subparsers(
                title="actions", dest="action", metavar="ACTION", required=True, prog=self.prog, parser_class=Parser
            )
        return self._subcommands.add_parser(name, help=help, description=description)

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """Parse the arguments. Raises ParameterError, and SystemExit after --help."""
        if (
            self._subcommands is not None
            and argv
            and not argv[0].startswith("-")
            and argv[0] not in self._subcommands.choices
        ):
            # argparse's message repeats it
            self.error(f"unknown action, expected one of: {', '.join(self._subcommands.choices)}")
        arguments: argparse.Namespace
        arguments, extra = self.parse_known_args(argv)
        self._refuse(extra)
        return arguments

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse like argparse, but in any order of options and positional arguments; a subcommand refuses unknown
        ones.
        """
        if self._subcommands is not None or self._is_intermixed:
            return super().parse_known_args(args, namespace)
        self._is_intermixed = True  # parse_known_intermixed_args calls this method again
        try:
            arguments, extra = self.parse_known_intermixed_args(args, namespace)
        finally:
            self._is_intermixed = False
        self._refuse(extra)
        return arguments, extra

    def _refuse(self, extra: Sequence[str]) -> None:
        if extra:
            options = [item.partition("=")[0][:40] for item in extra if item.startswith("-")]
            self.error(
                f"unknown option {' '.join(options)}{self._meant(options)}"
                if options
                else f"{len(extra)} argument(s) too many"
            )

    def _meant(self, options: Sequence[str]) -> str:
        """The options that unknown ones are likely to be, as a question, or nothing."""
        near = [
            match
            for option in options
            for match in difflib.get_close_matches(option, self._option_string_actions, 1, 0.8)
        ]
        return f": did you mean {' '.join(near)}?" if near else ""

    def error(self, message: str) -> NoReturn:
        raise ParameterError(f"{message} (see '{self.prog} --help')")


def add_network(parser: argparse.ArgumentParser) -> None:
    names = ", ".join(known.name for known in NETWORKS)
    parser.add_argument("--network", metavar="NAME", type=network, default=MAINNET, help=f"{names}; default mainnet")


def add_watch_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--watch",
        metavar="FILE",
        help="watch list, never written: one ADDRESS, descriptor, script:HEX, pubkey:HEX, data:HEX or "
        "outpoint:TXID:N per line, optionally followed by ,LABEL; # starts a comment; - is standard input",
    )


def watch_list(network: Network, path: str | None, addresses: Iterable[str], others: Iterable[str] = ()) -> WatchList:
    """The watch list of the file `path` (None for no file, `-` for standard input) and the addresses, descriptors, keys
    and URIs.

    `others` are the paths that the command itself reads: only one of all may be standard input. Raises ParameterError,
    WatchFileError, AddressError, OSError.
    """
    if path == "-":
        if "-" in others:
            raise ParameterError("'-' is standard input: --watch and the input to search cannot both be '-'")
        watch = watchlist.WatchList(network)
        textfile.read_into(watch, standard_input(), "standard input")
    else:
        watch = watchlist.WatchList(network) if path is None else watchlist.WatchList.load(path, network)
    for address in addresses:
        entry.add_entry(watch, address)
    return watch


def standard_input() -> BinaryIO:
    """Standard input as bytes, from a separate reader: at exit the interpreter takes sys.stdin's lock, which a pending
    read may hold.
    """
    if sys.stdin is None:  # the shell closed it
        raise SourceError("standard input is closed")
    return io.BufferedReader(io.FileIO(sys.stdin.fileno(), closefd=False), 1 << 20)


def read_hex_or_bytes(what: str, limit: int, kind: str) -> bytes:
    """Read at most `limit` bytes given as hex digits, in a file of hex digits or raw bytes, or on standard input (`-`).

    `kind` names them in errors, which never repeat `what`: it may be a key. Raises ParameterError, SourceError,
    OSError.
    """
    if what == "-":
        return _decoded(_bounded(standard_input(), limit, kind), limit, kind)
    try:
        is_file = what != "" and pathlib.Path(what).exists()
    except (OSError, ValueError):  # too long for a name, or not a possible name
        is_file = False
    if is_file:
        with pathlib.Path(what).open("rb") as file:
            return _decoded(_bounded(file, limit, kind), limit, kind)
    if not what.isascii() or not _HEX_TEXT.issuperset(what.encode("ascii")):
        raise ParameterError(f"the argument, {len(what)} characters, is neither an existing file nor hex digits")
    return _decoded(what.encode("ascii"), limit, kind)


def _bounded(file: BinaryIO, limit: int, kind: str) -> bytes:
    """The whole of a file.

    Raises ParameterError if it is longer than `limit` bytes can be as hex digits with line ends.
    """
    most = 2 * limit + 100_000
    data = file.read(most + 1)
    if len(data) > most:
        raise ParameterError(f"more than {most} bytes: {kind} has at most {limit}, or twice as many hex digits")
    return data


def _decoded(data: bytes, limit: int, kind: str) -> bytes:
    """Decode hex digits, with or without blanks and line ends; other bytes are returned as they are.

    Raises ParameterError.
    """
    if not data.strip():
        raise ParameterError("the input is empty")
    if _HEX_TEXT.issuperset(data):
        digits = b"".join(data.split()).decode("ascii")
        if len(digits) % 2:
            raise ParameterError(f"an odd number of hex digits, {len(digits)}: one is missing or extra")
        data = bytes.fromhex(digits)
    elif _TEXT.issuperset(data):
        at = next(at for at, char in enumerate(data, 1) if char not in _HEX_TEXT)
        raise ParameterError(f"text that is not hex: character {at} is not a hex digit")
    if len(data) > limit:
        raise ParameterError(f"{len(data)} bytes: {kind} has at most {limit}")
    return data


def network(text: str) -> Network:
    """Argument type: a network by its name."""
    try:
        return Network.named(text)
    except ParameterError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def day(text: str) -> int:
    """Argument type: a day as YYYY-MM-DD; its first second in UTC, in seconds since 1970."""
    try:
        date = datetime.date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a day YYYY-MM-DD, not {text[:40]!r}") from None
    return max(0, int(datetime.datetime.combine(date, datetime.time(), datetime.UTC).timestamp()))


def whole(least: int, most: int) -> Callable[[str], int]:
    """Argument type: a whole number from `least` to `most`, decimal or 0x…"""

    def parse(text: str) -> int:
        try:
            value = int(text[:24], 0) if text.isascii() and text[:1].isdigit() else -1
        except ValueError:  # also leading zeros
            value = -1
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"expected a whole number from {least} to {most}, not {text[:40]!r}")
        return value

    return parse


def probability(text: str) -> float:
    """Argument type: a number between 0 and 1, both excluded."""
    try:
        value = float(text[:40])
    except ValueError:
        value = -1.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"expected a number between 0 and 1, such as 0.0001, not {text[:40]!r}")
    return value


def hex_bytes(text: str) -> bytes:
    """Argument type: bytes in hex. An error does not repeat them: they may be a secret."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected pairs of hex digits, not these {len(text)} characters") from None
