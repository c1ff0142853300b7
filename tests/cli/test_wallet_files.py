"""Wallet files on the command line: they are watched like a list, and no message repeats a private key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.commands.processes import process
from support.wallets.walletfiles import (
    FILES,
    KEY,
    OTHER,
    PHRASE,
    SINGLE,
    WIF,
    XPRV,
    checked,
    core,
    electrum,
    specter,
    text_of,
)

pytestmark = pytest.mark.descriptors


def write(path: Path, value: object) -> Path:
    (path / "wallet").write_text(text_of(value))
    return path / "wallet"


@pytest.mark.few(3)
@pytest.mark.parametrize("kind", FILES)
def test_every_wallet_file_makes_a_filter(kind: str, run: Any, tmp_path: Path) -> None:
    path = write(tmp_path, FILES[kind]())
    from_file = run("filterload", "--watch", path, "--tweak", 0)
    assert (from_file.code, len(from_file.out) > 100) == (0, True)
    if kind == "core":
        piped = process("filterload", "--watch", "-", "--tweak", 0, stdin=path.read_bytes())
        assert piped.stdout.decode() == from_file.out


def test_private_keys_of_a_wallet_file_are_named(run: Any, tmp_path: Path) -> None:
    file = {**electrum(), "keystore": {**electrum()["keystore"], "xprv": XPRV, "seed": PHRASE}, "imported": [WIF]}
    ran = run("filterload", "--watch", write(tmp_path, file), "--tweak", 0)
    assert ran.code == 0
    assert "the file contains private keys, in the fields imported, seed, xprv: they were not kept" in ran.err
    for secret in (XPRV, PHRASE, WIF):
        assert secret[:8] not in ran.err


def test_damaged_wallet_file_gets_one_message_without_a_line(run: Any, tmp_path: Path) -> None:
    path = write(tmp_path, '{"descriptors": [')
    ran = run("filterload", "--watch", path)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"spvfilter: {path}: this looks like JSON, but it is damaged at line 1")
    ran = run("filterload", "--watch", write(tmp_path, "zebra\nyellow\n"))
    assert ran.err.count("\n") == 1
    assert "zebra" not in ran.err


def test_file_that_derives_too_many_keys_is_refused(run: Any, tmp_path: Path) -> None:
    keys = ",".join(f"{KEY}/{number}/*" for number in range(300))
    path = write(tmp_path, f"keychain:0:10000000:tr({OTHER}/0/*,multi_a(2,{keys}))")
    ran = run("filterload", "--watch", path)
    assert ran.code == 2
    assert "line 1: the file needs 3,010,000,000 key derivations" in ran.err
    path = write(tmp_path, checked(f"{SINGLE}/0/*)"))
    assert run("filterload", "--watch", path, "--max-derivations", 999).code == 2
    assert run("filterload", "--watch", path, "--max-derivations", 1_000).code == 0


@pytest.mark.slow
def test_birthday_of_a_wallet_file_is_named_with_the_option(run: Any, tmp_path: Path) -> None:
    block = tmp_path / "block.hex"
    block.write_text("00")
    said = "the wallet file gives a birthday: "
    ran = run("scan", block, "--watch", write(tmp_path, core()))
    assert f"{said}--from-date 2023-11-13 skips older blocks" in ran.err
    ran = run("scan", block, "--watch", write(tmp_path, specter()))
    assert f"{said}--from-height 800000 skips older blocks" in ran.err
    assert said not in run("scan", block, "--from-height", 5, "--watch", write(tmp_path, specter())).err
    nowhere = ("--connect", "127.0.0.1:1", "--db", tmp_path / "no folder" / "w.db")
    ran = run("watch", *nowhere, "--watch", write(tmp_path, core()), "--birthday", "2020-01-01")
    assert ran.code == 2
    assert said not in ran.err
    ran = run("watch", *nowhere, "--watch", write(tmp_path, json.dumps(core())))
    assert f"{said}--birthday 2023-11-13 skips older blocks" in ran.err
