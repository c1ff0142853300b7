"""Descriptors sp() of silent payments on the command line: their scan keys are read from files only."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.silentpayments import Wallet

pytest.importorskip("btclib_secp256k1")

WALLET = Wallet()


@pytest.fixture
def standard_input(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A function that makes a text the standard input. It replaces the empty one of `run`."""
    with contextlib.ExitStack() as files:

        def give(text: str) -> None:
            path = tmp_path / "input.txt"
            path.write_text(text, encoding="utf-8")
            monkeypatch.setattr("sys.stdin", files.enter_context(path.open(encoding="utf-8")))

        yield give


@pytest.mark.parametrize("form", ["table", "jsonl"])
def test_the_public_form_is_shown(run: Any, standard_input: Any, form: str) -> None:
    standard_input(f"{WALLET.descriptor}\n")
    ran = run("descriptor", "-", "--format", form)
    assert (ran.code, ran.err) == (0, "")
    assert str(WALLET.address()) in ran.out
    assert f"[deadbeef/352h/0h/0h/1h/0]{WALLET.scan_pubkey.hex()}" in ran.out
    assert WALLET.scan_text not in ran.out
    if form == "jsonl":
        assert json.loads(ran.out)["type"] == "sp"


@pytest.mark.parametrize(
    "command",
    [
        ("descriptor",),
        ("scan", os.devnull),
        ("watch",),
        ("match", os.devnull),
        ("privacy",),
        ("bloom", "create", "filter.bloom"),
    ],
)
@pytest.mark.parametrize("text", [WALLET.descriptor, WALLET.scan_text, f" sp(xprv1,{WALLET.spend_pubkey.hex()})"])
def test_an_argument_with_a_scan_key_is_refused(run: Any, command: tuple[str, ...], text: str) -> None:
    ran = run(*command, text)
    assert ran.code == 2
    assert ran.out == ""
    assert "an argument has a key of silent payments" in ran.err
    assert WALLET.scan_text not in ran.err


def test_a_private_spend_key_is_refused(run: Any, standard_input: Any) -> None:
    standard_input(f"sp({WALLET.scan_text.replace('spscan', 'spspend')})\n")
    ran = run("descriptor", "-")
    assert ran.code != 0
    assert "private spend key, which was not kept" in ran.err
