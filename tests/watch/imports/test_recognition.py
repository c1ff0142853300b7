"""Every kind of wallet file is recognized by its content, and becomes the same watch list as its descriptor."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
from bitcoin.base58 import decode, encode

from spvfilter.address import script_to_address
from spvfilter.errors import DescriptorWarning, ParameterError, WalletFileWarning, WatchFileError
from spvfilter.hashes import sha256d
from spvfilter.network import MAINNET, REGTEST, SIGNET, Network
from spvfilter.watch.descriptor.descriptor import parse_descriptor
from spvfilter.watch.imports import WalletFile, read_wallet_file
from spvfilter.watch.imports.walletfile import PUBLIC_TEST_NETWORKS, TEST_NETWORKS
from spvfilter.watch.watchlist import WatchList
from support.wallets.walletfiles import (
    ADDRESS,
    BIRTHDAY,
    FILES,
    FIRST_ADDRESSES,
    FIRST_KEY,
    FIRST_PKH,
    KEY,
    MULTI,
    OTHER,
    PHRASE,
    SECOND,
    SINGLE,
    TPUB,
    WIF,
    XPRV,
    YPUB,
    ZPUB,
    bsms,
    caravan,
    checked,
    coldcard,
    coldcard_multisig,
    core,
    electrum,
    electrum_imported,
    electrum_multisig,
    first,
    labels,
    liana,
    policy,
    requests,
    sparrow,
    specter,
    specter_wallet,
    table,
    text_of,
    wasabi,
    wasabi_skeleton,
)

pytestmark = pytest.mark.descriptors
BOTH = f"{SINGLE}/<0;1>/*)"
SIGNERS = "electrum", "electrum_multisig", "coldcard", "coldcard_multisig"
KEYSTORE = electrum()["keystore"]
MULTISIG = MULTI % ("/<0;1>/*", "/<0;1>/*")


def write(path: Path, value: object) -> Path:
    path = path / "wallet"
    path.write_bytes(value if isinstance(value, bytes) else text_of(value).encode())
    return path


def read(path: Path, value: object) -> WalletFile:
    return read_wallet_file(write(path, value))


def load(path: Path, value: object, network: Network = MAINNET) -> WatchList:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WalletFileWarning)
        return WatchList.load(write(path, value), network)


def refused(path: Path, value: object, network: Network = MAINNET) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", (WalletFileWarning))
        with pytest.raises(WatchFileError) as caught:
            WatchList.load(write(path, value), network)
    (problem,) = caught.value.problems
    assert str(problem[1]) in str(caught.value)
    for secret in (XPRV, WIF, PHRASE):
        assert secret[:12] not in str(caught.value)
    return problem[1]


EXPECTED: dict[str, tuple[list[str], list[str], str, str | None]] = {
    "core": ([BOTH], [], "Bitcoin Core", "cold"),
    "requests": ([BOTH], [], "Bitcoin Core", None),
    "sparrow": ([BOTH], [], "Sparrow", None),
    "specter": ([MULTISIG], [], "Specter", "cold"),
    "specter_wallet": ([BOTH], [], "Specter", "cold"),
    "electrum": ([BOTH], [], "Electrum", None),
    "electrum_multisig": ([MULTISIG], [], "Electrum", None),
    "electrum_imported": ([], [ADDRESS, SECOND], "Electrum", None),
    "coldcard": ([f"pkh([d34db33f/44h/0h/0h]{OTHER}/<0;1>/*)", BOTH], [], "Coldcard", None),
    "coldcard_multisig": ([MULTISIG], [], "Coldcard", "cold"),
    "wasabi": ([BOTH, f"tr([d34db33f/86h/0h/0h]{OTHER}/<0;1>/*)"], [], "Wasabi", None),
    "coldcard_skeleton": ([BOTH], [], "Electrum", None),
    "wasabi_skeleton": ([BOTH], [], "Wasabi", None),
    "caravan": ([MULTISIG], [], "Caravan", "cold"),
    "liana": ([BOTH], [], "Liana", "cold"),
    "bitkey": ([BOTH], [], "descriptors", None),
    "bitkey_json": ([BOTH], [], "descriptors", None),
    "descriptors": ([BOTH], [], "descriptors", None),
    "bsms": ([MULTISIG], [], "BSMS", None),
    "policy": ([MULTISIG], [], "BIP-388", "cold"),
    "labels": ([], [ADDRESS, SECOND], "BIP-329", None),
    "table": ([], [ADDRESS, SECOND], "CSV", None),
}


@pytest.mark.few(6)
@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("ends", ["\n", "\r\n", "BOM"])
def test_each_file_gives_the_scripts_of_its_descriptors(kind: str, ends: str, tmp_path: Path) -> None:
    descriptors, addresses, program, name = EXPECTED[kind]
    text = text_of(FILES[kind]())
    text = f"\ufeff{text}" if ends == "BOM" else text.replace("\n", ends)
    expected = WatchList.from_addresses(addresses)
    for each in descriptors:
        expected.add_descriptor(each)
    watch, wallet = load(tmp_path, text), read(tmp_path, text)
    assert [each.name for each in watch.keychains] == [each.name for each in expected.keychains]
    assert {script for _, script, _ in watch.entries()} >= {script for _, script, _ in expected.entries()}
    assert all(each.scripts(each.end - 1)[0] in watch for each in watch.keychains)
    assert (wallet.kind, wallet.name) == (program, name)
    assert wallet.networks == (MAINNET,) or not wallet.descriptors


@pytest.mark.slow
def test_windows_include_all_indexes_that_the_wallet_has_derived(tmp_path: Path) -> None:
    assert [each.end for each in load(tmp_path, core()).keychains] == [1_500, 1_500]
    assert [each.end for each in load(tmp_path, specter_wallet()).keychains] == [1_200, 1_000]
    assert [each.end for each in load(tmp_path, wasabi()).keychains] == [1_000, 1_000, 1_234, 1_234]
    many = electrum()
    many["addresses"]["receiving"] *= 700
    assert [each.end for each in load(tmp_path, many).keychains] == [2_100, 2_100]


def test_birthdays_are_those_of_the_file(tmp_path: Path) -> None:
    assert read(tmp_path, core()).birthday == BIRTHDAY
    assert read(tmp_path, requests()).birthday is None  # one timestamp is "now"
    since_genesis = core()
    since_genesis["descriptors"][1]["timestamp"] = 0
    assert read(tmp_path, since_genesis).birthday is None
    assert read(tmp_path, specter()).birth_height == 800_000
    assert read(tmp_path, wasabi()).birth_height == 800_000
    assert read(tmp_path, {**specter(), "blockheight": 0}).birth_height is None
    backup = liana()
    (account,) = backup["accounts"]
    assert read(tmp_path, backup).birthday == BIRTHDAY
    backup["accounts"] = [{**account, "timestamp": BIRTHDAY + 9}, account]
    assert read(tmp_path, backup).birthday == BIRTHDAY
    backup["accounts"] = [{**account, "timestamp": None}, account]
    assert read(tmp_path, backup).birthday is None


@pytest.mark.slow
def test_labels_of_addresses_and_names_of_wallets_are_kept(tmp_path: Path) -> None:
    address = first(f"{SINGLE}/0/*)")
    for file in (electrum(), specter_wallet(), wasabi()):
        watch = load(tmp_path, file)
        named = {script: label for _, script, label in watch.entries()}
        assert named[watch.keychains[0].scripts(0)[0]] == "rent", file
        assert address == first(f"{SINGLE}/0/*)")
    assert {each.label for each in load(tmp_path, core()).keychains} == {"cold"}
    assert [label for _, _, label in load(tmp_path, table()).entries()] == ["rent, flat", None]
    assert [label for _, _, label in load(tmp_path, labels()).entries()] == ["rent", None]
    assert [label for _, _, label in load(tmp_path, electrum_imported()).entries()] == ["rent", None]


def test_one_bad_line_never_refuses_a_file_of_labels(tmp_path: Path) -> None:
    other = json.dumps({"type": "addr", "ref": ADDRESS[:-1], "label": "mistyped"})
    last = json.dumps({"type": "addr", "ref": FIRST_PKH, "label": "a\tb\nc\u2028d"}, ensure_ascii=False)
    with pytest.warns(WalletFileWarning) as caught:
        watch = WatchList.load(write(tmp_path, f"no label\n{labels()}{{}}\n{other}\n{last}\n"))
    assert [label for _, _, label in watch.entries()] == ["rent", None, "a\tb\nc\u2028d"]
    told = " ".join(str(each.message) for each in caught)
    assert "lines 1, 5 of the labels (BIP-329) were left out" in told
    assert "line 6 was left out: " in told


def test_a_file_of_labels_names_what_it_does_not_keep(tmp_path: Path) -> None:
    left_out = "left out %s of transactions, outputs or keys: a watch list only labels addresses"
    assert read(tmp_path, labels()).warnings == (left_out % "1 label",)
    assert read(tmp_path, liana()).warnings == (left_out % "1 label",)
    secrets = [{"type": "xpub", "ref": XPRV}, {"type": "addr", "ref": SECOND, "label": WIF}]
    secret, others = read(tmp_path, labels() + "".join(f"{json.dumps(each)}\n" for each in secrets)).warnings
    assert secret.startswith("the file contains private keys, in the field label: they were not kept")
    assert others == left_out % "2 labels"


def test_label_of_an_unwatched_address_is_left_out(tmp_path: Path) -> None:
    file = electrum()
    file["labels"][SECOND] = "a payee"
    with pytest.warns(WalletFileWarning, match=r"left out 1 label of addresses that are not watched"):
        watch = WatchList.load(write(tmp_path, file))
    assert len(watch) == 2_000


def test_electrum_file_may_end_with_changes(tmp_path: Path) -> None:
    address = first(f"{SINGLE}/0/*)")
    change = json.dumps({"op": "replace", "path": f"/labels/{address}", "value": "flat"})
    watch = load(tmp_path, f"{text_of(electrum())},\n{change}")
    assert {label for _, _, label in watch.entries()} == {"flat", None}
    assert "damaged at line" in refused(tmp_path, f"{text_of(electrum())},\n{{")


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("file", "descriptor"),
    [
        ({**electrum(), "keystore": {"type": "hardware", "xpub": YPUB}, "addresses": {}}, f"sh(wpkh({KEY}/<0;1>/*))"),
        ({**electrum(), "keystore": {"type": "bip32", "xpub": KEY}, "addresses": {}}, f"pkh({KEY}/<0;1>/*)"),
        ({**electrum_multisig(), "wallet_type": "1of2"}, MULTISIG.replace("sortedmulti(2", "sortedmulti(1")),
        ({"wallet_name": "", "descriptors": [{"desc": f"tr({KEY}/<0;1>/*)"}]}, f"tr({KEY}/<0;1>/*)"),
        ({"result": core(), "error": None, "id": 1}, BOTH),
        ({"method": "importdescriptors", "params": [requests()]}, BOTH),
        ({"name": "cold", "desc": checked(BOTH)}, BOTH),
        ({"name": "cold", "policy": "wpkh(@0/**)", "keys": [KEY]}, f"wpkh({KEY}/<0;1>/*)"),
        ({"template": "tr(@0/<0;1>/*,pk(@1/**))", "keys": [KEY, OTHER]}, f"tr({KEY}/<0;1>/*,pk({OTHER}/<0;1>/*))"),
        (coldcard_multisig().replace("P2WSH", "P2SH-P2WSH"), f"sh({MULTISIG})"),
        (coldcard_multisig().replace("P2WSH", "p2wsh-p2sh"), f"sh({MULTISIG})"),
        (coldcard_multisig().replace("2 of 2", "2/2").replace("Format: P2WSH\n", ""), f"sh{MULTISIG[3:]}"),
        (coldcard_multisig().replace("Policy", "policy").replace(KEY, ZPUB), MULTISIG),
        (bsms().replace("/**", "/<0;1>/*").replace("/0/*,/1/*", "No path restrictions"), MULTISIG),
        (f"{checked(MULTI % ('/**', '/**'))},a label", MULTISIG),
        ({"name": "cold", "descriptors": {"receive": f"{SINGLE}/0/*)", "change": f"{SINGLE}/1/*)"}}, BOTH),
        ({"external_descriptor": f"{SINGLE}/0/*)", "Internal Descriptor": f"{SINGLE}/1/*)"}, BOTH),
        (f"# Bitkey\nreceive descriptor = {SINGLE}/0/*)\nChange: {SINGLE}/1/*)", BOTH),
        (f"Internal: {SINGLE}/1/*)\nExternal: {SINGLE}/0/*)\n", BOTH),
        ({"change_descriptor": f"{SINGLE}/1/*)", "receiveDescriptor": f"{SINGLE}/0/*)"}, BOTH),
        ({**core(), "descriptors": core()["descriptors"][::-1]}, BOTH),
        ({**caravan(), "addressType": "P2SH-P2WSH", "network": "Bitcoin"}, f"sh({MULTISIG})"),
        ({**caravan(), "addressType": "P2SH", "network": None}, f"sh{MULTISIG[3:]}"),
        (f"[d34db33f/84'/0'/0']{ZPUB}", BOTH.replace("84h/0h/0h", "84'/0'/0'")),
        (f"\n  [d34db33f/84h/0h/0h]{ZPUB},cold", BOTH),
        ({**electrum(), "addresses": {}, "keystore": {**KEYSTORE, "root_fingerprint": "0xD34DB33F"}}, BOTH),
    ],
)
def test_variants_give_the_scripts_of_the_descriptor(file: object, descriptor: str, tmp_path: Path) -> None:
    expected = WatchList()
    expected.add_descriptor(descriptor)
    assert [each.name for each in load(tmp_path, file).keychains] == [each.name for each in expected.keychains]


def account(depth: int, parent: str = "aabbccdd", index: int = (1 << 31) + 7) -> str:
    """Return KEY with another depth, parent and index. Its children stay the same."""
    before = decode(KEY)[:78]
    place = bytes.fromhex(parent) + index.to_bytes(4) if depth else bytes(8)
    raw = before[:4] + bytes((depth,)) + place + before[13:]
    return str(encode(raw + sha256d(raw)[:4]))


@pytest.mark.few(76)
@pytest.mark.parametrize("depth", range(5))
@pytest.mark.parametrize("fingerprint", [None, "", "D34DB33F", "0xd34db33f", "00000000", "nonsense", 5])
@pytest.mark.parametrize("path", [None, "", "m", "m/84'/0H/0h", "84h/0h/0h", "nonsense", 5])
def test_a_key_has_its_origin_or_a_warning(depth: int, fingerprint: object, path: object, tmp_path: Path) -> None:
    key = account(depth)
    signer = {"xpub": key, "xfp": fingerprint, "bip32Path": path}
    file = {**caravan(), "extendedPublicKeys": [signer], "quorum": {"requiredSigners": 1}, "network": None}
    wallet = read(tmp_path, file)
    (found,) = re.findall(rf"1,(.*?){key}", wallet.descriptors[0].text)
    is_master = fingerprint in ("D34DB33F", "0xd34db33f")
    is_placed = path in ("m/84'/0H/0h", "84h/0h/0h")
    if is_master and is_placed:
        assert found == "[d34db33f/84h/0h/0h]"
    elif found:
        expected = {
            0: "[d34db33f]",
            1: f"[{'d34db33f' if is_master else 'aabbccdd'}/{'84h/0h/0h' if is_placed else '7h'}]",
        }
        assert found == expected[depth]
    is_silent = (fingerprint in (None, "") and path in (None, "", "m")) or depth == 0
    assert bool(found) or is_silent or len(wallet.warnings) == 1
    assert all("key 1 of a Caravan wallet is watched without its origin" in each for each in wallet.warnings)
    assert not (found and wallet.warnings)


def test_wasabi_skeleton_of_another_account_has_its_path(tmp_path: Path) -> None:
    (found,) = read(tmp_path, {**wasabi_skeleton(), "ExtPubKey": account(3)}).descriptors
    assert found.text.startswith("wpkh([d34db33f/84h/0h/7h]")


def test_one_path_below_the_keys_belongs_to_all_keys(tmp_path: Path) -> None:
    path = "Derivation: m/48'/0'/0'/2'\n"
    file = coldcard_multisig()
    assert read(tmp_path, file.replace(path, "") + path) == read(tmp_path, file)
    mixed = file.replace("0F056943:", "Derivation: m/7'\n0F056943:")
    assert "[0f056943/7h]" in read(tmp_path, mixed).descriptors[0].text


@pytest.mark.parametrize(
    "kind", ["electrum", "electrum_multisig", "coldcard", "coldcard_multisig", "wasabi", "caravan"]
)
def test_every_format_warns_of_an_incomplete_origin(kind: str, tmp_path: Path) -> None:
    text = text_of(FILES[kind]())
    assert not any("origin" in each for each in read(tmp_path, text).warnings)
    damaged = re.sub(r"m?/?\d\d'/0'/0'(/2')?", "somewhere", text)
    assert any("without its origin" in each for each in read(tmp_path, damaged).warnings)


def test_addresses_handed_out_before_are_not_revealed_again(tmp_path: Path) -> None:
    def next_of(file: object) -> list[int | None]:
        return [each.index_to_reveal for each in load(tmp_path, file).keychains]

    assert next_of(liana()) == [13, 4]
    assert next_of(core()) == [3, 3]
    assert next_of(specter_wallet()) == [2, 0]
    assert next_of({**caravan(), "startingAddressIndex": 5_000}) == [5_000, 5_000]
    assert [each.end for each in load(tmp_path, {**caravan(), "startingAddressIndex": 5_000}).keychains] == [6_000] * 2
    many = liana()
    many["accounts"][0]["receive_index"] = 4_000_000_000
    assert "key derivations" in refused(tmp_path, many)


def test_old_electrum_wallets_give_their_addresses(tmp_path: Path) -> None:
    file = {**electrum(), "keystore": {"type": "old", "mpk": "ab" * 64}}
    with pytest.warns(WalletFileWarning, match="only the addresses in the file are watched"):
        watch = WatchList.load(write(tmp_path, file))
    assert (len(watch), watch.keychains) == (4, ())


# Networks


def test_networks_are_those_of_the_keys_or_named(tmp_path: Path) -> None:
    assert read(tmp_path, {"name": "x", "desc": f"wpkh({TPUB}/0/*)"}).networks == TEST_NETWORKS
    assert read(tmp_path, {"name": "x", "desc": "raw(51)"}).networks == tuple(read(tmp_path, table()).networks)
    file: dict[str, Any] = {"ExtPubKey": TPUB, "BlockchainState": {"Network": "TestNet"}}
    assert read(tmp_path, file).networks == PUBLIC_TEST_NETWORKS
    assert len(load(tmp_path, file, SIGNET)) == 2_000
    message = refused(tmp_path, file, REGTEST)
    assert message == "this wallet (Wasabi) is for testnet3 or testnet4 or signet, not for regtest: choose its network"
    assert "this wallet (Coldcard) is for mainnet, not for regtest" in refused(tmp_path, coldcard(), REGTEST)
    assert "this address is for mainnet" in refused(tmp_path, labels().splitlines()[0], REGTEST)


# Secrets


SECRETS: dict[str, tuple[object, str]] = {
    "Electrum xprv": ({**electrum(), "keystore": {**electrum()["keystore"], "xprv": XPRV}}, "the field xprv"),
    "Electrum seed": ({**electrum(), "keystore": {**electrum()["keystore"], "seed": PHRASE}}, "the field seed"),
    "Electrum keys": ({**electrum_imported(), "keystore": {"keypairs": {"02ab": WIF}}}, "the field keypairs"),
    "keys by address": ({**electrum(), "extra": {ADDRESS: WIF}}, "the field extra"),
    "key as a name": ({**electrum(), "extra": {WIF: ADDRESS}}, "the field extra"),
    "several": ({**core(), "seed": "x", "deep": [{"words": ["zebra"]}], "note": PHRASE}, "note, seed, words"),
    "Wasabi secret": ({**wasabi(), "EncryptedSecret": "6PRVWUbkzzsbcVac2qwf"}, "the field EncryptedSecret"),
    "CSV column": (f"address,label,private_key\n{ADDRESS},rent,{WIF}\n", "the column 3"),
    "CSV label": (f"address,label\n{ADDRESS},{WIF}\n{SECOND},rent\n", "the column 2"),
    "label": (labels().replace("rent", XPRV), "the field label"),
}


@pytest.mark.few(3)
@pytest.mark.parametrize("kind", SECRETS)
def test_private_keys_are_named_but_not_kept(kind: str, tmp_path: Path) -> None:
    file, words = SECRETS[kind]
    with pytest.warns(WalletFileWarning) as caught:
        watch = WatchList.load(write(tmp_path, file))
    told = "\n".join(str(each.message) for each in caught)
    watch.save(tmp_path / "saved")
    kept = f"{told}\n{read(tmp_path, file)!r}\n{(tmp_path / 'saved').read_text()}"
    assert words in told
    assert "the file contains private keys" in told
    assert "they were not kept" in told
    for secret in (XPRV, WIF, PHRASE, "6PRVWUbkzzsbcVac2qwf"):
        assert secret[:8] not in kept


PRIVATE: dict[str, tuple[object, str]] = {
    "Core": ({"descriptors": [{"desc": f"wpkh({XPRV}/0/*)"}]}, "listdescriptors`, without `true`"),
    "Specter": ({"descriptor": f"wpkh({XPRV}/0/*)"}, "export the wallet as watch-only"),
    "Sparrow": (sparrow().replace(KEY, XPRV), "export a watch-only wallet"),
    "BSMS": (bsms().replace(KEY, XPRV), "give the record with public keys"),
    "policy": ({**policy(), "keys_info": [XPRV, KEY]}, "use public keys only"),
    "Coldcard text": (coldcard_multisig().replace(KEY, XPRV), "give the wallet's descriptor with public keys"),
    "Coldcard": ({**coldcard(), "bip84": {"xpub": XPRV}}, "which was not kept"),
    "Electrum": ({**electrum(), "keystore": {"xpub": XPRV}}, "which was not kept"),
    "unknown JSON": ({"backup": PHRASE}, "private keys, in the field backup"),
    "list of words": (PHRASE.split(), "private keys|unknown kind"),
}


@pytest.mark.parametrize("kind", PRIVATE)
def test_descriptor_with_a_private_key_is_refused(kind: str, tmp_path: Path) -> None:
    file, words = PRIVATE[kind]
    message = refused(tmp_path, file)
    assert any(each in message for each in words.split("|"))


# Malformed files


def without(data: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name not in names}


FAULTS: dict[str, tuple[object, str]] = {
    "not JSON": ('{"descriptors": [', "damaged at line 1, character 18"),
    "unknown JSON": ({"a": 1}, "unknown kind of JSON: expected one of these kinds of wallet file: Bitcoin Core"),
    "empty list": ([], "unknown kind of JSON"),
    "too deep": ("[" * 100_000, "nested too deeply"),
    "no number": ('{"a": NaN}', "an invalid number"),
    "huge number": ('{"a": 1' + "0" * 5_000 + "}", "an invalid number"),
    "too many values": ("[" + "1," * 2_000_001 + "1]", "more than 2,000,000 values"),
    "not UTF-8": (b'{"label": "\xff"}', "not UTF-8"),
    "Core without desc": ({"descriptors": [{"desc": "raw(51)"}, {}]}, "the field desc of descriptors[1] is missing"),
    "Core with another value": ({"descriptors": [{"desc": "raw(51)"}, 1]}, "descriptors[1] is not an object"),
    "Core with a number": ({"descriptors": [{"desc": 5}]}, "the field desc of descriptors[0] is not text"),
    "Core with a bad descriptor": ({"descriptors": [{"desc": "raw(51)"}, {"desc": "wpkh(x)"}]}, "descriptor 2: char"),
    "Core with a huge range": ({"desc": checked(BOTH), "range": [0, 4_000_000_000]}, "the end of a window"),
    "Core with a long range": ({"desc": checked(BOTH), "range": [0, 9_999_999]}, "20,000,000 key derivations"),
    "Caravan of an unknown type": ({**caravan(), "addressType": "P2TR"}, "the addressType of a Caravan wallet must be"),
    "Caravan without quorum": ({**caravan(), "quorum": 5}, "but its quorum is not M of 2"),
    "Caravan with a key too few": ({**caravan(), "quorum": {"requiredSigners": 2, "totalSigners": 3}}, "not M of 2"),
    "Caravan with a wrong key": (
        {**caravan(), "extendedPublicKeys": [5]},
        "key 1 of a Caravan wallet is not an object",
    ),
    "Caravan of another network": ({**caravan(), "network": "moon"}, "this Caravan wallet is for an unknown network"),
    "Liana without descriptor": ({"accounts": [{"descriptor": 5}]}, "the field descriptor of account 1 of a Liana"),
    "Liana with another value": ({"accounts": [{"descriptor": "raw(51)"}, 5]}, "account 2 of a Liana backup is not"),
    "Liana with a private key": (
        {"accounts": [{"descriptor": f"wpkh({XPRV}/0/*)"}]},
        "export the wallet as watch-only",
    ),
    "Bitkey with another line": (
        f"External: {SINGLE}/0/*)\nnonsense\n",
        "expected only the lines External: DESCRIPTOR and",
    ),
    "Bitkey with a private key": (f"External: wpkh({XPRV}/0/*)\n", "export a watch-only wallet"),
    "Sparrow without descriptor": ("# Receive and change descriptor (BIP389):\n", "has no descriptor after"),
    "Specter with a number": ({"descriptor": 5}, "the field descriptor of the wallet is not text"),
    "Specter with a bad checksum": ({"descriptor": f"{SINGLE}/0/*)#qqqqqqqq"}, "checksum"),
    "Electrum of unknown type": ({**electrum(), "wallet_type": "new", "addresses": {}}, "an unsupported type"),
    "Electrum without keystore": (without(electrum(), "keystore"), "lacks the field keystore"),
    "Electrum without key": ({**electrum(), "keystore": {"type": "bip32"}}, "lacks an extended public key"),
    "Electrum with a wrong key": ({**electrum(), "keystore": {"xpub": "abc"}}, "is not an extended public key"),
    "Electrum with a damaged key": ({**electrum(), "keystore": {"xpub": ZPUB[:-1]}}, "the checksum of the extended"),
    "Electrum with a multisig key": ({**electrum(), "keystore": electrum_multisig()["x1/"]}, "expected xpub, ypub"),
    "Electrum with one key of two": (without(electrum_multisig(), "x2/"), "lacks the field x2/"),
    "Electrum with mixed keys": (
        {**electrum_multisig(), "x2/": {"xpub": KEY}},
        "contains keys Zpub…, xpub…: expected all",
    ),
    "Electrum with a single key twice": (
        {**electrum_multisig(), "x1/": {"xpub": ZPUB}, "x2/": {"xpub": ZPUB}},
        "contains keys zpub…: expected all",
    ),
    "Electrum of 3 of 2": ({**electrum_multisig(), "wallet_type": "3of2"}, "needs 3 of 2 keys"),
    "Electrum without addresses": (
        {**electrum_imported(), "addresses": {}},
        "this Electrum wallet contains no addresses",
    ),
    "Electrum with other addresses": (
        {**electrum(), "addresses": {"receiving": [ADDRESS]}},
        "the file is damaged, was changed, or is not for mainnet; export it again",
    ),
    "Coldcard of another chain": ({**coldcard(), "chain": "LTC"}, "unknown chain: expected BTC, XTN or XRT"),
    "Coldcard without accounts": (without(coldcard(), "bip44", "bip84"), "contains no single-key account"),
    "Coldcard without key": ({**coldcard(), "bip84": {}}, "the field xpub of bip84 is missing"),
    "Coldcard with another address": ({**coldcard(), "bip84": {"xpub": KEY, "first": ADDRESS}}, "the first address in"),
    "Coldcard's signer": ({"xfp": "D34DB33F", "p2wsh_deriv": "m/48'", "p2wsh": ZPUB}, "one signer's keys"),
    "Coldcard text with a wrong line": (coldcard_multisig() + "nonsense\n", "line 10 of a multisig wallet"),
    "Coldcard text with a wrong policy": (coldcard_multisig().replace("2 of 2", "3 of 2"), "must be Policy: M of N"),
    "Coldcard text with a key too few": (coldcard_multisig().replace("2 of 2", "2 of 3"), "but the file contains 2"),
    "Coldcard text with a wrong format": (coldcard_multisig().replace("P2WSH", "P2TR"), "the format of a multisig"),
    "Coldcard text with a wrong key": (coldcard_multisig().replace(KEY, "abc"), "line 8: the key is not an extended"),
    "Wasabi without key": ({"ExtPubKey": 5}, "the field ExtPubKey of the wallet is not text"),
    "Wasabi of another network": ({"ExtPubKey": KEY, "BlockchainState": {"Network": "X"}}, "for an unknown network"),
    "BSMS of another version": (
        bsms().replace("1.0", "2.0"),
        "unsupported version of a BSMS file (BIP-129): only BSMS 1.0 is supported",
    ),
    "BSMS key record": ("BSMS 1.0\n00\n[d34db33f/48h]xpub…\nkey\nsignature\n", "which contains only one signer's key"),
    "BSMS with a line too few": ("\n".join(bsms().split("\n")[:3]), "must have 4 lines, not 3"),
    "BSMS without paths": (bsms().replace("/0/*,/1/*", "No path restrictions"), "must list paths such as"),
    "BSMS with wrong paths": (bsms().replace("/0/*,/1/*", "/0h/*"), "must list 1 to 16 paths"),
    "BSMS with another address": (bsms().replace(bsms().split()[-1], ADDRESS), "the first address in the file"),
    "policy with a key too few": ({**policy(), "keys_info": [KEY]}, "refers to key @1, but lists only 1 key:"),
    "policy with a key too many": ({**policy(), "keys_info": [KEY, OTHER, KEY]}, "does not use one of its keys"),
    "policy with a number": ({**policy(), "keys_info": [KEY, 5]}, "contains a key that is not text"),
    "policy with a path": ({**policy(), "keys_info": [KEY, f"{OTHER}/0/*"]}, "contains a bracket or a path"),
    "policy that is too long": (
        {"template": f"wsh(multi(1,{'@0/**,' * 2_000}@0/**))", "keys": [KEY]},
        "must be at most 150,000 characters long",
    ),
    "labels without addresses": ('{"type":"tx","ref":"ab"}\n', "this label file (BIP-329) contains no addresses"),
    "labels with a wrong address": (labels().splitlines()[0].replace(ADDRESS, ADDRESS[:-1]), "checksum"),
    "table with a header only": ("address,label\n", "has a header but no rows"),
    "table with a row without address": (table() + "2,,m/0/2,x\n", "line 4 of the table has no address in column 2"),
    "table with two addresses": (f"from,to,address of\n{ADDRESS},{SECOND},x\n", "columns 1 and 2 of the table"),
    "table without addresses": ("a,b,address\n1,2\n", "line 2 of the table has no address in column 3"),
    "table with a wrong address": (table().replace(SECOND, SECOND[:-1]), "checksum"),
    "table with an open quote": (table() + f'2,{ADDRESS},"x\n', "a quote is not closed"),
    "table with a long cell": (table() + f"2,{ADDRESS},{'x' * 200_000}\n", "a cell is too long"),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_malformed_file_has_its_own_message(kind: str, tmp_path: Path) -> None:
    file, words = FAULTS[kind]
    assert words in refused(tmp_path, file)


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (
            b"SQLite format 3\0" + bytes(52) + bytes.fromhex("f9beb4d9") + bytes(100),
            "a Bitcoin Core wallet (SQLite)",
        ),
        (bytes(12) + b"\x62\x31\x05\x00" + bytes(500), "an old Bitcoin Core wallet (Berkeley DB)"),
        (b"H:2,block:3,blockSize:1000\n" + bytes(4_000), "a Sparrow wallet database (.mv.db)"),
        (b"SPRW1\n" + bytes(range(256)), "an encrypted Sparrow wallet database"),
        (b"QklFMQNzb21ldGhpbmc=", "an encrypted Electrum wallet file"),
        (b"\n\x16org.bitcoin.production\x12", "a bitcoinj wallet"),
        (b"7z\xbc\xaf'\x1c" + bytes(range(100)), "a 7z archive, such as a Coldcard backup"),
        (b"psbt\xff" + bytes(range(100)), "a PSBT"),
        (b"cHNidP8BAHEC", "a PSBT"),
        (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3", "a PDF"),
        (b"PK\x03\x04" + bytes(100), "a ZIP archive or a spreadsheet"),
        (b"age-encryption.org/v1\n", "encrypted with age"),
        (b"-----BEGIN PGP MESSAGE-----\n", "encrypted with PGP"),
        (b"<!DOCTYPE html>\n", "a web page (HTML)"),
    ],
    ids=range(14),
)
def test_binary_wallet_is_named_with_the_export_to_use(start: bytes, words: str, tmp_path: Path) -> None:
    assert refused(tmp_path, start).startswith(f"this is {words}")
    with pytest.raises(WatchFileError, match="this is"):
        read_wallet_file(write(tmp_path, start))


def test_file_without_entries_gets_one_message(tmp_path: Path) -> None:
    for text in ("zebra\nyellow\n", "some words\n" * 5_000, "\n".join(PHRASE.split()), f"{PHRASE}\n{PHRASE}\n"):
        message = refused(tmp_path, text)
        assert message.startswith("this file contains no watch list entry. Expected one address or")
        assert "zebra" not in message
    assert "seed phrase" in refused(tmp_path, f"{PHRASE}\n{PHRASE}\n")
    with pytest.raises(WatchFileError, match="not a wallet file: expected one of these kinds: Bitcoin Core"):
        read(tmp_path, f"{ADDRESS}\n")


def test_line_of_words_does_not_make_a_table(tmp_path: Path) -> None:
    with pytest.raises(WatchFileError) as caught:
        WatchList.load(write(tmp_path, "# none\nno address\n"))
    assert [line for line, _ in caught.value.problems] == [2]
    assert "whitespace" in str(caught.value)


def test_label_that_is_no_name_does_not_make_a_table(tmp_path: Path) -> None:
    with pytest.raises(WatchFileError) as caught:
        WatchList.load(write(tmp_path, f"{ADDRESS[:-1]},old address\n{SECOND}\n"))
    assert [line for line, _ in caught.value.problems] == [1]
    watch = WatchList.load(write(tmp_path, f"script:51,my address\n{SECOND},address\n"))
    assert [label for _, _, label in watch.entries()] == ["my address", "address"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (f"{ADDRESS};rent\n{SECOND};flat\n", ["rent", "flat"]),
        (f"{ADDRESS}\trent\n{SECOND}\t\n", ["rent", None]),
        (f'"{ADDRESS}","rent"\n"{SECOND}","a ""b"""\n', ["rent", 'a "b"']),
        (f"1,{ADDRESS}\n2,{SECOND}\n", ["1", "2"]),
        (f"date|amount|address|memo\n1|2|{ADDRESS}|rent\n1|2|{SECOND}|\n", ["rent", None]),
        (f"# exported\n\naddress\n{ADDRESS}\n\n{SECOND}\n", [None, None]),
        (f'address,label\n{ADDRESS},"two\nlines"\n{SECOND},x\n', ["two lines", "x"]),
        (f"x,{ADDRESS},y,z\n,{SECOND},,\n", [None, None]),
    ],
    ids=range(8),
)
def test_address_may_be_in_any_column(text: str, names: list[str | None], tmp_path: Path) -> None:
    watch = load(tmp_path, text)
    assert [script for _, script, _ in watch.entries()] == [
        script for _, script, _ in WatchList.from_addresses([ADDRESS, SECOND]).entries()
    ]
    assert [label for _, _, label in watch.entries()] == names


def test_quoted_labels_lose_their_quotes_in_tables_only(tmp_path: Path) -> None:
    lines = f'{ADDRESS},"rent, flat"\n{SECOND},a, b\n'
    assert [label for _, _, label in load(tmp_path, lines).entries()] == ["rent, flat", "a, b"]
    watch = load(tmp_path, f"{lines}script:51\n")
    assert [label for _, _, label in watch.entries()] == ['"rent, flat"', "a, b", None]
    watch.save(tmp_path / "saved")
    assert WatchList.load(tmp_path / "saved") == watch
    assert [label for _, _, label in load(tmp_path, f'{ADDRESS},a "b", c\n').entries()] == ['a "b", c']
    (quoted := WatchList()).add_address(ADDRESS, '"x" y')
    quoted.save(tmp_path / "saved")
    assert WatchList.load(tmp_path / "saved") == quoted


def test_wallet_file_obeys_the_options_of_load(tmp_path: Path) -> None:
    path = write(tmp_path, core())
    with pytest.raises(WatchFileError, match="3,000 key derivations"):
        WatchList.load(path, max_derivations=2_999)
    assert len(WatchList.load(path, max_derivations=3_000)) == 3_000
    path = write(tmp_path, {"descriptor": f"wpkh({KEY})"})
    with pytest.raises(WatchFileError, match="no wildcard"):
        WatchList.load(path, require_ranged=True)
    with pytest.warns(DescriptorWarning):
        WatchList.load(path)


@pytest.mark.few(3)
@pytest.mark.parametrize("kind", FILES)
def test_file_is_a_source_of_an_account(kind: str, tmp_path: Path) -> None:
    path = write(tmp_path, FILES[kind]())
    watch = WatchList.from_addresses([ADDRESS if kind != "labels" else SECOND])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WalletFileWarning)
        watch.add_account("cold", path)
        loaded = WatchList.load(path)
    numbers = [watch.table.match_script(script) for script in loaded.script_pubkeys()]
    assert {watch.account(number) for number in numbers} == {"cold"}


def test_other_file_is_no_source_of_an_account(tmp_path: Path) -> None:
    watch = WatchList()
    with pytest.raises(WatchFileError, match="not a wallet file"):
        watch.add_account("cold", write(tmp_path, ADDRESS))
    with pytest.raises(ParameterError, match="text, a Keychain or a path, not int"):
        watch.add_account("cold", 5)  # type: ignore[arg-type]
    assert watch.accounts == ()


def test_addresses_of_the_files_are_those_of_their_descriptors() -> None:
    for body, expected in FIRST_ADDRESSES.items():
        (descriptor,) = parse_descriptor(body, MAINNET)
        scripts = (descriptor.scripts(index)[0] for index in range(len(expected)))
        assert tuple(script_to_address(script, MAINNET) for script in scripts) == expected
    (descriptor,) = parse_descriptor(f"pkh({OTHER}/0/*)", MAINNET)
    assert script_to_address(descriptor.scripts(0)[0], MAINNET) == FIRST_PKH
    (descriptor,) = parse_descriptor(f"pk({KEY}/0/*)", MAINNET)
    assert descriptor.scripts(0)[0][1:-1].hex() == FIRST_KEY
