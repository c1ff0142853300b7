"""Files as wallets export them, written by the documentation of each format. All have one of two accounts."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from spvfilter.hashes import sha256d
from spvfilter.watch.descriptor.checksum import checksum

KEY = "xpub6CatWdiZiodmUeTDp8LT5or8nmbKNcuyvz7WyksVFkKB4RHwCD3XyuvPEbvqAQY3rAPshWcMLoP2fMFMKHPJ4ZeZXYVUhLv1VMrjPC7PW6V"
OTHER = (
    "xpub6EtQChMwaSperjj8crD4zfyWU7Jc1baj4bh9NGFUg7RDrzBeFvVgtYPFmYWDSgy3ie3NkzYkJCoyRKqLgS6XovSr44kpaphkyauovUSVoRv"
)
XPRV = "xprv9s21ZrQH143K3QTDL4LXw2F7HEK3wJUD2nW2nRk4stbPy6cq3jPPqjiChkVvvNKmPGJxWUtg6LnF5kejMRNNU3TGtRBeJgk33yuGBxrMPHi"
WIF = "KwDiBf89QgGbjEhKnhXJuH7LrciVrZi3qYjgd9M7rFU73sVHnoWn"
PHRASE = "zebra yellow wagon vacuum umbrella tackle sadness raccoon quantum padlock oblige nasty"
ADDRESS = "bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4"
SECOND = "1BgGZ9tcN4rm9KBzDn7KprQz87SZ26SAMH"
BIRTHDAY = 1_700_000_000  # 2023-11-14
SINGLE = f"wpkh([d34db33f/84h/0h/0h]{KEY}"
MULTI = f"wsh(sortedmulti(2,[d34db33f/48h/0h/0h/2h]{KEY}%s,[0f056943/48h/0h/0h/2h]{OTHER}%s))"


def slip132(key: str, version: str) -> str:
    """Return an extended key with another version (SLIP-132), in hex."""
    from bitcoin.base58 import decode, encode

    raw = bytes.fromhex(version) + bytes(decode(key))[4:-4]
    return str(encode(raw + sha256d(raw)[:4]))


ZPUB, YPUB, MULTI_ZPUB = (slip132(KEY, version) for version in ("04b24746", "049d7cb2", "02aa7ed3"))
OTHER_ZPUB, TPUB = slip132(OTHER, "02aa7ed3"), slip132(KEY, "043587cf")


# The tests are collected without the library that derives keys. BIP-84 has the first three of SINGLE as test vectors.
FIRST_ADDRESSES = {
    f"{SINGLE}/0/*)": (
        "bc1qcr8te4kr609gcawutmrza0j4xv80jy8z306fyu",
        "bc1qnjg0jd8228aq7egyzacy8cys3knf9xvrerkf9g",
        "bc1qp59yckz4ae5c4efgw2s5wfyvrz0ala7rgvuz8z",
    ),
    f"{SINGLE}/1/*)": ("bc1q8c6fshw2dlwun7ekn9qwf37cu2rn755upcp6el",),
    MULTI % ("/0/*", "/0/*"): ("bc1q2e0mvhzwnmydmh5dtkharl0sxzy5gpsnk5kgknutgn4dgmwgymesd44pp7",),
}


def checked(body: str) -> str:
    """Return a descriptor with its checksum."""
    return f"{body}#{checksum(body)}"


def first(body: str, index: int = 0) -> str:
    """Return the address of an index, by default the first one, of a descriptor of these files."""
    return FIRST_ADDRESSES[body][index]


def core() -> dict[str, Any]:
    """The answer of `listdescriptors`."""
    return {
        "wallet_name": "cold",
        "descriptors": [
            {
                "desc": checked(f"{SINGLE}/{branch}/*)"),
                "timestamp": BIRTHDAY + branch,
                "active": True,
                "internal": bool(branch),
                "range": [0, 1_499],
                "next": 3,
                "next_index": 3,
            }
            for branch in (0, 1)
        ],
    }


def requests() -> list[dict[str, Any]]:
    """Requests of `importdescriptors`."""
    return [
        {"desc": checked(f"{SINGLE}/0/*)"), "timestamp": "now", "active": True, "range": 999, "label": "cold"},
        {"desc": checked(f"{SINGLE}/1/*)"), "timestamp": BIRTHDAY, "internal": True},
    ]


def sparrow() -> str:
    """Sparrow's output descriptor."""
    return (
        f"# Receive and change descriptor (BIP389):\n{checked(f'{SINGLE}/<0;1>/*)')}\n\n\n"
        f"# Receive descriptor (Bitcoin Core):\n{checked(f'{SINGLE}/0/*)')}\n\n"
        f"# Change descriptor (Bitcoin Core):\n{checked(f'{SINGLE}/1/*)')}\n"
    )


def specter() -> dict[str, Any]:
    """Specter's export for other programs."""
    return {
        "label": "cold",
        "blockheight": 800_000,
        "descriptor": checked(MULTI % ("/0/*", "/0/*")),
        "devices": [{"type": "coldcard", "label": "one"}, {"type": "other", "label": "two"}],
    }


def specter_wallet() -> dict[str, Any]:
    """A wallet file of Specter."""
    return {
        "name": "cold",
        "alias": "cold",
        "address_type": "bech32",
        "address_index": 1,
        "keypool": 1_200,
        "change_keypool": 20,
        "recv_descriptor": checked(f"{SINGLE}/0/*)"),
        "change_descriptor": checked(f"{SINGLE}/1/*)"),
        "keys": [{"original": ZPUB, "fingerprint": "d34db33f", "derivation": "m/84h/0h/0h", "xpub": KEY}],
        "devices": ["one"],
        "sigs_required": 1,
        "pending_psbts": {},
        "blockheight": 800_000,
        "labels": {"rent": [first(f"{SINGLE}/0/*)")]},
    }


def electrum() -> dict[str, Any]:
    """A watch-only wallet file of Electrum."""
    return {
        "addr_history": {},
        "addresses": {
            "receiving": [first(f"{SINGLE}/0/*)", index=index) for index in range(3)],
            "change": [first(f"{SINGLE}/1/*)")],
        },
        "keystore": {
            "type": "bip32",
            "derivation": "m/84'/0'/0'",
            "root_fingerprint": "d34db33f",
            "pw_hash_version": 1,
            "xprv": None,
            "xpub": ZPUB,
        },
        "labels": {first(f"{SINGLE}/0/*)"): "rent", "ab" * 32: "a transaction"},
        "seed_version": 60,
        "use_encryption": False,
        "wallet_type": "standard",
    }


def electrum_multisig() -> dict[str, Any]:
    """A watch-only multisig wallet file of Electrum."""
    keystores = {
        f"x{number}/": {"type": "bip32", "xpub": key, "derivation": "m/48'/0'/0'/2'", "root_fingerprint": fingerprint}
        for number, key, fingerprint in ((1, MULTI_ZPUB, "d34db33f"), (2, OTHER_ZPUB, "0f056943"))
    }
    return {"wallet_type": "2of2", "seed_version": 60, **keystores}


def electrum_imported() -> dict[str, Any]:
    """A wallet file of Electrum with addresses."""
    return {
        "wallet_type": "imported",
        "seed_version": 60,
        "addresses": {ADDRESS: {}, SECOND: {}},
        "labels": {ADDRESS: "rent"},
    }


def coldcard() -> dict[str, Any]:
    """Coldcard's generic JSON."""
    return {
        "chain": "BTC",
        "xfp": "D34DB33F",
        "account": 0,
        "xpub": OTHER,
        "bip44": {"name": "p2pkh", "xfp": "01234567", "deriv": "m/44'/0'/0'", "xpub": OTHER, "first": FIRST_PKH},
        "bip84": {
            "name": "p2wpkh",
            "xfp": "01234568",
            "deriv": "m/84'/0'/0'",
            "xpub": KEY,
            "_pub": ZPUB,
            "first": first(f"{SINGLE}/0/*)"),
        },
        "bip48_2": {"name": "p2wsh", "xfp": "01234569", "deriv": "m/48'/0'/0'/2'", "xpub": OTHER, "_pub": OTHER_ZPUB},
    }


def coldcard_multisig() -> str:
    """Coldcard's text of a multisig wallet."""
    return (
        "# Coldcard Multisig setup file (created on D34DB33F)\n#\nName: cold\nPolicy: 2 of 2\n"
        f"Derivation: m/48'/0'/0'/2'\nFormat: P2WSH\n\nD34DB33F: {KEY}\n0F056943: {OTHER}\n"
    )


def wasabi() -> dict[str, Any]:
    """A watch-only wallet file of Wasabi."""
    return {
        "EncryptedSecret": None,
        "ChainCode": None,
        "MasterFingerprint": "d34db33f",
        "ExtPubKey": KEY,
        "TaprootExtPubKey": OTHER,
        "MinGapLimit": 21,
        "AccountKeyPath": "84'/0'/0'",
        "TaprootAccountKeyPath": "86'/0'/0'",
        "BlockchainState": {"Network": "Main", "Height": "850000", "BirthHeight": 800_000},
        "HdPubKeys": [
            {"PubKey": FIRST_KEY, "FullKeyPath": "84'/0'/0'/0/0", "Label": "rent", "KeyState": 1},
            {"PubKey": FIRST_KEY, "FullKeyPath": "86'/0'/0'/0/1233", "Label": "", "KeyState": 0},
        ],
    }


def coldcard_skeleton() -> dict[str, Any]:
    """Coldcard's skeleton of an Electrum wallet, with the fingerprint as a little-endian number."""
    keystore = {
        "ckcc_xpub": OTHER,
        "ckcc_xfp": int.from_bytes(bytes.fromhex("d34db33f"), "little"),
        "xpub": ZPUB,
        "label": "Coldcard Import D34DB33F",
        "type": "hardware",
        "hw_type": "coldcard",
        "derivation": "m/84'/0'/0'",
    }
    return {"keystore": keystore, "wallet_type": "standard", "use_encryption": False, "seed_version": 17}


def wasabi_skeleton() -> dict[str, Any]:
    """Coldcard's skeleton of a Wasabi wallet. It has no path, because Wasabi uses the first account."""
    return {"ColdCardFirmwareVersion": "5.1.2", "MasterFingerprint": "D34DB33F", "ExtPubKey": KEY}


def caravan() -> dict[str, Any]:
    """A multisig wallet of Caravan or Unchained."""
    path = "m/48'/0'/0'/2'"
    return {
        "name": "cold",
        "addressType": "P2WSH",
        "network": "mainnet",
        "client": {"type": "public"},
        "quorum": {"requiredSigners": 2, "totalSigners": 2},
        "extendedPublicKeys": [
            {"name": "one", "bip32Path": path, "xpub": KEY, "xfp": "D34DB33F", "method": "text"},
            {"name": "two", "bip32Path": path, "xpub": OTHER, "xfp": "0f056943", "method": "text"},
        ],
        "startingAddressIndex": 0,
    }


def liana() -> dict[str, Any]:
    """A backup of Liana."""
    records = [
        {"type": "addr", "ref": first(f"{SINGLE}/0/*)"), "label": "rent"},
        {"type": "tx", "ref": "ab" * 32, "label": "a transaction"},
    ]
    return {
        "name": "cold",
        "version": 1,
        "network": "bitcoin",
        "date": BIRTHDAY + 5,
        "accounts": [
            {
                "name": "inheritance",
                "descriptor": checked(f"{SINGLE}/<0;1>/*)"),
                "receive_index": 12,
                "change_index": 3,
                "timestamp": BIRTHDAY,
                "keys": {},
                "labels": {
                    "type": "BIP329",
                    "labels": records,
                },
            }
        ],
    }


def bitkey() -> str:
    """Bitkey's two descriptors."""
    return f"External: {checked(f'{SINGLE}/0/*)')}\n\nInternal: {checked(f'{SINGLE}/1/*)')}\n"


def bitkey_json() -> dict[str, Any]:
    """Bitkey's two descriptors as JSON."""
    return {"external": f"{SINGLE}/0/*)", "internal": checked(f"{SINGLE}/1/*)")}


def descriptors() -> list[str]:
    """A list of descriptors."""
    return [f"{SINGLE}/0/*)", checked(f"{SINGLE}/1/*)")]


def bsms() -> str:
    """A descriptor record of BSMS."""
    return f"BSMS 1.0\n{MULTI % ('/**', '/**')}\n/0/*,/1/*\n{first(MULTI % ('/0/*', '/0/*'))}\n"


def policy() -> dict[str, Any]:
    """A wallet policy."""
    return {
        "name": "cold",
        "descriptor_template": "wsh(sortedmulti(2,@0/**,@1/**))",
        "keys_info": [f"[d34db33f/48h/0h/0h/2h]{KEY}", f"[0f056943/48h/0h/0h/2h]{OTHER}"],
    }


def labels() -> str:
    """A file of labels (BIP-329)."""
    records = [
        {"type": "addr", "ref": ADDRESS, "label": "rent"},
        {"type": "tx", "ref": "ab" * 32, "label": "a transaction"},
        {"type": "addr", "ref": SECOND},
    ]
    return "".join(f"{json.dumps(each)}\n" for each in records)


def table() -> str:
    """A table of addresses."""
    return f'Index,Payment Address,Derivation,Label\n0,{ADDRESS},m/0/0,"rent, flat"\n1,{SECOND},m/0/1,\n'


FIRST_PKH = "16RANhNH1AzTvnVYny7VKCybYg3rFt74b3"  # address of pkh(OTHER/0/*)
FIRST_KEY = "0330d54fd0dd420a6e5f8d3624f5f3482cae350f79d5f0753bf5beef9c2d91af3c"  # of KEY/0/*
FILES: dict[str, Callable[[], object]] = {
    each.__name__: each
    for each in (
        core,
        requests,
        sparrow,
        specter,
        specter_wallet,
        electrum,
        electrum_multisig,
        electrum_imported,
        coldcard,
        coldcard_multisig,
        wasabi,
        coldcard_skeleton,
        wasabi_skeleton,
        caravan,
        liana,
        bitkey,
        bitkey_json,
        descriptors,
        bsms,
        policy,
        labels,
        table,
    )
}
"""A function for each kind of file. It returns the text of the file, or the value of its JSON."""


def text_of(value: object) -> str:
    """Return the text of a file that a function of FILES returned."""
    return value if isinstance(value, str) else json.dumps(value, indent=4)
