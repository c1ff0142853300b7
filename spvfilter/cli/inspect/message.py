"""`spvfilter inspect` for a P2P message: facts and tables about its envelope and its payload."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from spvfilter.cli.inspect import payloads
from spvfilter.cli.inspect.payloads import Fact, Finding, ItemTable, utc
from spvfilter.errors import EnvelopeError, FormatError, MessageError, counted
from spvfilter.network import Network
from spvfilter.primitives import hash_to_hex
from spvfilter.protocol import ENVELOPE_SIZE
from spvfilter.wire.codec import Decoder
from spvfilter.wire.events import Service
from spvfilter.wire.messages.fields import printable
from spvfilter.wire.messages.table import (
    LIMITS,
    InvItem,
    InvType,
    NetId,
    PeerAddress,
    Reject,
    Unknown,
    Version,
    parse_message,
)

_AT = {"magic": 0, "command": 4, "length": 16}
"""Offset of each field in a message's envelope, in bytes."""
# fields that are shown as hashes, in display order; other bytes are shown in wire order
_HASHES = {"hash", "stop_hash", "block_hash", "previous", "locator", "filter_hashes", "filter_headers"}
_MOST_HEX = 64
"""Largest number of hex digits that a table shows."""
_KNOWN: dict[str, Callable[[bytes, Network], Finding]] = {
    "filterload": payloads.filterload,
    "tx": payloads.transaction,
    "block": payloads.block,
    "merkleblock": payloads.merkleblock,
    "headers": payloads.headers,
}


def magic_of(raw: bytes) -> Network | None:
    """Return the network whose magic is at the start of these bytes, or None."""
    return Network.of_magic(raw[:4])


def message(raw: bytes) -> Finding:
    """Parse one message. A wrong checksum is reported as a fact.

    Raises FormatError if the envelope or payload is invalid, or if bytes follow the message.
    """
    network = magic_of(raw)
    if network is None:
        raise FormatError(f"{raw[:4].hex()} is not the magic of a known network", offset=0, field="magic")
    size = int.from_bytes(raw[16:20], "little")
    checksum = Fact("checksum ok", True, "yes")
    decoder = Decoder(network.magic, LIMITS)
    decoder.feed(raw)
    try:
        frame = decoder.next_frame()
    except EnvelopeError as error:
        if error.field != "checksum":
            raise FormatError(str(error), offset=_AT[error.field], field=error.field) from error
        checksum = Fact("checksum ok", False, f"no: {error}")
    else:
        if frame is None:
            wanted, left = (size, len(raw) - ENVELOPE_SIZE) if len(raw) >= ENVELOPE_SIZE else (ENVELOPE_SIZE, len(raw))
            raise FormatError(
                f"truncated: expected {wanted} bytes, {left} left", offset=len(raw) - left, field="message"
            )
    if decoder.buffered:
        raise FormatError(counted(decoder.buffered, "trailing byte"), offset=ENVELOPE_SIZE + size, field="message")
    command = raw[4:16].rstrip(b"\0").decode("ascii")
    facts = [
        Fact("network", network.name),
        Fact("command", command),
        Fact("payload size", size, f"{size:,} bytes"),
        checksum,
    ]
    return Finding("message", "P2P message", facts, payload=_payload(command, raw[ENVELOPE_SIZE:], network))


def _payload(command: str, raw: bytes, network: Network) -> Finding:
    try:
        if command in _KNOWN:
            return _KNOWN[command](raw, network)
        return _told(command, parse_message(command, raw))
    except (FormatError, MessageError) as error:
        detail = error.message if isinstance(error, FormatError) else str(error.__cause__)
        raise FormatError(detail, offset=ENVELOPE_SIZE + error.offset, field=f"{command} {error.field}") from error


def _told(command: str, parsed: Any) -> Finding:
    """Show every field of a message for which payloads.py has no function."""
    match parsed:
        case Version():
            facts = [
                Fact("version", parsed.version),
                Fact("services", parsed.services, _services(parsed.services)),
                Fact("time", parsed.timestamp, utc(parsed.timestamp)),
                Fact("nonce", parsed.nonce),
                Fact("user agent", parsed.agent),
                Fact("start height", parsed.start_height),
                Fact("relay", parsed.relay),
            ]
            return Finding(command, command, facts)
        case Reject():
            data = hash_to_hex(parsed.data) if parsed.data else None
            facts = [
                Fact("refused", printable(parsed.message)),
                Fact("code", parsed.code, f"{parsed.code:#04x}"),
                Fact("reason", printable(parsed.reason)),
                Fact("hash", data, data or "none"),
            ]
            return Finding(command, command, facts)
        case Unknown():
            return Finding(command, f"{command}, an unknown command", [_fact("payload", parsed.payload)])
    values = {field.name: getattr(parsed, field.name) for field in fields(parsed)}
    tables = [_table(name, value) for name, value in values.items() if isinstance(value, tuple)]
    return Finding(
        command, command, [_fact(name, value) for name, value in values.items() if not isinstance(value, tuple)], tables
    )


def _services(services: int) -> str:
    known = Service(services & sum(Service))
    names = [str(bit.name).lower().replace("_", " ") for bit in known]
    return f"{services:#x} ({', '.join(names) or 'none known'})"


def _fact(name: str, value: object) -> Fact:
    name, told = name.replace("_", " "), _json(name, value)
    if not isinstance(value, bytes) or not isinstance(told, str):
        return Fact(name, told)
    short = told if len(told) <= _MOST_HEX else f"{told[:_MOST_HEX]}…"
    return Fact(name, told, short if len(value) == 32 else f"{len(value):,} bytes{': ' * bool(value)}{short}")


def _json(name: str, value: object) -> object:
    if isinstance(value, bytes):
        return hash_to_hex(value) if name in _HASHES else value.hex()
    return value


def _table(name: str, items: tuple[object, ...]) -> ItemTable:
    records = [_record(name, item) for item in items]
    columns = dict.fromkeys(records[0] if records else (), "left")
    rows = [[str(value) for value in record.values()] for record in records]
    # "left" is an Align
    return ItemTable(name, f"{len(items):,} {name.replace('_', ' ')}", columns, records, rows)  # type: ignore[arg-type]


def _record(name: str, item: object) -> dict[str, object]:
    match item:
        case InvItem():
            kind = InvType(item.kind).name.lower() if item.kind in set(InvType) else f"{item.kind:#x}"
            return {"kind": kind, "hash": hash_to_hex(item.hash)}
        case PeerAddress():
            net = NetId(item.net).name.lower() if item.net in set(NetId) else str(item.net)
            host = item.host or item.address.hex()
            return {"network": net, "host": host, "port": item.port, "services": item.services, "time": item.time}
    return {"hash": _json(name, item)}
