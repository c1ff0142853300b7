"""Options of commands: a frozen object for each command, whose constructor checks them."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest

from spvfilter.cli import electrum, export
from spvfilter.cli.arguments import options_of
from spvfilter.cli.parts.exports import ExportOptions
from spvfilter.cli.scan import command as scan
from spvfilter.cli.scan.options import ScanOptions
from spvfilter.cli.watch import command as watch
from spvfilter.errors import ParameterError
from spvfilter.network import REGTEST

ADDRESS = "1BoatSLRHtKNngkdXEeobR76b53LETtpyT"
COMMANDS: list[tuple[Callable[[argparse.ArgumentParser], None], Any, list[str]]] = [
    (scan.configure, ScanOptions, ["blocks", "--address", ADDRESS]),
    (export.configure, ExportOptions, ["blocks", "--out", "tables"]),
    (watch.configure, watch.WatchOptions, [ADDRESS, "--connect", "127.0.0.1"]),
    (electrum.configure, electrum.ElectrumOptions, ["--db", "w.db", "--watch", "list", "--connect", "127.0.0.1"]),
]


def parsed(configure: Callable[[argparse.ArgumentParser], None], words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    configure(parser)
    return parser.parse_args(words)


@pytest.mark.parametrize(("configure", "made", "words"), COMMANDS)
def test_every_option_is_an_argument_of_its_command(
    configure: Callable[[argparse.ArgumentParser], None], made: Any, words: list[str]
) -> None:
    args = parsed(configure, words)
    found = options_of(made, args, network=REGTEST)
    assert {name: value for name, value in vars(found).items() if name in vars(args)} == {
        each.name: REGTEST if each.name == "network" else getattr(args, each.name) for each in fields(made)
    }
    with pytest.raises(FrozenInstanceError):
        found.network = None


@pytest.mark.parametrize(("configure", "made", "words"), COMMANDS)
@pytest.mark.parametrize(
    "given", [{"follow": True, "to_height": 3}, {"connect": []}, {"cookie": "c"}, {"jobs": 2, "processes": 2}]
)
def test_options_that_do_not_fit_are_never_made(
    configure: Callable[[argparse.ArgumentParser], None], made: Any, words: list[str], given: dict[str, object]
) -> None:
    args = parsed(configure, words)
    if given.keys() <= vars(args).keys():
        with pytest.raises(ParameterError, match="--"):
            options_of(made, args, **({"network": REGTEST} | given))
    else:
        assert options_of(made, args, network=REGTEST).network == REGTEST
