"""A node by REST and JSON-RPC: opening it, waiting for it, and the list of its chain."""

from __future__ import annotations

import asyncio
import logging
import ssl
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from spvfilter.errors import (
    NodeBusyError,
    NodeChainError,
    NodeNetworkError,
    NodePrunedError,
    NodeRefusedError,
    NodeRpcError,
    NodeUnreachableError,
    ParameterError,
    SourceError,
)
from spvfilter.network import MAINNET, REGTEST, SIGNET, Network
from spvfilter.rpc import CookieFile, Credentials, FullNode, Password
from spvfilter.rpc.credentials import basic
from support.blocks.build import block_hash
from support.client.pauses import Pauses
from support.peers.corenode import (
    PASSWORD,
    USER,
    WAYS,
    CoreNode,
    Request,
    about,
    opened,
    response,
    result,
    rpc_response,
)

pytestmark = pytest.mark.usefixtures("nothing_is_left")


@WAYS
async def test_the_chain_is_listed_and_its_blocks_are_served(core: CoreNode, way: str) -> None:
    async with opened(core, way) as node:
        info = await node.info()
        assert (info.name, info.height, info.best, info.prune_height) == (
            "regtest",
            len(core.blocks) - 1,
            core.hashes[-1],
            0,
        )
        whole = await node.listing()
        assert (whole.first, whole.last, whole.hashes, whole.previous) == (
            0,
            len(core.blocks) - 1,
            b"".join(core.hashes),
            bytes(32),
        )
        part = await node.listing(5, 9)
        assert (part.first, len(part), part.previous, part.hash_at(7)) == (5, 5, core.hashes[4], core.hashes[7])
        assert await node.block(core.hashes[105]) == core.blocks[105]
        assert await node.hash_at(3) == core.hashes[3]
        assert await node.hash_at(len(core.blocks)) is None
        assert (
            (await node.undo_record(core.hashes[105], core.hashes[104]) is not None)
            == node.tells_spent
            == (way == "rest")
        )
    assert {request.headers["accept-encoding"] for request in core.requests} == {"identity"}


async def test_rest_is_preferred_and_gets_no_password(core: CoreNode) -> None:
    async with FullNode.open(
        core.url, REGTEST, credentials=Password(USER, PASSWORD), patience=Pauses().patience()
    ) as node:
        await node.block(core.hashes[1])
    checks = [request for request in core.requests if request.method == "POST"]
    assert len(checks) == 1  # the password is checked once
    assert not any("authorization" in request.headers for request in core.requests if request.method == "GET")


async def test_older_nodes_get_the_older_request_for_headers(core: CoreNode) -> None:
    core.old_headers = True
    async with opened(core, "rest") as node:
        assert (await node.listing()).hashes == b"".join(core.hashes)
    assert sum("?count=" in request.path for request in core.requests) == 1


@WAYS
async def test_a_long_chain_is_listed_in_overlapping_pieces(
    core: CoreNode, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spvfilter.rpc.rest.Rest.headers_at_once", 30)
    monkeypatch.setattr("spvfilter.rpc.jsonrpc.JsonRpc.headers_at_once", 30)
    times = [int.from_bytes(raw[68:72], "little") for raw in core.blocks]
    async with opened(core, way) as node:
        for first, last in ((0, None), (3, 32), (3, 33), (3, 3), (0, 29), (0, 30)):
            end = len(core.blocks) if last is None else last + 1
            assert (await node.listing(first, last)).hashes == b"".join(core.hashes[first:end])
        for at in (1, 29, 30, 70):
            assert (await node.listing(from_time=times[at])).first == next(
                n for n, time in enumerate(times) if time >= times[at]
            )
        with pytest.raises(SourceError, match=r"no block up to height .* lies within the dates"):
            await node.listing(from_time=max(times) + 1)
        for at in (1, 29, 30, 31, 70):
            end = next((n for n, time in enumerate(times) if time > times[at]), len(times))
            assert (await node.listing(to_time=times[at])).hashes == b"".join(core.hashes[:end])
        with pytest.raises(SourceError, match=r"no block at height 10,000: the chain ends at height \d+"):
            await node.listing(10_000)


# Refused, starting, busy, down


async def test_a_refused_connection_is_reported_at_once(core: CoreNode) -> None:
    gone = CoreNode(core.blocks)
    async with gone.serving():
        pass
    pauses = Pauses()
    with pytest.raises(
        NodeUnreachableError, match=rf"http://127.0.0.1:{gone.port}: no connection: .*: is the node running"
    ):
        async with opened(gone, "rest", pauses):
            pass
    assert pauses.slept == []


async def test_disabled_rest_is_named_with_the_remedy(core: CoreNode) -> None:
    core.rest = False
    with pytest.raises(
        NodeRefusedError, match=r"REST is off: start the node with -rest=1, or give --cookie FILE or --user NAME"
    ):
        async with FullNode.open(core.url, REGTEST, patience=Pauses().patience()):
            pass


@WAYS
async def test_a_wrong_password_is_refused_and_never_shown(
    core: CoreNode, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    """REST needs no password, but refuses a wrong one as well."""
    core.rest = way == "rest"
    caplog.set_level(logging.DEBUG)
    with pytest.raises(NodeRefusedError, match=r"wrong user, password or cookie \(401\)") as error:
        async with FullNode.open(
            core.url, REGTEST, credentials=Password(USER, "geheim-geheim"), patience=Pauses().patience()
        ):
            pass
    shown = caplog.text + str(error.value) + repr(error.value)
    assert "geheim" not in shown
    assert basic(f"{USER}:geheim-geheim")[6:] not in shown
    assert sum(request.method == "POST" for request in core.requests) == 1  # Core waits 250 ms for each wrong password


async def test_a_forbidden_address_is_reported(core: CoreNode) -> None:
    core.faults.append(about("", response(403)))
    with pytest.raises(NodeRefusedError, match=r"\(403\): check its rpcallowip"):
        async with opened(core, "rest"):
            pass


@WAYS
async def test_the_client_waits_for_a_starting_node(core: CoreNode, way: str) -> None:
    core.warming_up = "Verifying blocks…"
    pauses = Pauses(lambda: None, lambda: setattr(core, "warming_up", None))
    async with opened(core, way, pauses) as node:
        await node.info()
    assert len(pauses.slept) == 2
    assert all("starting" in sentence and "Verifying blocks" in sentence for sentence in pauses.told)


@WAYS
async def test_the_client_stops_waiting_for_a_node_that_never_starts(core: CoreNode, way: str) -> None:
    core.warming_up = "Loading block index…"
    pauses = Pauses()
    with pytest.raises(NodeBusyError, match="Loading block index"):
        async with opened(core, way, pauses, patience_s=4):
            pass
    assert pauses.slept == [0.5, 1, 2]  # another 4 s would be too long


async def test_a_cookie_is_read_again_after_a_restart(core: CoreNode, tmp_path: Path) -> None:
    path = tmp_path / ".cookie"
    path.write_text("__cookie__:first")
    core.rest, core.secret = False, "__cookie__:first"
    async with FullNode.open(core.url, REGTEST, credentials=CookieFile(path), patience=Pauses().patience()) as node:
        core.secret = "__cookie__:second"
        path.write_text("__cookie__:second\n")
        assert await node.block(core.hashes[2]) == core.blocks[2]
        core.secret = "__cookie__:third"
        with pytest.raises(NodeRefusedError, match="401"):
            await node.block(core.hashes[2])


async def test_a_node_of_another_network_is_named(core: CoreNode) -> None:
    with pytest.raises(NodeNetworkError, match="the node is on regtest: its genesis block is not that of mainnet"):
        async with FullNode.open(core.url, MAINNET, patience=Pauses().patience()):
            pass


@WAYS
async def test_node_of_another_signet_is_refused(core: CoreNode, way: str) -> None:
    core.network = replace(Network.signet("51"), genesis_hash=REGTEST.genesis_hash)
    core.rest = way == "rest"
    for network in (core.network, replace(SIGNET, genesis_hash=REGTEST.genesis_hash)):
        opening = FullNode.open(core.url, network, credentials=Password(USER, PASSWORD), patience=Pauses().patience())
        if network is core.network:
            async with opening as node:
                assert (await node.info()).signet_challenge == b"\x51"
        else:
            with pytest.raises(NodeNetworkError, match="on a signet with a different challenge, not on signet"):
                async with opening:
                    pass


@WAYS
async def test_a_pruned_block_is_named(core: CoreNode, way: str) -> None:
    core.pruned_below = 50
    pauses = Pauses()
    async with opened(core, way, pauses) as node:
        with pytest.raises(
            NodePrunedError,
            match=r"has pruned the blocks below height 50: start the scan at that height \(--from-height\)",
        ):
            await node.listing(20)
        assert (await node.listing(50)).first == 50
        with pytest.raises(NodePrunedError, match=f"{core.hashes[3][::-1].hex()}.*pruned data"):
            await node.block(core.hashes[3])
        with pytest.raises(NodePrunedError, match="not found"):
            await node.block(bytes(32))
    assert pauses.slept == []


async def test_a_password_repeated_by_the_node_is_not_quoted(core: CoreNode, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    def echo(request: Request) -> bytes:
        said = f"\x1b[31mno {request.headers['authorization']} {USER}:{PASSWORD}"
        return rpc_response({"result": None, "error": {"code": -9, "message": said}, "id": 0})

    async with opened(core, "rpc") as node:
        core.faults.append(about('"getblock"', echo))
        with pytest.raises(NodeRpcError, match="RPC error -9") as error:
            await node.block(core.hashes[3])
    assert error.value.code == -9
    shown = str(error.value) + caplog.text
    for secret in (PASSWORD, basic(f"{USER}:{PASSWORD}")[6:], "\x1b"):
        assert secret not in shown


@WAYS
async def test_a_chain_that_changes_during_listing_is_listed_again(
    core: CoreNode, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spvfilter.rpc.rest.Rest.headers_at_once", 7)
    monkeypatch.setattr("spvfilter.rpc.jsonrpc.JsonRpc.headers_at_once", 7)
    whole = list(core.blocks)
    pauses = Pauses()

    def shorten(request: Request) -> None:
        core.arrange(whole[:20])
        core.faults.clear()

    async with opened(core, way, pauses) as node:
        word = f"/rest/headers/{core.hashes[24][::-1].hex()}" if way == "rest" else "[28]"
        core.faults.append(lambda request: shorten(request) if request.about(word) else None)
        assert (await node.listing()).hashes == b"".join(block_hash(raw) for raw in whole[:20])
    assert pauses.told == [f"{core.url}: its chain changed during the listing; listing it again"]


@WAYS
async def test_listing_a_chain_that_always_changes_ends(core: CoreNode, way: str) -> None:
    pauses = Pauses()
    async with opened(core, way, pauses) as node:
        info = core.info() | {"blocks": len(core.blocks) + 5}  # the node always has fewer blocks than it states
        if way == "rest":
            core.faults.append(about("chaininfo", rpc_response(info)))
        else:
            core.faults.append(about("getblockchaininfo", result(info)))
        with pytest.raises(NodeChainError, match="its chain changed 5 times during the listing"):
            await node.listing()
    assert len(pauses.slept) == 5


# TLS, IPv6, extras


async def test_ipv6_addresses_work(core: CoreNode) -> None:
    twin = CoreNode(core.blocks)
    async with (
        twin.serving("::1"),
        FullNode.open(f"http://[::1]:{twin.port}", REGTEST, patience=Pauses().patience()) as node,
    ):
        assert await node.block(core.hashes[3]) == core.blocks[3]


async def test_an_untrusted_certificate_is_refused_before_sending(core: CoreNode, tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    words += ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    words += ["-keyout", str(key), "-out", str(certificate)]
    await asyncio.to_thread(subprocess.run, words, check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    twin = CoreNode(core.blocks)
    async with twin.serving(ssl=context):
        url, credentials = f"https://127.0.0.1:{twin.port}", Password(USER, PASSWORD)
        with pytest.raises(NodeRefusedError, match="no secure connection"):
            async with FullNode.open(url, REGTEST, credentials=credentials, patience=Pauses().patience()):
                pass
        assert twin.requests == []
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SSL_CERT_FILE", str(certificate))
            async with FullNode.open(url, REGTEST, credentials=credentials, patience=Pauses().patience()) as node:
                assert await node.block(core.hashes[3]) == core.blocks[3]


async def test_https_to_a_server_without_tls_is_reported(core: CoreNode) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(connected, "127.0.0.1", 0) as server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(NodeRefusedError, match="no secure connection"):
            async with FullNode.open(url, REGTEST, patience=Pauses().patience()):
                pass


async def test_proxies_and_netrc_are_not_used(core: CoreNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login alice password geheim\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with opened(core, "rest") as node:
        await node.info()
    assert not any("authorization" in request.headers for request in core.requests)


async def test_a_missing_extra_is_named(core: CoreNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(ParameterError, match=r"run `python -m pip install .*extra `rpc`"):
        async with FullNode.open(core.url, REGTEST):
            pass


def test_credentials_are_a_protocol() -> None:
    each: list[Credentials] = [Password("a", "b"), CookieFile("x")]
    assert len(each) == 2
