"""Descriptors that are refused: each with its cause, and never with a private key in the message."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from bitcoin.base58 import encode

from spvfilter.errors import DescriptorError, ParameterError, WatchFileError, WrongNetworkError
from spvfilter.hashes import sha256d
from spvfilter.network import MAINNET, NETWORKS, REGTEST, SIGNET, Network
from spvfilter.watch.descriptor import parse_descriptor
from spvfilter.watch.descriptor.keys import PREFIXES
from spvfilter.watch.watchlist import WatchList
from support.wallets.descriptortexts import (
    ADDRESS,
    HYBRID,
    KEY,
    TPUB,
    WIF,
    XPRV,
    XPUB,
    ZPUB,
    ZPUB_AS_XPUB,
    assert_silent,
    refusal,
)

pytestmark = pytest.mark.descriptors

# Each row is a text that cannot be watched, and a part of the error
CAUSES = [
    # checksums, brackets and arguments
    (f"wpkh({XPUB}/1/*)#p54wed40", "is wrong: it was mistyped or"),
    (f"wpkh({XPUB}/0/*)#", "the checksum after '#' must be 8 characters long, not 0"),
    (f"wpkh({XPUB}/0/*", "brackets of the descriptor do not match: ')' is missing at the end"),
    (f"wpkh({XPUB}/0/*)x", "text after the last bracket"),
    (f"tr({KEY[2:]},{{pk({KEY[2:]})", "brackets of the descriptor do not match"),
    (f"tr({KEY[2:]},pk({KEY[2:]}),pk({KEY[2:]}))", "tr() takes a key and one tree, tr(KEY,{A,B}), not 3 arguments"),
    (f"tr({KEY[2:]},{{pk({KEY[2:]})}})", "expected a script tree: SCRIPT or {TREE,TREE}"),
    (f"tr({KEY[2:]},{'{' * 130 + f'pk({KEY[2:]})' + f',pk({KEY[2:]})}}' * 130})", "deeper than 128 levels"),
    (f"tr({KEY[2:]},multi_a(3,{KEY[2:]},{KEY[2:]}))", "requires 3 signatures, but has only 2 keys"),
    (f"tr({KEY[2:]},multi_a(x,{KEY[2:]}))", "expected a number as the first argument of multi_a()"),
    (f"multi(1,{KEY},{KEY},{KEY},{KEY})", "at most 3 keys"),
    (f"wsh(thresh(1,pk({KEY}),))", "an argument of the descriptor is empty"),
    (f"wpkh({KEY},)", "an argument of the descriptor is empty"),
    (f"foo({KEY})", "starts with addr(, combo("),
    # steps and keys
    (f"wpkh({XPUB}/0/*')", "a hardened step after xpub"),
    (f"wpkh({XPUB}/0h/*)", "a hardened step after xpub"),
    (f"wpkh({XPUB}/<0h;1h>/*)", "a hardened step after xpub"),
    (f"wpkh({XPUB}/<0;1>/<0;1>/*)", "two multipaths"),
    (f"wsh(multi(1,{XPUB}/<0;1>/*,{XPUB}/<0;1;2>/*))", "must have the same number of parts"),
    (f"wpkh({XPUB}/<0;0>/*)", "a multipath <…> contains a number twice"),
    (f"wpkh({XPUB}/<0>/*)", "two or more numbers"),
    (f"wpkh({XPUB}/<;>/*)", "two or more numbers"),
    (f"wpkh({XPUB[:-1]}k/0/*)", "is wrong: it was mistyped or"),
    (f"wpkh({XPUB[:-9]}/0/*)", "is wrong: it was mistyped or"),
    (f"wpkh({XPUB[:-1]}0/0/*)", "not base58"),
    (f"wpkh({XPUB * 3}/0/*)", "must be 111 characters long"),
    (f"wpkh({ZPUB}/0/*)", f"write the key as {ZPUB_AS_XPUB}"),
    (f"wsh(musig({XPUB},{XPUB}))", "BIP-390 allows it only as a key of tr() and rawtr()"),
    (f"wpkh({KEY[:-2]})", "x-only key of 64 hex digits"),
    ("raw(5)", "expected raw(HEX) with a script"),
    ("raw()", "expected raw(HEX) with a script"),
    ("addr(nonsense)", "not an address"),
    (f"wpkh(é{XPUB})", "U+00E9, is not allowed in a descriptor"),
    (f"wpkh({XPUB[:4]}…/0/*)", "U+2026, is not allowed in a descriptor: a shortened key; copy the whole key"),
    (f"wpkh({'0' * 150_001})", "at most 150,000 characters"),
    # BIP-380: invalid key expressions
    (f"pkh([deadbeef/0h/*]{KEY})", "character 18: a key origin must not contain a wildcard"),
    (f"pkh([deadbeef/0h/]{KEY})", "character 18: a step of a path is empty"),
    (f"pkh([deadbef/0h]{KEY})", "character 6: the fingerprint of the key origin has 7 hex digits"),
    (f"pkh([deadbeeef/0h]{KEY})", "character 6: the fingerprint of the key origin has 9 hex digits"),
    (f"pkh([deadbeef/0f]{KEY})", "character 15: each step of a path must be a number, followed by h if it is hardened"),
    (f"pkh([deadbeef/-0]{KEY})", "character 15: each step of a path must be a number"),
    (f"pkh({XPUB}/2147483648)", "step 2147483648 of a path is above 2147483647"),
    (f"pkh({XPUB}/1aa)", "each step of a path must be a number"),
    (f"pkh([aaaaaaaa][aaaaaaaa]{KEY})", "character 15: a key must have at most one key origin […], not two"),
    (f"pkh(aaaaaaaa]{KEY})", "character 5: ']' has no '[' before it"),
    (f"pkh([gaaaaaaa]{KEY})", "character 6: the fingerprint of the key origin is not hex"),
    ("pkh([deadbeef])", "character 15: there is no key after the key origin"),
    (f"pkh([deadbeef/<0;1>]{XPUB})", "a key origin must not contain a wildcard or multipath"),
    # BIP-389: invalid multipaths
    (f"pkh({XPUB}/0>/*)", "each step of a path must be a number"),
    (f"pkh({XPUB}/<0/*)", "the multipath is not closed"),
    (f"pkh({XPUB}/<>/*)", "expected a multipath of two or more numbers"),
    # texts that wallets and people write
    (f"pkh([]{KEY})", "character 6: the key origin has no fingerprint"),
    (f"pkh([m/84h]{KEY})", "character 6: the key origin has no fingerprint"),
    (f"pkh([0xdeadbeef/84h]{KEY})", "character 6: the fingerprint of the key origin starts with 0x"),
    (
        f"pkh([deadbeef/m/84h]{KEY})",
        "character 15: a key origin must not contain m/, because the fingerprint replaces it",
    ),
    (f"pkh([deadbeef/84’]{KEY})", "U+2019, is not allowed in a descriptor: write ' or h for a hardened step"),
    (f"pkh([deadbeef/84h{KEY})", "character 5: the key origin is not closed"),
    ("BITCOIN:bc1qar0srrr7xfkvy5l643lydnw9re59gtzzwf5mdq?amount=1", "expected a descriptor, found a bitcoin: URI"),
    (f"[0xdeadbeef]{ZPUB}", "the origin before the extended key is invalid"),
    (f"pkh({XPUB}/m/0)", "a path after xpub… starts at the key before it: remove m/"),
    ("pkh(m/84h/0h/0h)", "character 5: expected a key, found m/…"),
    ("pkh(@0/0/*)", "a placeholder @N of a wallet policy (BIP-388)"),
    (f"pkh({XPUB}/**)", "/** is the short form of wallet policies (BIP-388): in a descriptor write /<0;1>/*"),
    (f"pkh({XPUB}/{{0,1}}/*)", "write a multipath as <0;1>, not as {0,1}"),
    (f"pkh({XPUB}/*/0)", "the wildcard '*' must be the last step of a path"),
    (f"pkh({XPUB}/*x)", "text after the wildcard '*'"),
    (f"pkh({XPUB}{'/0' * 255}/*)", "the path leads to depth"),
    (f"pkh( {XPUB}/0/*)", "character 5: a descriptor must not contain a space or line break"),
    (f"wsh(sortedmulti(1, {XPUB}/0/*))", "character 19: a descriptor must not contain a space or line break"),
    (f"pkh(0x{KEY})", "character 5: a key must not start with 0x"),
    (f"pkh({KEY}/0)", "a public key in hex has no child keys: remove the path after it"),
    (f"pkh({KEY}0)", "a key must have 66 hex digits, or 64 in tr(), or 130 if it is uncompressed, not 67"),
    (f"pkh(05{KEY[2:]})", "must start with 02 or 03, not 05"),
    (f"pkh(02{'0' * 64})", "not a point on the secp256k1 curve"),
    (f"pkh({HYBRID})", "character 5: this is a hybrid key (it starts with 06)"),
    (f"wpkh(04{HYBRID[2:]})", "character 6: an uncompressed key is not allowed in segwit"),
    (f"tr(04{HYBRID[2:]})", "character 4: an uncompressed key is not allowed in tr()"),
    ("pkh(nonsense)", "character 5: expected a key"),
    (f"pkh(pk({KEY}))", "character 5: expected a key, found pk()"),
    (f"pkh({KEY},{KEY})", "pkh() has 2 arguments: expected pkh(KEY)"),
    # functions
    (f"wsh({KEY})", "character 5: wsh() needs a script such as pkh(KEY), not a key"),
    (f"wsh(wpkh({KEY}))", "character 5: wpkh() is not allowed in wsh(): expected"),
    (f"sh(sh(pkh({KEY})))", "character 4: sh() is not allowed in sh(): expected one of"),
    (f"sh(multi_a(1,{KEY}))", "multi_a() is not allowed in sh(): BIP-379 allows miniscript only in wsh() and tr()"),
    (f"wsh(foo({KEY}))", "foo() is not allowed in wsh(): expected a miniscript fragment"),
    (f"tr({KEY},{KEY})", "a key or a number cannot be a leaf of tr()"),
    (f"tr({KEY},wsh(pk({KEY})))", "wsh() cannot be a leaf of tr()"),
    (f"tr({KEY},sortedmulti(1,{KEY}))", "sortedmulti() is not allowed in a leaf of tr(): write sortedmulti_a()"),
    (f"wsh(and_v(v:sortedmulti(1,{KEY}),1))", "sortedmulti() is not allowed within another script"),
    (f"wsh(multi_a(1,{KEY}))", "multi_a() is not allowed in wsh(): write multi()"),
    (f"wsh(multi(0,{KEY}))", "character 11: multi() must require at least 1 signature"),
    (f"wsh(multi(3,{KEY},{KEY}))", "character 11: multi() requires 3 signatures, but has only 2 keys"),
    (f"wsh(multi({KEY}))", "expected multi(NUMBER,KEY,…)"),
    (f"wsh(thresh(3,pk({KEY})))", "thresh() needs 3 of 1 scripts"),
    (f"wsh(and_v(v:pk({KEY})))", "and_v() takes 2 arguments, not 1"),
    (f"wsh(x:pk({KEY}))", "unknown wrapper before ':'"),
    (f"tr({KEY},{'n' * 101}:pk({KEY}))", "at most 100 wrappers may stand before ':', not 101"),
    ("wsh(older(0))", "older(0): expected a number from 1 to 2147483647"),
    ("wsh(sha256(00))", "expected sha256(HASH) with 64 hex digits"),
    (f"wsh(pk({KEY})x)", "text after a closing bracket"),
    (f"pkh({KEY}))", "outside all brackets"),
    (f"pkh({KEY}}}", "closes a different kind of bracket"),
    (f"wsh((pk({KEY})))", "expected a function name before '('"),
    (f"pkh({XPUB}/<{';'.join(map(str, range(15_000)))}>/*)", "a multipath of 15,000 numbers"),
    # the right checksum
    (f"wpkh({XPUB}/0/*)#p54wed41", "write #p54wed40 if the text before '#' is right"),
    (XPUB, "does not say which type of addresses"),
    (ZPUB + "/0/*", "zpub… has a path after it"),
    (ZPUB[:-1] + "t", "is wrong: it was mistyped or"),
]


@pytest.mark.parametrize(
    ("text", "cause"), CAUSES, ids=[f"{number} {cause[:30]}" for number, (_, cause) in enumerate(CAUSES)]
)
def test_an_unwatchable_descriptor_is_refused_with_its_cause(text: str, cause: str) -> None:
    message = refusal(text)
    assert cause in message
    assert len(message) < 400
    assert "\n" not in message


def key_of(prefix: str, depth: int = 3) -> str:
    """An extended public key with a prefix of SLIP-132."""
    raw = (
        PREFIXES[prefix].version.to_bytes(4)
        + bytes((depth,))
        + (bytes(8) if not depth else b"\x01" * 8)
        + bytes(32)
        + bytes.fromhex(KEY)
    )
    made = str(encode(raw + sha256d(raw)[:4]))
    assert made.startswith(prefix)
    return made


@pytest.mark.parametrize("prefix", ["Ypub", "Zpub", "Upub", "Vpub"])
def test_a_key_of_a_multisig_wallet_is_refused_as_such(prefix: str) -> None:
    network = MAINNET if prefix in ("Ypub", "Zpub") else REGTEST
    assert "one key of a multisig wallet" in refusal(key_of(prefix), network)


@pytest.mark.parametrize(
    ("prefix", "kind"), [("ypub", "sh(wpkh)"), ("zpub", "wpkh"), ("upub", "sh(wpkh)"), ("vpub", "wpkh")]
)
def test_a_prefix_names_a_script_type(prefix: str, kind: str) -> None:
    network = MAINNET if prefix in ("ypub", "zpub") else SIGNET
    assert [each.kind for each in parse_descriptor(key_of(prefix), network)] == [kind, kind]
    assert [each.kind for each in parse_descriptor(f"[deadbeef/84h]{key_of(prefix)}", network)] == [kind, kind]
    assert "depth 4, deeper than an account" in refusal(key_of(prefix, 4), network)


@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_keys_of_another_network_are_refused_by_its_name(network: Network) -> None:
    is_main = network == MAINNET
    for own, other in [(XPUB, TPUB), (key_of("zpub"), key_of("vpub")), (key_of("ypub"), key_of("upub"))]:
        mine, foreign = (own, other) if is_main else (other, own)
        wrap = "wpkh({}/0/*)" if mine[0] in "xt" else "{}"
        assert parse_descriptor(wrap.format(mine), network)
        with pytest.raises(WrongNetworkError, match=f"not for {network}") as caught:
            parse_descriptor(wrap.format(foreign), network)
        assert (network.name in caught.value.networks, "mainnet" in caught.value.networks) == (False, not is_main)
    if not is_main:
        with pytest.raises(WrongNetworkError, match="mainnet"):
            parse_descriptor(f"addr({ADDRESS})", network)


# Secrets

SECRETS = {
    "xprv": f"wpkh({XPRV}/0/*)",
    "damaged xprv": f"wpkh([deadbeef/84h]{XPRV[:-1]}/0/*)",
    "one key of two": f"wsh(multi(1,{XPUB},{XPRV}))",
    "xprv in a leaf": f"tr({KEY[2:]},pk({XPRV}))",
    "WIF in a leaf": f"tr({KEY[2:]},multi_a(1,{WIF}))",
    "WIF in combo": f"combo({WIF})",
    "damaged WIF": f"pkh({WIF[:-1]}1)",
    "WIF with a checksum": f"pk({WIF})#tp6f86mw",
    "WIF in an unknown function": f"foo({WIF})",
    "WIF without a bracket": f"wpkh({WIF}",
    "xprv alone": XPRV,
    "zprv alone": "z" + XPRV[1:],
    "xprv alone with a path": XPRV + "/0/*",
    "xprv alone with an origin": f"[deadbeef]{XPRV}",
    "WIF as an address": f"addr({WIF})",
    "WIF as a script": f"raw({WIF})",
    "WIF as a checksum": f"wpkh({XPUB}/0/*)#{WIF}",
}


@pytest.mark.parametrize("case", SECRETS)
def test_private_keys_are_refused_and_never_repeated(case: str, tmp_path: Path) -> None:
    text = SECRETS[case]
    for network in (MAINNET, REGTEST):
        watch = WatchList(network)
        with pytest.raises(DescriptorError, match="private key") as caught:
            watch.add_descriptor(text, "mine")
        assert_silent(caught.value, text)
        assert (len(watch), watch.keychains) == (0, ())
    (tmp_path / "watch").write_text(f"{text},label\n")
    with pytest.raises(WatchFileError) as listed:
        WatchList.load(tmp_path / "watch")
    assert_silent(listed.value, text)


def test_a_public_key_may_contain_the_letters_prv() -> None:
    key = (
        "tpubDAATtSWDs1zofs7BZFNN2xdRyBQQFejh1sq7r9d7e5CfMn22hq78D36J"
        "cyeQPvNYNZMuprv7GWGNvtKkMip5iUsHRX9TAmqV1SH46T1dU9m"
    )
    assert parse_descriptor(f"wpkh({key}/0/*)", REGTEST)


@pytest.mark.parametrize("seed", range(10))
def test_no_damage_to_a_descriptor_is_more_than_an_error(seed: int) -> None:
    rng = random.Random(seed)
    texts = [
        f"wsh(sortedmulti(2,{XPUB}/<0;1>/*,[deadbeef/1h]{XPUB}/2/*))",
        f"tr({XPUB}/0/*,{{pk({XPUB}/1/*),multi_a(1,{KEY[2:]})}})",
        ZPUB,
    ]
    for _ in range(60):
        text = list(rng.choice(texts))
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(text))
            match rng.randrange(3):
                case 0:
                    del text[at]
                case 1:
                    text.insert(at, rng.choice("(){}<>,;/*'h#0aZ "))
                case _:
                    text[at] = rng.choice("(){}<>,;/*'h#0aZ ")
        try:
            for each in parse_descriptor("".join(text), MAINNET):
                each.scripts(0)
        except ParameterError as error:
            assert str(error)
