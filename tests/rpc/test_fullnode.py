"""A node by REST and JSON-RPC: the requests, and each way in which a response can fail."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import ssl
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from spvfilter.errors import (
    NodeAnswerError,
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
from spvfilter.rpc import CookieFile, Credentials, FullNode, Password, RpcLimits
from spvfilter.rpc.api import MOST_BLOCKS
from spvfilter.rpc.credentials import basic
from support.blocks.build import block_hash
from support.client.pauses import Pauses
from support.peers.corenode import BINARY, JSON, PASSWORD, USER, CoreNode, Request, merkle_damaged, response

pytestmark = pytest.mark.usefixtures("nothing_is_left")
WAYS = pytest.mark.parametrize("way", ["rest", "rpc"])


def opened(
    core: CoreNode, way: str, pauses: Pauses | None = None, limits: RpcLimits | None = None
) -> AbstractAsyncContextManager[FullNode]:
    core.rest = way == "rest"
    credentials = Password(USER, PASSWORD) if way == "rpc" else None
    patience = (pauses or Pauses()).patience()
    return FullNode.open(core.url, REGTEST, credentials=credentials, limits=limits, patience=patience)


def about(
    word: str, answer: Callable[[Request], bytes] | bytes, times: int = 10**9
) -> Callable[[Request], bytes | None]:
    """A fault of the next requests whose path or calls contain a word."""
    left = [times]

    def fault(request: Request) -> bytes | None:
        if not request.about(word) or not left[0]:
            return None
        left[0] -= 1
        return answer if isinstance(answer, bytes) else answer(request)

    return fault


def block_answer(way: str, raw: bytes) -> Callable[[Request], bytes]:
    """Make a response to a block request from these bytes."""

    def answer(request: Request) -> bytes:
        if way == "rest":
            return response(200, raw, BINARY)
        return response(
            200, json.dumps({"result": raw.hex(), "error": None, "id": request.calls[0]["id"]}).encode(), JSON
        )

    return answer


BLOCK = {"rest": "/rest/block/", "rpc": '"getblock"'}


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


async def test_a_wrong_password_is_refused_and_never_shown(core: CoreNode, caplog: pytest.LogCaptureFixture) -> None:
    core.rest = False
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
        async with opened(core, way, pauses):
            pass
    assert 500 < pauses.now <= 600


@WAYS
async def test_the_client_waits_while_the_work_queue_is_full(core: CoreNode, way: str) -> None:
    pauses = Pauses()
    async with opened(core, way, pauses) as node:
        core.faults.append(about("", response(503, b"Work queue depth exceeded"), times=3))
        assert await node.block(core.hashes[2]) == core.blocks[2]
    assert pauses.slept == [0.5, 1, 2]
    assert "busy or starting (503): Work queue depth exceeded" in pauses.told[0]


@WAYS
async def test_a_node_that_returns_is_asked_again(core: CoreNode, way: str) -> None:
    pauses = Pauses()
    async with opened(core, way, pauses) as node:
        core.faults.append(about("", b"", times=2))  # the node closes the connection
        assert await node.block(core.hashes[2]) == core.blocks[2]
    assert pauses.slept == [0.5, 1]


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


# Wrong answers


@WAYS
@pytest.mark.parametrize(
    ("cause", "wrong"),
    [
        ("the answer is not block", lambda raw, other: other),
        ("the answer is not block", lambda raw, other: b""),
        ("is damaged: merkle", lambda raw, other: merkle_damaged(raw)),
        ("is damaged", lambda raw, other: raw[:-1]),
        ("is damaged", lambda raw, other: raw + b"\0"),
        ("the answer is not block", lambda raw, other: bytes(4) + raw[4:]),
    ],
)
async def test_a_false_block_is_requested_again_and_then_refused(
    core: CoreNode, way: str, cause: str, wrong: Callable[[bytes, bytes], bytes]
) -> None:
    answer = block_answer(way, wrong(core.blocks[105], core.blocks[106]))
    pauses = Pauses()
    async with opened(core, way, pauses) as node:
        core.faults.append(about(BLOCK[way], answer, times=2))
        assert await node.block(core.hashes[105]) == core.blocks[105]
        assert len(pauses.slept) == 2
        core.faults.append(about(BLOCK[way], answer))
        with pytest.raises(NodeAnswerError, match=cause):
            await node.block(core.hashes[105])


@WAYS
@pytest.mark.parametrize("framing", ["length", "chunked", "until closed"])
async def test_an_oversized_response_is_not_read_completely(core: CoreNode, way: str, framing: str) -> None:
    kind = BINARY if way == "rest" else JSON
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n"
    piece = b"1" * 1_000_000
    if framing == "chunked":
        head, piece = head + "Transfer-Encoding: chunked\r\n", b"f4240\r\n" + piece + b"\r\n"
    elif framing == "length":
        head += "Content-Length: 64000000\r\n"
    async with opened(core, way) as node:
        core.faults.append(about(BLOCK[way], (head + "\r\n").encode() + piece * (6 if way == "rest" else 12)))
        with pytest.raises(NodeAnswerError, match=r"the answer exceeds [\d,]+ bytes"):
            await node.block(core.hashes[3])


@WAYS
async def test_a_compressed_response_is_refused(core: CoreNode, way: str) -> None:
    bomb = gzip.compress(bytes(10_000_000))
    async with opened(core, way) as node:
        core.faults.append(
            about(BLOCK[way], response(200, bomb, BINARY if way == "rest" else JSON, Content_Encoding="gzip"))
        )
        with pytest.raises(NodeAnswerError, match=r"compressed \(gzip\)"):
            await node.block(core.hashes[3])
    assert {request.headers["accept-encoding"] for request in core.requests} == {"identity"}


@WAYS
@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_is_not_followed(core: CoreNode, way: str, status: int) -> None:
    async with CoreNode(core.blocks).serving() as thief, opened(core, way) as node:
        core.faults.append(about(BLOCK[way], response(status, b"", Location=f"{thief.url}/")))
        with pytest.raises(NodeAnswerError, match="redirects to another URL, which is not followed"):
            await node.block(core.hashes[3])
        assert thief.requests == []


@WAYS
async def test_another_content_type_is_no_bitcoin_node(core: CoreNode, way: str) -> None:
    async with opened(core, way) as node:
        core.faults.append(about(BLOCK[way], response(200, b"<html>", "text/html; charset=utf-8")))
        with pytest.raises(NodeAnswerError, match=r"'text/html'.*is this a Bitcoin node"):
            await node.block(core.hashes[3])


@WAYS
async def test_a_truncated_response_is_requested_again(core: CoreNode, way: str) -> None:
    pauses = Pauses()
    async with opened(core, way, pauses) as node:
        core.faults.append(about(BLOCK[way], lambda request: core.answer(request)[:-10], times=1))
        assert await node.block(core.hashes[3]) == core.blocks[3]
    assert len(pauses.told) == 1
    assert "cut off" in pauses.told[0]


@WAYS
async def test_an_endless_response_has_a_time_limit(core: CoreNode, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = asyncio.Event()

    async def slow(request: Request) -> bytes | None:
        asked.set()
        await asyncio.Event().wait()
        return None

    async with opened(core, way, limits=RpcLimits(answer_s=0.1)) as node:
        core.faults.append(lambda request: slow(request) if request.about(BLOCK[way]) else None)
        with pytest.raises(NodeUnreachableError, match=r"no answer within 0.1 s"):
            await node.block(core.hashes[3])
    assert asked.is_set()


async def test_a_response_that_is_no_http_is_an_error(core: CoreNode) -> None:
    async with opened(core, "rest") as node:
        core.faults.append(about(BLOCK["rest"], b"SSH-2.0-OpenSSH_9.6\r\n\r\n"))
        with pytest.raises(NodeUnreachableError, match="is not HTTP"):
            await node.block(core.hashes[3])


def rpc_answer(value: object) -> bytes:
    return response(200, json.dumps(value).encode(), JSON)


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (response(200, b"{", JSON), "malformed JSON"),
        (response(200, b"[" * 100_000, JSON), "malformed JSON"),
        (response(200, b"9" * 10_000, JSON), "malformed JSON|result"),
        (rpc_answer(None), "expected 1 result with the ids"),
        (rpc_answer([]), "expected 1 result with the ids"),
        (rpc_answer({"result": 1, "error": None, "id": 77}), "expected 1 result with the ids"),
        (rpc_answer({"result": 1, "error": None, "id": False}), "expected 1 result with the ids"),
        (rpc_answer({"result": 5, "error": None, "id": 0}), "expected at most 4,000,000 bytes in hex"),
        (rpc_answer({"result": "zz", "error": None, "id": 0}), "not hex"),
        (
            rpc_answer({"result": None, "error": {"code": -32601, "message": "Method not found"}, "id": 0}),
            "RPC error -32601: Method not found",
        ),
        (
            rpc_answer({"result": None, "error": {"code": -32700, "message": "Parse error"}, "id": None}),
            "RPC error -32700: Parse error",
        ),
        (rpc_answer({"result": None, "error": "an old one", "id": 0}), "RPC error 0: no reason given"),
    ],
)
async def test_malformed_rpc_responses_are_errors(core: CoreNode, answer: bytes, cause: str) -> None:
    async with opened(core, "rpc") as node:
        core.faults.append(about(BLOCK["rpc"], answer))
        with pytest.raises(NodeAnswerError, match=cause):
            await node.block(core.hashes[3])


async def test_a_password_repeated_by_the_node_is_not_quoted(core: CoreNode, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    def echo(request: Request) -> bytes:
        said = f"\x1b[31mno {request.headers['authorization']} {USER}:{PASSWORD}"
        return rpc_answer({"result": None, "error": {"code": -9, "message": said}, "id": 0})

    async with opened(core, "rpc") as node:
        core.faults.append(about(BLOCK["rpc"], echo))
        with pytest.raises(NodeRpcError, match="RPC error -9") as error:
            await node.block(core.hashes[3])
    assert error.value.code == -9
    shown = str(error.value) + caplog.text
    for secret in (PASSWORD, basic(f"{USER}:{PASSWORD}")[6:], "\x1b"):
        assert secret not in shown


@WAYS
@pytest.mark.parametrize(
    "wrong",
    [
        {"blocks": -1},
        {"blocks": MOST_BLOCKS},
        {"blocks": "5"},
        {"blocks": True},
        {"bestblockhash": None},
        {"bestblockhash": "00"},
        {"bestblockhash": "zz" * 32},
        {"chain": None},
        {"chain": "x" * 100},
        {"chain": "\x1b[31m"},
    ],
)
async def test_the_chain_info_of_the_node_is_checked(core: CoreNode, way: str, wrong: dict[str, object]) -> None:
    async with opened(core, way) as node:
        info = core.info() | wrong
        core.faults.append(
            about(
                "chaininfo" if way == "rest" else "getblockchaininfo",
                rpc_answer(info if way == "rest" else {"result": info, "id": 0}),
            )
        )
        with pytest.raises(NodeAnswerError):
            await node.info()


# Headers


@pytest.mark.parametrize(
    ("cause", "wrong"),
    [
        ("81 bytes is not a whole number of 80-byte headers", lambda raws: raws[0][:80] + b"\0"),
        ("the headers do not begin with block", lambda raws: raws[1][:80]),
        ("its header 11 is invalid", lambda raws: raws[0][:80] + raws[2][:80]),
        ("its header 11 is invalid", lambda raws: raws[0][:80] + unproven(raws[1])),
        (r"exceeds [\d,]+ bytes", lambda raws: b"".join(raw[:80] for raw in raws) * 30),
    ],
)
async def test_false_headers_are_refused(core: CoreNode, cause: str, wrong: Callable[[list[bytes]], bytes]) -> None:
    async with opened(core, "rest") as node:
        core.faults.append(about("/rest/headers/", response(200, wrong(core.blocks[10:]), BINARY)))
        with pytest.raises(NodeAnswerError, match=cause):
            await node.listing(10)


def unproven(raw: bytes) -> bytes:
    """A header whose hash misses its target."""
    header, nonce = bytearray(raw[:80]), 0
    while block_hash(bytes(header))[31] < 0x80:
        header[76:80] = nonce.to_bytes(4, "little")
        nonce += 1
    return bytes(header)


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
        core.faults.append(
            about(
                "chaininfo" if way == "rest" else "getblockchaininfo",
                rpc_answer(info if way == "rest" else {"result": info, "id": 0}),
            )
        )
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
    words = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-keyout",
        str(key),
        "-out",
        str(certificate),
        "-subj",
        "/CN=localhost",
    ]
    await asyncio.to_thread(
        subprocess.run, [*words, "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True
    )
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


@WAYS
@pytest.mark.parametrize("is_right", [True, False])
async def test_a_wrong_password_is_an_error_even_with_rest(core: CoreNode, way: str, is_right: bool) -> None:
    core.rest = way == "rest"
    password = Password(USER, PASSWORD if is_right else "wrong")
    opening = FullNode.open(core.url, REGTEST, credentials=password, patience=Pauses().patience())
    if is_right:
        async with opening as node:
            assert (await node.info()).height == len(core.blocks) - 1
        return
    with pytest.raises(NodeRefusedError, match="401"):
        async with opening:
            pass
