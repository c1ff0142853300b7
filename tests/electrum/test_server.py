"""The server over sockets: bounds, mistakes of a session, notifications, windows, proofs on demand, TLS."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiorpcx")

from spvfilter.address import script_to_address
from spvfilter.electrum import ElectrumLimits, ElectrumServer, wallet
from spvfilter.electrum.histories import script_hash_of
from spvfilter.electrum.knownscripts import KnownScripts
from spvfilter.errors import NotRunningError, ParameterError, StoreError
from spvfilter.light.client import LightClient
from spvfilter.network import REGTEST
from spvfilter.node.scripts import p2wpkh
from spvfilter.primitives import OutPoint, TxOut
from spvfilter.store.ledger import TxStatus
from spvfilter.testing import RegtestNode, eventually
from spvfilter.transaction import Transaction
from spvfilter.wallet import scanned
from spvfilter.wallet.events import MatchConfirmed, MatchFound
from spvfilter.watch.watchlist import WatchList
from support.blocks.locks import build_tx
from support.peers.electrumclient import ElectrumClient, ElectrumError, closed
from support.peers.electrumserver import KNOWN, SCRIPT, VERSION, connected, numbered, served

CERTIFICATE = Path(__file__).parent / "fixtures/localhost.pem"


async def test_payment_and_block_are_notified(nothing_is_left: None, regtest_node: RegtestNode) -> None:
    async with served(regtest_node) as (_, server), connected(server) as client:
        assert await client.ask("blockchain.scripthash.subscribe", KNOWN) is None
        assert (await client.ask("blockchain.headers.subscribe"))["height"] == 101
        regtest_node.call(lambda regtest: regtest.pay(TxOut(7_000, SCRIPT)))
        await client.until(lambda: client.notices)
        rows = await client.ask("blockchain.scripthash.get_history", KNOWN)
        assert [row["height"] for row in rows] == [0]
        regtest_node.mine()

        def is_told() -> bool:
            return {name for name, _ in client.notices[1:]} == {
                "blockchain.headers.subscribe",
                "blockchain.scripthash.subscribe",
            }

        await client.until(is_told)
        assert await client.ask("blockchain.scripthash.get_balance", KNOWN) == {"confirmed": 7_000, "unconfirmed": 0}


async def test_unconfirmed_payments_are_read_only_after_an_event(
    nothing_is_left: None, regtest_node: RegtestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wallet, "LOOK_S", 0.01)
    calls: list[str] = []

    def noted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            calls.append(name)
            return function(*given)

        return call

    monkeypatch.setattr(LightClient, "effects", noted("read", LightClient.effects))
    monkeypatch.setattr(KnownScripts, "update", noted("look", KnownScripts.update))
    async with served(regtest_node) as (_, server), connected(server) as client:
        await client.ask("blockchain.scripthash.subscribe", KNOWN)
        regtest_node.call(lambda regtest: regtest.pay(TxOut(7_000, SCRIPT)))
        await client.until(lambda: client.notices)
        await asyncio.to_thread(eventually, lambda: calls[-20:] == ["look"] * 20)
        assert calls.count("read") < 10


async def test_answers_include_all_events_that_programs_have_read(
    nothing_is_left: None, regtest_node: RegtestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that reads an event and then asks the server gets the transaction, however slow the database is."""
    read = LightClient.effects

    async def slowly(client: LightClient, *given: Any) -> Any:
        await asyncio.sleep(0.05)
        return await read(client, *given)

    async with served(regtest_node) as (wallet_client, server), connected(server) as client:
        monkeypatch.setattr(LightClient, "effects", slowly)
        events = wallet_client.events(since=await wallet_client.sequence())
        for payment in range(1, 4):
            regtest_node.call(lambda regtest: regtest.pay(TxOut(7_000, SCRIPT)))
            regtest_node.mine()
            async with asyncio.timeout(30):
                async for event in events:
                    if isinstance(event, MatchConfirmed) or (isinstance(event, MatchFound) and event.match.height):
                        break
            rows = await client.ask("blockchain.scripthash.get_history", KNOWN)
            assert [row["height"] for row in rows] == list(range(102, 102 + payment))
            assert (await client.ask("blockchain.scripthash.get_balance", KNOWN))["confirmed"] == 7_000 * payment


async def test_session_with_1000_unknown_transactions_and_scripts_stays_open(
    regtest_node: RegtestNode, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with served(regtest_node) as (_, server), connected(server) as client:
        for number in range(1_000):
            with pytest.raises(ElectrumError, match="No such mempool"):
                await client.ask("blockchain.transaction.get", f"{number:064x}")
        asked = [("blockchain.scripthash.subscribe", f"{number:064x}") for number in range(1_000)]
        assert await client.batch(*asked) == [None] * 1_000
        assert await client.ask("server.ping") is None
        status = server.status
        assert (status.sessions, status.subscriptions, len(status.unknown)) == (1, 1_000, 1_000)
    assert "unknown script hashes: 1000" in caplog.text
    assert f"{7:064x}" not in caplog.text


async def test_mistakes_of_a_session_end_no_other_one(
    nothing_is_left: None, regtest_node: RegtestNode, caplog: pytest.LogCaptureFixture
) -> None:
    limits = ElectrumLimits(request_size=20_000, batch=50)
    ping = {"id": 1, "method": "server.ping", "params": []}
    lines: dict[bytes, bool] = {  # True if the session continues
        b"nonsense": False,
        b"\xff\xfe": False,
        b"[]": True,
        b"{}": True,
        b"1": True,
        b'{"id": 1, "method": 5}': True,
        b'{"id": 1, "method": "server.ping", "params": 7}': True,
        b'{"id": {}, "method": "server.ping"}': True,
        b'{"id": 1, "result": 5}': True,
        b'{"id": [], "result": 5, "error": null}': False,
        b'[{"id": 1, "result": 5}, {"id": "a", "result": 5}]': False,
        b"[" + b"1," * 50 + b"1]": False,
        b" [" + b"{}," * 50 + b"{}]": False,
        b'{"id": 1, "method": "server.ping", "params": [' + b"1," * 5_000 + b"1]}": False,
        b'{"jsonrpc": "2.0", "method": "server.ping"}': True,
        b"[" * 15_000: False,
        b"9" * 10_000: False,
        b'{"id": 1, "method": "' + b"x" * 30_000: False,
        json.dumps([ping] * 51).encode(): False,
        json.dumps(ping).encode() + b" " * 20_000: False,
    }
    async with served(regtest_node, limits) as (_, server), connected(server) as client:
        assert server.port is not None
        for line, continues in lines.items():
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(line + b"\n")
            writer.write(b'{"id": 77, "method": "server.ping", "params": []}\n')
            writer.write_eof()
            answer = await asyncio.wait_for(reader.read(), 20)
            assert (b'"id":77' in answer) is continues, (line[:50], answer)
            assert continues or not answer or b'"error"' in answer
            assert not answer or len(line) < limits.request_size
            assert len(answer) < 500
            await closed(writer)
            assert await client.ask("server.ping") is None
    assert "a session failed" not in caplog.text


async def test_batch_of_full_requests_is_answered(regtest_node: RegtestNode) -> None:
    package = ["00"] * 25
    async with served(regtest_node, ElectrumLimits(batch=8)) as (_, server), connected(server, "1.6") as client:
        request = "blockchain.transaction.broadcast_package", package, False
        with pytest.raises(ElectrumError, match="not a transaction"):
            await client.batch(*[request] * 8)
        assert await client.ask("server.ping") is None


async def test_silent_session_is_closed(nothing_is_left: None, regtest_node: RegtestNode) -> None:
    async with served(regtest_node, ElectrumLimits(idle_timeout_s=0.2)) as (_, server):
        assert server.port is not None
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b'{"id": 1, "method": "server.ping')  # without an end
        assert await asyncio.wait_for(reader.read(), 20) == b""
        await closed(writer)


async def test_sessions_end_with_the_client(nothing_is_left: None, regtest_node: RegtestNode) -> None:
    watch = WatchList(REGTEST)
    watch.add_script(SCRIPT)
    client = LightClient(watch, peers=[regtest_node.address])
    await client.__aenter__()
    async with ElectrumServer(client, port=0) as server, connected(server) as wallet:
        await client.__aexit__(None, None, None)
        await asyncio.wait_for(wallet.reading, 20)
        with pytest.raises(OSError, match="Connect call failed"):
            await asyncio.open_connection("127.0.0.1", server.port or 0)


async def test_unreadable_database_is_an_error_of_one_request(
    regtest_node: RegtestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def damaged(client: LightClient, txid: bytes) -> Any:
        raise StoreError("a row of a secret table is damaged")

    monkeypatch.setattr(LightClient, "proof", damaged)
    async with served(regtest_node) as (_, server), connected(server) as client:
        with pytest.raises(ElectrumError, match="the wallet cannot be read") as caught:
            await client.ask("blockchain.transaction.get", "00" * 32)
        assert caught.value.code == -32603
        assert await client.ask("server.ping") is None


async def test_wait_closed_raises_the_error_that_ended_the_server(
    regtest_node: RegtestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def damaged(client: LightClient, *given: Any) -> Any:
        raise StoreError("the database is damaged")

    async with served(regtest_node) as (client, server):
        other = ElectrumServer(client, port=0)
        with pytest.raises(NotRunningError, match="the server is not running"):
            await other.wait_closed()
        monkeypatch.setattr(LightClient, "effects", damaged)
        regtest_node.call(lambda regtest: regtest.pay(TxOut(7_000, SCRIPT)))
        with pytest.raises(StoreError, match="the database is damaged"):
            await server.wait_closed()


async def test_no_task_is_left_when_the_server_has_closed(
    regtest_node: RegtestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def slowly(writer: asyncio.StreamWriter) -> None:
        for _ in range(50):
            await asyncio.sleep(0)

    monkeypatch.setattr(asyncio.StreamWriter, "wait_closed", slowly)
    async with served(regtest_node) as (client, _):
        async with ElectrumServer(client, port=0) as server:
            _, writer = await asyncio.open_connection("127.0.0.1", server.port or 0)
            await asyncio.to_thread(eventually, lambda: server.status.sessions == 1)
        left = {str(task.get_coro()) for task in asyncio.all_tasks()}
        assert [each for each in left if "ElectrumServer._connected" in each] == []
        await closed(writer)


async def test_server_that_cannot_start_frees_its_port(
    regtest_node: RegtestNode, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(regtest_node) as (client, _):
        async with ElectrumServer(client, port=0) as server:
            port = server.port
        wrong = ElectrumServer(client, port=port, tls_port=0, certificate=tmp_path / "missing.pem")
        with pytest.raises(ParameterError, match="cannot be loaded"):
            await wrong.__aenter__()
        async with ElectrumServer(client, port=port):
            assert "every program" not in caplog.text
        async with ElectrumServer(client, host="127.0.0.2", port=0):
            assert "listens on 127.0.0.2: every program that connects sees the wallet" in caplog.text


async def test_request_of_a_web_browser_ends_the_session(nothing_is_left: None, regtest_node: RegtestNode) -> None:
    request = b'{"id": 5, "method": "blockchain.scripthash.get_history", "params": ["' + KNOWN.encode() + b'"]}'
    async with served(regtest_node) as (_, server):
        assert server.port is not None
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" + request + b"\n")
        answer = await asyncio.wait_for(reader.read(), 20)
        assert b"invalid JSON" in answer
        assert b'"id":5' not in answer
        await closed(writer)


async def test_sessions_are_bounded(regtest_node: RegtestNode) -> None:
    async with served(regtest_node, ElectrumLimits(sessions=1)) as (_, server), connected(server) as client:
        assert server.port is not None
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await asyncio.wait_for(reader.readexactly(1), 20)
        await closed(writer)
        assert await client.ask("server.ping") is None


async def test_reader_that_does_not_read_is_disconnected(nothing_is_left: None, regtest_node: RegtestNode) -> None:
    limits = ElectrumLimits(send_timeout_s=0.2)
    async with served(regtest_node, limits) as (_, server), connected(server) as client:
        assert server.port is not None
        _, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1_000)
        request = json.dumps({"id": 1, "method": "blockchain.block.headers", "params": [0, 102]}).encode() + b"\n"
        writer.write(request * 2_000)
        await asyncio.to_thread(eventually, lambda: server.status.sessions == 1)
        writer.transport.abort()
        assert await client.ask("server.ping") is None


async def test_answer_that_is_too_large_is_an_error(regtest_node: RegtestNode) -> None:
    async with served(regtest_node, ElectrumLimits(response_size=1_000)) as (_, server), connected(server) as client:
        with pytest.raises(ElectrumError, match="response too large"):
            await client.ask("blockchain.block.headers", 0, 102)
        assert (await client.ask("blockchain.block.headers", 0, 2))["count"] == 2


async def test_script_after_the_window_moves_it_and_starts_a_search(regtest_node: RegtestNode) -> None:
    regtest_node.call(lambda regtest: regtest.pay(TxOut(9_000, numbered(700))))
    regtest_node.mine()
    async with served(regtest_node, keychain=True) as (client, server), connected(server) as wallet:
        (before,) = await client.keychains("till")
        assert before.window < 700
        await wallet.ask("blockchain.scripthash.subscribe", script_hash_of(numbered(700)))
        await wallet.until(lambda: wallet.notices)
        balance = await wallet.ask("blockchain.scripthash.get_balance", script_hash_of(numbered(700)))
        assert balance == {"confirmed": 9_000, "unconfirmed": 0}
        (after,) = await client.keychains("till")
        assert (after.window >= 721, after.revealed) == (True, 0)
        assert list(server.status.unknown) == []
        beyond = script_hash_of(numbered(after.window + 1_000))
        assert await wallet.ask("blockchain.scripthash.get_history", beyond) == []
        assert list(server.status.unknown) == [beyond]


@pytest.mark.parametrize("mode", ["compact", "bip37"])
async def test_branch_that_the_database_lacks_is_fetched_once(
    mode: str, regtest_node: RegtestNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = script_to_address(SCRIPT, REGTEST)
    assert address is not None
    txid = regtest_node.pay(address, 5_000)[::-1].hex()
    regtest_node.mine()
    with monkeypatch.context() as patched:
        patched.setattr(scanned.ScannedBlock, "branches_at", lambda *_: {})
        async with served(regtest_node, store=tmp_path / "w.db", mode=mode):
            pass
    found = list[Any]()
    for turn in range(2):
        async with served(regtest_node, store=tmp_path / "w.db", mode=mode) as (client, server):
            before = client.metrics().blocks_received
            async with connected(server) as wallet:
                found.append(await wallet.ask("blockchain.transaction.get_merkle", txid, 102))
            assert client.metrics().blocks_received - before == (1 if not turn else 0)
    assert found[0] == found[1]
    assert (found[0]["pos"], len(found[0]["merkle"])) == (1, 1)


async def test_transactions_of_a_block_share_one_download(
    regtest_node: RegtestNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = script_to_address(SCRIPT, REGTEST)
    assert address is not None
    txids = [regtest_node.pay(address, 5_000 + number)[::-1].hex() for number in range(8)]
    regtest_node.mine()
    with monkeypatch.context() as patched:
        patched.setattr(scanned.ScannedBlock, "branches_at", lambda *_: {})
        async with served(regtest_node, store=tmp_path / "w.db"):
            pass
    async with served(regtest_node, store=tmp_path / "w.db") as (light, server), connected(server) as client:
        before = light.metrics().blocks_received
        asked = [("blockchain.transaction.get_merkle", txid, 102) for txid in txids * 3]
        found = await client.batch(*asked)
        assert sorted(each["pos"] for each in found[:8]) == list(range(1, 9))
        assert await client.batch(*asked) == found
        assert light.metrics().blocks_received - before == 1


async def test_status_shows_a_session_its_own_unknown_scripts(regtest_node: RegtestNode) -> None:
    async with served(regtest_node) as (_, server), connected(server) as one, connected(server) as other:
        asked = [f"{number:064x}" for number in range(3)]
        for each in asked:
            await one.ask("blockchain.scripthash.subscribe", each)
        await other.ask("blockchain.scripthash.get_history", f"{9:064x}")
        for client, unknown in ((one, asked), (other, [f"{9:064x}"])):
            shown = await client.ask("spvfilter.status")
            assert (shown["sessions"], shown["unknown"], shown["unknown_count"]) == (2, unknown, 4)
        assert sorted(server.status.unknown) == sorted([*asked, f"{9:064x}"])


async def test_gone_transaction_is_gone_after_a_restart_as_well(regtest_node: RegtestNode, tmp_path: Path) -> None:
    """Wallets poll for a transaction to learn that it was replaced, as a full node then has an error for them."""
    store, gone, mine = tmp_path / "w.db", list[str](), script_to_address(SCRIPT, REGTEST)

    async def listed(client: ElectrumClient) -> set[str]:
        return {row["tx_hash"] for row in await client.ask("blockchain.scripthash.get_history", KNOWN)}

    async def answers(client: ElectrumClient) -> None:
        await client.ask("blockchain.scripthash.subscribe", KNOWN)
        told = len(client.notices)
        while (history := await listed(client)).intersection(gone):
            await client.until(lambda told=told: len(client.notices) > told)
            told = len(client.notices)
        for txid in gone:
            with pytest.raises(ElectrumError, match="No such mempool or blockchain transaction"):
                await client.ask("blockchain.transaction.get", txid, True)
        for txid in history:
            shown = await client.ask("blockchain.transaction.get", txid, True)
            row = await light.transaction(txid)
            assert row is not None
            assert shown.get("confirmations", 0) == row.confirmations

    async def until(txid: bytes, *statuses: TxStatus) -> None:
        async with asyncio.timeout(20):
            async for _ in light.events(since=0):
                entry = await light.transaction(txid)
                if entry is not None and entry.status in statuses:
                    return

    async with served(regtest_node, store=store) as (light, server), connected(server) as client:
        for in_block in (False, True):
            payment = regtest_node.call(lambda regtest: regtest.pay(TxOut(7_000, SCRIPT)))
            await until(payment, TxStatus.PENDING)
            regtest_node.double_spend(payment, in_block=in_block)
            await until(payment, TxStatus.CONFLICTED if in_block else TxStatus.REPLACED)
            gone.append(payment[::-1].hex())
            await answers(client)
        regtest_node.mine(to=mine)
        coinbase = regtest_node.call(lambda regtest: regtest.chain.txs(regtest.chain.tip)[0].txid)
        await until(coinbase, TxStatus.CONFIRMED)
        regtest_node.reorg(1)
        await until(coinbase, TxStatus.CONFLICTED)
        gone.append(coinbase[::-1].hex())
        await answers(client)
        own = build_tx([p2wpkh(b"\x02" + b"\x01" * 32).spends(OutPoint(bytes(31) + b"\x07", 0))], [TxOut(9, SCRIPT)])
        sending = asyncio.create_task(light.broadcast(own))
        await until(own_txid := Transaction.parse(own).txid, TxStatus.PENDING)
        await light.abandon(own_txid)
        sending.cancel()
        gone.append(own_txid[::-1].hex())
        await answers(client)
        status = await client.ask("blockchain.scripthash.subscribe", KNOWN)
    async with served(regtest_node, store=store) as (light, server), connected(server) as client:
        await answers(client)
        assert await client.ask("blockchain.scripthash.subscribe", KNOWN) == status


async def test_tls_serves_the_same_answers(nothing_is_left: None, regtest_node: RegtestNode) -> None:
    watch = WatchList(REGTEST)
    watch.add_script(SCRIPT)
    trusted = ssl.create_default_context(cafile=str(CERTIFICATE))
    async with LightClient(watch, peers=[regtest_node.address]) as client:
        server = ElectrumServer(client, port=None, tls_port=0, certificate=CERTIFICATE)
        async with server:
            assert (server.port, server.tls_port is not None) == (None, True)
            async with ElectrumClient(server.tls_port or 0, trusted) as wallet:
                await wallet.ask(*VERSION)
                features = await wallet.ask("server.features")
                assert features["hosts"] == {"127.0.0.1": {"ssl_port": server.tls_port}}


async def test_wrong_use_of_the_server_is_refused(regtest_node: RegtestNode, tmp_path: Path) -> None:
    watch = WatchList(REGTEST)
    watch.add_script(SCRIPT)
    client = LightClient(watch, peers=[regtest_node.address])
    ElectrumServer(client, port=65_535)
    for port in (-1, 65_536, "50001"):
        with pytest.raises(ParameterError, match="from 0 to 65535"):
            ElectrumServer(client, port=port)  # type: ignore[arg-type]
    for bounds in ({"sessions": 0}, {"batch": -1}, {"send_timeout_s": 0.0}, {"request_size": 1.5}, {"sessions": True}):
        with pytest.raises(ParameterError, match="must be a number above 0"):
            ElectrumLimits(**bounds)
    with pytest.raises(ParameterError, match="needs a port"):
        ElectrumServer(client, port=None)
    with pytest.raises(ParameterError, match="needs a certificate"):
        ElectrumServer(client, tls_port=0)
    with pytest.raises(NotRunningError):
        await ElectrumServer(client, port=0).__aenter__()
    with pytest.raises(NotRunningError):
        assert ElectrumServer(client, port=0).status
    async with client:
        async with ElectrumServer(client, port=0) as server:
            with pytest.raises(NotRunningError, match="already running"):
                await server.__aenter__()
            taken = ElectrumServer(client, port=server.port)
            with pytest.raises(OSError, match="address already in use"):
                await taken.__aenter__()
        async with server:
            pass
        locked = CERTIFICATE.with_name("locked.pem")
        for certificate, key in ((tmp_path / "missing.pem", None), (Path(__file__), None), (CERTIFICATE, locked)):
            wrong = ElectrumServer(client, port=None, tls_port=0, certificate=certificate, key=key)
            with pytest.raises(ParameterError, match=rf"{(key or certificate).name}.* cannot be loaded: .*PEM"):
                await wrong.__aenter__()
