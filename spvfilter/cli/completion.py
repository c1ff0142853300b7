"""`spvfilter completion`: a script that completes commands and options in a shell."""

from __future__ import annotations

import argparse

from spvfilter.cli.arguments import Parser
from spvfilter.cli.commands import SUMMARIES
from spvfilter.cli.help import configure_command
from spvfilter.errors import ParameterError, remedy
from spvfilter.network import NETWORKS

SHELLS = ("bash", "zsh", "fish", "tcsh", "powershell")
_FILES = ("FILE", "FILE.png", "PATH", "INPUT", "FILTER", "FILTERS", "BLOCKS", "RAW", "SOURCE", "TX", "HEX|FILE|-")
"""The placeholders, as the help shows them, of option values that are files."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "spvfilter completion SHELL"
    parser.description = (
        "Print a script that completes commands, options and file names in a shell; needs shtab (`cli` extra). For"
        ' bash, add this line to ~/.bashrc: eval "$(spvfilter completion bash)". For zsh, write the script to a file'
        " _spvfilter in a folder of $fpath. For fish, write it to ~/.config/fish/completions/spvfilter.fish. For tcsh,"
        " write it to a file, and source that file in ~/.tcshrc. For PowerShell, add it to your $PROFILE."
    )
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=", ".join(SHELLS))


def run(args: argparse.Namespace) -> int:
    try:
        import shtab
    except ImportError:
        raise ParameterError(f"completion needs shtab; {remedy('cli')}") from None
    if args.shell not in shtab.SUPPORTED_SHELLS:
        raise ParameterError(
            f"shtab {shtab.__version__} does not know {args.shell}; run `python -m pip install --upgrade shtab`"
        )
    print(shtab.complete(whole_parser(shtab.FILE, shtab.DIRECTORY), args.shell))
    return 0


def whole_parser(file: object, directory: object) -> argparse.ArgumentParser:
    """Return a parser for the whole command line, as shtab needs it.

    Args:
        file: shtab's completion for values that are files.
        directory: shtab's completion for values that are directories.
    """
    parser = Parser(
        prog="spvfilter", description="Find a wallet's Bitcoin transactions, live from full nodes or in block files."
    )
    parser.add_argument("-V", "--version", action="store_true", help="print the version")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    for name, summary in SUMMARIES.items():
        made = commands.add_parser(name, help=summary)
        configure_command(name, made)
        made.description = summary  # zsh shows it next to the command
        for each in (made, *made.actions().values()):
            _add_completions(each, file, directory)
    return parser


def _add_completions(parser: argparse.ArgumentParser, file: object, directory: object) -> None:
    """Let shtab complete the names of networks, commands, files and directories."""
    for action in parser._actions:
        if action.dest == "network":
            action.choices = [network.name for network in NETWORKS]
        elif action.metavar == "COMMAND":
            action.choices = list(SUMMARIES)
        elif action.metavar in _FILES:
            action.complete = file  # type: ignore[attr-defined]  # shtab reads it
        elif action.metavar == "DIR":
            action.complete = directory  # type: ignore[attr-defined]
