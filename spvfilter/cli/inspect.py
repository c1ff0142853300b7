"""`spvfilter inspect`: what a filterload payload, a transaction or a block holds. It judges form, not validity."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, NamedTuple

from spvfilter.address import script_to_address
from spvfilter.aio.blockfile import MAX_BLOCK_SIZE
from spvfilter.chain import coinbase_height
from spvfilter.cli.arguments import add_network, standard_input
from spvfilter.cli.matches import bitcoin
from spvfilter.cli.output import Page, complain
from spvfilter.errors import FormatError, ParameterError
from spvfilter.filters.bip37 import Bip37Filter
from spvfilter.kernel import TxSpan, check_block, parse_tx, strip_witness, txid, walk_block, wtxid
from spvfilter.network import NETWORKS, Network
from spvfilter.primitives import HEADER_SIZE, Header, OutPoint, hash_to_hex

_MAX_INPUT = 2 * MAX_BLOCK_SIZE + 100_000  # bytes: a block in hex, and the line ends it may be broken by
_HEX_TEXT = frozenset(b"0123456789abcdefABCDEF \t\r\n")
_TEXT = frozenset(range(32, 127)) | frozenset(b"\t\r\n")
_LOCK_TIME_THRESHOLD = 500_000_000  # Core script.h LOCKTIME_THRESHOLD: below a height, from here on a time


class Fact(NamedTuple):
    """One thing to say: its name, its value in JSON, and for people where that differs."""

    name: str
    value: object
    shown: str | None = None


class Input(NamedTuple):
    outpoint: str | None  # None for a coinbase
    script_sig: str
    sequence: int


class Output(NamedTuple):
    value: int  # satoshi
    address: str | None
    script_pubkey: str


class Finding(NamedTuple):
    """What some bytes turned out to be; inputs and outputs are a transaction's."""

    kind: str
    facts: list[Fact]
    inputs: Sequence[Input] = ()
    outputs: Sequence[Output] = ()


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Say what bytes are, a filterload payload, a transaction or a block, and what they hold."
    parser.add_argument(
        "what", metavar="HEX|FILE|-", nargs="?", default="-",
        help="hex digits, or a file of bytes or of hex digits; - or nothing: standard input, either way",
    )  # fmt: skip
    add_network(parser)
    parser.add_argument("--format", choices=("table", "json"), default="table", help="default %(default)s")


def run(args: argparse.Namespace) -> int:
    raw = _read(args.what)
    found = _identify(raw, args.network)
    if args.format == "json":
        print(json.dumps(_record(found[0])))
    else:
        _show(found[0], Page(sys.stdout))
    if others := [other.kind for other in found[1:]]:
        complain(f"warning: these bytes are also a well-formed {' and a well-formed '.join(others)}")
    return 0


def _read(what: str) -> bytes:
    """The bytes that the argument means. An error does not repeat it: it may be a key."""
    if what == "-":
        return _decoded(_bounded(standard_input()))
    try:
        is_file = what != "" and Path(what).exists()
    except (OSError, ValueError):  # too long for a name, or no name at all
        is_file = False
    if is_file:
        with Path(what).open("rb") as file:
            return _decoded(_bounded(file))
    if not what.isascii() or not _HEX_TEXT.issuperset(what.encode("ascii")):
        raise ParameterError(f"the argument, {len(what)} characters, is neither an existing file nor hex digits")
    return _decoded(what.encode("ascii"))


def _bounded(file: BinaryIO) -> bytes:
    data = file.read(_MAX_INPUT + 1)
    if len(data) > _MAX_INPUT:
        raise ParameterError(f"more than {_MAX_INPUT} bytes: no block is that large, not even in hex")
    return data


def _decoded(data: bytes) -> bytes:
    """Raw bytes as they are, and those that hex digits stand for."""
    if not data.strip():
        raise ParameterError("nothing to inspect: the input is empty")
    if _HEX_TEXT.issuperset(data):
        digits = b"".join(data.split()).decode("ascii")
        if len(digits) % 2:
            raise ParameterError(f"{len(digits)} hex digits: an odd number, so one is missing or too many")
        data = bytes.fromhex(digits)
    elif _TEXT.issuperset(data):
        at = next(at for at, char in enumerate(data, 1) if char not in _HEX_TEXT)
        raise ParameterError(f"text, but not hex: character {at} is no hex digit")
    if len(data) > MAX_BLOCK_SIZE:
        raise ParameterError(f"{len(data)} bytes: a block has at most {MAX_BLOCK_SIZE}")
    return data


def _identify(raw: bytes, network: Network) -> list[Finding]:
    """Everything that these bytes are from first to last, the likeliest first. Raises ParameterError with what each parser said."""
    parsers: dict[str, Callable[[bytes, Network], Finding]] = {"block": _block, "filterload": _filter, "transaction": _transaction}
    found: list[Finding] = []
    refusals: list[tuple[int, str]] = []
    for kind, parse in parsers.items():
        try:
            found.append(parse(raw, network))
        except FormatError as error:
            refusals.append((error.offset, f"as a {kind}: {error}"))
    if not found:
        refusals.sort(key=lambda refusal: -refusal[0])  # who came furthest has most to say
        said = "; ".join(message for _, message in refusals)
        raise ParameterError(f"{len(raw)} bytes that are no filterload, transaction or block{_hint(raw)}; {said}")
    if found[0].kind == "block":
        if _fact(found[0], "merkle root ok"):
            return found[:1]
        found.append(found.pop(0))
    return found


def _fact(finding: Finding, name: str) -> object:
    return next(fact.value for fact in finding.facts if fact.name == name)


def _hint(raw: bytes) -> str:
    owner = next((known for known in NETWORKS if raw[:4] == known.magic), None)
    if owner is None:
        return ""
    if raw[4:5].isalpha():
        return f" (a P2P message of {owner}? its payload starts at byte 24)"
    return f" (a blk*.dat file of {owner}? 'spvfilter scan' reads those)"


def _filter(raw: bytes, network: Network) -> Finding:
    parsed = Bip37Filter.parse(raw)
    estimate = parsed.estimated_elements
    flags = parsed.flags.name.lower().replace("_", "-")
    facts = [
        Fact("size", parsed.size, f"{parsed.size:,} bytes, {parsed.bits:,} bits"),
        Fact("hash functions", parsed.hash_funcs),
        Fact("tweak", parsed.tweak, f"{parsed.tweak} ({parsed.tweak:#010x})"),
        Fact("flags", flags, flags if raw[-1] <= 3 else f"{flags} (byte {raw[-1]:#04x}, of which peers read two bits)"),
        Fact("fill", parsed.fill, f"{parsed.fill:.2%} ({parsed.set_bits():,} bits set)"),
        Fact("estimated elements", estimate, f"{estimate:,.1f}")
        if math.isfinite(estimate)
        else Fact("estimated elements", None, "unbounded"),
        Fact("real fp rate", parsed.current_fp_rate, _rate(parsed.current_fp_rate)),
    ]
    return Finding("filterload", facts)


def _rate(rate: float) -> str:
    if rate == 0:
        return "0: it matches nothing"
    return "1: it matches everything" if rate == 1 else f"{rate:.3g}, one in {1 / rate:,.0f}" if rate > 1e-15 else f"{rate:.3g}"


def _sizes(size: int, stripped: int) -> list[Fact]:
    """BIP-141 § Transaction size calculations."""
    weight = 3 * stripped + size
    return [
        Fact("size", size, f"{size:,} bytes"),
        Fact("stripped size", stripped, f"{stripped:,} bytes"),
        Fact("weight", weight, f"{weight:,}"),
        Fact("vsize", -(-weight // 4), f"{-(-weight // 4):,}"),
    ]


def _transaction(raw: bytes, network: Network) -> Finding:
    tx = parse_tx(raw)
    lock_time = int.from_bytes(raw[-4:], "little")
    outputs = [_output(raw, at, start, end, network) for at, start, end in tx.outputs]
    paid = sum(output.value for output in outputs)
    facts = [
        Fact("txid", hash_to_hex(txid(raw, tx))),
        Fact("wtxid", hash_to_hex(wtxid(raw, tx))),
        Fact("version", int.from_bytes(raw[:4], "little", signed=True)),
        *_sizes(len(raw), len(strip_witness(raw, tx))),
        Fact("lock time", lock_time, _lock_time(lock_time)),
        Fact("output value", paid, f"{bitcoin(paid)} BTC"),
    ]
    return Finding("transaction", facts, [_input(raw, *spans) for spans in tx.inputs], outputs)


def _lock_time(lock_time: int) -> str:
    if not lock_time:
        return "0: none"
    return f"block {lock_time}" if lock_time < _LOCK_TIME_THRESHOLD else f"{lock_time} ({_utc(lock_time)})"


def _utc(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _input(raw: bytes, at: int, start: int, end: int) -> Input:
    point = raw[at : at + 36]
    outpoint = None if point == bytes(32) + b"\xff" * 4 else str(OutPoint.parse(point))
    return Input(outpoint, raw[start:end].hex(), int.from_bytes(raw[end : end + 4], "little"))


def _output(raw: bytes, at: int, start: int, end: int, network: Network) -> Output:
    script = raw[start:end]
    return Output(int.from_bytes(raw[at : at + 8], "little", signed=True), script_to_address(script, network), script.hex())


def _block(raw: bytes, network: Network) -> Finding:
    txs: list[TxSpan] = list(walk_block(raw))
    header = Header.parse(raw[:HEADER_SIZE])
    witness = sum(tx.end - tx.start - len(strip_witness(raw, tx)) for tx in txs)
    refused = _refused_by_check(raw)
    root_ok = refused is None or refused.field != "merkle root"
    height = coinbase_height(raw, network)
    facts = [
        Fact("hash", hash_to_hex(header.hash)),
        Fact("previous", hash_to_hex(header.previous)),
        Fact("merkle root", hash_to_hex(header.merkle_root)),
        Fact("merkle root ok", root_ok, "yes" if root_ok or refused is None else f"no: {refused.message}"),
        _commitment(witness > 0, root_ok, refused),
        Fact("stated height", height, "none" if height is None else str(height)),
        Fact("time", header.time, _utc(header.time)),
        Fact("bits", f"{header.bits:08x}"),
        Fact("nonce", header.nonce),
        Fact("version", header.version, f"{header.version} (0x{header.version & 0xFFFFFFFF:08x})"),
        Fact("transactions", len(txs), f"{len(txs):,}"),
        *_sizes(len(raw), len(raw) - witness)[:3],
    ]
    return Finding("block", facts)


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


def _record(finding: Finding) -> dict[str, object]:
    record: dict[str, object] = {"kind": finding.kind}
    record.update((fact.name.replace(" ", "_"), fact.value) for fact in finding.facts)
    if finding.kind == "transaction":
        record["inputs"] = [item._asdict() for item in finding.inputs]
        record["outputs"] = [item._asdict() for item in finding.outputs]
    return record


def _show(finding: Finding, page: Page) -> None:
    page.line({"filterload": "BIP-37 filter (filterload payload)", "transaction": "Transaction", "block": "Block"}[finding.kind], "bold")
    page.facts([(fact.name, str(fact.value) if fact.shown is None else fact.shown) for fact in finding.facts])
    if finding.kind != "transaction":
        return
    page.title(f"{len(finding.inputs)} input(s)")
    page.table({"#": "right", "spends": "left"}, [[str(n), item.outpoint or "coinbase"] for n, item in enumerate(finding.inputs)])
    page.title(f"{len(finding.outputs)} output(s)")
    rows = [[str(n), bitcoin(item.value), item.address or f"script {item.script_pubkey}"] for n, item in enumerate(finding.outputs)]
    page.table({"#": "right", "BTC": "right", "to": "left"}, rows)
