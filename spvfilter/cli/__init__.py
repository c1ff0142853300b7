"""The command line: the table of commands, error messages and exit codes."""

from __future__ import annotations

import io
import os
import re
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module

from spvfilter._version import __version__
from spvfilter.cli.interrupts import never_lost
from spvfilter.cli.term.page import complain
from spvfilter.errors import ParameterError, SpvFilterError, SpvFilterWarning, WatchFileError

OK, ERROR, INTERRUPTED, BROKEN_PIPE = 0, 2, 130, 141  # a command may also end with 1: see HELP

HELP = """\
usage: spvfilter COMMAND [ARGUMENT ...]
       spvfilter COMMAND --help
       spvfilter --version

Which of these transactions concern my wallet?

  filterload  make a BIP-37 filter of addresses, keys, data and outpoints
  inspect     show what a filterload payload, a transaction or a block holds
  scan        find a wallet's payments in blocks
  watch       follow a wallet live through full nodes
  wallet      show a wallet's balance, coins and history from its database
  descriptor  show the checksum, type and addresses of a descriptor
  privacy     show what a wallet's BIP-37 filter tells a peer
  cfilter     compact filters in files: build, match, info, import, export
  bloom       generic Bloom filters of lines: make, add, check, dedupe, merge
  node        run a regtest full node to try a wallet against
  demo        show all of this on a small chain

Exit codes: 0 done (also when nothing was found), 1 done except for input that
could not be read or used, 2 an error, 130 interrupted, 143 terminated.
"""
COMMANDS = {  # the module of each
    "filterload": "filterload",
    "inspect": "inspect.command",
    "scan": "scan.command",
    "watch": "watch.command",
    "wallet": "wallet",
    "descriptor": "descriptor",
    "privacy": "privacy.command",
    "cfilter": "cfilter.command",
    "bloom": "bloom.command",
    "node": "node",
    "demo": "demo.command",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run `spvfilter` with these arguments, by default those of the process, and return its exit code."""
    if sys.stderr is None:  # the shell closed it
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123  as long as the process
    if sys.stdout is None:
        complain("standard output is closed")
        return ERROR
    if isinstance(sys.stdout, io.TextIOWrapper):
        # what the locale cannot write is escaped, as on standard error
        sys.stdout.reconfigure(errors="backslashreplace")
    code = _guarded(sys.argv[1:] if argv is None else list(argv))
    try:
        sys.stdout.flush()
    except OSError:  # reported already; without this the interpreter's own flush at exit would fail again
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    return code


def _guarded(argv: list[str]) -> int:
    try:
        with never_lost():
            with warnings.catch_warnings():
                warnings.simplefilter("always", SpvFilterWarning)
                warnings.showwarning = _Warnings().show
                code = _run(argv)
            sys.stdout.flush()
            return code
    except KeyboardInterrupt:
        complain("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        return BROKEN_PIPE
    except WatchFileError as error:
        for line, message in error.problems:
            complain(f"{error.path}: line {line}: {message}")
    except SpvFilterError as error:
        complain(str(error))
    except OSError as error:
        where = os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else "cannot read or write"
        complain(f"{where}: {error.strerror or error}")
    return ERROR


def _run(argv: list[str]) -> int:
    """Run the command that the first argument names with the other arguments."""
    match argv[:1]:
        case []:
            raise ParameterError(f"no command given: {', '.join(COMMANDS)} (see 'spvfilter --help')")
        case ["-h" | "--help"]:
            print(HELP, end="")
            return OK
        case ["--version"]:
            from spvfilter.kernel import BACKEND
            from spvfilter.kernel.backend import advice

            print(f"spvfilter {__version__} (kernel: {BACKEND})")
            if said := advice():
                print(said)
            return OK
        case [command] if command in COMMANDS:
            return _run_command(command, argv[1:])
        case [other]:  # not shown when long: it may be a key
            from difflib import get_close_matches

            shown = f" {other!r}" if len(other) <= 20 else ""
            near = get_close_matches(other[:20], COMMANDS, 1, 0.75)
            raise ParameterError(
                f"unknown command{shown}: {f'did you mean {near[0]}?' if near else ', '.join(COMMANDS)} (see 'spvfilter"
                " --help')"
            )
    raise AssertionError(argv)


def _run_command(command: str, argv: list[str]) -> int:
    from spvfilter.cli.arguments import Parser

    module = import_module(f"spvfilter.cli.{COMMANDS[command]}")
    parser = Parser(prog=f"spvfilter {command}")
    module.configure(parser)
    try:
        arguments = parser.parse(argv)
    except SystemExit:  # --help, which argparse has printed
        return OK
    return int(module.run(arguments))


class _Warnings:
    """The warnings of one run. One that differs from an earlier one only in its numbers is not shown again."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def show(
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: object = None,
        line: object = None,
    ) -> None:
        kind = re.sub(r"[\d.]+(e[-+]\d+)?", "#", str(message))
        if kind not in self._told:
            self._told.add(kind)
            complain(f"warning: {message}")
