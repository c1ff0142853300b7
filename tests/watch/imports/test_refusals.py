"""Wallet files with private keys, malformed ones, and files of other kinds are refused, or watched without the keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spvfilter.errors import WalletFileWarning, WatchFileError
from spvfilter.watch.imports import read_wallet_file
from spvfilter.watch.watchlist import WatchList
from support.wallets.walletfiles import (
    ADDRESS,
    KEY,
    OTHER,
    PHRASE,
    SECOND,
    SINGLE,
    WIF,
    XPRV,
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
    labels,
    policy,
    sparrow,
    table,
    wasabi,
)
from support.wallets.walletreading import BOTH, read, refused, write

pytestmark = pytest.mark.descriptors

# Secrets


# Each row is a file that contains a private key as well as public data, and the place of the key
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


# Each row is a file with a private key in place of a public one, and the advice
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


# Each row is a malformed file, and a part of the error
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


# Each row is the beginning of a file, and its kind
BINARY: dict[str, tuple[bytes, str]] = {
    "Core, SQLite": (
        b"SQLite format 3\0" + bytes(52) + bytes.fromhex("f9beb4d9") + bytes(100),
        "a Bitcoin Core wallet (SQLite)",
    ),
    "Core, Berkeley DB": (bytes(12) + b"\x62\x31\x05\x00" + bytes(500), "an old Bitcoin Core wallet (Berkeley DB)"),
    "Sparrow": (b"H:2,block:3,blockSize:1000\n" + bytes(4_000), "a Sparrow wallet database (.mv.db)"),
    "Sparrow, encrypted": (b"SPRW1\n" + bytes(range(256)), "an encrypted Sparrow wallet database"),
    "Electrum, encrypted": (b"QklFMQNzb21ldGhpbmc=", "an encrypted Electrum wallet file"),
    "bitcoinj": (b"\n\x16org.bitcoin.production\x12", "a bitcoinj wallet"),
    "7z": (b"7z\xbc\xaf'\x1c" + bytes(range(100)), "a 7z archive, such as a Coldcard backup"),
    "PSBT": (b"psbt\xff" + bytes(range(100)), "a PSBT"),
    "PSBT in base64": (b"cHNidP8BAHEC", "a PSBT"),
    "PDF": (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3", "a PDF"),
    "ZIP": (b"PK\x03\x04" + bytes(100), "a ZIP archive or a spreadsheet"),
    "age": (b"age-encryption.org/v1\n", "encrypted with age"),
    "PGP": (b"-----BEGIN PGP MESSAGE-----\n", "encrypted with PGP"),
    "HTML": (b"<!DOCTYPE html>\n", "a web page (HTML)"),
}


@pytest.mark.parametrize("kind", BINARY)
def test_binary_wallet_is_named_with_the_export_to_use(kind: str, tmp_path: Path) -> None:
    start, words = BINARY[kind]
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
