"""`spvfilter help`: the help of a command."""

from __future__ import annotations

import argparse
from importlib import import_module

from spvfilter.cli.arguments import Parser, nearest, one_of
from spvfilter.cli.commands import COMMANDS, HELP
from spvfilter.errors import ParameterError


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "spvfilter help [COMMAND [ACTION]]"
    parser.description = "Show all commands, or the help of one command or of one of its actions."
    parser.add_argument("words", metavar="COMMAND", nargs="*", help="a command, such as scan, or wallet balance")


def run(args: argparse.Namespace) -> int:
    if not args.words:
        print(HELP, end="")
        return 0
    command, *actions = args.words
    parser = parser_of(command)
    for action in actions:
        known = parser.actions()
        if action not in known:
            raise ParameterError(f"unknown action{one_of(action, known)}" if known else f"{parser.prog} has no actions")
        parser = known[action]
    parser.print_help()
    return 0


def parser_of(command: str) -> Parser:
    """Return the parser of a command.

    Raises ParameterError if the command is unknown. The message does not repeat it.
    """
    if command.startswith("-"):
        meant = nearest(command, ("--help", "--version"))
        known = f": did you mean {meant}?" if meant else ""
        raise ParameterError(f"the command must come before its options{known} (see 'spvfilter --help')")
    if command not in COMMANDS:
        raise ParameterError(f"unknown command{_suggestion(command)} (see 'spvfilter --help')")
    parser = Parser(prog=f"spvfilter {command}")
    configure_command(command, parser)
    return parser


def _suggestion(word: str) -> str:
    """Return the end of a message about an unknown command. For the action `balance` it suggests `wallet balance`."""
    owners = [] if nearest(word, COMMANDS) else [each for each in COMMANDS if word in parser_of(each).actions()]
    meant = " or ".join(f"{each} {word}" for each in owners)
    return f": did you mean {meant}?" if meant else one_of(word, COMMANDS)


def configure_command(command: str, parser: Parser) -> None:
    """Add the arguments and the help texts of a command."""
    import_module(f"spvfilter.cli.{COMMANDS[command]}").configure(parser)
