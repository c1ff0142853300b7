"""Watch lists with descriptors sp(): parsing, secrets, labels, and exact matches of silent payments."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from spvfilter import MatchKind, OutPoint, WatchList
from spvfilter.errors import (
    DescriptorError,
    FormatError,
    InexpressibleError,
    ParameterError,
    UndoError,
    WatchFileError,
    WrongNetworkError,
)
from spvfilter.light.engine.expressible import check_followable
from spvfilter.network import MAINNET, REGTEST
from spvfilter.primitives import TxOut
from spvfilter.silent.address import SilentAddress
from spvfilter.watch import silentkeychain
from spvfilter.watch.descriptor.silent import parse_silent
from spvfilter.watch.silentkeychain import SilentKeychain
from support.blocks import build, undo
from support.blocks.silentpayments import Wallet, encoded, payment

pytest.importorskip("btclib_secp256k1")
pytestmark = pytest.mark.descriptors

WALLET = Wallet()
H = 1 << 31  # a hardened step
SPEND = WALLET.spend_pubkey.hex()
# the master key of the first vector of BIP-32
XPRV = "xprv9s21ZrQH143K3QTDL4LXw2F7HEK3wJUD2nW2nRk4stbPy6cq3jPPqjiChkVvvNKmPGJxWUtg6LnF5kejMRNNU3TGtRBeJgk33yuGBxrMPHi"
XPUB = "xpub661MyMwAqRbcFtXgS5sYJABqqG9YLmC4Q1Rdap9gSE8NqtwybGhePY2gZ29ESFjqJoCu1Rupje8YtGqsefD265TMg7usUDFdp6W1EGMcet8"


def wif(key: bytes, version: int = 0x80, suffix: bytes = b"\x01") -> str:
    from bitcoin.base58 import encode

    raw = bytes((version,)) + key + suffix
    return str(encode(raw + build.sha256d(raw)[:4]))


def watching(text: str = WALLET.descriptor, label: str | None = None) -> WatchList:
    watch = WatchList()
    watch.add_descriptor(text, label)
    return watch


def secrets_of(wallet: Wallet = WALLET) -> tuple[str, ...]:
    return wallet.scan_key.hex(), wallet.scan_text, wif(wallet.scan_key)


def test_a_keychain_shows_its_address_and_public_keys() -> None:
    (keychain,) = watching(label="savings").keychains
    assert keychain.name == str(WALLET.address())
    origin = "deadbeef/352h/0h/0h"
    text = f"sp([{origin}/1h/0]{WALLET.scan_pubkey.hex()},[{origin}/0h/0]{SPEND})"
    assert keychain.descriptor is not None
    assert keychain.descriptor.partition("#")[0] == text
    assert keychain.label == "savings"
    for secret in secrets_of():
        assert secret not in f"{keychain!r} {keychain.__dict__!r} {watching()!r}"


@pytest.mark.parametrize("network", [MAINNET, REGTEST])
def test_all_spellings_of_the_scan_key_give_one_address(network: Any) -> None:
    wallet = Wallet(network=network)
    version = 0x80 if network is MAINNET else 0xEF
    for text in (
        f"sp({wallet.scan_text})",
        f"sp({wallet.scan_text.upper()})",
        f"sp([00000000]{wallet.scan_text})",
        wallet.descriptor,
        f"sp({wif(wallet.scan_key, version)},{SPEND})",
        f"sp([deadbeef/1h]{wif(wallet.scan_key, version)},[deadbeef/0h]{SPEND})",
    ):
        watch = WatchList(network)
        (keychain,) = watch.add_descriptor(text)
        assert keychain.name == str(wallet.address())
        (again,) = watch.add_descriptor(wallet.descriptor, "once")
        assert again is keychain
        assert len(watch.keychains) == 1
        assert keychain.label == "once"


def test_keys_at_paths_are_derived() -> None:
    import wallycore

    watch = watching(f"sp([deadbeef/352h]{XPRV}/1h/0,{XPUB}/7)")
    key = wallycore.bip32_key_from_base58(XPRV)
    flags = wallycore.BIP32_FLAG_KEY_PRIVATE
    scan = wallycore.bip32_key_from_parent_path(key, [(1 << 31) + 1, 0], flags)
    spend = wallycore.bip32_key_from_parent_path(key, [7], flags)
    address = SilentAddress(bytes(wallycore.bip32_key_get_pub_key(scan)), bytes(wallycore.bip32_key_get_pub_key(spend)))
    (keychain,) = watch.keychains
    assert keychain.name == str(address)
    assert "xprv" not in str(keychain.descriptor)
    assert f"sp([deadbeef/352h/1h/0]{address.scan_pubkey.hex()},{XPUB}/7)" in str(keychain.descriptor)


def test_the_spend_key_may_be_musig() -> None:
    from btclib_secp256k1.musig import KeyAggCache

    keys = sorted((Wallet(spend=21).spend_pubkey, Wallet(spend=22).spend_pubkey))
    joint = bytes(KeyAggCache(keys).pubkey_get())
    watch = watching(f"sp({wif(WALLET.scan_key)},musig({keys[1].hex()},{keys[0].hex()}))")
    assert watch.keychains[0].name == str(SilentAddress(WALLET.scan_pubkey, joint))


SPSPEND = encoded("spspend", WALLET.scan_key + WALLET.spend_key)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sp()", "argument of the descriptor is empty"),
        (f"sp({SPSPEND})", "contains the private spend key, which was not kept"),
        (f"sp({wif(WALLET.scan_key)},{SPSPEND})", "contains the private spend key"),
        (f"sp({XPUB})", "sp() with one key needs spscan1"),
        (f"sp({XPUB},{XPUB})", "needs the private scan key"),
        (f"sp({WALLET.scan_pubkey.hex()},{SPEND})", "needs the private scan key"),
        (f"sp({WALLET.scan_text},{WALLET.scan_text})", "must be the only argument of sp()"),
        (f"sp({wif(WALLET.scan_key)},{WALLET.scan_text})", "must be the only argument of sp()"),
        (f"sp({wif(WALLET.scan_key, suffix=b'')},{SPEND})", "the private key is uncompressed"),
        (f"sp({wif(WALLET.scan_key)},{wif(WALLET.spend_key)})", "a private spend key, which was not kept"),
        (f"sp({wif(WALLET.scan_key)},[deadbeef]{wif(WALLET.spend_key)})", "a private spend key"),
        (f"sp({wif(WALLET.scan_key)},{XPRV})", "a private spend key"),
        (f"sp({wif(WALLET.scan_key)},[deadbeef/1]{XPRV}/1)", "a private spend key"),
        (
            f"sp({wif(WALLET.scan_key)},{XPUB}/*)",
            "the spend key is a single key: give its whole path, without a wildcard or multipath",
        ),
        (
            f"sp({wif(WALLET.scan_key)},{XPUB}/<0;1>)",
            "the spend key is a single key: give its whole path, without a wildcard or multipath",
        ),
        (f"sp({wif(WALLET.scan_key)},{XPUB}/1h)", "a hardened step"),
        (f"sp({XPRV}/*,{SPEND})", "the scan key is a single key: give its whole path, without a wildcard or multipath"),
        (f"sp({wif(WALLET.scan_key)},04{SPEND[2:]}{'00' * 32})", "uncompressed"),
        (f"sp({wif(WALLET.scan_key)},{SPEND[2:]})", "x-only"),
        (f"sp({wif(WALLET.scan_key)},{SPEND},{SPEND})", "found sp() with 3 keys"),
        (f"sp({wif(WALLET.scan_key)}/0,{SPEND})", "a WIF has no child keys: remove the path after it"),
        (f"sp({wif(WALLET.scan_key)[:-1]}1,{SPEND})", "expected the private scan key"),
        (f"sp({WALLET.scan_text[:-1]}{'q' if WALLET.scan_text[-1] != 'q' else 'p'})", "was mistyped or is incomplete"),
        (
            f"sp({encoded('spscan', WALLET.scan_key + WALLET.spend_pubkey, 1)})",
            "must have version 0 (q after the 1), not 1",
        ),
        (
            f"sp({encoded('spscan', WALLET.scan_key + WALLET.spend_pubkey + b'x')})",
            "does not contain a 32-byte scan key",
        ),
        (f"sp({encoded('spscan', bytes(32) + WALLET.spend_pubkey)})", "zero or not below the order"),
        (f"sp({encoded('spscan', WALLET.scan_key + b'x' * 33)})", "does not contain a 32-byte scan key"),
        (f"sp({wif(bytes(32))},{SPEND})", "zero or not below the order"),
        (f"sp({WALLET.scan_text})#aaaaaaaa", "checksum of the descriptor is wrong"),
        (f"sp({WALLET.scan_text})x", "expected sp("),
        (f"sp([dead]{WALLET.scan_text})", "4 hex digits"),
        (f"sp(pk({SPEND}))", "expected a key, found pk()"),
        (f"sp({WALLET.scan_text}", "brackets"),
        (f"sp({'a' * 5_000})", "at most 4,000 characters"),
        (f"sh(sp({WALLET.scan_text}))", "private key of silent payments"),
        (f"wsh(sp({WALLET.scan_text}))", "private key of silent payments"),
    ],
)
def test_other_descriptors_are_refused_without_their_keys(text: str, message: str) -> None:
    with pytest.raises(DescriptorError) as caught:
        WatchList().add_descriptor(text)
    shown = f"{caught.value} {caught.value!r} {caught.value.args!r}"
    assert message in shown
    for secret in (*secrets_of(), WALLET.scan_text[:-1], SPSPEND, wif(WALLET.spend_key), XPRV, text):
        assert secret not in shown


@pytest.mark.parametrize("text", [WALLET.descriptor, f"sp({wif(WALLET.scan_key)},{SPEND})", f"sp({XPRV},{SPEND})"])
def test_keys_of_another_network_are_refused(text: str) -> None:
    with pytest.raises(WrongNetworkError, match="not for regtest") as caught:
        WatchList(REGTEST).add_descriptor(text)
    assert caught.value.networks == ("mainnet",)


def test_a_payment_matches_and_carries_its_label() -> None:
    watch = watching(label="savings")
    assert watch.add_sp_label(3, "Alice") == str(WALLET.address(3))
    raw, spent = payment([WALLET.address(), WALLET.address(3), WALLET.address(0), WALLET.address(9)])
    matches = watch.match_tx(raw, spent=spent)
    assert [(each.sp_label, each.label, each.keychain_index) for each in matches] == [
        (None, "savings", None),
        (3, "Alice", None),
        (0, "savings", None),
    ]
    assert {each.keychain for each in matches} == {str(WALLET.address())}
    assert watch.match_tx(raw) == matches
    spend = build.tx([build.TxIn(build.txid(raw), 1)], [build.TxOut(1, b"\x51")])
    (gone,) = watch.match_tx(spend)
    assert (gone.kind, gone.sp_label, gone.value, gone.label) == (MatchKind.INPUT, 3, 50_001, "Alice")
    for secret in secrets_of():
        assert secret not in repr(matches)


def test_labels_of_recovery_are_found() -> None:
    raw, spent = payment([WALLET.address(9), WALLET.address(40)])
    watch = watching()
    assert watch.match_tx(raw, spent=spent) == []
    watch.search_sp_labels(39)
    assert [each.sp_label for each in watch.match_tx(raw, spent=spent)] == [9]
    watch.search_sp_labels(40)
    assert [each.sp_label for each in watch.match_tx(raw, spent=spent)] == [9, 40]
    for wrong in (-1, 100_001):
        with pytest.raises(ParameterError, match="100,000"):
            watch.search_sp_labels(wrong)
    for number in (-1, 1 << 32):
        with pytest.raises(ParameterError, match="from 0 to 4,294,967,295"):
            watch.add_sp_label(number)
    for empty in (lambda: WatchList().search_sp_labels(1), lambda: watch.add_sp_label(1, keychain="sp1other")):
        with pytest.raises(ParameterError, match="contains no sp"):
            empty()


def test_a_miss_without_spent_outputs_is_no_proof() -> None:
    for kind, expected in (("p2wpkh", 1), ("p2tr", 0)):
        raw, spent = payment([WALLET.address()], kind=kind)
        watch = watching()
        assert len(watch.match_tx(raw)) == expected
        search = watch.silent_search()
        assert search is not None
        judged = search.tx(raw, None)
        assert (judged.candidates, judged.unjudged) == (1, 1 - expected)
        assert len(watch.match_tx(raw, spent=spent)) == 1


def chain_with(*txs: bytes) -> bytes:
    return build.chain_of([txs])[0]


def test_a_block_matches_with_its_spent_outputs() -> None:
    paid, spent = payment([WALLET.address(), WALLET.address(0)], kind="p2tr")
    other, coins = payment([Wallet(scan=5).address()], salt=1, kind="p2tr", inputs=3)
    spend = build.tx([build.TxIn(build.txid(paid), 0)], [build.TxOut(1, b"\x51")])
    mine = TxOut(50_000, b"\x51\x20" + paid[paid.index(b"\x51\x20") + 2 :][:32])
    raw = chain_with(paid, other, spend)
    outputs = [spent, coins, [mine]]
    record = undo.record_of(
        raw, undo.undo_of([[undo.Spent(each.value, each.script_pubkey) for each in tx] for tx in outputs])
    )
    by_list, by_record = (watching().match_block(raw, height=5, spent=each) for each in (outputs, record))
    assert by_list == by_record == watching().match_block(raw, height=5, spent=memoryview(record))
    assert [(each.kind, each.sp_label) for each in by_list] == [
        (MatchKind.OUTPUT, None),
        (MatchKind.OUTPUT, 0),
        (MatchKind.INPUT, None),
    ]
    assert watching().match_block(raw) == []


def test_wrong_counts_of_spent_outputs_are_errors() -> None:
    raw, spent = payment([WALLET.address()], inputs=2)
    block = chain_with(raw)
    for watch in (watching(), WatchList()):
        for wrong in ([], spent[:1], spent * 2):
            with pytest.raises(FormatError, match="expected 2 spent outputs"):
                watch.match_tx(raw, spent=wrong)
            with pytest.raises(FormatError, match="expected 2 spent outputs for transaction 1"):
                watch.match_block(block, spent=[wrong])
        for several in ([], [spent, spent]):
            with pytest.raises(FormatError, match="of 1 transaction after the coinbase"):
                watch.match_block(block, spent=several)
        with pytest.raises(UndoError):
            watch.match_block(block, spent=b"\0" * 40)


def test_a_scanner_is_made_again_only_for_more_labels() -> None:
    (keychain,) = watching().windows.silent
    scanner = keychain.scanner
    assert keychain.scanner is scanner
    keychain.declare(1)
    more = keychain.scanner
    assert more is not scanner
    assert keychain.copy().scanner is more
    keychain.declare(1, "Alice")
    assert keychain.scanner is more
    keychain.search_to(3)
    assert keychain.scanner.labels == [0, 1, 2, 3]


def test_a_descriptor_of_sparrow_is_read() -> None:
    """The export of a Sparrow wallet on a test network, as its users have published it."""
    text = (
        "sp([0f056943/352h/1h/0h]tspscan1q05wxw5wc7wqmkf8cnfc6ry76qej8vhr3a3mmxmwgv35s0tlw24fs82k0npv2hv6p97s8sd9t7vpf"
        "44kluka9w863zjwxzfrym2ay9ccfzt06c4)#7eve6al9"
    )
    watch = WatchList(REGTEST)
    watch.add_descriptor(text)
    (keychain,) = watch.windows.silent
    assert keychain.silent.spend_pubkey.hex() == "03aacf9858abb3412fa07834abf3029ad6dfe5ba571f51149c612464daba42e309"
    assert keychain.silent.scan_key.hex() == "7d1c6751d8f381bb24f89a71a193da0664765c71ec77b36dc8646907afee5553"
    assert keychain.silent.spend_origin == (bytes.fromhex("0f056943"), (H + 352, H + 1, H, H, 0))
    assert keychain.silent.secret == text


def test_a_coinbase_and_an_empty_list_match_nothing() -> None:
    raw = build.coinbase(5, [build.TxOut(1, b"\x51\x20" + WALLET.scan_pubkey[1:])])
    assert watching().match_tx(raw) == []
    assert not watching().is_empty
    assert WatchList().is_empty
    assert len(watching()) == 0


def test_filters_cannot_find_silent_payments() -> None:
    watch = watching()
    for elements in (watch.bloom_elements, watch.gcs_elements):
        with pytest.raises(InexpressibleError, match="silent payment") as caught:
            elements()
        assert caught.value.entries == (str(WALLET.address()),)


def test_the_next_address_has_no_label() -> None:
    watch = watching(label="savings")
    name = str(WALLET.address())
    assert watch.next_address() == watch.next_address(name) == name
    assert watch.index.chosen_keychain("savings").name == watch.index.chosen_keychain(name).name == name
    assert watch.index.keychains_named(WALLET.descriptor) == (name,)


def test_an_account_has_silent_payments() -> None:
    watch = WatchList()
    watch.add_account("gifts", WALLET.descriptor, label="gift")
    watch.add_account("gifts", f"sp({WALLET.scan_text})")
    raw, spent = payment([WALLET.address()])
    (match,) = watch.match_tx(raw, spent=spent)
    assert (match.account, match.label) == ("gifts", "gift")
    with pytest.raises(ParameterError, match="belongs to account 'gifts'"):
        watch.add_account("other", WALLET.descriptor)
    watch.rename_account("gifts", "presents")
    assert watch.match_tx(raw)[0].account == "presents"
    watch.remove_account("presents")
    assert watch.is_empty
    assert watch.match_tx(raw, spent=spent) == []


def test_a_copy_is_independent() -> None:
    watch = watching()
    copy = watch.copy()
    assert copy == watch
    raw, spent = payment([WALLET.address(4)])
    copy.add_sp_label(4)
    assert len(copy.match_tx(raw, spent=spent)) == 1
    assert watch.match_tx(raw, spent=spent) == []
    assert copy != watch


def test_a_saved_list_has_no_scan_key_by_default(tmp_path: Path) -> None:
    watch = watching(label="savings")
    watch.add_sp_label(2, "Bob, again")
    raw, spent = payment([WALLET.address(), WALLET.address(2)])
    matches = watch.match_tx(raw, spent=spent)
    public, private = tmp_path / "public.txt", tmp_path / "private.txt"
    watch.save(public)
    watch.save(private, secrets=True)
    shown = public.read_text(encoding="utf-8")
    assert str(watch.keychains[0].descriptor) in shown
    for secret in (*secrets_of(), "sp-output"):
        assert secret not in shown
    loaded = WatchList.load(public)
    assert loaded.keychains == ()
    assert [each.outpoint for each in loaded.match_tx(raw)] == [each.outpoint for each in matches]
    again = WatchList.load(private)
    assert again == watch
    assert again.match_tx(raw) == matches
    assert private.stat().st_mode & 0o777 == 0o600
    again.save(tmp_path / "third.txt", secrets=True)
    assert (tmp_path / "third.txt").read_text(encoding="utf-8") == private.read_text(encoding="utf-8")


def test_lines_of_labels_follow_their_descriptor(tmp_path: Path) -> None:
    path = tmp_path / "watch.txt"
    other = Wallet(scan=5)
    path.write_text(
        f"account:gifts\n{WALLET.descriptor},savings\nsp-label:1,Alice\nsp-label:7\naccount:\nsp({other.scan_text})\n"
        "sp-label:1,Carol\n"
    )
    watch = WatchList.load(path)
    assert [each.account for each in watch.keychains] == ["gifts", None]
    found = []
    for salt, each in enumerate((WALLET, other)):
        raw, spent = payment([each.address(1), each.address(7)], salt=salt)
        found += [(match.label, match.sp_label, match.account) for match in watch.match_tx(raw, spent=spent)]
    assert found == [("Alice", 1, "gifts"), ("savings", 7, "gifts"), ("Carol", 1, None)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("sp-label:x,Bob", "a whole label number N"),
        ("sp-label:4294967296", "from 0 to 4,294,967,295"),
        ("sp-label:-1", "a whole label number N"),
        ("sp-labels:x", "a whole label number N"),
        ("sp-labels:100001", "up to number 100,000, not 100001"),
        ("sp-output:00:00", "not 2 parts"),
        ("sp-output:00:00:1", "P2TR script of 34 bytes"),
    ],
)
def test_wrong_lines_are_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "watch.txt"
    path.write_text(f"{WALLET.descriptor}\n{line}\n")
    with pytest.raises(WatchFileError, match=message) as caught:
        WatchList.load(path)
    assert [number for number, _ in caught.value.problems] == [2]
    path.write_text(f"{line}\n{WALLET.descriptor}\n")
    with pytest.raises(WatchFileError, match=r"sp-[a-z]+ needs an sp\(…\) line before it"):
        WatchList.load(path)
    for secret in secrets_of():
        assert secret not in str(caught.value)


def test_a_compiled_list_and_a_pickle_refuse_scan_keys(tmp_path: Path) -> None:
    watch = watching()
    with pytest.raises(ParameterError, match="compiled"):
        watch.compile(tmp_path / "list.compiled")
    with pytest.raises(TypeError, match="private scan key"):
        pickle.dumps(watch)
    with pytest.raises(TypeError, match="private scan key"):
        pickle.dumps(watch.keychains[0])
    with pytest.raises(ParameterError, match="name your node with --node"):
        check_followable(watch.index)


def test_a_bitcoin_address_and_labels_with_keys_are_refused() -> None:
    with pytest.raises(ParameterError, match="private key of silent payments"):
        WatchList().within_account(WALLET.scan_text).__enter__()
    with pytest.raises(ParameterError, match="silent payment address"):
        WatchList().add_address(str(WALLET.address()))


def test_json_of_a_match_has_no_tweak() -> None:
    watch = watching()
    raw, spent = payment([WALLET.address()])
    (match,) = watch.match_tx(raw, spent=spent)
    (found,) = watch.windows.silent[0].found.values()
    assert found.tweak.hex() not in json.dumps(str(match.__reduce_ex__(2)))
    assert found.tweak.hex() not in repr(found)
    assert isinstance(match.outpoint, OutPoint)


def test_a_tweak_that_is_learned_later_is_kept() -> None:
    watch = watching()
    raw, spent = payment([WALLET.address()])
    (found,) = watch.match_tx(raw, spent=spent)
    (keychain,) = watch.windows.silent
    ((script, known),) = keychain.found.items()
    other = watching()
    other.add_payments([(keychain.name, script, known._replace(tweak=b""))])
    assert [each.outpoint for each in other.match_tx(raw, spent=spent)] == [found.outpoint]
    assert other.windows.silent[0].found == {script: known}


def test_a_saved_list_keeps_how_many_labels_it_searches(tmp_path: Path) -> None:
    watch = watching()
    watch.search_sp_labels(50)
    watch.save(tmp_path / "w.txt", secrets=True)
    assert "sp-labels:50" in (tmp_path / "w.txt").read_text().splitlines()
    again = WatchList.load(tmp_path / "w.txt")
    assert again == watch
    raw, spent = payment([WALLET.address(50)])
    assert [each.sp_label for each in again.match_tx(raw, spent=spent)] == [50]
    assert not watching().match_tx(raw, spent=spent)


def test_a_saved_list_keeps_the_labels_of_its_payments(tmp_path: Path) -> None:
    watch = watching()
    watch.search_sp_labels(50)
    raw, spent = payment([WALLET.address(9)])
    assert len(watch.match_tx(raw, spent=spent)) == 1
    watch.save(tmp_path / "w.txt", secrets=True)
    raw, spent = payment([WALLET.address(9)], salt=2)
    assert [each.sp_label for each in WatchList.load(tmp_path / "w.txt").match_tx(raw, spent=spent)] == [9]


STEPS = st.tuples(st.sampled_from(("declare", "search", "reveal", "copy")), st.integers(0, 14))


@given(st.lists(STEPS, max_size=14))
def test_there_are_never_more_labels_than_the_limit(steps: list[tuple[str, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(silentkeychain, "MAX_LABELS", 8)
        keychain = SilentKeychain(parse_silent(WALLET.descriptor, MAINNET))
        for step, number in steps:
            before = keychain.numbers()
            try:
                if step == "declare":
                    keychain.declare(number)
                elif step == "search":
                    keychain.search_to(number % 10)
                elif step == "reveal":
                    index, address = keychain.to_reveal()
                    assert index not in keychain.labels
                    assert address == str(WALLET.address(index))
                    keychain.reveal(index)
                else:
                    keychain = keychain.copy()
            except ParameterError:
                assert keychain.numbers() == before
            assert before <= keychain.numbers()
            assert keychain.count == len(keychain.numbers()) <= 9
            keychain.check_labels()


def test_silent_keychains_are_listed_after_every_change() -> None:
    def check(*lists: WatchList) -> None:
        for each in lists:
            assert list(each.windows.silent) == [keychain for keychain in each.keychains if keychain.finds_scripts]

    watch = WatchList()
    watch.add_account("shop", WALLET.descriptor)
    check(watch, watch.copy())
    assert len(watch.windows.silent) == 1
    watch.add_account("other", Wallet(13, 17).descriptor, f"wpkh({XPUB}/0/*)")
    check(watch, watch.copy())
    watch.remove_account("shop")
    check(watch, watch.copy())
    assert [keychain.account for keychain in watch.windows.silent] == ["other"]
    watch.remove_account("other")
    check(watch, watch.copy())
    assert not watch.windows.silent
