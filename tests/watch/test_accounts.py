"""Accounts of watch lists: owners of entries, refusals, spellings of descriptors, text files, pickles and removal."""

from __future__ import annotations

import pickle
from functools import partial
from pathlib import Path

import pytest

from spvfilter.address import address_to_script, script_to_address
from spvfilter.errors import AddressError, ParameterError, UnknownAccountError, WatchFileError, WatchListInUseError
from spvfilter.kernel import EntryKind
from spvfilter.network import MAINNET, REGTEST
from spvfilter.primitives import OutPoint
from spvfilter.watch.keychain import GAP_LIMIT, Keychain
from spvfilter.watch.match import MatchKind
from spvfilter.watch.watchlist import WatchList
from support.blocks.build import TxIn, TxOut, p2wpkh, tx
from support.wallets.walletfiles import PHRASE, SINGLE, WIF, XPRV, electrum, first, text_of

KEY = "tpubD6NzVbkrYhZ4WaWSyoBvQwbpLkojyoTZPRsgXELWz3Popb3qkjcJyJUGLnL4qHHoQvao8ESaAstxYSnhyswJ76uZPStJRJCTKvosUCJZL5B"


def script(owner: int, index: int) -> bytes:
    return p2wpkh(owner.to_bytes(10, "big") + index.to_bytes(10, "big"))


def address(owner: int, index: int) -> str:
    return script_to_address(script(owner, index), REGTEST) or ""


def chain(name: str, owner: int, lookahead: int = GAP_LIMIT) -> Keychain:
    return Keychain(name, lambda index: (script(owner, index),), lookahead=lookahead)


def owner_of(watch: WatchList, found: bytes) -> str | None:
    return watch.account(watch.table.find(EntryKind.SCRIPT, found))


def test_each_entry_belongs_to_one_account_or_to_none() -> None:
    watch = WatchList(REGTEST)
    watch.add_script(script(0, 0))
    watch.add_account("alice", address(1, 0), address(1, 1))
    watch.add_account("bob", chain("bob's", 2))
    with pytest.raises(ParameterError, match=r"already an account 'alice' with different sources: .* extend=True"):
        watch.add_account("alice", address(1, 2))
    watch.add_account("alice", address(1, 1), address(1, 0))  # the same sources
    watch.add_account("alice", address(1, 2), extend=True)
    assert watch.accounts == ("alice", "bob")
    assert [owner_of(watch, script(0, 0)), owner_of(watch, script(1, 2))] == [None, "alice"]
    assert {owner_of(watch, script(2, index)) for index in range(GAP_LIMIT)} == {"bob"}
    (match,) = watch.match_tx(tx([TxIn(bytes(32), 0)], [TxOut(5, script(2, 7)), TxOut(6, script(9, 9))]))
    assert match.account == "bob"
    assert owner_of(watch, script(2, 7 + GAP_LIMIT)) == "bob", "the window has moved"


def test_name_in_another_unicode_form_is_the_same_name() -> None:
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    watch = WatchList(REGTEST)
    watch.add_account(decomposed, address(1, 0))
    watch.add_account(composed, address(1, 0))
    assert watch.accounts == (composed,)
    assert watch.index.has_account(decomposed)
    watch.rename_account(decomposed, "bar")
    watch.rename_account("bar", decomposed)
    assert watch.accounts == (composed,)
    watch.add_script(script(0, 0))
    watch.remove_account(decomposed)
    assert not watch.index.has_account(composed)


def test_label_of_an_account_is_on_sources_without_one() -> None:
    watch, own = WatchList(REGTEST), chain("own", 2)
    own.label = "till"
    watch.add_account("cafe", address(1, 0), chain("other", 3), own, label="shop")
    numbers = (watch.table.find(EntryKind.SCRIPT, each) for each in (script(1, 0), script(3, 4), script(2, 4)))
    assert [watch.label(number) for number in numbers] == ["shop", "shop", "till"]
    assert [each.label for each in watch.keychains] == ["shop", "till"]
    with pytest.raises(ParameterError, match="label"):
        watch.add_account("bar", address(4, 0), label="\ud800")


def test_sources_without_an_account_move_into_an_account() -> None:
    watch = WatchList(REGTEST)
    watch.add_script(script(1, 0), "shop")
    watch.add_keychain("mine", lambda index: script(2, index), lookahead=GAP_LIMIT)
    watch.add_account("bob", address(1, 0), chain("mine", 2))
    assert owner_of(watch, script(1, 0)) == owner_of(watch, script(2, 3)) == "bob"
    assert len(watch) == 1 + GAP_LIMIT
    assert watch.label(0) == "shop"


@pytest.mark.descriptors
@pytest.mark.filterwarnings("ignore::spvfilter.errors.WalletFileWarning")
def test_account_keeps_the_labels_of_a_wallet_file(tmp_path: Path) -> None:
    path = tmp_path / "wallet"
    path.write_text(text_of(electrum()))
    rented = first(f"{SINGLE}/0/*)")
    for known in ([], [rented], [(rented, "mine")]):
        watch = WatchList.from_addresses(known, MAINNET)
        watch.add_account("alice", path)
        found = watch.table.find(EntryKind.SCRIPT, address_to_script(rented, MAINNET))
        assert watch.own_label(found) == ("mine" if known == [(rented, "mine")] else "rent")


def test_sources_of_another_account_are_refused() -> None:
    watch = WatchList(REGTEST)
    watch.add_account("alice", address(1, 0), chain("a", 3))
    before = watch.copy()
    for sources in ([address(1, 0)], [address(5, 0), address(1, 0)], [chain("a", 3)], [chain("other name", 3)]):
        with pytest.raises(ParameterError, match="belongs to account 'alice'"):
            watch.add_account("bob", *sources)
    with pytest.raises(ParameterError, match="has a different descriptor"):
        watch.add_account("alice", chain("b", 4))
    assert watch == before
    watch.add_account("alice", chain("other name", 3), address(1, 0))
    assert watch == before, "the account has these sources already"


@pytest.mark.parametrize("name", ["", " bob", "a\nb", "x" * 256, "a\ud800", 5, None])
def test_invalid_names_are_refused(name: object) -> None:
    watch = WatchList(REGTEST)
    with pytest.raises(ParameterError, match="account's name"):
        watch.add_account(name, address(1, 0))  # type: ignore[arg-type]
    assert (watch.accounts, len(watch)) == ((), 0)


@pytest.mark.parametrize("name", [XPRV, WIF, PHRASE, f"wpkh({XPRV}/0/*){' ' * 256}"])
def test_private_key_is_no_name_and_is_not_quoted(name: str) -> None:
    watch = WatchList(REGTEST)
    watch.add_account("alice", address(1, 0))
    for change in (partial(watch.add_account, name, address(1, 1)), partial(watch.rename_account, "alice", name)):
        with pytest.raises(ParameterError, match="account's name contains") as caught:
            change()
        assert name[:20] not in str(caught.value)
    assert watch.accounts == ("alice",)


def test_invalid_sources_are_refused() -> None:
    watch = WatchList(REGTEST)
    with pytest.raises(ParameterError, match="needs a source"):
        watch.add_account("bob")
    with pytest.raises(AddressError):
        watch.add_account("bob", address(1, 0), "nonsense")
    with pytest.raises(ParameterError, match="not int"):
        watch.add_account("bob", 5)  # type: ignore[arg-type]
    assert (watch.accounts, len(watch)) == ((), 0)
    watch.hold()
    for change in (
        lambda: watch.add_account("bob", address(1, 0)),
        lambda: watch.remove_account("bob"),
        lambda: watch.rename_account("bob", "robert"),
    ):
        with pytest.raises(WatchListInUseError):
            change()  # type: ignore[no-untyped-call]


def test_accounts_are_renamed_and_keep_their_entries() -> None:
    watch = WatchList(REGTEST)
    watch.add_account("alice", address(1, 0))
    watch.add_account("bob", chain("b", 2), address(1, 1))
    watch.rename_account("bob", "robert")
    watch.rename_account("robert", "robert")
    assert watch.accounts == ("alice", "robert")
    assert owner_of(watch, script(2, 0)) == owner_of(watch, script(1, 1)) == "robert"
    with pytest.raises(ParameterError, match="there is already an account 'alice'"):
        watch.rename_account("robert", "alice")
    with pytest.raises(UnknownAccountError, match="no account 'bob'"):
        watch.rename_account("bob", "x")
    with pytest.raises(ParameterError, match="account's name"):
        watch.rename_account("alice", " ")


def test_removed_account_leaves_scripts_of_other_keychains() -> None:
    watch = WatchList(REGTEST)
    watch.add_keychain("shared", lambda index: script(2, index), lookahead=GAP_LIMIT)
    watch.add_account("bob", chain("longer", 3), address(2, 5), address(1, 0))
    watch.add_account("carol", chain("c", 4))
    watch.remove_account("bob")
    assert watch.accounts == ("carol",)
    assert [each.name for each in watch.keychains] == ["shared", "c"]
    assert owner_of(watch, script(2, 5)) is None
    assert script(2, 5) in watch
    assert script(1, 0) not in watch
    assert script(3, 0) not in watch
    assert watch.keychain_of(watch.table.find(EntryKind.SCRIPT, script(4, 7))) == (watch.keychains[1], 7)
    with pytest.raises(UnknownAccountError):
        watch.remove_account("bob")
    twin = WatchList(REGTEST)
    twin.add_keychain("shared", lambda index: script(2, index), lookahead=GAP_LIMIT)
    twin.add_account("carol", chain("c", 4))
    assert watch == twin


def test_spend_belongs_to_the_account_of_its_output() -> None:
    watch = WatchList(REGTEST)
    watch.add_account("bob", address(1, 0))
    watch.add_outpoint(OutPoint(bytes(32), 7), "by hand", value=5, script_pubkey=script(1, 0))
    (match,) = watch.match_tx(tx([TxIn(bytes(32), 7)], [TxOut(5, script(9, 9))]))
    assert (match.kind, match.label, match.account) == (MatchKind.INPUT, "by hand", "bob")


def test_text_file_and_pickle_keep_accounts(tmp_path: Path) -> None:
    watch = WatchList(REGTEST)
    watch.add_script(script(0, 0), "no account")
    watch.add_account("alice, the first", address(1, 0))
    watch.add_account("#bob", chain("b", 2), address(1, 1))
    watch.rename_account("#bob", "bob")
    path = tmp_path / "watch.txt"
    watch.save(path)
    loaded = WatchList.load(path, REGTEST)
    assert loaded.accounts == watch.accounts == ("alice, the first", "bob")
    for found in (script(0, 0), script(1, 0), script(1, 1), script(2, 3)):
        assert owner_of(loaded, found) == owner_of(watch, found)
    simple = WatchList(REGTEST)
    simple.add_account("bob", address(1, 1))
    assert pickle.loads(pickle.dumps(simple)) == simple
    assert simple.copy() == simple
    assert simple != WatchList.from_addresses([address(1, 1)], REGTEST)


def test_section_of_a_text_file_adopts_and_refuses_lines(tmp_path: Path) -> None:
    path = tmp_path / "watch.txt"
    lines = [
        address(1, 0),
        "account:bob",
        f"{address(1, 0)},shop",
        f"{address(1, 1)} # rent",
        "account:",
        address(1, 2),
    ]
    path.write_text("\n".join(lines), encoding="utf-8")
    watch = WatchList.load(path, REGTEST)
    assert [owner_of(watch, script(1, index)) for index in range(3)] == ["bob", "bob", None]
    path.write_text(f"account:a\n{address(1, 0)}\naccount:b\n{address(1, 0)}\naccount:\x07\n", encoding="utf-8")
    with pytest.raises(WatchFileError, match=r"line 4: .*belongs to account 'a'.*line 5: an account's name"):
        WatchList.load(path, REGTEST)


@pytest.mark.descriptors
def test_descriptor_in_another_spelling_is_the_same() -> None:
    watch = WatchList(REGTEST)
    watch.add_account("bob", f"wpkh([d34db33f/84h/1h/0h]{KEY}/<0;1>/*)", lookahead=GAP_LIMIT)
    before = watch.copy()
    spellings = (
        [f"wpkh([d34db33f/84'/1'/0']{KEY}/<0;1>/*)"],
        [f"wpkh([D34DB33F/84h/1h/0h]{KEY}/0/*)", f"wpkh({KEY}/1/*)"],
        [watch.keychains[0].name, watch.keychains[1].name],
        [watch.keychains[1].name.partition("#")[0]],
    )
    for sources in spellings:
        watch.add_account("bob", *sources, lookahead=GAP_LIMIT)
        with pytest.raises(ParameterError, match="belongs to account 'bob'"):
            watch.add_account("carol", *sources, lookahead=GAP_LIMIT)
    assert watch == before
