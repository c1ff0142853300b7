"""`spvfilter inspect` for filterload, transaction, block, merkleblock and headers payloads: facts and tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from spvfilter.address import script_to_address
from spvfilter.chain import coinbase_height, target
from spvfilter.cli.term.matches import bitcoin
from spvfilter.cli.term.page import Align
from spvfilter.errors import FormatError, ProofError, counted
from spvfilter.filters.bip37 import Bip37Filter
from spvfilter.kernel import TxSpan, check_block, strip_witness, walk_block
from spvfilter.network import Network
from spvfilter.primitives import Header, OutPoint, hash_to_hex
from spvfilter.protocol import HEADER_SIZE
from spvfilter.transaction import Transaction
from spvfilter.wire.messages.merkleblock import MerkleBlock
from spvfilter.wire.messages.table import Headers

_LOCK_TIME_THRESHOLD = 500_000_000
"""Lock times below this number are heights; other lock times are times (Core script.h LOCKTIME_THRESHOLD)."""


class Fact(NamedTuple):
    """A name and its value."""

    name: str
    """Name in a table. In JSON, underscores replace the spaces."""
    value: object
    """Value of the fact in JSON."""
    shown: str | None = None
    """The value as a table shows it. None if the table shows `value` itself."""


class ItemTable(NamedTuple):
    """A list of items of one kind."""

    name: str
    """Name in JSON."""
    title: str
    """Title of the table."""
    columns: Mapping[str, Align]
    """Columns of the table and their alignment."""
    records: Sequence[dict[str, object]]
    """The items in JSON."""
    rows: Sequence[Sequence[str]]
    """The items as rows of the table."""


class Finding(NamedTuple):
    """Parsed bytes: the kind of payload, and its parts."""

    kind: str
    """Kind of payload as JSON names it, such as "filterload". For the payload of a message, its command."""
    title: str
    """Kind of payload as text output names it, such as "BIP-37 filter (filterload payload)"."""
    facts: Sequence[Fact]
    """Facts about the parsed bytes, each with a name and a value."""
    tables: Sequence[ItemTable] = ()
    """Lists of the items in the parsed bytes, such as outputs."""
    payload: Finding | None = None
    """The payload of a P2P message. None for any other kind."""

    def fact(self, name: str) -> object:
        return next((fact.value for fact in self.facts if fact.name == name), None)


def filterload(raw: bytes, network: Network) -> Finding:
    parsed = Bip37Filter.parse(raw)
    estimate = parsed.estimated_elements
    flags = parsed.flags.name.lower().replace("_", "-")
    facts = [
        Fact("size", parsed.size, f"{parsed.size:,} bytes, {parsed.bits:,} bits"),
        Fact("hash functions", parsed.hash_funcs),
        Fact("tweak", parsed.tweak, f"{parsed.tweak} ({parsed.tweak:#010x})"),
        Fact("flags", flags, flags if raw[-1] <= 3 else f"{flags} (byte {raw[-1]:#04x}; peers read its low two bits)"),
        Fact("fill", parsed.fill, f"{parsed.fill:.2%} ({parsed.set_bits():,} bits set)"),
        Fact("estimated elements", estimate, f"{estimate:,.1f}")
        if math.isfinite(estimate)
        else Fact("estimated elements", None, "unbounded"),
        Fact("real fp rate", parsed.current_fp_rate, _rate(parsed.current_fp_rate)),
    ]
    return Finding("filterload", "BIP-37 filter (filterload payload)", facts)


def _rate(rate: float) -> str:
    if rate == 0:
        return "0: it matches nothing"
    return (
        "1: it matches everything"
        if rate == 1
        else f"{rate:.3g}, one in {1 / rate:,.0f}"
        if rate > 1e-15
        else f"{rate:.3g}"
    )


def _sizes(size: int, stripped: int) -> list[Fact]:
    """Compute a transaction's sizes (BIP-141 § Transaction size calculations)."""
    weight = 3 * stripped + size
    return [
        Fact("size", size, f"{size:,} bytes"),
        Fact("stripped size", stripped, f"{stripped:,} bytes"),
        Fact("weight", weight, f"{weight:,}"),
        Fact("vsize", -(-weight // 4), f"{-(-weight // 4):,}"),
    ]


def transaction(raw: bytes, network: Network) -> Finding:
    tx = Transaction.parse(raw)
    inputs = [_input(raw, *spans) for spans in tx.span.inputs]
    outputs = [
        (out.value, script_to_address(out.script_pubkey, network), out.script_pubkey.hex()) for out in tx.outputs
    ]
    paid = sum(value for value, _, _ in outputs)
    facts = [
        Fact("txid", hash_to_hex(tx.txid)),
        Fact("wtxid", hash_to_hex(tx.wtxid)),
        Fact("version", tx.version),
        *_sizes(len(raw), len(tx.stripped)),
        Fact("lock time", tx.lock_time, _lock_time(tx.lock_time)),
        Fact("output value", paid, f"{bitcoin(paid)} BTC"),
    ]
    tables = [
        ItemTable(
            "inputs",
            f"{counted(len(inputs), 'input')}",
            {"#": "right", "spends": "left"},
            [{"outpoint": spent, "script_sig": script, "sequence": sequence} for spent, script, sequence in inputs],
            [[str(n), spent or "coinbase"] for n, (spent, _, _) in enumerate(inputs)],
        ),
        ItemTable(
            "outputs",
            f"{counted(len(outputs), 'output')}",
            {"#": "right", "BTC": "right", "to": "left"},
            [{"value": value, "address": address, "script_pubkey": script} for value, address, script in outputs],
            [
                [str(n), bitcoin(value), address or f"script {script}"]
                for n, (value, address, script) in enumerate(outputs)
            ],
        ),
    ]
    return Finding("transaction", "Transaction", facts, tables)


def _lock_time(lock_time: int) -> str:
    if not lock_time:
        return "0: none"
    return f"block {lock_time}" if lock_time < _LOCK_TIME_THRESHOLD else f"{lock_time} ({utc(lock_time)})"


def utc(seconds: int) -> str:
    """Format a Unix time as a date. A number outside the calendar's range is formatted as a number."""
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError, OSError):
        return str(seconds)


def _input(raw: bytes, at: int, start: int, end: int) -> tuple[str | None, str, int]:
    """Return an input's outpoint (None for a coinbase), its scriptSig in hex, and its sequence."""
    point = raw[at : at + 36]
    outpoint = None if point == bytes(32) + b"\xff" * 4 else str(OutPoint.parse(point))
    return outpoint, raw[start:end].hex(), int.from_bytes(raw[end : end + 4], "little")


def block(raw: bytes, network: Network) -> Finding:
    txs: list[TxSpan] = list(walk_block(raw))
    header = Header.parse(raw[:HEADER_SIZE])
    witness = sum(tx.end - tx.start - len(strip_witness(raw, tx)) for tx in txs)
    refused = _refused_by_check(raw)
    root_ok = refused is None or refused.field != "merkle root"
    height = coinbase_height(raw, network)
    facts = [
        *_names(header),
        Fact("merkle root ok", root_ok, "yes" if root_ok or refused is None else f"no: {refused.message}"),
        _commitment(witness > 0, root_ok, refused),
        Fact("stated height", height, "none" if height is None else str(height)),
        *_numbers(header),
        Fact("transactions", len(txs), f"{len(txs):,}"),
        *_sizes(len(raw), len(raw) - witness)[:3],
    ]
    return Finding("block", "Block", facts)


def _names(header: Header) -> list[Fact]:
    return [
        Fact("hash", hash_to_hex(header.hash)),
        Fact("previous", hash_to_hex(header.previous)),
        Fact("merkle root", hash_to_hex(header.merkle_root)),
    ]


def _numbers(header: Header) -> list[Fact]:
    return [
        Fact("time", header.time, utc(header.time)),
        Fact("bits", f"{header.bits:08x}"),
        Fact("nonce", header.nonce),
        Fact("version", header.version, f"{header.version} (0x{header.version & 0xFFFFFFFF:08x})"),
    ]


def _refused_by_check(raw: bytes) -> FormatError | None:
    try:
        check_block(raw)
    except FormatError as error:
        return error
    return None


def _commitment(has_witness: bool, root_ok: bool, refused: FormatError | None) -> Fact:
    name = "commitment ok"
    if not has_witness:
        return Fact(name, None, "none needed: no witness")
    if not root_ok:
        return Fact(name, None, "not checked")
    return Fact(name, refused is None, "yes" if refused is None else f"no: {refused.message}")


def merkleblock(raw: bytes, network: Network) -> Finding:
    parsed = MerkleBlock.parse(raw)
    proof, refusal = None, ""
    try:
        proof = parsed.verify()
    except ProofError as error:
        refusal = f"no: {error}"
    matched = proof.matched if proof else ()
    facts = [
        *_names(parsed.header),
        Fact("proof ok", proof is not None, refusal or "yes"),
        Fact("ambiguous", proof and proof.ambiguous, _ambiguous(proof and proof.ambiguous)),
        *_numbers(parsed.header),
        Fact("transactions", parsed.total, f"{parsed.total:,}, an unproven claim of the sender"),
        Fact("hashes", len(parsed.hashes)),
        Fact("flag bits", 8 * len(parsed.flags)),
    ]
    table = ItemTable(
        "matched",
        f"{counted(len(matched), 'transaction')} proved",
        {"position": "right", "txid": "left"},
        [{"position": position, "txid": hash_to_hex(proved)} for position, proved in matched],
        [[str(position), hash_to_hex(proved)] for position, proved in matched],
    )
    return Finding("merkleblock", "Merkleblock", facts, [table])


def _ambiguous(ambiguous: bool | None) -> str:
    if ambiguous is None:
        return "not checked"
    return "yes: an inner node parses as a transaction (CVE-2017-12842)" if ambiguous else "no"


def headers(raw: bytes, network: Network) -> Finding:
    found = [Header.parse(header) for header in Headers.parse(raw).headers]
    hashes = [header.hash for header in found]
    unlinked = next((n for n in range(1, len(found)) if found[n].previous != hashes[n - 1]), None)
    unproven = next(
        (n for n, header in enumerate(found) if int.from_bytes(hashes[n], "little") > target(header.bits)), None
    )
    facts = [
        Fact("count", len(found), f"{len(found):,}"),
        _verdict(
            "linked", found, None if unlinked is None else f"header {unlinked} does not follow header {unlinked - 1}"
        ),
        _verdict(
            "work ok", found, None if unproven is None else f"the hash of header {unproven} does not meet its bits"
        ),
    ]
    table = ItemTable(
        "headers",
        f"{counted(len(found), 'header')}",
        {"#": "right", "hash": "left", "time": "left"},
        [
            {fact.name.replace(" ", "_"): fact.value for fact in (*_names(header), *_numbers(header))}
            for header in found
        ],
        [
            [str(n), hash_to_hex(block_hash), utc(header.time)]
            for n, (header, block_hash) in enumerate(zip(found, hashes, strict=True))
        ],
    )
    return Finding("headers", "Headers", facts, [table])


def _verdict(name: str, checked: Sequence[Header], wrong: str | None) -> Fact:
    if not checked:
        return Fact(name, None, "nothing to check")
    return Fact(name, wrong is None, "yes" if wrong is None else f"no: {wrong}")
