"""Output descriptors: the published vectors, their keychains, stored descriptors, and files."""

from __future__ import annotations

import builtins
import pickle
import random
import re
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from spvfilter.errors import AddressError, DescriptorError, DescriptorWarning, ParameterError, WatchFileError, remedy
from spvfilter.hashes import hash160
from spvfilter.network import MAINNET, REGTEST, SIGNET, TESTNET3, Network
from spvfilter.watch.descriptor import keyexpression, parse_descriptor
from spvfilter.watch.descriptor.checksum import checksum
from spvfilter.watch.watchlist import WatchList
from support.blocks import build
from support.blocks.build import TxIn, TxOut
from support.blocks.miniscripts import RandomMiniscripts
from support.vectors import effort, vector_cases, vector_file
from support.wallets.descriptortexts import (
    ADDRESS,
    HYBRID,
    KEY,
    MUSIG_FIRST,
    NUMS,
    XPUB,
    ZPUB,
    ZPUB_AS_XPUB,
    assert_silent,
    assert_silent_text,
    refusal,
    scripts,
)

pytestmark = pytest.mark.descriptors

# Vectors


def has_private_key(text: str) -> bool:
    return bool(re.search(r"prv|[5KL][1-9A-Za-z]{50,51}[,)]", text))


def network_of(text: str) -> Network:
    return TESTNET3 if re.search("tpub|tprv", text) else MAINNET


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
