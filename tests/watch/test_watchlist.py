"""WatchList: the matches of each kind of entry, learned outpoints, and filter elements."""

from __future__ import annotations

import asyncio
import json
import pickle
from dataclasses import fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from bitcoin.core import CBlock, CTransaction, Hash160
from hypothesis import given, strategies as st

from spvfilter.errors import AddressError, FormatError, InexpressibleError, ParameterError, WrongNetworkError
from spvfilter.kernel import EntryKind
from spvfilter.network import MAINNET, NETWORKS, REGTEST, SIGNET
from spvfilter.primitives import Header, OutPoint, script_pushes
from spvfilter.scan.matcher import Matcher
from spvfilter.watch.match import Completeness, Match, MatchKind
from spvfilter.watch.watchlist import WatchList
from support.blocks import build
from support.blocks.build import TxIn, TxOut

ADDRESS, ADDRESS_SCRIPT = (
    "bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4",
    bytes.fromhex("0014751e76e8199196d454941c45d1b3a323f1433bd6"),
)
LEGACY_ADDRESS, LEGACY_SCRIPT = "1BgGZ9tcN4rm9KBzDn7KprQz87SZ26SAMH", build.p2pkh(ADDRESS_SCRIPT[2:])
KEY = bytes.fromhex("0279be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798")  # of both addresses
LONG_KEY = b"\x04" + b"\x05" * 64
FUNDING = build.tx([TxIn(b"\x11" * 32, 3)], [TxOut(1, b"\x6a"), TxOut(5_000, ADDRESS_SCRIPT)])
POINT = OutPoint(build.txid(FUNDING), 1)
SPENDING = build.tx([TxIn(b"\x22" * 32, 0), TxIn(POINT.txid, 1, witness=(b"sig", KEY))], [TxOut(4_000, b"\x51")])


def key_scripts(key: bytes) -> list[bytes]:
    key_hash = Hash160(key)
    return [build.p2pk(key), build.p2pkh(key_hash), build.p2wpkh(key_hash), build.p2sh(Hash160(build.p2wpkh(key_hash)))]


def pays(*scripts: bytes) -> bytes:
    return build.tx([TxIn(b"\x33" * 32, 0)], [TxOut(1, script) for script in scripts])


# Entries


def test_addresses_come_with_and_without_labels() -> None:
    watch = WatchList.from_addresses([ADDRESS, (LEGACY_ADDRESS, " savings, old "), (ADDRESS, None)])
    assert list(watch.entries()) == [
        (EntryKind.SCRIPT, ADDRESS_SCRIPT, None),
        (EntryKind.SCRIPT, LEGACY_SCRIPT, "savings, old"),
    ]
    assert list(watch.script_pubkeys()) == [ADDRESS_SCRIPT, LEGACY_SCRIPT]
    assert (len(watch), watch.network) == (2, MAINNET)
    assert ADDRESS_SCRIPT in watch
    assert b"\x51" not in watch


@pytest.mark.parametrize("network", [[ADDRESS], None, b"regtest"])
def test_a_network_of_another_type_is_refused(network: Any) -> None:
    said = f"^network: expected a Network or its name, not {type(network).__name__}: from_addresses takes addresses$"
    with pytest.raises(TypeError, match=said):
        WatchList(network)


def test_one_string_is_no_list_of_addresses() -> None:
    with pytest.raises(TypeError, match="not one string"):
        WatchList.from_addresses(ADDRESS)


@pytest.mark.parametrize(
    ("addresses", "said"),
    [
        (5, "addresses: expected an iterable of addresses, not int"),
        (ADDRESS.encode(), "addresses: expected an iterable of addresses, not bytes"),
        ([ADDRESS, 5], r"addresses\[1\]: expected an address or a pair \(address, label\), not int"),
        ([b"bc"], r"addresses\[0\]: expected an address .*, not bytes"),
        ([(ADDRESS, "label", 7)], r"addresses\[0\]: expected .* a pair \(address, label\), not a tuple of 3"),
        ([ADDRESS, (5, "label")], r"addresses\[1\]: expected an address .*, not a pair that starts with int"),
    ],
)
def test_an_argument_of_another_type_is_named(addresses: Any, said: str) -> None:
    with pytest.raises(TypeError, match=f"^{said}$"):
        WatchList.from_addresses(addresses)


@pytest.mark.parametrize("bad", ["", "nonsense", ADDRESS[:-1], ADDRESS.upper()[:-2] + "t4"])
def test_an_invalid_address_raises(bad: str) -> None:
    with pytest.raises(AddressError):
        WatchList.from_addresses([ADDRESS, bad])


def test_an_address_of_another_network_raises_and_names_it() -> None:
    with pytest.raises(WrongNetworkError, match="mainnet") as caught:
        WatchList(REGTEST).add_address(ADDRESS)
    assert caught.value.networks == ("mainnet",)


def test_a_later_label_replaces_an_earlier_label() -> None:
    watch = WatchList()
    watch.add_script(b"\x51", "first")
    watch.add_script(b"\x51")
    watch.add_script(b"\x51", "  ")
    assert list(watch.entries()) == [(EntryKind.SCRIPT, b"\x51", "first")]
    watch.add_script(b"\x51", "second")
    assert list(watch.entries()) == [(EntryKind.SCRIPT, b"\x51", "second")]


@pytest.mark.parametrize("label", ["a\x00b", "\udce9"])
def test_labels_that_no_database_could_hold_raise(label: str) -> None:
    with pytest.raises(ParameterError, match="label"):
        WatchList().add_script(b"\x51", label)


strange = st.sampled_from([*'\n\r\t\x1b\x7f\x85\u2028\u2029"\\,#', "\\n", "\\u000a"])


@given(st.lists(st.lists(strange | st.sampled_from("aü🙂 "), min_size=1, max_size=8).map("".join), max_size=4))
def test_labels_of_any_characters_survive_a_file(labels: list[str]) -> None:
    watch = WatchList()
    for number, label in enumerate(labels):
        watch.add_script(b"\x00\x14" + bytes((number,)) * 20, label)
        watch.add_script(b"\x51" * (number + 2), json.dumps(label))
    with TemporaryDirectory() as folder:
        watch.save(f"{folder}/list")
        assert list(WatchList.load(f"{folder}/list").entries()) == list(watch.entries())
        with Path(f"{folder}/list").open("rb") as file:
            assert len(list(file)) == 1 + len(watch)
        watch.compile(f"{folder}/compiled")
        assert list(WatchList.load(f"{folder}/compiled").entries()) == list(watch.entries())


def test_a_label_that_is_too_long_raises() -> None:
    watch = WatchList()
    watch.add_script(b"\x51", "x" * 10_000 + " ")
    assert watch.label(0) == "x" * 10_000
    with pytest.raises(ParameterError, match="a label must be at most 10,000 characters long, not 10,001: shorten it"):
        watch.add_script(b"\x52", "x" * 10_001)


def test_an_empty_script_raises() -> None:
    with pytest.raises(ParameterError, match="empty script"):
        WatchList().add_script(b"")


@pytest.mark.parametrize(
    "key", [b"", KEY[:-1], KEY + b"\x00", b"\x04" + KEY[1:], b"\x02" + LONG_KEY[1:], b"\x05" + LONG_KEY[1:]]
)
def test_an_invalid_public_key_raises(key: bytes) -> None:
    with pytest.raises(ParameterError, match="not a public key"):
        WatchList().add_pubkey(key)


@pytest.mark.parametrize("size", [0, 521])
def test_data_that_no_script_can_push_raises(size: int) -> None:
    with pytest.raises(ParameterError, match=f"not {size}"):
        WatchList().add_data(bytes(size))
    WatchList().add_data(bytes(520))
    WatchList().add_data(b"x")


@pytest.mark.parametrize(
    "text", ["", "00:0", "00" * 32, "00" * 32 + ":", "00" * 32 + ":-1", "00" * 32 + ":4294967296", "zz" * 32 + ":0"]
)
def test_an_invalid_outpoint_raises(text: str) -> None:
    with pytest.raises(ParameterError):
        WatchList().add_outpoint(text)


@pytest.mark.parametrize("value", [-1, 2**63])
def test_a_value_out_of_range_raises(value: int) -> None:
    with pytest.raises(ParameterError, match=str(value)):
        WatchList().add_outpoint(POINT, value=value)


# Matches


def test_an_output_and_its_spend_have_all_fields() -> None:
    watch = WatchList.from_addresses([(ADDRESS, "savings")])
    block = build.block_of(build.GENESIS, 9, [FUNDING, SPENDING])
    shared, time = (
        (POINT, 5_000, ADDRESS_SCRIPT, ADDRESS, "savings", build.block_hash(block), 9),
        Header.parse(block[:80]).time,
    )
    assert watch.match_block(block, height=9) == [
        Match(MatchKind.OUTPUT, build.txid(FUNDING), 1, *shared, time),
        Match(MatchKind.INPUT, build.txid(SPENDING), 1, *shared, time),
    ]
    assert watch.match_tx(SPENDING) == [Match(MatchKind.INPUT, build.txid(SPENDING), 1, *shared[:5], None, None)]
    assert list(watch.outpoints()) == [POINT]


def test_a_coinbase_is_known_by_its_input_or_its_position() -> None:
    watch = WatchList.from_addresses([ADDRESS])
    mined, paid = (
        build.coinbase(1, [TxOut(5_000, ADDRESS_SCRIPT)]),
        build.tx([TxIn(b"\x07" * 32, 0)], [TxOut(7, ADDRESS_SCRIPT)]),
    )
    block = build.block_of(build.GENESIS, 1, [paid], [TxOut(5_000, ADDRESS_SCRIPT)])
    assert [(match.is_coinbase, match.time) for match in watch.match_block(block)] == [
        (True, Header.parse(block[:80]).time),
        (False, Header.parse(block[:80]).time),
    ]
    assert [match.is_coinbase for match in watch.match_tx(mined)] == [True]
    assert [match.is_coinbase for match in watch.match_tx(paid, block_hash=bytes(32), height=5, time=9)] == [False]
    assert [match.time for match in watch.match_tx(paid, block_hash=bytes(32), height=5, time=9)] == [9]
    assert [match.is_coinbase for match in asyncio.run(Matcher(watch).match_tx(mined))] == [True]
    assert [match.is_coinbase for match in asyncio.run(Matcher(watch).match_tx(paid))] == [False]
    hits = watch.table.scan_tx(paid)
    assert [[match.is_coinbase for match in watch.matches(hits, block_hash=at)] for at in (None, bytes(32))] == [
        [False],
        [True],
    ]


def test_how_a_block_was_searched_makes_no_match_another_one() -> None:
    watch = WatchList.from_addresses([ADDRESS])
    hits = watch.table.scan_tx(build.tx([TxIn(b"\x07" * 32, 0)], [TxOut(7, ADDRESS_SCRIPT)]))
    (unsaid,), (proven,) = watch.matches(hits), watch.matches(hits, completeness=Completeness.PROVEN)
    assert (unsaid.completeness, proven.completeness) == (None, "proven")
    assert unsaid == proven
    assert hash(unsaid) == hash(proven)
    assert unsaid != watch.matches(hits, time=5)[0]


def test_a_match_of_an_older_pickle_has_no_time() -> None:
    match = Match(
        MatchKind.OUTPUT,
        bytes(32),
        0,
        OutPoint(bytes(32), 0),
        5,
        b"\x51",
        None,
        "label",
        None,
        7,
        8,
        True,
        Completeness.PROVEN,
    )
    older = object.__new__(Match)
    older.__setstate__([getattr(match, each.name) for each in fields(match)][:10])
    assert older == replace(match, time=None, is_coinbase=False)
    assert repr(older) == repr(match)
    assert pickle.loads(pickle.dumps(match)).completeness == "proven"


def test_a_spend_is_known_only_once_its_output_was_seen() -> None:
    watch = WatchList.from_addresses([ADDRESS])
    assert watch.match_tx(SPENDING) == []
    assert [match.kind for match in watch.match_tx(FUNDING)] == ["output"]
    assert [match.kind for match in watch.match_tx(SPENDING)] == ["input"]
    assert [match.kind for match in watch.match_tx(SPENDING)] == ["input"]  # never forgotten: it may be spent again


def test_the_spend_of_an_output_never_seen_has_no_value() -> None:
    watch = WatchList()
    watch.add_outpoint(str(POINT), "deposit")
    (match,) = watch.match_tx(SPENDING)
    assert (match.outpoint, match.value, match.script_pubkey, match.address, match.label) == (
        POINT,
        None,
        None,
        None,
        "deposit",
    )


def test_an_outpoint_with_its_script_counts_as_learned() -> None:
    watch = WatchList.from_addresses([(ADDRESS, "savings")])
    watch.add_outpoint(POINT, value=5_000, script_pubkey=ADDRESS_SCRIPT)
    (match,) = watch.match_tx(SPENDING)
    assert (match.value, match.address, match.label, len(watch)) == (5_000, ADDRESS, "savings", 1)
    watch.add_outpoint(POINT, "this one")
    assert [match.label for match in watch.match_tx(SPENDING)] == ["this one"]
    assert len(watch) == 2


@pytest.mark.parametrize("key", [KEY, LONG_KEY])
def test_a_public_key_matches_exactly_five_forms(key: bytes) -> None:
    scripts = [*key_scripts(key), build.multisig(1, [LONG_KEY[:1] + bytes(64), key])]
    others = [
        build.p2tr(key[1:33]),
        build.multisig(3, [key, key]),
        build.push(key),
        b"\x6a" + build.push(key),
        build.p2sh(Hash160(key)),
    ]
    watch = WatchList()
    watch.add_pubkey(key, "mine")
    assert [(match.index, match.label) for match in watch.match_tx(pays(*scripts, *others))] == [
        (n, "mine") for n in range(5)
    ]
    assert all(script in watch for script in scripts)
    assert not any(script in watch for script in others)
    assert list(watch.script_pubkeys()) == scripts[:4]


def test_addresses_of_a_key_match_only_themselves() -> None:
    watch = WatchList.from_addresses([LEGACY_ADDRESS])
    assert [match.index for match in watch.match_tx(pays(*key_scripts(KEY)))] == [1]


def test_addresses_are_written_in_the_lists_network() -> None:
    for network in NETWORKS:
        watch = WatchList(network)
        watch.add_script(ADDRESS_SCRIPT)
        (match,) = watch.match_tx(FUNDING)
        assert match.address is not None
        assert match.address.startswith(network.hrp + "1")
        assert list(WatchList.from_addresses([match.address], network).script_pubkeys()) == [ADDRESS_SCRIPT]
    watch = WatchList()
    watch.add_script(b"\x6a", "burnt")
    assert [(match.address, match.label) for match in watch.match_tx(FUNDING)] == [(None, "burnt")]


def test_objects_of_python_bitcoinlib_are_matched_as_their_bytes() -> None:
    block = build.block_of(build.GENESIS, 1, [FUNDING, SPENDING])
    assert WatchList.from_addresses([ADDRESS]).match_block(CBlock.deserialize(block)) == WatchList.from_addresses(
        [ADDRESS]
    ).match_block(block)
    assert len(WatchList.from_addresses([ADDRESS]).match_tx(CTransaction.deserialize(FUNDING))) == 1
    # bytes-like is taken
    assert len(WatchList.from_addresses([ADDRESS]).match_tx(memoryview(FUNDING))) == 1  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        WatchList().match_tx(5)  # type: ignore[arg-type]  # never taken for a length


def test_a_malformed_block_teaches_nothing() -> None:
    watch = WatchList.from_addresses([ADDRESS])
    block = build.block_of(build.GENESIS, 1, [FUNDING, SPENDING])
    for damaged in (block[:-1], block + b"\x00"):
        with pytest.raises(FormatError):
            watch.match_block(damaged)
    with pytest.raises(FormatError):
        watch.match_tx(FUNDING[:-1])
    assert list(watch.outpoints()) == []


def test_a_match_has_a_readable_repr_and_can_be_pickled() -> None:
    (match,) = WatchList.from_addresses([(ADDRESS, "savings")]).match_tx(FUNDING, height=7)
    assert (
        repr(match)
        == f"<Match output {match.txid[::-1].hex()}:1 value=5000 address={ADDRESS} label='savings' height=7>"
    )
    assert pickle.loads(pickle.dumps(match)) == match


# Copies and equality


def test_a_copy_is_equal_and_shares_nothing() -> None:
    watch = WatchList.from_addresses([(ADDRESS, "savings")])
    twin = watch.copy()
    assert (twin, twin.network) == (watch, watch.network)
    twin.match_tx(FUNDING)
    assert (len(list(twin.outpoints())), len(list(watch.outpoints()))) == (1, 0)
    assert twin != watch
    twin = watch.copy()
    twin.add_script(ADDRESS_SCRIPT, "spending")
    assert twin != watch
    assert [label for _, _, label in watch.entries()] == ["savings"]


def test_equal_lists_may_differ_in_order_only() -> None:
    watch = WatchList.from_addresses([ADDRESS, LEGACY_ADDRESS])
    assert watch == WatchList.from_addresses([LEGACY_ADDRESS, ADDRESS, ADDRESS])
    assert watch != WatchList.from_addresses([ADDRESS])
    assert WatchList(SIGNET) != WatchList(REGTEST)
    assert watch != 5
    known, unknown = watch.copy(), watch.copy()
    known.add_outpoint(POINT, value=1)
    unknown.add_outpoint(POINT)
    assert known != unknown
    with pytest.raises(TypeError):
        hash(watch)


def test_its_repr_counts_and_names_no_address() -> None:
    watch = WatchList.from_addresses([(ADDRESS, "savings")])
    watch.match_tx(FUNDING)
    assert repr(watch) == "<WatchList mainnet 1 entries, 1 outpoints>"


# Elements of filters


def test_filter_elements_are_longest_pushes_and_outpoints() -> None:
    watch = WatchList.from_addresses([ADDRESS, LEGACY_ADDRESS])  # one hash for both
    watch.add_script(build.p2tr(b"\x06" * 32))
    watch.add_script(b"\x02\x01\x02" + build.push(b"longer") + b"\x01\x03")
    watch.add_script(build.multisig(1, [KEY, LONG_KEY]))
    watch.add_data(b"data")
    watch.add_outpoint(POINT)
    assert watch.bloom_elements() == [ADDRESS_SCRIPT[2:], b"\x06" * 32, b"longer", LONG_KEY, b"data", bytes(POINT)]


VERSIONS = st.sampled_from((0, 1, 0x4C, 0x4F, 0x50, 0x51, 0x60, 0x61))
LOOKALIKES = st.builds(lambda version, data: bytes((version, len(data))) + data, VERSIONS, st.binary(max_size=80))


@given(st.lists(LOOKALIKES | st.binary(min_size=1, max_size=50), max_size=20))
def test_filter_elements_of_any_scripts_are_their_longest_pushes(scripts: list[bytes]) -> None:
    watch, expected = WatchList(), list[bytes]()
    for script in scripts:
        if pushes := list(script_pushes(script)):
            watch.add_script(script)
            expected.append(max(pushes, key=len))
    assert watch.bloom_elements() == list(dict.fromkeys(expected))


def test_a_filter_holds_a_public_key_and_both_its_hashes() -> None:
    watch = WatchList()
    watch.add_pubkey(KEY)
    assert set(watch.bloom_elements()) == {KEY, Hash160(KEY), Hash160(build.p2wpkh(Hash160(KEY)))}
    assert len(watch.bloom_elements()) == 3


def test_the_next_filter_contains_learned_outpoints() -> None:
    watch = WatchList.from_addresses([ADDRESS])
    watch.match_tx(FUNDING)
    watch.match_tx(SPENDING)
    assert watch.bloom_elements() == [ADDRESS_SCRIPT[2:], bytes(POINT)]
    assert WatchList().bloom_elements() == []


def test_scripts_without_a_push_are_named() -> None:
    watch = WatchList.from_addresses([ADDRESS])
    silent = [b"\x51", b"\x00\x51\x60\x4f", b"\x4c\xff\x00", b"\x6a"]
    for script in silent:
        watch.add_script(script)
    with pytest.raises(InexpressibleError, match="51, 0051604f, 4cff00, 6a") as caught:
        watch.bloom_elements()
    assert caught.value.entries == tuple(script.hex() for script in silent)
    for number in range(0x61, 0x69):
        watch.add_script(bytes((number,)))
    with pytest.raises(InexpressibleError, match="and 7 more") as caught:
        watch.bloom_elements()
    assert len(caught.value.entries) == 12


@given(st.lists(st.tuples(st.sampled_from([ADDRESS_SCRIPT, LEGACY_SCRIPT, b"\x51"]), st.booleans()), max_size=20))
def test_a_learned_outpoint_is_never_forgotten(steps: list[tuple[bytes, bool]]) -> None:
    watch = WatchList.from_addresses([ADDRESS])
    learned: set[OutPoint] = set()
    for number, (script, spend) in enumerate(steps):
        inputs = (
            [TxIn(point.txid, point.index) for point in learned] if spend else [TxIn(number.to_bytes(32, "little"), 0)]
        )
        raw = build.tx(inputs, [TxOut(number, script)]) if inputs else pays(script)
        matches = watch.match_tx(raw)
        assert {match.outpoint for match in matches if match.kind == "input"} == (learned if spend else set())
        learned |= {OutPoint(build.txid(raw), 0)} if script == ADDRESS_SCRIPT else set()
        assert set(watch.outpoints()) == learned


def test_a_network_can_be_given_by_its_name() -> None:
    assert WatchList("signet").network is SIGNET
    with pytest.raises(ParameterError, match="unknown network 'bitcoin'"):
        WatchList("bitcoin")


def test_a_private_key_passed_as_public_key_is_not_repeated() -> None:
    secret = bytes(range(1, 33))
    with pytest.raises(ParameterError, match=r"not a public key: expected 33 bytes .* got 32 bytes") as caught:
        WatchList().add_pubkey(secret)
    assert secret.hex()[:16] not in str(caught.value)


def test_a_transaction_without_a_match_asks_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = WatchList(REGTEST)
    watch.add_script(b"\x51")
    raw = build.tx([build.TxIn(bytes(32), 0)], [build.TxOut(1, b"\x52")])
    calls: list[str] = []
    for name in ("advance", "accept", "matches"):
        monkeypatch.setattr(watch, name, lambda *_args, name=name, **_named: calls.append(name))
    assert watch.match_tx(raw) == []
    assert calls == []
