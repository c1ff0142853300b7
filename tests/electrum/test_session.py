"""The answers of a session without a socket: methods of each version, arguments, and subscriptions."""

from __future__ import annotations

from typing import Any

import pytest

from spvfilter.chain import HeaderChain
from spvfilter.electrum.budget import ElectrumBudget
from spvfilter.electrum.headerproofs import HeaderProofs
from spvfilter.electrum.histories import Histories, script_hash_of
from spvfilter.electrum.knownscripts import KnownScripts
from spvfilter.electrum.limits import ElectrumLimits
from spvfilter.electrum.questions import (
    ExploreScript,
    FetchBranch,
    FindTransaction,
    PrepareProof,
    Question,
    SendTransactions,
)
from spvfilter.electrum.rpcerrors import RpcError
from spvfilter.electrum.session import METHODS, SOFTWARE, ElectrumSession, WalletState
from spvfilter.network import REGTEST
from spvfilter.node.scripts import p2wpkh
from spvfilter.primitives import OutPoint, TxOut
from spvfilter.store.ledger import TxStatus
from spvfilter.store.scriptviews import OutputEffect, TxEffects, TxProof
from spvfilter.transaction import Transaction
from spvfilter.watch.watchlist import WatchList
from support.blocks.headerchains import NOW, regular
from support.blocks.locks import build_tx
from support.oracles.electrumoracle import tree

KEY = b"\x02" + bytes(32)
SCRIPT, OTHER = bytes.fromhex("0014" + "11" * 20), bytes.fromhex("0014" + "22" * 20)
KNOWN, UNKNOWN = script_hash_of(SCRIPT), script_hash_of(OTHER)
RAW = build_tx([p2wpkh(KEY).spends(OutPoint(bytes(31) + b"\x01", 0))], [TxOut(5, SCRIPT)])
TXID = Transaction.parse(RAW).txid
ONLY_16 = {"mempool.get_info", "blockchain.transaction.broadcast_package"}
ONLY_14 = {"blockchain.relayfee"}


def wallet_state() -> WalletState:
    """A wallet with one script on the genesis block."""
    chain, scripts = HeaderChain(REGTEST), KnownScripts()
    watch = WatchList(REGTEST)
    watch.add_script(SCRIPT)
    list(scripts.update(watch))
    return WalletState(chain, Histories(), scripts, HeaderProofs(chain), lambda: 2_500, {})


def session(version: str | None = None, state: WalletState | None = None, **limits: int) -> ElectrumSession:
    bounds = ElectrumLimits(**limits)
    made = ElectrumSession(state or wallet_state(), bounds, ElectrumBudget(bounds), "127.0.0.1")
    if version is not None:
        assert made.answer("server.version", ["test", version]) == [SOFTWARE, version]
    return made


def wallet_tx(number: int, height: int | None = None, **facts: Any) -> TxEffects:
    return TxEffects(bytes([number]) * 32, height, 0, (OutputEffect(SCRIPT, bytes(36), 5, False),), **facts)


@pytest.mark.parametrize("version", ["1.4", "1.4.1", "1.4.2", "1.4.3", "1.6"])
def test_version_has_its_methods_and_no_others(version: str) -> None:
    made, found = session(version), set[str]()
    for method in METHODS:
        try:
            made.answer(method, {"nonsense": 1} if method != "server.version" else [])
        except RpcError as error:
            if error.code != -32601:
                found.add(method)
        else:
            found.add(method)
    gone = ONLY_14 if version == "1.6" else ONLY_16
    older = {"blockchain.scripthash.unsubscribe"} if version in ("1.4", "1.4.1") else set()
    assert METHODS.keys() - found == gone | older


def test_fixed_answers() -> None:
    made = session("1.4")
    assert made.answer("server.ping", []) is None
    assert made.answer("server.donation_address", []) == ""
    assert made.answer("server.peers.subscribe", []) == []
    assert made.answer("server.add_peer", [{}]) is False
    assert made.answer("mempool.get_fee_histogram", []) == []
    assert made.answer("blockchain.estimatefee", [6]) == -1
    assert made.answer("blockchain.relayfee", []) == 0.000025
    assert "only this wallet's scripts" in str(made.answer("server.banner", []))
    info = {"mempoolminfee": 0.000025, "minrelaytxfee": 0.000025, "incrementalrelayfee": 0.00001}
    assert session("1.6").answer("mempool.get_info", []) == info


def test_headers_are_a_list_only_in_16() -> None:
    genesis = REGTEST.genesis.hex()
    assert session("1.4").answer("blockchain.block.headers", [0, 9]) == {"count": 1, "max": 2016, "hex": genesis}
    found = session("1.6").answer("blockchain.block.headers", [0, 9])
    assert found == {"count": 1, "max": 2016, "headers": [genesis]}
    assert session("1.6").answer("blockchain.block.headers", [5, 9]) == {"count": 0, "max": 2016, "headers": []}


def test_version_is_negotiated_once_and_first() -> None:
    made = session("1.6")
    with pytest.raises(RpcError, match="already sent"):
        made.answer("server.version", ["test", "1.4"])
    late = session()
    late.answer("server.ping", [])
    with pytest.raises(RpcError, match=r"use 1\.4 to 1\.4\.3"):
        late.answer("server.version", ["test", "1.6"])
    assert late.answer("server.version", ["test", ["1.4", "1.6"], "more"])[1] == "1.4.3"  # type: ignore[index]


@pytest.mark.parametrize(
    ("method", "given", "said", "code"),
    [
        ("blockchain.nonsense", [], "unknown method", -32601),
        ("blockchain.block.header", [], "needs 1 argument, got", -32602),
        ("blockchain.block.header", [0, 0, 0], "takes at most 2 arguments, got 3", -32602),
        ("blockchain.block.header", {"level": 0}, "takes no argument 'level'", -32602),
        ("blockchain.block.header", {"cp_height": 0}, "needs the argument 'height'", -32602),
        ("blockchain.block.header", [-1], "whole number", 1),
        ("blockchain.block.header", [True], "whole number", 1),
        ("blockchain.block.header", ["-1"], "whole number", 1),
        ("blockchain.block.header", ["0x1"], "whole number", 1),
        ("blockchain.block.header", [""], "whole number", 1),
        ("blockchain.block.header", ["9" * 5_000], "whole number", 1),
        ("blockchain.block.header", ["1"], "above the tip", 1),
        ("blockchain.block.header", [1.5], "whole number", 1),
        ("blockchain.block.header", [float("nan")], "whole number", 1),
        ("blockchain.block.header", [[0]], "whole number", 1),
        ("blockchain.block.header", [1 << 31], "whole number", 1),
        ("blockchain.block.header", [(1 << 31) - 1], "above the tip", 1),
        ("blockchain.block.header", [1], "above the tip", 1),
        ("blockchain.block.header", [0, 1], "above the tip", 1),
        ("blockchain.block.headers", [0, 1, 1], "above the tip", 1),
        ("blockchain.scripthash.get_balance", ["00"], "64 hex digits", 1),
        ("blockchain.scripthash.get_history", [7], "64 hex digits", 1),
        ("blockchain.scripthash.subscribe", ["zz" * 32], "64 hex digits", 1),
        ("blockchain.transaction.get", ["00" * 31], "64 hex digits", 1),
        ("blockchain.transaction.get", ["00" * 32, 2], "true or false", 1),
        ("blockchain.transaction.get", ["00" * 32, "1"], "true or false", 1),
        ("blockchain.transaction.id_from_pos", [0, 0, None], "true or false", 1),
        ("blockchain.transaction.get_merkle", ["00" * 32, 9], "above the tip", 1),
        ("blockchain.transaction.id_from_pos", [0, -1], "whole number", 1),
        ("blockchain.transaction.broadcast", ["0g"], "in hex", 1),
        ("blockchain.transaction.broadcast", [None], "in hex", 1),
        ("blockchain.transaction.broadcast", ["00"], "not a transaction", 1),
        ("blockchain.transaction.broadcast", ["00" * 400_000], "not a transaction", 1),
        ("blockchain.transaction.broadcast", ["00" * 400_000 + "0"], "more than 400000 weight units", 1),
        ("blockchain.transaction.broadcast_package", [[]], "1 to 25", 1),
        ("blockchain.transaction.broadcast_package", ["00"], "1 to 25", 1),
        ("blockchain.estimatefee", ["six"], "whole number", 1),
    ],
)
def test_wrong_request_gets_an_error_and_the_session_continues(method: str, given: Any, said: str, code: int) -> None:
    made = session("1.6")
    with pytest.raises(RpcError, match=said) as caught:
        made.answer(method, given)
    assert (caught.value.code, caught.value.ends_session) == (code, False)
    assert made.answer("server.ping", []) is None


def test_arguments_may_be_given_by_name() -> None:
    made = session("1.4")
    assert made.answer("blockchain.block.header", {"height": 0, "cp_height": 0}) == REGTEST.genesis.hex()
    assert made.answer("blockchain.scripthash.get_history", {"scripthash": KNOWN}) == []


def test_subscriber_gets_a_changed_status_once() -> None:
    state = wallet_state()
    made, histories = session("1.4.2", state), state.histories
    assert made.answer("blockchain.scripthash.subscribe", [KNOWN.upper()]) is None
    assert made.script_notices({KNOWN}) == []
    assert histories.replace([wallet_tx(1)], [bytes([1]) * 32]) == {KNOWN}
    status = histories.status(KNOWN)
    assert made.script_notices({KNOWN, UNKNOWN}) == [("blockchain.scripthash.subscribe", (KNOWN, status))]
    assert made.script_notices({KNOWN}) == []
    assert made.answer("blockchain.scripthash.unsubscribe", [KNOWN]) is True
    assert made.answer("blockchain.scripthash.unsubscribe", [KNOWN]) is False
    histories.replace([], [bytes([1]) * 32])
    assert made.script_notices({KNOWN}) == []


def test_status_changes_when_an_unconfirmed_parent_is_confirmed() -> None:
    histories, txid = Histories(), bytes([2]) * 32
    histories.replace([wallet_tx(2, has_unconfirmed_parent=True)], [txid])
    before = histories.status(KNOWN)
    assert histories.mempool(KNOWN)[0]["height"] == -1
    assert histories.replace([wallet_tx(2)], []) == {KNOWN}
    assert histories.mempool(KNOWN)[0]["height"] == 0
    assert histories.status(KNOWN) != before


def test_subscriptions_of_a_session_are_bounded() -> None:
    made = session("1.4", subscriptions=1)
    made.answer("blockchain.scripthash.subscribe", [KNOWN])
    made.answer("blockchain.scripthash.subscribe", [KNOWN])
    with pytest.raises(RpcError, match="at most 1 script hashes"):
        made.answer("blockchain.scripthash.subscribe", [UNKNOWN])


def test_header_subscriber_gets_only_new_tips() -> None:
    state = wallet_state()
    made = session("1.4", state)
    assert made.header_notice() == []
    tip = {"height": 0, "hex": REGTEST.genesis.hex()}
    assert made.answer("blockchain.headers.subscribe", []) == tip
    assert made.header_notice() == []
    header = regular(state.chain, 1)
    state.chain.accept(header, NOW)
    tip = {"height": 1, "hex": header.hex()}
    assert made.header_notice() == [("blockchain.headers.subscribe", (tip,))]
    assert made.header_notice() == []


def test_unknown_script_is_looked_for_and_then_answered_as_empty() -> None:
    made = session("1.4")
    question = made.answer("blockchain.scripthash.subscribe", [UNKNOWN])
    assert isinstance(question, ExploreScript)
    assert question.script_hash == UNKNOWN
    assert question.then() is None
    assert UNKNOWN in made.subscriptions


def test_transaction_that_the_database_lacks_gives_code_2() -> None:
    made = session("1.4")
    question = made.answer("blockchain.transaction.get", ["ab" * 32])
    assert isinstance(question, FindTransaction)
    with pytest.raises(RpcError, match="No such mempool or blockchain transaction") as caught:
        question.then(None)
    assert caught.value.code == 2
    details = made.answer("blockchain.transaction.get", ["ab" * 32, True])
    assert isinstance(details, FindTransaction)
    shown = details.then(TxProof(TXID, RAW, TxStatus.CONFIRMED, False, 0, REGTEST.genesis_hash, 0, None))
    assert isinstance(shown, dict)
    assert (shown["hex"], shown["confirmations"], shown["vout"][0]["value"]) == (RAW.hex(), 1, 5e-8)


@pytest.mark.parametrize("status", TxStatus)
def test_only_a_transaction_that_counts_is_found(status: TxStatus) -> None:
    for verbose in (False, True):
        question = session("1.4").answer("blockchain.transaction.get", ["ab" * 32, verbose])
        assert isinstance(question, FindTransaction)
        if status in (TxStatus.CONFIRMED, TxStatus.PENDING):
            assert question.then(TxProof(TXID, RAW, status, False, None, None, None, None)) is not None
            continue
        with pytest.raises(RpcError, match="No such mempool or blockchain transaction") as caught:
            question.then(TxProof(TXID, RAW, status, False, None, None, None, None))
        assert caught.value.code == 2


def test_stored_branch_that_the_header_contradicts_is_fetched_again() -> None:
    made = session("1.4")
    question = made.answer("blockchain.transaction.get_merkle", ["ab" * 32, 0])
    assert isinstance(question, FindTransaction)
    fetch = question.then(TxProof(TXID, RAW, TxStatus.CONFIRMED, False, 0, REGTEST.genesis_hash, 0, bytes(32)))
    assert isinstance(fetch, FetchBranch)
    assert (fetch.height, fetch.txid) == (0, bytes.fromhex("ab" * 32))


def test_only_transactions_of_the_wallet_are_proved() -> None:
    made = session("1.4")
    question = made.answer("blockchain.transaction.get_merkle", ["ab" * 32, 0])
    assert isinstance(question, FindTransaction)
    with pytest.raises(RpcError, match="the wallet has no such transaction") as caught:
        question.then(None)
    assert caught.value.code == 2
    with pytest.raises(RpcError, match="is not in the block at height 0"):
        question.then(TxProof(TXID, RAW, TxStatus.PENDING, False, None, None, None, None))
    for merkle in (False, True):
        with pytest.raises(RpcError, match="no transaction of the wallet is at position 0 of block 0") as caught:
            made.answer("blockchain.transaction.id_from_pos", [0, 0, merkle])
        assert caught.value.code == 2


@pytest.mark.parametrize("number", [0, "0", " 0 ", "+0", 0.0])
@pytest.mark.parametrize("flag", [True, 1, 1.0])
def test_numbers_and_flags_are_taken_as_electrumx_takes_them(number: object, flag: object) -> None:
    state = wallet_state()
    made = session("1.4", state)
    assert made.answer("blockchain.block.header", [number, number]) == REGTEST.genesis.hex()
    assert made.answer("blockchain.estimatefee", [number]) == -1
    question = made.answer("blockchain.transaction.get", ["ab" * 32, flag])
    assert isinstance(question, FindTransaction)
    assert isinstance(question.then(TxProof(TXID, RAW, TxStatus.PENDING, False, None, None, None, None)), dict)
    state.histories.replace([wallet_tx(1, 0)])
    proof = made.answer("blockchain.transaction.id_from_pos", [number, number, flag])
    assert isinstance(proof, FindTransaction)


def test_session_lists_its_latest_unknown_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spvfilter.electrum.session.MAX_UNKNOWN", 2)
    state = wallet_state()
    made = session("1.4", state)
    hashes = [f"{number:064x}" for number in range(3)]
    for each in hashes:
        question = made.answer("blockchain.scripthash.get_balance", [each])
        assert isinstance(question, ExploreScript)
        assert question.then() == {"confirmed": 0, "unconfirmed": 0}
    assert list(made.unknown) == hashes[1:]
    watch = WatchList(REGTEST)
    watch.add_script(OTHER)
    question = made.answer("blockchain.scripthash.get_balance", [UNKNOWN])
    assert isinstance(question, ExploreScript)
    question.then()
    assert list(made.unknown) == [hashes[2], UNKNOWN]
    list(state.scripts.update(watch))
    assert list(made.unknown) == hashes[2:]


def test_header_proof_reaches_the_checkpoint_and_no_less() -> None:
    state = wallet_state()
    state.chain.accept(regular(state.chain, 5), NOW)
    made, hashes = session("1.4", state), list(state.chain.hashes(0, 5))
    for method, given, last in (("header", [3], 3), ("headers", [1, 3], 3), ("headers", [2, 2], 3)):
        with pytest.raises(RpcError, match="height 3 is above cp_height 2"):
            made.answer(f"blockchain.block.{method}", [*given, 2])
        for checkpoint in (3, 5):
            question = made.answer(f"blockchain.block.{method}", [*given, checkpoint])
            assert isinstance(question, PrepareProof)
            list(state.proofs.prepare(question.checkpoint))
            answer = question.then()
            assert isinstance(answer, dict)
            assert (answer["branch"], answer["root"]) == tree(hashes[: checkpoint + 1], last)


def test_transaction_that_a_reorganization_moved_has_left_its_place() -> None:
    state = wallet_state()
    state.histories.replace([wallet_tx(1, 0)])
    question = session("1.4", state).answer("blockchain.transaction.id_from_pos", [0, 0, True])
    assert isinstance(question, FindTransaction)
    gone = TxProof(TXID, RAW, TxStatus.PENDING, False, None, None, None, None)
    for found in (None, gone, gone._replace(height=1)):
        with pytest.raises(RpcError, match=f"transaction {'01' * 32} has left block 0") as caught:
            question.then(found)
        assert caught.value.code == 2


def test_package_has_at_most_25_transactions() -> None:
    made = session("1.6")
    question = made.answer("blockchain.transaction.broadcast_package", [[RAW.hex()] * 25])
    assert isinstance(question, SendTransactions)
    assert question.raws == (RAW,) * 25
    with pytest.raises(RpcError, match="a list of 1 to 25 transactions"):
        made.answer("blockchain.transaction.broadcast_package", [[RAW.hex()] * 26])


def test_package_reports_each_error() -> None:
    made = session("1.6")
    question = made.answer("blockchain.transaction.broadcast_package", [[RAW.hex(), RAW.hex()]])
    assert isinstance(question, SendTransactions)
    assert isinstance(question, Question)
    assert question.then([None, None]) == {"success": True}
    answer = question.then([None, "too low"])
    assert isinstance(answer, dict)
    assert (answer["success"], [each["error"] for each in answer["errors"]]) == (False, ["too low"])
