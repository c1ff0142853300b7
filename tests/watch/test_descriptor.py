"""Output descriptors: the published vectors, multipaths, what is refused and why, and that no private key is
repeated.
"""

from __future__ import annotations

import builtins
import pickle
import random
import re
import sys
import traceback
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from bitcoin.base58 import encode

from spvfilter.errors import (
    AddressError,
    DescriptorError,
    DescriptorWarning,
    ParameterError,
    WatchFileError,
    WrongNetworkError,
    remedy,
)
from spvfilter.hashes import hash160, sha256d
from spvfilter.network import MAINNET, NETWORKS, REGTEST, SIGNET, TESTNET3, Network
from spvfilter.watch.descriptor import keyexpression, parse_descriptor
from spvfilter.watch.descriptor.checksum import checksum
from spvfilter.watch.descriptor.keys import PREFIXES
from spvfilter.watch.watchlist import WatchList
from support.blocks import build
from support.blocks.build import TxIn, TxOut
from support.blocks.miniscripts import RandomMiniscripts
from support.vectors import effort, vector_cases, vector_file

pytestmark = pytest.mark.descriptors

XPUB = "xpub6BosfCnifzxcFwrSzQiqu2DBVTshkCXacvNsWGYJVVhhawA7d4R5WSWGFNbi8Aw6ZRc1brxMyWMzG3DSSSSoekkudhUd9yLb6qx39T9nMdj"
ZPUB = "zpub6rFR7y4Q2AijBEqTUquhVz398htDFrtymD9xYYfG1m4wAcvPhXNfE3EfH1r1ADqtfSdVCToUG868RvUUkgDKf31mGDtKsAYz2oz2AGutZYs"
ZPUB_AS_XPUB = (
    "xpub6CatWdiZiodmUeTDp8LT5or8nmbKNcuyvz7WyksVFkKB4RHwCD3XyuvPEbvqAQY3rAPshWcMLoP2fMFMKHPJ4ZeZXYVUhLv1VMrjPC7PW6V"
)
TPUB = "tpubD6NzVbkrYhZ4WaWSyoBvQwbpLkojyoTZPRsgXELWz3Popb3qkjcJyJUGLnL4qHHoQvao8ESaAstxYSnhyswJ76uZPStJRJCTKvosUCJZL5B"
KEY = "03a34b99f22c790c4e36b2b3c2c35a36db06226e41c692fc82b8b56ac1c540c5bd"
# BIP-32
XPRV = "xprv9s21ZrQH143K3QTDL4LXw2F7HEK3wJUD2nW2nRk4stbPy6cq3jPPqjiChkVvvNKmPGJxWUtg6LnF5kejMRNNU3TGtRBeJgk33yuGBxrMPHi"
WIF = "L4rK1yDtCWekvXuE6oXD9jCYfFNV2cWRpVuPLBcCU2z8TrisoyY1"  # BIP-381
ADDRESS = "bc1qcr8te4kr609gcawutmrza0j4xv80jy8z306fyu"


def has_private_key(text: str) -> bool:
    return bool(re.search(r"prv|[5KL][1-9A-Za-z]{50,51}[,)]", text))


def network_of(text: str) -> Network:
    return TESTNET3 if re.search("tpub|tprv", text) else MAINNET


def scripts(text: str, network: Network = MAINNET, count: int = 3) -> list[str]:
    """The first scripts of a descriptor with one path, as the vectors list them."""
    (found,) = parse_descriptor(text, network)
    return [script.hex() for index in range(min(found.size, count)) for script in found.scripts(index)]


def refusal(text: str, network: Network = MAINNET) -> str:
    with pytest.raises(ParameterError) as caught:
        parse_descriptor(text, network)
    return str(caught.value)


# Vectors


@vector_cases("08_bip32/descriptors.json", lambda case: not has_private_key(case["descriptor"]))
def test_published_descriptors_give_their_scripts(case: Any) -> None:
    assert scripts(case["descriptor"], network_of(case["descriptor"])) == case["scripts"]


@vector_cases("08_bip32/descriptors.json", lambda case: has_private_key(case["descriptor"]))
def test_published_descriptors_with_private_keys_are_refused_and_not_repeated(case: Any) -> None:
    text = case["descriptor"]
    with pytest.raises(DescriptorError, match="private key") as caught:
        parse_descriptor(text, network_of(text))
    assert_silent(caught.value, text)


@pytest.mark.vectors
def test_published_invalid_descriptors_are_refused() -> None:
    invalid = vector_file("08_bip32/descriptors.json")["invalid"]
    assert len(invalid) > 20
    for case in invalid:
        assert refusal(case["descriptor"]), case["reason"]


@vector_cases("08_bip32/descriptor_checksums.json")
def test_published_checksums_are_right(case: Any) -> None:
    assert checksum(case["descriptor"]) == case["checksum"]


@vector_cases("08_bip32/xpub_addresses.json")
def test_accounts_give_their_published_addresses(case: Any) -> None:
    network = MAINNET if case["network"] == "main" else SIGNET
    kind = case["script_type"]
    text = f"{kind.rstrip(')')}({case['xpub']}/<0;1>/*{')' * (1 + kind.count(')'))}"
    branches = parse_descriptor(text, network)
    for each in case["addresses"]:
        assert branches[each["branch"]].scripts(each["index"]) == (bytes.fromhex(each["script"]),)


@vector_cases("08_bip32/accounts.json", lambda case: "account_zpub" in case or "account_upub" in case)
def test_the_prefix_of_an_extended_key_names_its_script_type(case: Any) -> None:
    key = case.get("account_zpub") or case["account_upub"]
    network = MAINNET if key[0] == "z" else REGTEST
    branches = parse_descriptor(key, network)
    assert [each.kind for each in branches] == [case["script_type"]] * 2
    for each in case["addresses"]:
        branch, index = map(int, each["path"].split("/")[-2:])
        assert branches[branch].scripts(index) == (bytes.fromhex(each["script"]),)


@pytest.mark.vectors
def test_extended_keys_that_bip_32_calls_invalid_are_refused() -> None:
    for case in vector_file("08_bip32/bip32.json")["invalid"]:
        assert_silent_text(refusal(f"wpkh({case['key']}/*)"), case["key"])
        assert refusal(case["key"])


@pytest.mark.vectors
def test_the_multisig_of_bip_67_sorts_its_keys() -> None:
    for case in vector_file("08_bip32/bip67_sorted_multisig.json")["vectors"]:
        # points of the curve
        if all(key[2:] != "00" * 16 + "41" * 16 and "00" * 16 not in key for key in case["keys"]):
            redeem = bytes.fromhex(case["redeem_script"])
            assert scripts(f"sh(sortedmulti(2,{','.join(case['keys'])}))") == [build.p2sh(hash160(redeem)).hex()]


# Keychains of descriptors


def test_a_multipath_gives_a_keychain_for_each_of_its_paths() -> None:
    watch = WatchList()
    chains = watch.add_descriptor(f"wpkh({XPUB}/<0;1>/*)", "mine", lookahead=20)
    assert [chain.name for chain in chains] == [f"wpkh({XPUB}/0/*)#p54wed40", f"wpkh({XPUB}/1/*)#sqs0yc9h"]
    for branch, chain in enumerate(chains):
        (single,) = parse_descriptor(f"wpkh({XPUB}/{branch}/*)", MAINNET)
        assert [chain.scripts(index) for index in range(30)] == [single.scripts(index) for index in range(30)]
    assert [each.text.count("/7/*") for each in parse_descriptor(f"wpkh({XPUB}/<5;6;7>/*)", MAINNET)] == [0, 0, 1]


def test_spellings_of_one_descriptor_are_one_keychain() -> None:
    watch = WatchList()
    first = watch.add_descriptor(f"wpkh({XPUB}/0/*)", "mine", lookahead=20)
    again = watch.add_descriptor(f" wpkh({XPUB}/0/*)#p54wed40 ", lookahead=30)
    assert again == first
    assert (len(watch), watch.keychains[0].label, watch.keychains[0].end) == (30, "mine", 30)


def test_spellings_with_and_without_origin_are_one_keychain() -> None:
    bare, placed = f"wpkh({XPUB}/<0;1>/*)", f"wpkh([d34db33f/84'/0'/0']{XPUB}/<0;1>/*)"
    zero = placed.replace("d34db33f", "00000000")
    for order in ((bare, placed), (placed, bare), (zero, placed), (bare, zero, placed, bare), (placed, zero)):
        watch = WatchList()
        for number, text in enumerate(order):
            watch.add_descriptor(text, lookahead=20 + number)
        assert [each.name.partition("#")[0] for each in watch.keychains] == [
            placed.replace("<0;1>", each) for each in "01"
        ]
        assert {each.descriptor for each in watch.keychains} == {each.name for each in watch.keychains}
        assert len(watch) == 2 * (19 + len(order))
    (first, _), (combo,) = watch.keychains, watch.add_descriptor(f"combo({XPUB}/0/*)", lookahead=20)
    assert combo is not first
    assert watch.add_keychain("mine", lambda index: first.scripts(index)[0]) is not first


def test_a_descriptor_without_a_wildcard_has_one_index() -> None:
    watch = WatchList()
    (chain,) = watch.add_descriptor(f"wpkh({KEY})")
    assert (chain.size, chain.end, len(watch)) == (1, 1, 1)
    script = bytes.fromhex(scripts(f"wpkh({KEY})")[0])
    watch.match_tx(build.tx([TxIn(bytes(32), 0)], [TxOut(1, script)]))
    assert chain.next_index is None
    with pytest.raises(ParameterError, match=r"every address of keychain .* has been used"):
        watch.next_address()


def test_each_of_the_four_scripts_of_combo_is_a_use() -> None:
    watch = WatchList()
    (chain,) = watch.add_descriptor(f"combo({XPUB}/0/*)", lookahead=20)
    assert len(watch) == 80
    key = chain.scripts(7)[0][1:-1]
    own = WatchList()
    own.add_pubkey(key)
    assert list(chain.scripts(7)) == list(own.script_pubkeys())
    for number, script in enumerate(chain.scripts(7)):
        twin = watch.copy()
        (match,) = twin.match_tx(build.tx([TxIn(bytes(32), number)], [TxOut(1, script)]))
        assert (match.keychain_index, twin.keychains[0].end) == (7, 28)
    assert watch.next_address() == "1LqBGSKuX5yYUonjxT5qGfpUsXKYYWeabA"


def test_addresses_and_raw_scripts_need_no_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    without_wallycore(monkeypatch)
    assert scripts(f"addr({ADDRESS})#lpewvaaa") == ["0014c0cebcd6c3d3ca8c75dc5ec62ebe55330ef910e2"]
    assert scripts("raw(51)") == ["51"]


def test_without_the_extra_a_descriptor_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    without_wallycore(monkeypatch)
    for text in (f"wpkh({XPUB}/0/*)", f"tr({XPUB}/0/*,pk({XPUB}/1/*))", f"combo({KEY})", ZPUB):
        assert (
            refusal(text)
            == "an output descriptor needs wallycore; " + remedy("descriptors") + ", or give its addresses instead"
        )


def without_wallycore(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def refuse(name: str, *args: Any, **named: Any) -> Any:
        if name == "wallycore":
            raise ImportError(name)
        return original(name, *args, **named)

    monkeypatch.setattr(builtins, "__import__", refuse)
    keyexpression.wally.cache_clear()
    monkeypatch.setitem(sys.modules, "wallycore", None)


# All valid ones


def test_segwit_multisig_has_up_to_20_keys() -> None:
    keys = [f"{ZPUB_AS_XPUB}/{number}/*" for number in range(21)]
    # by embit 0.8.0
    assert scripts(f"wsh(multi(1,{','.join(keys[:16])}))", count=1) == [
        "0020b25858d25c01bb9b63e2bf6d5d1c475c1941fcc635f923cb0538f3669d50fea5"
    ]
    for count in range(16, 21):
        public = [f"{KEY[:-4]}{number:04x}" for number in range(5_000) if is_point(f"{KEY[:-4]}{number:04x}")][:count]
        pushed = "".join(f"21{key}" for key in public)
        size = f"{0x50 + count:02x}" if count <= 16 else f"01{count:02x}"
        program = bytes.fromhex(f"52{pushed}{size}ae")
        expected = b"\x00\x20" + sha256(program).digest()
        assert scripts(f"wsh(multi(2,{','.join(public)}))") == [expected.hex()]
        assert scripts(f"sh(wsh(multi(2,{','.join(public)})))") == [build.p2sh(hash160(expected)).hex()]
        assert scripts(f"wsh(sortedmulti(2,{','.join(reversed(public))}))") == [expected.hex()]
        inner = f"wsh(and_v(v:pk({XPUB}),multi(2,{','.join(public)})))"
        own = scripts(f"pk({XPUB})")[0][:-2]
        assert scripts(inner) == [(b"\x00\x20" + sha256(bytes.fromhex(f"{own}ad") + program).digest()).hex()]
    assert "multi() takes at most 20 keys here, not 21" in refusal(f"wsh(multi(1,{','.join(keys)}))")
    assert "must be at most 520 bytes, not 547: use at most 15 keys, or wsh()" in refusal(
        f"sh(multi(1,{','.join(keys[:16])}))"
    )
    assert scripts(f"sh(sortedmulti(1,{','.join(keys[:15])}))")


def is_point(key: str) -> bool:
    try:
        keyexpression.wally().ec_public_key_verify(bytes.fromhex(key))
    except ValueError:
        return False
    return True


def test_key_hash_in_a_leaf_has_two_forms() -> None:
    ways = (f"pkh({XPUB}/0/*)", f"c:pk_h({XPUB}/0/*)", f"c:or_i(pk_h({XPUB}/0/*),pk_h({XPUB}/1/*))")
    first, second, other = (scripts(f"tr({KEY[2:]},{leaf})") for leaf in ways)
    assert first == second != other


MUSIG_HEX = (
    "musig(02f9308a019258c31049344f85f89d5229b531c845836f99b08601f113bce036f9,"
    "03dff1d77f2a671c5f36183726db2341be58feae1da2deced843240f7b502ba659,"
    "023590a94e768f8e1815c2f24b4d80a8e3149316c3518ce7b7ad338368d038ca66)"
)
MUSIG_FIRST = (
    "xpub6ERApfZwUNrhLCkDtcHTcxd75RbzS1ed54G1LkBUHQVHQKqhMkhgbmJbZRkrgZw4koxb5JaHWkY4ALHY2grBGRjaDMzQLcgJvLJuZZvRcEL"
)
MUSIG_SECOND = (
    "xpub68NZiKmJWnxxS6aaHmn81bvJeTESw724CRDs6HbuccFQN9Ku14VQrADWgqbhhTHBaohPX4CjNLf9fq9MYo6oDaPPLPxSb7gwQN3ih19Zm4Y"
)
MUSIG = f"musig({MUSIG_FIRST},{MUSIG_SECOND})"
POINT = "f9308a019258c31049344f85f89d5229b531c845836f99b08601f113bce036f9"


@pytest.mark.musig
@pytest.mark.parametrize(
    ("text", "expected"),
    [  # BIP-390
        (f"tr({MUSIG_HEX})", ["512079e6c3e628c9bfbce91de6b7fb28e2aec7713d377cf260ab599dcbc40e542312"]),
        (
            f"rawtr({MUSIG}/0/*)",
            [
                "51209508c08832f3bb9d5e8baf8cb5cfa3669902e2f2da19acea63ff47b93faa9bfc",
                "51205ca1102663025a83dd9b5dbc214762c5a6309af00d48167d2d6483808525a298",
                "51207dbed1b89c338df6a1ae137f133a19cae6e03d481196ee6f1a5c7d1aeb56b166",
            ],
        ),
        (
            f"tr({MUSIG}/0/*,pk({POINT}))",
            [
                "51201d377b637b5c73f670f5c8a96a2c0bb0d1a682a1fca6aba91fe673501a189782",
                "51208950c83b117a6c208d5205ffefcf75b187b32512eb7f0d8577db8d9102833036",
                "5120a49a477c61df73691b77fcd563a80a15ea67bb9c75470310ce5c0f25918db60d",
            ],
        ),
        (
            f"tr({POINT},pk({MUSIG}/0/*))",
            [
                "512068983d461174afc90c26f3b2821d8a9ced9534586a756763b68371a404635cc8",
                "5120368e2d864115181bdc8bb5dc8684be8d0760d5c33315570d71a21afce4afd43e",
                "512097a1e6270b33ad85744677418bae5f59ea9136027223bc6e282c47c167b471d5",
            ],
        ),
    ],
)
def test_musig_gives_its_published_scripts(text: str, expected: list[str]) -> None:
    assert scripts(text) == expected


@pytest.mark.musig
def test_keys_of_musig_may_be_in_any_order() -> None:
    keys = [f"{MUSIG_FIRST}/<0;1>/*", f"[deadbeef]{MUSIG_SECOND}/7/*"]
    one, other = (parse_descriptor(f"tr(musig({','.join(each)}))", MAINNET) for each in (keys, keys[::-1]))
    assert [each.scripts(5) for each in one] == [each.scripts(5) for each in other]
    assert len({each.scripts(index) for each in one for index in range(3)}) == 6
    after = parse_descriptor(f"tr(musig({MUSIG_FIRST},{MUSIG_SECOND})/<0;1>/*)", MAINNET)
    assert [each.scripts(0)[0].hex() for each in after[:1]] == scripts(f"tr({MUSIG}/0/*)", count=1)


@pytest.mark.musig
@pytest.mark.parametrize(
    ("text", "cause"),
    [  # BIP-390, and multipaths on both sides
        (f"pk({MUSIG_HEX})", ", only in tr() and rawtr() (BIP-390)"),
        (f"pkh({MUSIG_HEX})", ", only in tr() and rawtr() (BIP-390)"),
        (f"wpkh({MUSIG_HEX})", ", only in tr() and rawtr() (BIP-390)"),
        (f"combo({MUSIG_HEX})", ", only in tr() and rawtr() (BIP-390)"),
        (f"sh(wpkh({MUSIG_HEX}))", ", only in tr() and rawtr() (BIP-390)"),
        (f"sh(wsh(pk({MUSIG_HEX})))", ", only in tr() and rawtr() (BIP-390)"),
        (f"wsh({MUSIG_HEX})", "BIP-390 allows it only as a key of tr() and rawtr()"),
        (f"sh({MUSIG_HEX})", "musig() is not allowed in sh(): expected one of"),
        (f"tr({MUSIG_HEX}/0/0)", "a musig() with a path must contain only extended keys, not a public key in hex"),
        (f"tr(musig({MUSIG_FIRST}/*,{MUSIG_SECOND})/0/*)", "a wildcard is not allowed within a musig() with a path"),
        (f"tr({MUSIG}/0h/*)", "a hardened step after musig(…)"),
        (f"tr({MUSIG}/0/*h)", "a hardened step after musig(…)"),
        (
            f"tr(musig({MUSIG_FIRST}/<0;1>,{MUSIG_SECOND})/<0;1>/*)",
            "a multipath is not allowed within a musig() that has one",
        ),
        (f"tr(musig({MUSIG},{MUSIG_FIRST}))", "musig() cannot be nested in musig()"),
        (f"tr({MUSIG}x)", "text after musig(…)"),
        (f"tr(musig({POINT},{MUSIG_FIRST}))", "x-only key of 64 hex digits is not allowed in musig()"),
    ],
)
def test_invalid_musig_is_refused_with_its_cause(text: str, cause: str) -> None:
    assert cause in refusal(text)


def test_without_its_package_a_musig_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "btclib_secp256k1.musig", None)
    keyexpression.aggregation.cache_clear()
    assert remedy("musig") in refusal(f"tr({MUSIG}/0/*)")
    keyexpression.aggregation.cache_clear()


# Keys without a wildcard


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        (f"wpkh([deadbeef/84h/0h/0h]{XPUB})", "write /<0;1>/* after each extended key"),
        (f"wsh(sortedmulti(1,{XPUB},{MUSIG_FIRST}))", "write /<0;1>/* after each extended key"),
        (f"wpkh({XPUB}/0)", "write /* after the path of each extended key"),
        (f"wpkh({XPUB}/<0;1>)", "write /* after the path of each extended key"),
    ],
)
def test_key_without_a_wildcard_warns_or_is_refused(text: str, advice: str, tmp_path: Path) -> None:
    with pytest.warns(DescriptorWarning) as caught:
        WatchList().add_descriptor(text)
    assert [advice in str(each.message) for each in caught] == [True]
    strict = WatchList(require_ranged=True)
    for watch in (strict, strict.copy()):
        with pytest.raises(DescriptorError, match="so it has only one address") as refused:
            watch.add_descriptor(text)
        assert advice in str(refused.value)
        assert (len(watch), watch.keychains) == (0, ())
    (tmp_path / "watch").write_text(f"{ADDRESS}\n{text}\n")
    with pytest.raises(WatchFileError) as listed:
        WatchList.load(tmp_path / "watch", require_ranged=True)
    ((line, message),) = listed.value.problems
    assert (line, advice in message) == (2, True)


def test_ranged_and_constant_descriptors_cause_no_warning() -> None:
    watch = WatchList(require_ranged=True)
    for text in (f"wpkh({KEY})", f"wpkh({XPUB}/*)", f"wsh(multi(1,{XPUB}/*,{MUSIG_FIRST}))", "raw(51)", ZPUB):
        assert watch.add_descriptor(text, lookahead=20)


# Stored descriptors

NUMS = "50929b74c1a04954b78b4b6035e97a5e078a5a0f28ec96d547bfee9ace803ac0"  # BIP-341
HYBRID = (
    "0679be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798"
    "483ada7726a3c4655da4fbfc0e1108a8fd17b448a68554199c47d08ffb10d4b8"
)


def by_libwally(text: str, flags: int = 0) -> bytes | None:
    """The script of index 3, as versions before the check of types derived it."""
    library = keyexpression.wally()
    try:
        parsed = library.descriptor_parse(text, None, library.WALLY_NETWORK_NONE, flags)
        return bytes(library.descriptor_to_script(parsed, 0, 0, 0, 0, 3 if "*" in text else 0, 0))
    except (ValueError, RuntimeError):
        return None


def test_a_stored_descriptor_that_breaks_a_rule_keeps_its_scripts() -> None:
    made, kept = RandomMiniscripts(random.Random(38)), 0
    while kept < effort(30, 100, 2_000):
        text = made.text(is_broken=False)
        if not text.startswith("tr(") and (theirs := by_libwally(text)) is not None:
            (found,) = parse_descriptor(text, MAINNET, is_stored=True)
            assert found.scripts(3) == (theirs,), text
            kept += bool(found.problems)
    for text in (f"pkh({HYBRID})", f"sh(and_v(v:pk({KEY}),older(1)))"):
        (found,) = parse_descriptor(text, MAINNET, is_stored=True)
        assert (found.scripts(0), len(found.problems)) == ((by_libwally(text),), 1)
        assert refusal(text) == found.problems[0]


@pytest.mark.parametrize("leaf", ["pk_k({})", "v:pk({})", "and_v(v:pk({}),pk_k({}/1))", "older(5)", "multi(1,{})"])
def test_a_stored_leaf_that_breaks_a_rule_keeps_its_script(leaf: str) -> None:
    library = keyexpression.wally()
    text = leaf.replace("{}", XPUB)
    script = by_libwally(text, library.WALLY_MINISCRIPT_TAPSCRIPT | library.WALLY_MINISCRIPT_ONLY)
    assert script is not None
    leaf_hash = bytes(library.bip340_tagged_hash(b"\xc0" + bytes((len(script),)) + script, "TapLeaf"))
    output = bytes(library.ec_public_key_bip341_tweak(bytes.fromhex(f"02{NUMS}"), leaf_hash, 0))
    (found,) = parse_descriptor(f"tr({NUMS},{text})", MAINNET, is_stored=True)
    assert found.scripts(0) == (b"\x51\x20" + output[1:],)
    assert found.problems


def test_saved_list_with_an_unsafe_descriptor_warns_and_loads(tmp_path: Path) -> None:
    body = f"tr({NUMS},v:pk({XPUB}/*))"
    text = f"{body}#{checksum(body)}"
    assert "nobody could spend" in refusal(text)
    (tmp_path / "watch").write_text(f"keychain:30:20:{text},old\n")
    with pytest.warns(DescriptorWarning, match="not safe to use: character 69: .* nobody could spend"):
        watch = WatchList.load(tmp_path / "watch")
    assert (len(watch), watch.keychains[0].end, watch.keychains[0].label) == (30, 30, "old")
    assert pickle.loads(pickle.dumps(watch)) == watch  # without a second warning


# Refusals


CAUSES = [
    (f"wpkh({XPUB}/0/*)#p54wed41", "is wrong: it was mistyped or"),
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

SECRETS = [
    f"wpkh({XPRV}/0/*)",
    f"wpkh([deadbeef/84h]{XPRV[:-1]}/0/*)",
    f"wsh(multi(1,{XPUB},{XPRV}))",
    f"tr({KEY[2:]},pk({XPRV}))",
    f"tr({KEY[2:]},multi_a(1,{WIF}))",
    f"combo({WIF})",
    f"pkh({WIF[:-1]}1)",
    f"pk({WIF})#tp6f86mw",
    f"foo({WIF})",
    f"wpkh({WIF}",
    XPRV,
    "z" + XPRV[1:],
    XPRV + "/0/*",
    f"[deadbeef]{XPRV}",
    f"addr({WIF})",
    f"raw({WIF})",
    f"wpkh({XPUB}/0/*)#{WIF}",
]


def assert_silent_text(shown: str, secret: str) -> None:
    """No six characters of a possible secret are repeated, except those of public keys and of words around it."""
    public = shown.replace(XPUB, "")
    assert not [secret[at : at + 8] for at in range(len(secret) - 7) if secret[at : at + 8] in public], shown


def assert_silent(error: BaseException, text: str) -> None:
    seen: BaseException | None = error
    while seen is not None:
        assert_silent_text(f"{seen} {seen!r} {seen.args!r} {pickle.loads(pickle.dumps(seen))!r}", text)
        shown = "".join(traceback.format_exception_only(seen))
        assert_silent_text(shown, text)
        seen = seen.__cause__ or seen.__context__


@pytest.mark.parametrize("text", SECRETS, ids=range(len(SECRETS)))
def test_private_keys_are_refused_and_never_repeated(text: str, tmp_path: Path) -> None:
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


# Files


def test_saving_and_loading_keeps_keychains_with_their_windows_and_labels(tmp_path: Path) -> None:
    watch = WatchList()
    receiving, _ = watch.add_descriptor(f"wpkh({XPUB}/<0;1>/*)", "mine, all mine", lookahead=25)
    watch.add_descriptor(f"wsh(sortedmulti(1,{XPUB}/2/*,{XPUB}/3/*))", lookahead=20)
    watch.add_descriptor(f"combo({KEY})", "old")
    watch.add_script(receiving.scripts(3)[0], "rent")
    watch.add_address(ADDRESS, "savings")
    watch.widen(3)
    for index in (24, 40, 3):
        watch.match_tx(build.tx([TxIn(bytes(32), index)], [TxOut(index, receiving.scripts(index)[0])]))
    watch.save(tmp_path / "watch")
    loaded = WatchList.load(tmp_path / "watch")
    assert loaded == watch
    assert [sorted(chain.used) for chain in loaded.keychains] == [[3, 24, 40], [], [], []]
    loaded.save(tmp_path / "again")
    assert WatchList.load(tmp_path / "again") == watch
    lines = (tmp_path / "watch").read_text().splitlines()
    assert sum(line.startswith("keychain:") for line in lines) == 4
    assert len(lines) == 1 + 4 + 2 + 3  # scripts in windows are not listed


def test_a_line_may_have_a_descriptor_and_a_label(tmp_path: Path) -> None:
    lines = [
        f"wsh(sortedmulti(1,{XPUB}/<2;3>/*,{XPUB}/<4;5>/*)), vault, cold",
        f"wpkh({XPUB}/0/*)#p54wed40,mine",
        f"{ZPUB},phone",
        f"wpkh({KEY}) # a comment",
    ]
    (tmp_path / "watch").write_text("\n".join(lines))
    watch = WatchList.load(tmp_path / "watch")
    assert [chain.label for chain in watch.keychains] == ["vault, cold", "vault, cold", "mine", "phone", "phone", None]
    assert len(watch) == 5_001


def test_an_address_list_still_refuses_descriptors_by_name() -> None:
    with pytest.raises(AddressError, match="expected an address, got an output descriptor"):
        WatchList.from_addresses([f"wpkh({XPUB}/0/*)"])
