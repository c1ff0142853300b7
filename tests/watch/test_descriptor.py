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
from pathlib import Path
from typing import Any

import pytest
from bitcoin.base58 import encode

from spvfilter.errors import AddressError, DescriptorError, ParameterError, WatchFileError, WrongNetworkError
from spvfilter.hashes import hash160, sha256d
from spvfilter.network import MAINNET, NETWORKS, REGTEST, SIGNET, TESTNET3, Network
from spvfilter.watch.descriptor import derivation, parse_descriptor
from spvfilter.watch.descriptor.checksum import checksum
from spvfilter.watch.descriptor.keys import PREFIXES
from spvfilter.watch.watchlist import WatchList
from support import build
from support.build import TxIn, TxOut
from support.vectors import vector_cases, vector_file

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


def test_one_descriptor_is_one_keychain_whatever_it_is_written_with() -> None:
    watch = WatchList()
    first = watch.add_descriptor(f"wpkh({XPUB}/0/*)", "mine", lookahead=20)
    again = watch.add_descriptor(f" wpkh({XPUB}/0/*)#p54wed40 ", lookahead=30)
    assert again == first
    assert (len(watch), watch.keychains[0].label, watch.keychains[0].end) == (30, "mine", 30)


def test_a_descriptor_without_a_wildcard_has_one_index() -> None:
    watch = WatchList()
    (chain,) = watch.add_descriptor(f"wpkh({KEY})")
    assert (chain.size, chain.end, len(watch)) == (1, 1, 1)
    script = bytes.fromhex(scripts(f"wpkh({KEY})")[0])
    watch.match_tx(build.tx([TxIn(bytes(32), 0)], [TxOut(1, script)]))
    assert chain.next_index is None
    with pytest.raises(ParameterError, match=r"every address of keychain .* was used"):
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


def test_without_the_extra_a_descriptor_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    without_wallycore(monkeypatch)
    for text in (f"wpkh({XPUB}/0/*)", f"tr({XPUB}/0/*,pk({XPUB}/1/*))", f"combo({KEY})", ZPUB):
        assert (
            refusal(text)
            == "an output descriptor needs another package: pip install 'spvfilter[descriptors]', or give its addresses"
        )


def without_wallycore(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def refuse(name: str, *args: Any, **named: Any) -> Any:
        if name == "wallycore":
            raise ImportError(name)
        return original(name, *args, **named)

    monkeypatch.setattr(builtins, "__import__", refuse)
    derivation.wally.cache_clear()
    monkeypatch.setitem(sys.modules, "wallycore", None)


# Refusals


CAUSES = [
    (f"wpkh({XPUB}/0/*)#p54wed41", "is wrong: it was mistyped or"),
    (f"wpkh({XPUB}/1/*)#p54wed40", "is wrong: it was mistyped or"),
    (f"wpkh({XPUB}/0/*)#", "0 characters after '#', expected a checksum of 8"),
    (f"wpkh({XPUB}/0/*", "is incomplete or has text after it"),
    (f"wpkh({XPUB}/0/*) x", "is incomplete or has text after it"),
    (f"tr({KEY[2:]},{{pk({KEY[2:]})", "brackets of the descriptor do not match"),
    (f"tr({KEY[2:]},pk({KEY[2:]}),pk({KEY[2:]}))", "expected a key and one tree: tr(KEY,{A,B})"),
    (f"tr({KEY[2:]},{{pk({KEY[2:]})}})", "expected a tree of scripts: SCRIPT or {TREE,TREE}"),
    (f"tr({KEY[2:]},{'{' * 130 + f'pk({KEY[2:]})' + f',pk({KEY[2:]})}}' * 130})", "more than 128 levels"),
    (f"tr({KEY[2:]},multi_a(3,{KEY[2:]},{KEY[2:]}))", "expected multi_a(NUMBER,KEY,…)"),
    (f"tr({KEY[2:]},multi_a(x,{KEY[2:]}))", "expected multi_a(NUMBER,KEY,…)"),
    (f"multi(1,{KEY},{KEY},{KEY},{KEY})", "at most 3 keys"),
    (f"wsh(thresh(1,pk({KEY}),))", "an argument of the descriptor is empty"),
    (f"wpkh({KEY},)", "an argument of the descriptor is empty"),
    (f"foo({KEY})", "starts with addr(, combo("),
    (f"wpkh({XPUB}/0/*')", "a hardened step after xpub"),
    (f"wpkh({XPUB}/0h/*)", "a hardened step after xpub"),
    (f"wpkh({XPUB}/<0h;1h>/*)", "a hardened step after xpub"),
    (f"wpkh({XPUB}/<0;1>/<0;1>/*)", "two multipaths"),
    (f"wsh(multi(1,{XPUB}/<0;1>/*,{XPUB}/<0;1;2>/*))", "differ in their number of parts"),
    (f"wpkh({XPUB}/<0;0>/*)", "a multipath <…> has a number twice"),
    (f"wpkh({XPUB}/<0>/*)", "two or more numbers"),
    (f"wpkh({XPUB}/<;>/*)", "two or more numbers"),
    (f"wpkh({XPUB[:-1]}k/0/*)", "is wrong: it was mistyped or"),
    (f"wpkh({XPUB[:-9]}/0/*)", "is wrong: it was mistyped or"),
    (f"wpkh({XPUB[:-1]}0/0/*)", "not base58"),
    (f"wpkh({XPUB * 3}/0/*)", "expected 111"),
    (f"wpkh({ZPUB}/0/*)", f"write the key as {ZPUB_AS_XPUB}"),
    (f"wsh(musig({XPUB},{XPUB}))", "add_keychain"),
    (f"wpkh({KEY[:-2]})", "add_keychain"),
    ("raw(5)", "expected raw(HEX) with a script"),
    ("raw()", "expected raw(HEX) with a script"),
    ("addr(nonsense)", "base58"),
    (f"wpkh(é{XPUB})", "U+00E9, is not allowed in a descriptor"),
    (f"wpkh({'0' * 150_001})", "at most 150,000 characters"),
    (XPUB, "does not name a type of addresses"),
    (ZPUB + "/0/*", "zpub… with a path after it"),
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
    assert "depth 4, more than that of an account" in refusal(key_of(prefix, 4), network)


@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_keys_of_another_network_are_refused_by_its_name(network: Network) -> None:
    is_main = network == MAINNET
    for own, other in [(XPUB, TPUB), (key_of("zpub"), key_of("vpub")), (key_of("ypub"), key_of("upub"))]:
        mine, foreign = (own, other) if is_main else (other, own)
        wrap = "wpkh({}/0/*)" if mine[0] in "xt" else "{}"
        assert parse_descriptor(wrap.format(mine), network)
        with pytest.raises(WrongNetworkError, match=f"not of {network}") as caught:
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
    """No six characters of a text that may be secret are repeated, but for those of public keys and of the words around
    it.
    """
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
    with pytest.raises(AddressError, match="an output descriptor where an address is expected"):
        WatchList.from_addresses([f"wpkh({XPUB}/0/*)"])
