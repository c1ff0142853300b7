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
from spvfilter.network import MAINNET, REGTEST, SIGNET
from spvfilter.watch.descriptor.descriptor import parse_descriptor
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
    requests,
    specter,
    specter_wallet,
    table,
    text_of,
    wasabi,
    wasabi_skeleton,
)
from support.wallets.walletreading import BOTH, MULTISIG, load, read, refused, write

pytestmark = pytest.mark.descriptors
KEYSTORE = electrum()["keystore"]


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


# Each row is a file as some version of a program writes it, or as people change it, and the descriptor that it contains
VARIANTS: dict[str, tuple[object, str]] = {
    "Electrum, nested segwit": (
        {**electrum(), "keystore": {"type": "hardware", "xpub": YPUB}, "addresses": {}},
        f"sh(wpkh({KEY}/<0;1>/*))",
    ),
    "Electrum, legacy": (
        {**electrum(), "keystore": {"type": "bip32", "xpub": KEY}, "addresses": {}},
        f"pkh({KEY}/<0;1>/*)",
    ),
    "Electrum, 1 of 2": (
        {**electrum_multisig(), "wallet_type": "1of2"},
        MULTISIG.replace("sortedmulti(2", "sortedmulti(1"),
    ),
    "Specter, taproot without a name": (
        {"wallet_name": "", "descriptors": [{"desc": f"tr({KEY}/<0;1>/*)"}]},
        f"tr({KEY}/<0;1>/*)",
    ),
    "response of listdescriptors": ({"result": core(), "error": None, "id": 1}, BOTH),
    "request of importdescriptors": ({"method": "importdescriptors", "params": [requests()]}, BOTH),
    "descriptor with a name": ({"name": "cold", "desc": checked(BOTH)}, BOTH),
    "policy of one key": ({"name": "cold", "policy": "wpkh(@0/**)", "keys": [KEY]}, f"wpkh({KEY}/<0;1>/*)"),
    "policy with a tree": (
        {"template": "tr(@0/<0;1>/*,pk(@1/**))", "keys": [KEY, OTHER]},
        f"tr({KEY}/<0;1>/*,pk({OTHER}/<0;1>/*))",
    ),
    "Coldcard text, nested segwit": (coldcard_multisig().replace("P2WSH", "P2SH-P2WSH"), f"sh({MULTISIG})"),
    "Coldcard text, nested segwit in lower case": (
        coldcard_multisig().replace("P2WSH", "p2wsh-p2sh"),
        f"sh({MULTISIG})",
    ),
    "Coldcard text, legacy": (
        coldcard_multisig().replace("2 of 2", "2/2").replace("Format: P2WSH\n", ""),
        f"sh{MULTISIG[3:]}",
    ),
    "Coldcard text with a zpub": (coldcard_multisig().replace("Policy", "policy").replace(KEY, ZPUB), MULTISIG),
    "BSMS without restrictions": (
        bsms().replace("/**", "/<0;1>/*").replace("/0/*,/1/*", "No path restrictions"),
        MULTISIG,
    ),
    "line with a label": (f"{checked(MULTI % ('/**', '/**'))},a label", MULTISIG),
    "two descriptors by name": (
        {"name": "cold", "descriptors": {"receive": f"{SINGLE}/0/*)", "change": f"{SINGLE}/1/*)"}},
        BOTH,
    ),
    "two descriptors by other names": (
        {"external_descriptor": f"{SINGLE}/0/*)", "Internal Descriptor": f"{SINGLE}/1/*)"},
        BOTH,
    ),
    "Bitkey with an equals sign": (f"# Bitkey\nreceive descriptor = {SINGLE}/0/*)\nChange: {SINGLE}/1/*)", BOTH),
    "Bitkey, internal first": (f"Internal: {SINGLE}/1/*)\nExternal: {SINGLE}/0/*)\n", BOTH),
    "change first": ({"change_descriptor": f"{SINGLE}/1/*)", "receiveDescriptor": f"{SINGLE}/0/*)"}, BOTH),
    "Core, change first": ({**core(), "descriptors": core()["descriptors"][::-1]}, BOTH),
    "Caravan, nested segwit": ({**caravan(), "addressType": "P2SH-P2WSH", "network": "Bitcoin"}, f"sh({MULTISIG})"),
    "Caravan, legacy": ({**caravan(), "addressType": "P2SH", "network": None}, f"sh{MULTISIG[3:]}"),
    "zpub with its origin": (f"[d34db33f/84'/0'/0']{ZPUB}", BOTH.replace("84h/0h/0h", "84'/0'/0'")),
    "zpub after blank lines": (f"\n  [d34db33f/84h/0h/0h]{ZPUB},cold", BOTH),
    "Electrum with a fingerprint in capitals": (
        {**electrum(), "addresses": {}, "keystore": {**KEYSTORE, "root_fingerprint": "0xD34DB33F"}},
        BOTH,
    ),
}


@pytest.mark.few(3)
@pytest.mark.parametrize("kind", VARIANTS)
def test_variants_give_the_scripts_of_the_descriptor(kind: str, tmp_path: Path) -> None:
    file, descriptor = VARIANTS[kind]
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
    assert message == "this wallet (Wasabi) is for testnet3, testnet4 or signet, not for regtest: choose its network"
    assert "this wallet (Coldcard) is for mainnet, not for regtest" in refused(tmp_path, coldcard(), REGTEST)
    assert "this address is for mainnet" in refused(tmp_path, labels().splitlines()[0], REGTEST)


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
