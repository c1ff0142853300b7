"""`inspect`: merkleblock and headers payloads, and complete P2P messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spvfilter.network import MAINNET, NETWORKS, REGTEST
from spvfilter.primitives import Header
from spvfilter.wire.codec import encode_message
from spvfilter.wire.messages.merkleblock import MerkleBlock
from spvfilter.wire.messages.table import (
    LIMITS,
    Addr,
    AddrV2,
    FilterAdd,
    GetData,
    Headers,
    InvItem,
    NetId,
    PeerAddress,
    Reject,
    SendCmpct,
    Verack,
    Version,
    command_of,
)
from support.blocks import build
from support.vectors import vector_cases, vector_file

TABLE = ("--format", "table")

BLOCK = build.block_of(bytes(32), 7, [build.tx([build.TxIn(bytes([9] * 32), 0)], [build.TxOut(5, b"\x51" * 9)])])
PROOF = MerkleBlock.from_block(BLOCK, [1])
CHAIN = [raw[:80] for raw in build.chain_of([[], [], []])]
VERSION = Version(70016, 5 | 1 << 40, 1_700_000_000, 77, b"/\x1b[31mred:1/", -1, False)
HIDDEN, LATER = PeerAddress(0, 0, NetId.TORV3, bytes(32), 1), PeerAddress(0, 0, 77, b"\x01\x02", 1)


def inspected(run: Any, raw: bytes) -> dict[str, Any]:
    ran = run("inspect", raw.hex(), "--format", "jsonl")
    assert (ran.code, ran.err) == (0, "")
    found: dict[str, Any] = json.loads(ran.out)
    return found


def in_message(run: Any, parsed: Any) -> dict[str, Any]:
    """The payload shown for a message of this type."""
    found = inspected(run, encode_message(REGTEST.magic, command_of(parsed), bytes(parsed)))
    assert (found["kind"], found["network"], found["checksum_ok"]) == ("message", "regtest", True)
    assert found["command"] == found["payload"]["kind"] == command_of(parsed)
    payload: dict[str, Any] = found["payload"]
    return payload


@vector_cases("02_bip37/merkleblock_proofs.json", lambda case: "13b8a" in case["id"] or case["id"].startswith("b57043"))
def test_a_published_merkleblock_is_judged_as_published(case: Any, run: Any) -> None:
    ran = run("inspect", case["merkleblock"], "--format", "jsonl")
    if not case["valid"] and case["reason"].startswith(("eof", "trailing")):
        assert ran.code == 2
        assert "as a merkleblock: " in ran.err
        return
    found = json.loads(ran.out)
    assert (found["kind"], found["proof_ok"]) == ("merkleblock", case["valid"])
    if case["valid"]:
        assert [[tx["position"], tx["txid"]] for tx in found["matched"]] == case["matched"]
        assert (found["hash"], found["transactions"], found["hashes"]) == (
            case["block_hash"],
            case["n_tx"],
            case["n_hashes"],
        )
    else:
        assert found["matched"] == []


def test_tables_show_payloads_and_what_is_wrong_with_them(transcript_of: Any) -> None:
    broken = bytes(PROOF)[:80] + b"\0\0\0\0" + bytes(PROOF)[84:]
    lazy = CHAIN[0][:72] + bytes.fromhex("ffff7f03") + CHAIN[0][76:]  # bits that its hash does not meet
    shown = {
        "a proof": bytes(PROOF),
        "a proof for no transactions": broken,
        "headers": bytes(Headers(tuple(CHAIN))),
        "headers with a gap": bytes(Headers((CHAIN[0], CHAIN[2]))),
        "a header without proof of work": bytes(Headers((lazy,))),
        "a message without payload": encode_message(REGTEST.magic, "mempool", b""),
        "an unknown command": encode_message(MAINNET.magic, "frobnicate", bytes(range(256)) * 4),
        "a version": encode_message(REGTEST.magic, "version", bytes(VERSION)),
        "addresses": encode_message(REGTEST.magic, "addrv2", bytes(AddrV2((HIDDEN, LATER)))),
    }
    for name, raw in shown.items():
        Path(name).write_bytes(raw)
    transcript_of(0, "\n".join(f"inspect '{name}' --format table" for name in shown))


def test_a_proof_through_a_possible_transaction_is_ambiguous(run: Any) -> None:
    node = build.tx([build.TxIn(bytes([3] * 32), 0)], [build.TxOut(0, b"\x51" * 4)])
    halves = [node[:32], node[32:]]
    header = Header(4, bytes(32), build.merkle_root(halves), 1_300_000_000, 0x207FFFFF, 0)
    proof = bytes(MerkleBlock.from_txids(header, halves, [0]))
    assert inspected(run, proof)["ambiguous"] is True
    assert "yes: an inner node parses as a transaction (CVE-2017-12842)" in run("inspect", proof.hex(), *TABLE).out
    assert inspected(run, bytes(PROOF))["ambiguous"] is False


def test_headers_are_listed_with_links_and_work(run: Any) -> None:
    found = inspected(run, bytes(Headers(tuple(CHAIN))))
    assert (found["kind"], found["count"], found["linked"], found["work_ok"]) == ("headers", 3, True, True)
    assert [header["hash"] for header in found["headers"]] == [build.block_hash(raw)[::-1].hex() for raw in CHAIN]
    assert found["headers"][1]["previous"] == found["headers"][0]["hash"]
    assert found["headers"][2]["bits"] == "207fffff"
    swapped = inspected(run, bytes(Headers((CHAIN[0], CHAIN[2]))))
    assert (swapped["linked"], swapped["work_ok"]) == (False, True)


@pytest.mark.parametrize(
    "bits", ["ffff7f03", "00000000", "ffffff01", "ffff7f21"]
)  # too hard, zero, negative, more than 256 bits
def test_a_header_without_proof_of_work_is_named(run: Any, bits: str) -> None:
    lazy = CHAIN[0][:72] + bytes.fromhex(bits) + CHAIN[0][76:]
    payload = bytes(Headers((lazy,))).hex()
    assert json.loads(run("inspect", payload, "--format", "jsonl").out)["work_ok"] is False


def test_an_empty_headers_message_is_recognized(run: Any) -> None:
    found = inspected(run, b"\0")
    assert (found["kind"], found["count"], found["linked"], found["work_ok"], found["headers"]) == (
        "headers",
        0,
        None,
        None,
        [],
    )


@vector_cases("10_p2p/messages.json")
def test_a_published_message_is_described_by_its_fields(case: Any, run: Any) -> None:
    found = inspected(run, bytes.fromhex(case["message"]))
    assert (found["kind"], found["network"], found["command"]) == ("message", case["network"], case["command"])
    assert (found["payload_size"], found["checksum_ok"]) == (len(case["payload"]) // 2, True)
    told = found["payload"]
    for name, value in case["fields"].items():
        key = {"timestamp": "time", "min_fee_rate": "feerate"}.get(name, name)
        if key in told and not isinstance(value, (list, dict)):
            assert str(told[key]) == str(value), name


@pytest.mark.vectors
def test_a_damaged_published_message_is_refused_or_flagged(run: Any) -> None:
    damaged = {case["id"]: case["message"] for case in vector_file("10_p2p/messages.json")["invalid"]}
    assert run("inspect", damaged["bad_magic"], *TABLE).code == 2
    changed = json.loads(run("inspect", damaged["payload_changed"], "--format", "jsonl").out)
    assert (changed["command"], changed["checksum_ok"]) == ("version", False)
    assert (
        "checksum ok   no: version: checksum be61b827, but the payload's checksum is "
        in run("inspect", damaged["payload_changed"], *TABLE).out
    )
    assert (
        "length at byte 16: 'version' must be at most 1024 bytes" in run("inspect", damaged["huge_length"], *TABLE).err
    )


@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_the_magic_names_the_network_and_its_addresses(network: Any, run: Any) -> None:
    raw = build.tx([build.TxIn(bytes([1] * 32), 0)], [build.TxOut(5, build.p2wpkh(bytes(20)))])
    found = inspected(run, encode_message(network.magic, "tx", raw))
    assert found["network"] == network.name
    assert found["payload"]["kind"] == "transaction"
    assert found["payload"]["outputs"][0]["address"].startswith(f"{network.hrp}1q")


@pytest.mark.parametrize(
    ("command", "payload", "kind"),
    [
        ("merkleblock", bytes(PROOF), "merkleblock"),
        ("headers", bytes(Headers(tuple(CHAIN))), "headers"),
        ("headers", b"\0", "headers"),
        ("block", BLOCK, "block"),
        ("filterload", bytes.fromhex("03614e9b050000000000000001"), "filterload"),
    ],
)
def test_payloads_are_described_the_same_within_a_message(command: str, payload: bytes, kind: str, run: Any) -> None:
    found = inspected(run, encode_message(MAINNET.magic, command, payload))
    assert found["payload"]["kind"] == kind
    assert found["payload"] == inspected(run, payload)


def test_every_field_of_a_message_is_shown(run: Any) -> None:
    version = in_message(run, VERSION)
    assert version == {
        "kind": "version",
        "version": 70016,
        "services": 5 | 1 << 40,
        "time": 1_700_000_000,
        "nonce": 77,
        "user_agent": "/\\x1b[31mred:1/",
        "start_height": -1,
        "relay": False,
    }
    hash_ = bytes(range(32))
    asked = in_message(run, GetData((InvItem(0x40000002, hash_), InvItem(99, hash_))))["items"]
    assert asked == [{"kind": "witness_block", "hash": hash_[::-1].hex()}, {"kind": "0x63", "hash": hash_[::-1].hex()}]
    assert in_message(run, FilterAdd(hash_)) == {"kind": "filteradd", "data": hash_.hex()}
    assert in_message(run, SendCmpct(True, 2)) == {"kind": "sendcmpct", "announce": True, "version": 2}
    assert in_message(run, Reject(b"tx", 0x12, b"no\n", hash_))["hash"] == hash_[::-1].hex()
    assert in_message(run, Reject(b"block", 0x10, b"no\n"))["reason"] == "no\\x0a"
    assert in_message(run, Verack()) == {"kind": "verack"}


def test_addresses_of_every_network_are_shown(run: Any) -> None:
    near = PeerAddress(1_700_000_000, 9, NetId.IPV4, bytes([127, 0, 0, 1]), 8333)
    assert in_message(run, Addr((near,)))["addresses"] == [
        {"network": "ipv4", "host": "127.0.0.1", "port": 8333, "services": 9, "time": 1_700_000_000}
    ]
    told = in_message(run, AddrV2((HIDDEN, LATER)))["addresses"]
    assert told[0]["host"].endswith(".onion")
    assert (told[1]["network"], told[1]["host"]) == ("77", "0102")


def test_an_unknown_command_keeps_its_payload(run: Any) -> None:
    raw = encode_message(MAINNET.magic, "frobnicate", bytes(range(256)) * 4)
    assert inspected(run, raw)["payload"] == {"kind": "frobnicate", "payload": (bytes(range(256)) * 4).hex()}
    assert max(map(len, run("inspect", raw.hex(), *TABLE).out.splitlines())) < 100


@pytest.mark.parametrize("command", sorted({*LIMITS, "merkleblock"}))
def test_a_payload_that_contradicts_its_command_is_refused(command: str, run: Any) -> None:
    raw = encode_message(MAINNET.magic, command, b"\xff" * 9)
    ran = run("inspect", raw.hex(), *TABLE)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"spvfilter: not a P2P message (33 bytes): {command} ")
    assert ran.err.count("\n") == 1


def test_truncated_or_longer_messages_are_refused(run: Any) -> None:
    raw = encode_message(REGTEST.magic, "merkleblock", bytes(PROOF))
    for end in range(5, len(raw)):
        ran = run("inspect", raw[:end].hex(), *TABLE)
        assert (ran.code, ran.out) == (2, ""), end
        assert f" bytes): message at byte {24 * (end >= 24)}: truncated: " in ran.err, end
    assert f"message at byte {len(raw)}: 1 trailing byte" in run("inspect", (raw + b"\0").hex(), *TABLE).err


def test_an_unprintable_command_is_refused(run: Any) -> None:
    raw = bytearray(encode_message(REGTEST.magic, "verack", b""))
    raw[8] = 7
    assert (
        "not a P2P message (24 bytes): command at byte 4: command 76657261076b" in run("inspect", raw.hex(), *TABLE).err
    )


def test_the_largest_block_fits_in_a_message(run: Any, tmp_path: Any) -> None:
    """4,000,000 bytes of payload and 24 of header."""
    spam = build.tx([build.TxIn(bytes([1] * 32), 0)], [build.TxOut(0, b"\x6a" + bytes(3_999_700))])
    block = build.block_of(bytes(32), 7, [spam])
    spam = build.tx(
        [build.TxIn(bytes([1] * 32), 0)], [build.TxOut(0, b"\x6a" + bytes(3_999_700 + 4_000_000 - len(block)))]
    )
    block = build.block_of(bytes(32), 7, [spam])
    assert len(block) == 4_000_000
    (tmp_path / "message").write_bytes(encode_message(REGTEST.magic, "block", block))
    found = json.loads(run("inspect", tmp_path / "message", "--format", "jsonl").out)
    assert (found["payload"]["kind"], found["payload"]["merkle_root_ok"]) == ("block", True)
