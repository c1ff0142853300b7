"""Command-line arguments shared by the commands: the parser, argument types, the watch list, hex input."""

from __future__ import annotations

import argparse
import errno
import inspect
import io
import re
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn, TypeVar  # argparse's own types

from spvfilter._public import deferred
from spvfilter.errors import ParameterError, SourceError, StoreCorruptError, StoreError, StoreForeignError, counted
from spvfilter.network import MAINNET, NETWORKS, SIGNET, Network

if TYPE_CHECKING:
    import datetime
    import difflib
    import pathlib

    from spvfilter.cli.term import page
    from spvfilter.cli.term.page import Page
    from spvfilter.wallet import reader
    from spvfilter.watch import entry, textfile, watchlist
    from spvfilter.watch.imports.walletfile import WalletFile
    from spvfilter.watch.watchlist import WatchList
else:  # not needed to show --help
    datetime = deferred("datetime")
    difflib = deferred("difflib")
    pathlib = deferred("pathlib")
    page = deferred("spvfilter.cli.term.page")
    reader = deferred("spvfilter.wallet.reader")
    entry = deferred("spvfilter.watch.entry")
    textfile = deferred("spvfilter.watch.textfile")
    watchlist = deferred("spvfilter.watch.watchlist")

T = TypeVar("T")

MAX_LABELS = 100_000
"""Largest number of silent payment labels (our choice, as in spvfilter.silent.scanner)."""
_DAY_S = 86_400  # seconds
_MAX_AHEAD_S = 7_200  # the block time that nodes accept ahead of their clock; LightClient allows it for a birthday
MAX_DERIVATIONS = 1_000_000  # the default of WatchList.load
_LEAST_SHORTENED = 4
"""Least number of characters in a shortened word, such as --ne for --network (our choice)."""
_PLAIN_OPTION = re.compile(r"--[a-z][a-z-]{0,30}")
"""Pattern of unknown options that a message may repeat, because neither a key nor a number matches it."""
_NUMBER = re.compile(r"[0-9][0-9.,:/_e+-]{0,19}|-[0-9][0-9.]{0,18}")
"""Pattern of wrong numbers and dates that a message may repeat: no key or word of a seed phrase matches it."""

_HEX_TEXT = frozenset(b"0123456789abcdefABCDEF \t\r\n")  # characters of hex digits in lines
_PSBT_BASE64 = b"cHNidP"  # the magic bytes of a PSBT (BIP-174), encoded
_NOT_FINAL = "a PSBT in base64: finalize it first, then pass the transaction"
_TEXT = frozenset(range(32, 127)) | frozenset(b"\t\r\n")  # characters of ASCII text


class HelpFormatter(argparse.HelpFormatter):
    """Formats help text without breaking a line inside a name such as --keep-filters."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines = textwrap.wrap(
            " ".join(text.split()), width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
        )
        return "\n".join(lines)

    def add_argument(self, action: argparse.Action) -> None:
        super().add_argument(action)
        if isinstance(action, argparse._SubParsersAction):  # argparse forgets that subcommands are indented further
            self._action_max_length = max(
                self._action_max_length, self._current_indent + 2 + max(map(len, action.choices), default=0)
            )


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that takes options and positional arguments in any order.

    Every error is a ParameterError of one line. It never repeats an argument that may be a secret, such as a key or a
    word of a seed phrase. If the argument is nearly a valid word, the error suggests the valid word.
    """

    def __init__(self, **details: Any) -> None:
        super().__init__(**{"allow_abbrev": False, "formatter_class": HelpFormatter, **details})
        self._subcommands: argparse._SubParsersAction[Parser] | None = None
        self._is_intermixed = False
        self._given: Sequence[str] = ()  # the arguments that are being parsed

    def add_action(self, name: str, help: str, description: str) -> Parser:
        """Add a subcommand with arguments and a --help of its own; `arguments.action` holds its name."""
        if self._subcommands is None:
            self._subcommands = self.add_subparsers(
                title="actions", dest="action", metavar="ACTION", required=True, prog=self.prog, parser_class=Parser
            )
        return self._subcommands.add_parser(name, help=help, description=description)

    def actions(self) -> dict[str, Parser]:
        """Return the parsers of the subcommands by name, or an empty dict if there are none."""
        return {} if self._subcommands is None else dict(self._subcommands.choices)

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """Parse the arguments. Raises ParameterError if they are invalid, and SystemExit after --help."""
        arguments: argparse.Namespace
        arguments, extra = self.parse_known_args(argv)
        self._refuse(extra)
        return arguments

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse like argparse, but allow options among positional arguments. A subcommand refuses unknown arguments."""
        self._given = args
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
        """Raise ParameterError for arguments that the command does not take."""
        if not extra:
            return
        options = [item.partition("=")[0] for item in extra if item.startswith("-")]
        if not options:
            self.error(f"{counted(len(extra), 'argument')} too many")
        shown = " ".join(option for option in options if _PLAIN_OPTION.fullmatch(option))
        near = [meant for option in options if (meant := self._meant(option))]
        self.error(f"unknown option{shown and ' '}{shown}{': did you mean ' + ' '.join(near) + '?' if near else ''}")

    def _meant(self, option: str) -> str | None:
        """Return the option that the user probably meant by an unknown one, or None.

        `--mempool false` means `--no-mempool`.
        """
        known, opposite = self._option_string_actions, f"--no-{option[2:]}"
        return opposite if opposite in known else nearest(option, known, 0.8)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a value that is not among the choices, and suggest the nearest choice without repeating the value."""
        if action.choices is None or value in action.choices:
            return
        known = one_of(str(value), action.choices)
        if action is not self._subcommands:
            raise argparse.ArgumentError(action, f"invalid choice{known}")
        is_late = self._given[0].startswith("-")
        self.error(f"the action must come before its options{known}" if is_late else f"unknown action{known}")

    def error(self, message: str) -> NoReturn:
        """Raise ParameterError. Arguments that argparse quotes in `message` are omitted: each may be a secret."""
        if message.startswith("ambiguous option"):
            message = "ambiguous option"
        for item in self._given:
            for part in (item, item.partition("=")[2], item[2:]):
                if part and not _NUMBER.fullmatch(part):
                    message = re.sub(f":? {re.escape(repr(part))}", "", message)
        raise ParameterError(f"{message} (see '{self.prog} --help')")


def nearest(word: str, known: Iterable[str], likeness: float = 0.7) -> str | None:
    """Return the known word that a misspelled or shortened word probably stands for, or None if there is none."""
    word, words = word[:40].lower(), list(known)
    begun = [each for each in words if len(word) >= _LEAST_SHORTENED and each.startswith(word)]
    found = begun if len(begun) == 1 else difflib.get_close_matches(word, words, 1, likeness)
    return found[0] if found else None


def one_of(word: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown word: a suggestion, or all known words.

    The result does not repeat the unknown word.
    """
    choices = [str(each) for each in known]
    begun = [each for each in choices if len(word) >= _LEAST_SHORTENED and each.startswith(word.lower())]
    meant = " or ".join(begun) if len(begun) == 2 else nearest(word, choices)
    return f": did you mean {meant}?" if meant else f": choose from {', '.join(choices)}"


def shown(text: str) -> str:
    """Return the end of a message about a wrong number or date, such as `, not 0`.

    The result is empty if the text may be a secret.
    """
    return f", not {text}" if _NUMBER.fullmatch(text) else ""


def add_network(parser: argparse.ArgumentParser, *, has_database: bool = False) -> None:
    """Add `--network` and `--signet-challenge`.

    If `has_database` is True, the default is None, so call `network_of` to get the network.
    """
    names = ", ".join(known.name for known in NETWORKS)
    default = "the network of an existing --db, otherwise mainnet" if has_database else "mainnet"
    parser.add_argument(
        "--network",
        metavar="NAME",
        action=_ChooseNetwork,
        type=network,
        default=None if has_database else MAINNET,
        help=f"{names}; default: {default}",
    )
    parser.add_argument(
        "--signet-challenge",
        metavar="HEX",
        action=_ChooseNetwork,
        dest="network",
        type=signet,
        default=argparse.SUPPRESS,
        help="the custom signet with this challenge script (bitcoin.conf: signetchallenge)",
    )


class _ChooseNetwork(argparse.Action):
    """Sets the network. A custom signet can be combined with `--network signet`, in either order."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        given = vars(namespace).setdefault("networks", set())
        given.add(values)
        if len(others := given - {SIGNET}) > 1 and any(each.signet_challenge for each in others):
            names = " and ".join(sorted(each.name[:40] for each in given))
            raise argparse.ArgumentError(self, f"{names} are different networks")
        custom = [each for each in others if each.signet_challenge]
        namespace.network = custom[0] if custom else values


def network_of(args: argparse.Namespace) -> Network:
    """Return the network of the database `args.db` if it exists, else `args.network` if it is given, else mainnet.

    Raises ParameterError if the database and the --network option contradict each other, and StoreError if the database
    cannot be read.
    """
    stored = None if args.db is None else _stored_network(args)
    if stored is not None and args.network not in (None, stored):
        raise ParameterError(
            f"--network {args.network} contradicts {args.db}, which is a {stored} database: omit --network"
        )
    return stored or args.network or MAINNET


def _stored_network(args: argparse.Namespace) -> Network | None:
    """Return the network of the database `args.db`, or None if there is no database yet."""
    rebuilds = getattr(args, "rebuild", False)
    try:
        with reader.WalletStore.open(args.db) as wallet:
            return wallet.network
    except (StoreCorruptError, StoreForeignError):
        if not rebuilds:
            raise
        if args.network is None:
            raise ParameterError(f"{args.db} does not say which network it is for: also give --network NAME") from None
    except StoreError as error:
        if type(error) is not StoreError:  # else there is no file, or it is still empty
            raise
    return None


def options_of(made: Callable[..., T], args: argparse.Namespace, **given: object) -> T:
    """Return the options of a command: a dataclass whose fields are named after the arguments.

    `given` contains values that take precedence over those in `args`. Raises ParameterError if the options contradict
    each other.
    """
    names = inspect.signature(made).parameters
    return made(**{name: given[name] if name in given else getattr(args, name) for name in names})


def add_format(parser: argparse.ArgumentParser, *more: str) -> None:
    """Add `--format` with the formats table, jsonl and `more`; call `format_of` for the default."""
    described = {"csv": "csv (the same columns and a header)", "parquet": "parquet (only with --out DIR)"}
    formats = ", ".join(("table", "jsonl (one JSON object per line)", *(described[each] for each in more)))
    parser.add_argument(
        "--format",
        choices=("table", "jsonl", *more),
        help=f"{formats}; default: table on a terminal, jsonl elsewhere",
    )


def format_of(chosen: str | None, page: Page) -> str:
    """Return the output format that the user chose, by default `table` on a terminal and `jsonl` elsewhere."""
    return chosen or ("table" if page.is_terminal else "jsonl")


def add_watch_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--watch",
        metavar="FILE",
        help="a watch list; the file is not changed. Each line is an ADDRESS, a descriptor, script:HEX, pubkey:HEX,"
        " data:HEX or outpoint:TXID:N, and optionally ,LABEL. account:NAME begins the section of an account. #"
        " starts a comment. - is standard input. FILE may also be a compiled list (spvfilter watchlist build), or"
        " a file that a wallet exported: Bitcoin Core, Sparrow, Electrum and others",
    )
    add_strict(parser)
    parser.add_argument(
        "--max-derivations",
        metavar="N",
        type=whole(0, 10**12),
        default=MAX_DERIVATIONS,
        help=(
            "refuse a --watch file whose descriptors derive more than N keys; default %(default)s. They are counted"
            " before they are derived"
        ),
    )


def add_labels(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--labels",
        metavar="N",
        type=whole(0, MAX_LABELS),
        help=(
            "for silent payments: search for labels 1 to N, at most 100,000, if you have lost the wallet's data;"
            " default: the sp-label:N,LABEL lines of the watch list"
        ),
    )


def add_strict(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--strict",
        action="store_true",
        help="refuse a descriptor whose extended keys have no wildcard *, because it has only one address",
    )


def watch_list(
    network: Network,
    path: str | None,
    addresses: Iterable[str],
    others: Iterable[str] = (),
    *,
    strict: bool,
    max_derivations: int,
    birthday_option: str | None = None,
    allows_patterns: bool = False,
) -> WatchList:
    """Return the watch list that contains the entries of a file and of arguments.

    Args:
        network: The network of the addresses.
        path: The file, `-` for standard input, or None for no file.
        addresses: Addresses, descriptors, extended public keys and URIs.
        others: Paths that the command itself reads. Only one of all paths may be standard input.
        strict: True to refuse descriptors without a wildcard.
        max_derivations: Largest number of keys that the descriptors of the file may derive.
        allows_patterns: True for a scan of blocks, which can search for data prefixes and script types.
        birthday_option: Option that sets the birthday. If a wallet file gives a birthday, a message names this option.

    Raises:
        ParameterError: `path` and one of `others` are standard input, an entry is invalid, or the file contains no
            entries.
        WatchFileError: The file has invalid lines.
        OSError: The file cannot be read.
    """
    watch, wallet = watchlist.WatchList(network, require_ranged=strict), None
    if path == "-":
        if "-" in others:
            raise ParameterError("'-' is standard input: --watch and the input to search cannot both be '-'")
        wallet = textfile.read_into(
            watch, standard_input(), "standard input", max_derivations, allows_patterns=allows_patterns
        )
    elif path is not None:
        wallet = textfile.load(watch, path, max_derivations, allows_patterns=allows_patterns)
    for address in addresses:
        try:
            entry.add_entry(watch, address)
        except ParameterError:
            if _is_file(address):
                raise ParameterError(f"{address} is a path: to give a file, write --watch {address}") from None
            if "," in address.rpartition(")")[2]:
                raise ParameterError(
                    "an argument has a comma after its address or descriptor: separate entries with spaces, and"
                    " write labels in a --watch file, as ENTRY,LABEL"
                ) from None
            raise
    if path is not None and watch.is_empty:
        raise ParameterError(f"{'standard input' if path == '-' else path} has no entries: write one on each line")
    if birthday_option is not None and wallet is not None:
        _name_birthday(wallet, birthday_option)
    return watch


def _name_birthday(wallet: WalletFile, option: str) -> None:
    """Print the birthday in a wallet file, and the option that sets it.

    It is not applied automatically, because the file may be wrong.
    """
    if wallet.birthday is not None:
        # the clocks of wallets and of miners differ, so the day before is safe
        begins = datetime.datetime.fromtimestamp(max(0, wallet.birthday - _DAY_S), datetime.UTC).date()
        page.complain(f"the wallet file gives a birthday: {option} {begins} skips older blocks")
    elif wallet.birth_height is not None:
        page.complain(f"the wallet file gives a birthday: --from-height {wallet.birth_height} skips older blocks")


def standard_input() -> BinaryIO:
    """Return standard input as a binary stream. Raises SourceError if it is closed.

    The stream is not sys.stdin itself: at exit the interpreter locks sys.stdin, whose lock a pending read may hold.
    """
    if sys.stdin is None:  # the shell closed it
        raise SourceError("standard input is closed")
    return io.BufferedReader(io.FileIO(sys.stdin.fileno(), closefd=False), 1 << 20)


def read_hex_or_bytes(what: str, limit: int, kind: str) -> bytes:
    """Return the bytes that a command's argument contains, or those in the file that it names.

    Args:
        what: Hex digits, the path of a file of hex digits or raw bytes, or `-` for standard input. It may be a key, so
            no error repeats it.
        limit: Largest number of bytes.
        kind: Name of such bytes in errors, such as "a transaction".

    Raises:
        ParameterError: The argument or its contents are invalid, or there are more than `limit` bytes.
        SourceError: Standard input is closed.
        OSError: The file cannot be read.
    """
    if what == "-":
        stream = standard_input()
        if stream.isatty():
            page.complain("type or paste hex digits, then press Enter and Ctrl-D")
        return _decoded(_bounded(stream, limit, kind), limit, kind)
    if _is_file(what):
        with pathlib.Path(what).open("rb") as file:
            try:
                return _decoded(_bounded(file, limit, kind), limit, kind)
            except ParameterError as error:
                raise ParameterError(f"{what}: {error}") from None
    if what.startswith(_PSBT_BASE64.decode("ascii")):
        raise ParameterError(_NOT_FINAL)
    if not what.isascii() or not _HEX_TEXT.issuperset(_plain_hex(what.encode("ascii"))):
        raise ParameterError(
            f"the argument, {counted(len(what), 'character')}, is neither an existing file nor hex digits"
        )
    return _decoded(what.encode("ascii"), limit, kind)


def _is_file(what: str) -> bool:
    """Return True if an argument is the path of an existing file or folder."""
    try:
        return what != "" and pathlib.Path(what).exists()
    except (OSError, ValueError):  # too long for a file name, or invalid as one
        return False


def _bounded(file: BinaryIO, limit: int, kind: str) -> bytes:
    """Read a whole file. Raises ParameterError if it is longer than `limit` bytes as hex digits and line endings."""
    most = 2 * limit + 100_000
    data = file.read(most + 1)
    if len(data) > most:
        longest = f"{limit} bytes long, or twice as many hex digits"
        raise ParameterError(f"more than {most} bytes: {kind} must be at most {longest}")
    return data


def _plain_hex(data: bytes) -> bytes:
    """Return the text without the 0x that other programs print before hex digits."""
    return data.lstrip()[2:] if data.lstrip()[:2].lower() == b"0x" else data


def _decoded(data: bytes, limit: int, kind: str) -> bytes:
    """Decode hex digits, with or without blanks, line endings and a leading 0x. Other bytes are returned unchanged.

    Raises ParameterError if the number of digits is odd, the text is not hex, or there are more than `limit` bytes.
    """
    plain = _plain_hex(data)
    if not plain.strip():
        raise ParameterError("the input is empty")
    if _HEX_TEXT.issuperset(plain):
        digits = b"".join(plain.split()).decode("ascii")
        if len(digits) % 2:
            raise ParameterError(f"expected an even number of hex digits, got {len(digits)}: one is missing or extra")
        data = bytes.fromhex(digits)
    elif data.startswith(_PSBT_BASE64):
        raise ParameterError(_NOT_FINAL)
    elif _TEXT.issuperset(data):
        at = next(at for at, char in enumerate(data, 1) if char not in _HEX_TEXT)
        raise ParameterError(f"the text is not hex: character {at} is not a hex digit")
    if len(data) > limit:
        raise ParameterError(f"{len(data)} bytes: {kind} must be at most {limit} bytes long")
    return data


def cannot_listen(host: str, port: int, error: OSError) -> ParameterError:
    """Turn asyncio's error into the error for a server that cannot listen on an address."""
    why = (error.strerror or str(error)).rpartition(": ")[2]
    why = why.removeprefix(f"[errno {error.errno}] ")  # asyncio has added it since Python 3.13
    advice = ": choose another with --port" if error.errno == errno.EADDRINUSE else ""
    return ParameterError(f"cannot listen on {host} port {port}: {why}{advice}")


def network(text: str) -> Network:
    """Argument type: the name of a network."""
    known = {each.name: each for each in NETWORKS}
    if text not in known:
        raise argparse.ArgumentTypeError(f"unknown network{one_of(text, known)}")
    return known[text]


def signet(text: str) -> Network:
    """Argument type: a signet, given as its challenge in hex."""
    try:
        return Network.signet(text)
    except ParameterError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def day(text: str) -> int:
    """Argument type: a day as YYYY-MM-DD. The value is its first second in UTC (Unix time)."""
    try:
        date = datetime.date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a day YYYY-MM-DD{shown(text)}") from None
    return max(0, int(datetime.datetime.combine(date, datetime.time(), datetime.UTC).timestamp()))


def birthday(text: str) -> datetime.date | int:
    """Argument type: a day as YYYY-MM-DD, or a Unix time, but not one in the future."""
    try:
        found = int(text) if text.isascii() and text.isdigit() else datetime.date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a day YYYY-MM-DD or a Unix time{shown(text)}") from None
    now = time.time() + _MAX_AHEAD_S
    if found > now if isinstance(found, int) else found > datetime.datetime.fromtimestamp(now, datetime.UTC).date():
        raise argparse.ArgumentTypeError(f"{text} is in the future: give the day on which the wallet was created")
    return found


def whole(least: int, most: int) -> Callable[[str], int]:
    """Argument type: a whole number from `least` to `most`, decimal or 0x…"""

    def parse(text: str) -> int:
        try:
            value = int(text[:24], 0) if text.isascii() and text[:1].isdigit() else -1
        except ValueError:  # such as 010
            value = -1
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"expected a whole number from {least} to {most}{shown(text)}")
        return value

    return parse


def seconds(least: float = 0.0) -> Callable[[str], float]:
    """Argument type: a number of seconds, up to a day and at least `least`, or above 0 if `least` is 0."""

    def parse(text: str) -> float:
        try:
            value = float(text[:40])
        except ValueError:
            value = 0.0
        if not (0 < value <= _DAY_S and value >= least):
            begin = f"from {least:g} to" if least else "above 0 and up to"
            raise argparse.ArgumentTypeError(f"expected a number of seconds {begin} {_DAY_S}{shown(text)}")
        return value

    return parse


def probability(text: str) -> float:
    """Argument type: a number between 0 and 1, exclusive."""
    try:
        value = float(text[:40])
    except ValueError:
        value = -1.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"expected a number between 0 and 1, such as 0.0001{shown(text)}")
    return value


def hex_bytes(text: str) -> bytes:
    """Argument type: bytes in hex. Errors do not repeat them, because they may be a secret."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected pairs of hex digits, got {counted(len(text), 'character')}"
        ) from None
