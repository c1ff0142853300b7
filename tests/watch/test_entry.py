"""Entries as people write them: URIs, and error messages for text and files that are no entries."""

from __future__ import annotations

from pathlib import Path

import pytest

from spvfilter.errors import AddressError, ParameterError, WatchFileError
from spvfilter.network import MAINNET
from spvfilter.watch.entry import add_entry, parse_uri
from spvfilter.watch.watchlist import WatchList

ADDRESS = "bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4"
TESTNET = "tb1qw508d6qejxtdg4y5r3zarvary0c5xw7kxpjzsx"
TAPROOT = "bc1p0xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7vqzk5jj0"
OLD = "1BgGZ9tcN4rm9KBzDn7KprQz87SZ26SAMH"
KEY = "0279be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798"
WIF = "L4rK1yDtCWekvXuE6oXD9jCYfFNV2cWRpVuPLBcCU2z8TrisoyY1"
PHRASE = "abandon abandon abandon abandon abandon abandon abandon abandon abandon abandon abandon about"


def added(text: str, label: str | None = None) -> list[str | None]:
    watch = WatchList()
    add_entry(watch, text, label)
    return [label for _, _, label in watch.entries()]


@pytest.mark.parametrize(
    ("uri", "label"),
    [
        (f"bitcoin:{ADDRESS}", None),
        (f"BITCOIN:{ADDRESS.upper()}", None),
        (f"bitcoin://{ADDRESS}", None),
        (f"bitcoin:{ADDRESS}?amount=50.00", None),
        (f"bitcoin:{ADDRESS}?amount=20.3&label=Luke-Jr", "Luke-Jr"),
        (f"bitcoin:{ADDRESS}?label=caf%C3%A9%20%26%20bar&message=Donation%20for%20project%20xyz", "café & bar"),
        (f"bitcoin:{ADDRESS}?somethingyoudontunderstand=50&label=", None),
        (f"bitcoin:{ADDRESS}?label=a,b", "a,b"),
        (f"BITCOIN:{ADDRESS.upper()}?AMOUNT=1&LABEL=SHOP", "SHOP"),
        (f"bitcoin:{ADDRESS[:5]}%{ord(ADDRESS[5]):X}{ADDRESS[6:]}?label=%2C%zz", ",%zz"),
        (f"bitcoin:?bc={ADDRESS}&label=only%20bc", "only bc"),
        (f"bitcoin:?bc={ADDRESS}&bc={ADDRESS}&tb={TESTNET}&lightning=LNBC1&label=x", "x"),
        (f"bitcoin:{TESTNET}?bc={ADDRESS.upper()}", None),
        (f"bitcoin:{ADDRESS}?tb={TESTNET}", None),
    ],
)
def test_the_address_and_the_label_of_a_uri_are_taken(uri: str, label: str | None) -> None:
    assert parse_uri(uri).label == label
    assert added(uri) == [label]
    assert added(uri, "mine") == ["mine"]


@pytest.mark.parametrize(
    ("uri", "cause"),
    [
        ("bitcoin:", "contains no address"),
        ("bitcoin:?sp=sp1q", "contains no address"),
        (f"bitcoin:{ADDRESS}?req-somethingelse=50", "unknown parameter, req-"),
        (f"bitcoin:{ADDRESS}?REQ-pop=x", "unknown parameter, req-"),
        (f"bitcoin:{ADDRESS}?label=%FF", "not UTF-8"),
        (f"bitcoin:{ADDRESS}?label=a&label=b", "more than one label"),
        (f"bitcoin:?tb={TESTNET}", "contains addresses for testnet3, testnet4 or signet, not for mainnet"),
        (f"bitcoin:?bc={TESTNET}", "this address is for testnet3"),
        (f"bitcoin:{ADDRESS}?bc={ADDRESS[:-1]}", "checksum"),
        (f"bitcoin:?bc={WIF}", "private key"),
        (f"bitcoin:{ADDRESS}?label={WIF}", "the label contains a word that looks like a private key"),
        (f"bitcoin:{ADDRESS}?label={PHRASE}", "the label contains text that looks like a seed phrase"),
        (f"bitcoin:?bc={KEY}", "expected an address, found a public key"),
        (f"bitcoin:{ADDRESS}?label=a%00b", "surrogates or NUL"),
        (f"bitcoin:{ADDRESS}?x={'0' * 5_000}", "at most 4,000"),
        ("bitcoin:tb1qw508d6qejxtdg4y5r3zarvary0c5xw7kxpjzsx", "this address is for testnet3"),
        (f"bitcoin:{WIF}", "private key"),
    ],
)
def test_an_unusable_uri_is_refused(uri: str, cause: str) -> None:
    with pytest.raises(ParameterError, match=cause):
        add_entry(WatchList(), uri)


def test_every_address_of_a_uri_for_the_network_is_watched() -> None:
    uri = f"bitcoin:{ADDRESS}?bc={TAPROOT}&bc={ADDRESS}&tb={TESTNET}&label=shop"
    mainnet, testnet = WatchList(), WatchList("testnet4")
    add_entry(mainnet, uri)
    add_entry(testnet, uri)
    assert mainnet == WatchList.from_addresses([(ADDRESS, "shop"), (TAPROOT, "shop")])
    assert testnet == WatchList.from_addresses([(TESTNET, "shop")], "testnet4")


def test_a_uri_with_one_bad_address_adds_nothing() -> None:
    watch = WatchList()
    with pytest.raises(AddressError):
        add_entry(watch, f"bitcoin:{ADDRESS}?bc={TAPROOT[:-1]}")
    assert not len(watch)


def test_comma_in_the_parameters_of_a_uri_belongs_to_it(tmp_path: Path) -> None:
    (tmp_path / "watch").write_text(
        f"bitcoin:{ADDRESS}?label=a,b # comment\nbitcoin:{TAPROOT},own, label\nbitcoin:{OLD}?label=a,b#c\n"
    )
    watch = WatchList.load(tmp_path / "watch")
    assert [label for _, _, label in watch.entries()] == ["a,b", "own, label", "a,b#c"]


# Each row is a text that is not an address, and a part of the error
WORDS = {
    "public key": (KEY, "expected an address, found a public key: give its address, or in a watch list write pubkey:"),
    "uncompressed public key": ("04" + "ab" * 64, "expected an address, found a public key"),
    "64 hex digits": ("ab" * 32, "expected an address, found 64 hex digits"),
    "private key": (WIF, "looks like a private key"),
    "seed phrase": (PHRASE, "looks like a seed phrase"),
    "seed phrase in capitals": (PHRASE.upper(), "looks like a seed phrase"),
    "bracket": ("{", "looks like JSON"),
    "JSON": ('{"address": "x"}', "looks like JSON"),
    "JSON array": (f'["{ADDRESS}"]', "looks like JSON"),
    "address in quotes": (f'"{ADDRESS}"', "without quotes"),
    "header": ("address", "looks like the header of a table"),
    "header with a semicolon": ("Address;Label", "looks like the header of a table"),
    "semicolon": (f"{ADDRESS};savings", "separated by ';': write a comma"),
    "tab": (f"{ADDRESS}\tsavings", "separated by a tab: write a comma"),
    "space after an origin": (
        f"[d34db33f/84'/0'/0'] zpub{'x' * 100}",
        "there is a space between the origin […] and the key: remove it",
    ),
    "space after an address": (
        f"{ADDRESS} savings",
        "there is a space after an address: write one entry on each line, as ADDRESS or ADDRESS,LABEL",
    ),
}


@pytest.mark.parametrize("case", WORDS)
def test_a_text_without_address_is_named_and_not_repeated(case: str, tmp_path: Path) -> None:
    text, words = WORDS[case]
    with pytest.raises(AddressError) as caught:
        add_entry(WatchList(), text)
    assert words in str(caught.value)
    if ADDRESS not in text:
        assert text[:20] not in str(caught.value) or len(text) < 20
    (tmp_path / "watch").write_text(f"{ADDRESS}\n{text}\n")
    with pytest.raises(WatchFileError) as listed:
        WatchList.load(tmp_path / "watch")
    assert [number for number, _ in listed.value.problems] == [2]
    assert words in listed.value.problems[0][1]


LINES = f"{ADDRESS},savings\n# café\n"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (LINES.encode("utf-16"), "this file is UTF-16: save it as UTF-8"),
        (LINES.encode("utf-16-le"), "this file is UTF-16: save it as UTF-8"),
        (LINES.encode("utf-16-be"), "this file is UTF-16: save it as UTF-8"),
        (b"SQLite format 3\0" + bytes(range(200)), "this is an SQLite database, not a watch list"),
        (b"\x7fELF\x02\x01\x01" + bytes(4_000), "this is a binary file"),
        (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + bytes(range(128)) * 3, "this is a binary file"),
        (bytes(1_000), "this is a binary file"),
    ],
)
def test_a_file_that_is_no_text_is_named_once(content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "watch").write_bytes(content)
    with pytest.raises(WatchFileError) as caught:
        WatchList.load(tmp_path / "watch", MAINNET)
    ((line, message),) = caught.value.problems
    assert line == 0
    assert words in message


def test_short_files_and_other_character_sets_are_not_binary(tmp_path: Path) -> None:
    for content, lines in (
        (b"x", [1]),
        (b"\x00", [1]),
        (LINES.encode("latin-1"), [2]),
        ((ADDRESS + ",б\n").encode("cp1251"), [1]),
    ):
        (tmp_path / "watch").write_bytes(content)
        with pytest.raises(WatchFileError) as caught:
            WatchList.load(tmp_path / "watch")
        assert [number for number, _ in caught.value.problems] == lines


def test_lines_of_a_watch_list_are_no_addresses() -> None:
    for text, words in (
        (f"pubkey:{KEY}", "pubkey:… is a line of a watch list"),
        ("address,label", "looks like the header of a table"),
    ):
        with pytest.raises(AddressError, match=words):
            add_entry(WatchList(), text)
