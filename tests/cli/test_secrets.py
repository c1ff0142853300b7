"""Secrets in every form that a user may type are kept out of messages. Other arguments are shown."""

from __future__ import annotations

import re
import subprocess
import sys
import time
import unicodedata
from pathlib import Path

import pytest

from spvfilter.cli.nodes import in_use
from spvfilter.cli.secrets import Secrets
from spvfilter.errors import StoreLockedError
from spvfilter.store.lock import SUFFIX

WIF = "KwDiBf89QgGbjEhKnhXJuH7LrciVrZi3qYjgd9M7rFU73sVHnoWn"
UNCOMPRESSED = "5HueCGU8rMjxEXxiPuD5BDku4MkFqeZyd4dZ1jvhTVqvbTLvyTJ"
XPRV = "xprv9s21ZrQH143K3QTDL4LXw2F7HEK3wJUD2nW2nRk4stbPy6cq3jPPqjiChkVvvNKmPGJxWUtg6LnF5kejMRNNU3TGtRBeJgk33yuGBxrMPHi"
HEX = "e8f32e723decf4051aefac8e2c93c9c5b214313817cdb01a1494b917c8436b35"
WORDS = "zebra yellow wagon vacuum umbrella tackle sadness raccoon quantum padlock oblige nasty".split()  # noqa: SIM905
KEYS = {
    "WIF": WIF,
    "uncompressed WIF": UNCOMPRESSED,
    "WIF with a wrong character": WIF.replace("x", "0"),
    "WIF without its end": WIF[:-2],
    "WIF with a full stop": f"{WIF}.",
    "WIF in quotes": f"'{WIF}'",
    "WIF as a path": f"./{WIF}",
    "xprv": XPRV,
    "xprv with a wrong character": XPRV.replace("X", "0"),
    "part of an xprv": XPRV[:40],
    "descriptor with an xprv": f"wpkh({XPRV}/0/*)",
    "hex": HEX,
    "hex in capitals": HEX.upper(),
    "hex without its end": HEX[:-1],
    "hex with 0x": f"0x{HEX}",
    "hex in a descriptor": f"pk({HEX})",
    "seed of 16 bytes": HEX[:32],
    "encrypted key": "6PRVWUbkzzsbcVac2qwfssoUJAN1Xhrg6bNk8J7Nzm5H7kxEbn2Nh2ZoGg",
    "mini key": "S6c56bnXQiBjk9mqSYE7ykVQ7NzrRy",
    "Chinese words without blanks": "的一是在不了有和人这中大",
}
PHRASES = {
    "words": WORDS,
    "words with typos": "zebra yelow wagn vacuumm umbrela tackle sadnes raccooon quantumm padlockk oblig nast".split(),  # noqa: SIM905
    "capitals": [word.upper() for word in WORDS],
    "commas": [f"{word}," for word in WORDS],
    "numbers between words": [item for number, word in enumerate(WORDS, 1) for item in (f"{number}.", word)],
    "numbers": [f"{number}.{word}" for number, word in enumerate(WORDS, 1)],
    "two words in one": ["zebrayellow", *WORDS[2:]],
    "accents": [
        unicodedata.normalize("NFKD", word)
        for word in "ábaco águila álbum ámbar ángel ánimo árbol ártico época ébano óptica útil".split()  # noqa: SIM905
    ],
    "Chinese": list("的一是在不了有和人这中大"),
    "Japanese": [unicodedata.normalize("NFKD", word) for word in "あいこくしん あいさつ あいだ あおぞら".split() * 3],  # noqa: SIM905
    "an option": [f"--watch={WORDS[0]}", *WORDS[1:]],
}


@pytest.mark.parametrize("kind", KEYS)
def test_no_message_repeats_a_key(kind: str) -> None:
    given = KEYS[kind]
    core = max(re.split(r"[()/]", given), key=len).strip("'.")
    for argv in ([given], [f"--watch={given}"], ["--address", given]):
        for text in (given, repr(given), f"{core[:12]}…{core[-12:]}"):
            hidden = Secrets(argv).hide(f"{text}: No such file or directory")
            assert core[:8] not in hidden
            assert core[-8:] not in hidden


@pytest.mark.parametrize("kind", PHRASES)
def test_no_message_repeats_a_word_of_a_phrase(kind: str) -> None:
    given = PHRASES[kind]
    for word in (item.rpartition("=")[2] for item in given if not re.fullmatch(r"[0-9]+\.", item)):
        assert word not in Secrets(given).hide(f"{word}: No such file or directory")
        assert word not in Secrets(given).hide(f"bad base58 checksum: {word!r}")


@pytest.mark.parametrize("option", ["", "--proxy="])
def test_no_message_repeats_the_password_of_a_url(option: str) -> None:
    hidden = Secrets([f"{option}tcp://user:hunter2@127.0.0.1:1"]).hide("no answer from 'user:hunter2@127.0.0.1:1'")
    assert hidden == "no answer from '(not shown)@127.0.0.1:1'"


@pytest.mark.parametrize("between", [" ", ", ", "\n", "-", "\u3000"])
@pytest.mark.parametrize("before", ["", "--undo", "--redis=", '"'])
def test_no_message_repeats_a_phrase_in_quotes(before: str, between: str) -> None:
    given = before + between.join(WORDS)
    for text in (given, repr(given), given[:40], given.partition("=")[2]):
        hidden = Secrets([given]).hide(f"{text}: No such file or directory")
        assert not any(word in hidden for word in WORDS)


def test_words_that_name_files_are_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / WORDS[0]).mkdir()
    assert WORDS[0] not in Secrets(WORDS).hide(f"{WORDS[0]}: Is a directory")


@pytest.mark.parametrize(
    "argv",
    [
        ["1BoatSLRHtKNngkdXEeobR76b53LETtpyT"],
        ["bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4"],
        ["bc1p5cyxnuxmeuwuvkwfem96lqzszd02n6xdcjrs20cac6yqjjwudpxqkedrcr"],
        ["/data/blocks/000000000019d6689c085ae165831e934ff763ae46a2a6c172b3f1b60a8ce26f.hex"],
        ["/home/alice/one/two/three/four/five/six/seven/eight/blk00000.dat"],
        ["my wallet of 2024.db"],
        ["wallet.db", "blocks", "peers", "names"],
        [f"blk{number:05}.dat" for number in range(20)],
        "watch name --once --mode compact --network regtest --format jsonl --db file --no-mempool".split(),  # noqa: SIM905
    ],
)
def test_other_arguments_are_shown(argv: list[str]) -> None:
    for item in argv:
        message = f"{item}: No such file or directory"
        assert Secrets(argv).hide(message) == message


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="needs /proc")
@pytest.mark.parametrize("secret", [[WIF], WORDS, [" ".join(WORDS)], ["--rpcpassword=hunter2"], ["--seed", "hunter2"]])
def test_the_process_that_holds_a_database_is_named_without_secrets(tmp_path: Path, secret: list[str]) -> None:
    holder = "import pathlib, sys; pathlib.Path(sys.argv[1]).touch(); input()"
    with subprocess.Popen(
        [sys.executable, "-c", holder, tmp_path / "begun", *secret, "wallet.db"], stdin=subprocess.PIPE
    ) as child:
        while not (tmp_path / "begun").exists():
            time.sleep(0.01)
        (tmp_path / f"wallet.db{SUFFIX}").write_text(str(child.pid))
        error = in_use(StoreLockedError(""), str(tmp_path / "wallet.db"), "stop it")
        child.communicate(b"\n")
    assert f"in use by process {child.pid} ({sys.executable}" in str(error)
    assert str(error).endswith(" wallet.db): stop it")
    assert not re.search(rf"hunter2|{WIF[:8]}|\b({'|'.join(WORDS)})\b", str(error))
