"""The command line: runs a command, prints errors and warnings, and returns exit codes."""

from __future__ import annotations

import io
import os
import re
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module

from spvfilter._version import __version__
from spvfilter.cli.commands import COMMANDS, HELP
from spvfilter.cli.term.page import complain, hiding
from spvfilter.errors import SpvFilterError, SpvFilterWarning, StoreCorruptError, WatchFileError

OK, ERROR, INTERRUPTED, BROKEN_PIPE = 0, 2, 130, 141  # exit codes; HELP lists all
_ADVICE: dict[type[OSError], str] = {
    FileExistsError: ": give another name",
    IsADirectoryError: ": give the name of a file",
    NotADirectoryError: ": a part of the path is a file",
}
"""Advice to append to operating system errors whose own text contains none."""
__all__ = ["COMMANDS", "main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run `spvfilter` with these arguments, by default those of the process, and return the exit code."""
    if sys.stderr is None:  # the shell closed it
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123  open until the process ends
    if sys.stdout is None:
        complain("standard output is closed")
        return ERROR
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Files and programs get UTF-8 on every system. On a terminal, characters that it cannot show are escaped.
        encoding = sys.stdout.encoding if sys.stdout.isatty() else "utf-8"
        sys.stdout.reconfigure(encoding=encoding, errors="backslashreplace")
    from spvfilter.cli.secrets import Secrets

    given = sys.argv[1:] if argv is None else list(argv)
    with hiding(Secrets(given).hide):
        code = _guarded(given)
    try:
        sys.stdout.flush()
    except OSError:  # reported already; the interpreter's own flush at exit must not fail again
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    return code


def _guarded(argv: list[str]) -> int:
    """Run a command, print its error, if any, on one line, and return the exit code."""
    from spvfilter.cli.interrupts import never_lost

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
        from spvfilter.cli.term.problems import Problems

        problems = Problems()
        for line, message in error.problems:
            problems.add(f"{error.path}: line {line}: {message}" if line else f"{error.path}: {message}", error.path)
        problems.complain()
    except StoreCorruptError as error:
        advice = "restore a backup, or run spvfilter watch with --rebuild, which keeps the watch list"
        complain(str(error) if "--rebuild" in argv else f"{error}; {advice}")
    except SpvFilterError as error:
        complain(str(error))
    except OSError as error:
        name = error.filename2 or error.filename  # a new file is renamed last, and users know only its final name
        where = os.fsdecode(name) if isinstance(name, (str, bytes)) else "cannot read or write"
        complain(f"{where}: {error.strerror or error}{_ADVICE.get(type(error), '')}")
    return ERROR


def _run(argv: list[str]) -> int:
    """Run the command named by the first argument, with the remaining arguments."""
    match argv[:1]:
        case [] | ["-h" | "--help"]:
            print(HELP, end="")
            return OK
        case ["-V" | "--version"]:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the advice below says the same
                from spvfilter.kernel import BACKEND
                from spvfilter.kernel.backend import advice

            print(f"spvfilter {__version__} (kernel: {BACKEND})")
            if (text := advice()) is not None:
                print(text)
            return OK
    from spvfilter.cli.help import parser_of
    from spvfilter.cli.secrets import refuse_scan_keys

    refuse_scan_keys(argv)
    parser = parser_of(argv[0])
    try:
        arguments = parser.parse(argv[1:])
    except SystemExit:  # --help, which argparse has printed
        return OK
    return int(import_module(f"spvfilter.cli.{COMMANDS[argv[0]]}").run(arguments))


class _Warnings:
    """Prints warnings to standard error. A warning that differs from an earlier one only in numbers is omitted."""

    def __init__(self) -> None:
        self._told: set[str] = set()  # warnings without their numbers

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
