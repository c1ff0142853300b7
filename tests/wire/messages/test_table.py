"""Every P2P message: published messages field by field; round trips, truncation at every byte, and trailing bytes."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest
from hypothesis import given, strategies as st

from spvfilter.errors import FormatError, MessageError, ParameterError
from spvfilter.kernel import walk_block
from spvfilter.primitives import hash_to_hex
from spvfilter.protocol import MAX_PAYLOAD_SIZE
from spvfilter.wire.messages.table import (
    LIMITS,
    Block,
    CFHeaders,
    InvItem,
    InvType,
    Tx,
    Unknown,
    Version,
    command_of,
    parse_message,
)
from support.blocks import build
from support.samples import BLOCK, FUNDING, MESSAGES, SAMPLES, WITNESS, payloads
from support.vectors import vector_cases

INV_NAMES = {"filtered_block": InvType.FILTERED_BLOCK, "block": InvType.BLOCK, "witness_block": InvType.WITNESS_BLOCK}
# name of a field in the vectors → name in this package
NAMES = {"previous_filter_header": "previous", "filter": "data", "data_hash": "data", "inventory": "items"}


def shown(name: str, value: object) -> object:
    """A field in the notation of the vectors: hashes in display order, other bytes as hex or text."""
    match value:
        case bytes() if name in ("user_agent", "message", "reason"):
            return value.decode()
        case bytes() if name in ("filter", "data"):
            return value.hex()
        case bytes():
            return hash_to_hex(value)
        case int() if name == "nonce" and value > 1 << 53:
            return str(value)
        case tuple() if name == "inventory":
            return [
                [next(key for key, kind in INV_NAMES.items() if kind == item.kind), hash_to_hex(item.hash)]
                for item in value
            ]
        case tuple():
            return [hash_to_hex(hash_) for hash_ in value]
    return value


@vector_cases("10_p2p/messages.json")
def test_published_messages_are_parsed_and_serialized(case: Any) -> None:
    payload = bytes.fromhex(case["payload"])
    message = parse_message(case["command"], payload)
    assert bytes(message) == payload
    assert command_of(message) == case["command"]
    fields = dict(case["fields"])
    fields.pop("heights", None)
    if isinstance(message, CFHeaders):
        chain = itertools.accumulate(
            message.filter_hashes,
            lambda header, filter_hash: build.sha256d(filter_hash + header),
            initial=message.previous,
        )
        assert [hash_to_hex(header) for header in chain][1:] == fields.pop("resulting_filter_headers")
    # the vectors name every field
    assert {name: shown(name, getattr(message, NAMES.get(name, name))) for name in fields} == fields  # type: ignore[arg-type]


def test_every_command_has_a_sample() -> None:
    assert SAMPLES.keys() == MESSAGES.keys() == LIMITS.keys()
    assert {command_of(message) for message in SAMPLES.values()} == LIMITS.keys()


@pytest.mark.parametrize(("command", "payload"), payloads())
def test_a_sample_is_parsed_and_serialized(command: str, payload: bytes) -> None:
    message = parse_message(command, payload)
    assert message == SAMPLES[command]
    assert type(message) is type(SAMPLES[command])
    assert len(payload) <= LIMITS[command] <= MAX_PAYLOAD_SIZE


@pytest.mark.parametrize("command", list(MESSAGES))
@given(data=st.data())
def test_every_message_is_parsed_and_serialized(command: str, data: st.DataObject) -> None:
    message = data.draw(MESSAGES[command])
    assert parse_message(command, bytes(message)) == message
    assert len(bytes(message)) <= LIMITS[command]


# without the relay flag, without the hash
WHOLE = {"version": len(bytes(SAMPLES["version"])) - 1, "reject": len(bytes(SAMPLES["reject"])) - 32}
OPTIONAL: dict[str, dict[str, Any]] = {"version": {"relay": True}, "reject": {"data": b""}}


def replaced(message: Any, **changes: Any) -> object:
    return dataclasses.replace(message, **changes)


BLOCK_READ = 81 + 3 * 60  # `parse` checks these bytes; only a scan reads the three transactions


@pytest.mark.parametrize(("command", "payload"), payloads())
def test_every_truncation_raises(command: str, payload: bytes) -> None:
    for size in range(len(payload)):
        cut = payload[:size]
        if size == WHOLE.get(command):
            assert parse_message(command, cut) == replaced(SAMPLES[command], **OPTIONAL[command])
        elif command == "block" and size >= BLOCK_READ:
            with pytest.raises(FormatError):
                list(walk_block(bytes(parse_message(command, cut))))
        else:
            with pytest.raises(MessageError) as caught:
                parse_message(command, cut)
            assert 0 <= caught.value.offset <= size
            cause = caught.value.__cause__
            assert isinstance(cause, FormatError)
            assert (caught.value.command, caught.value.offset, caught.value.field) == (
                command,
                cause.offset,
                cause.field,
            )
            assert str(caught.value) == f"{command}: {cause}"


@pytest.mark.parametrize(("command", "payload"), payloads())
def test_only_a_version_may_have_additional_bytes(command: str, payload: bytes) -> None:
    longer = payload + b"\0"
    if command == "version":  # later protocol versions append fields, as BIP-37 did
        assert parse_message(command, longer) == SAMPLES[command]
    elif command == "block":
        with pytest.raises(FormatError, match="trailing"):
            list(walk_block(bytes(parse_message(command, longer))))
    else:
        with pytest.raises(MessageError, match="trailing byte"):
            parse_message(command, longer)


def test_an_unknown_command_is_kept() -> None:
    message = parse_message("sendtxrcncl", b"\x01\x00\x1b[31m")
    assert message == Unknown("sendtxrcncl", b"\x01\x00\x1b[31m")
    assert (command_of(message), bytes(message)) == ("sendtxrcncl", b"\x01\x00\x1b[31m")
    assert repr(message) == r"Unknown('sendtxrcncl', 7 bytes: \x01\x00\x1b[31m)"


def test_an_object_that_is_no_message_has_no_command() -> None:
    with pytest.raises(ParameterError, match="expected a message, not int"):
        command_of(7)  # type: ignore[arg-type]


def test_messages_with_equal_fields_differ_by_their_command() -> None:
    assert SAMPLES["ping"] != parse_message("pong", bytes(SAMPLES["ping"]))
    assert SAMPLES["verack"] != SAMPLES["mempool"]
    assert len(set(SAMPLES.values())) == len(SAMPLES)  # each sample can be a key of a dict


def test_an_item_shows_its_type_and_display_hash() -> None:
    assert repr(InvItem(InvType.WTX, b"\x01" + bytes(31))) == f"InvItem(WTX, {'00' * 31}01)"
    assert repr(InvItem(9, bytes(32))) == f"InvItem(0x9, {'00' * 32})"


def test_a_user_agent_is_shown_escaped() -> None:
    version = parse_message("version", bytes(Version(70016, 0, 0, 0, b"/x\x1b[2J\\\xff\n/", 0)))
    assert isinstance(version, Version)
    assert version.agent == r"/x\x1b[2J\x5c\xff\x0a/"
    assert "\x1b" not in repr(version)


def test_a_missing_relay_flag_requests_transactions() -> None:
    quiet = Version(70016, 0, 0, 0, b"", 0, relay=False)
    assert parse_message("version", bytes(quiet)[:-1]) == dataclasses.replace(quiet, relay=True)
    assert parse_message("version", bytes(quiet)[:-1] + b"\x02") == dataclasses.replace(quiet, relay=True)


def test_a_transaction_has_its_hashes() -> None:
    legacy, witness = Tx(FUNDING), Tx(WITNESS)
    assert legacy.txid == legacy.wtxid == build.sha256d(FUNDING)
    assert witness.wtxid == build.sha256d(WITNESS)
    assert witness.txid == build.txid(WITNESS) != witness.wtxid


def test_a_block_has_its_header() -> None:
    assert bytes(Block(BLOCK).header) == BLOCK[:80]
