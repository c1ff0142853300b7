"""Tables of blocks: blocks, transactions, inputs, outputs and items as columns. This is the readable reference.

- A coinbase is the first transaction of its block. It has no row in the inputs table.
- Timestamps are in milliseconds of Unix time, values in satoshi, sizes in bytes, fee rates in satoshi per virtual byte.
- Columns that need undo data are null without it: `type`, `value`, `address`, `spent_script` and
  `spent_block_number` of inputs, and `input_value`, `fee` and `fee_rate` of transactions.
- `items` contains the inputs of each transaction, then its outputs. Its times are in seconds, and its types are names.
- `content_type`, `content_size` and `content_hash` are those of the first inscription in an input's witness.
- `op_return` contains the concatenated data pushes after an OP_RETURN; OP_1NEGATE and OP_1 to OP_16 push one byte.
- `op_return_script` contains the bytes after OP_RETURN, and `op_return_protocol` a protocol listed in kernel.protocols.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from spvfilter.errors import FormatError, ParameterError
from spvfilter.kernel.blocktables import HEX, NO_HEIGHT, SCRIPT_TYPES, TABLES, ColumnBuffers, Layout
from spvfilter.kernel.protocols import PROTOCOLS, Where
from spvfilter.kernel.pure.address import address_of, check_network
from spvfilter.kernel.pure.arguments import snapshot, snapshots, whole
from spvfilter.kernel.pure.blocks import null_data, null_pushes, strip_witness, txid, walk_block, wtxid
from spvfilter.kernel.pure.envelopes import Inscription, content_hash, inscription_in, leaf_script
from spvfilter.kernel.pure.packed import hits_in
from spvfilter.kernel.pure.scripts import solve
from spvfilter.kernel.pure.undo import PackedCoin, coins_of_block, script_of
from spvfilter.kernel.values import TxSpan
from spvfilter.primitives import read_compact_size
from spvfilter.protocol import HASH_SIZE, HEADER_SIZE, MAX_BLOCK_SIZE, MAX_MONEY

_HEADER = struct.Struct("<i32s32sIII")  # Version, previous hash, merkle root, time, bits, nonce.
_I32, _U32 = struct.Struct("<i"), struct.Struct("<I")
_LONGEST = 0x7FFFFFFF  # Most bytes in a column: its offsets are int32.
_NULLDATA = SCRIPT_TYPES.index("nulldata")
_OP_RETURN, _OP_1NEGATE, _OP_1, _OP_16 = b"\x6a", 0x4F, 0x51, 0x60

Value = int | float | bytes | str | None
Network = tuple[int, int, str]  # Version bytes of P2PKH and P2SH, and the human-readable part.


@dataclass(frozen=True, slots=True)
class _Block:
    """A row of `blocks`."""

    raw: bytes
    height: int | None
    network: Network
    txs: list[TxSpan]
    stripped: int

    def header(self, field: int) -> int:
        """Return an integer in the header."""
        return int(_HEADER.unpack_from(self.raw)[field])

    def hash_at(self, at: int) -> bytes:
        """Return a hash in the header, in display order."""
        return self.raw[at : at + 32][::-1]

    def hash(self) -> bytes:
        return _displayed(txid(self.raw, TxSpan(0, HEADER_SIZE, [], [], 0)))

    def coinbase_param(self) -> bytes | None:
        inputs = self.txs[0].inputs
        return self.raw[inputs[0][1] : inputs[0][2]] if inputs else None


@dataclass(frozen=True, slots=True)
class _Tx:
    """A row of `transactions`."""

    block: _Block
    span: TxSpan
    index: int
    coins: list[tuple[PackedCoin, int]] | None
    paid: int
    entries: Mapping[tuple[bool, int], int]
    """The lowest entry for each hit, keyed by (True for an input, number of the input or output)."""

    def hash(self) -> bytes:
        return _displayed(txid(self.block.raw, self.span))

    def size(self) -> int:
        return self.span.end - self.span.start

    def weight(self) -> int:
        return 3 * len(strip_witness(self.block.raw, self.span)) + self.size()

    def virtual_size(self) -> int:
        return (self.weight() + 3) // 4

    def spent(self) -> int | None:
        return None if self.coins is None else sum(coin.value for coin, _ in self.coins)

    def fee(self) -> int | None:
        spent = self.spent()
        return None if spent is None else spent - self.paid

    def fee_rate(self) -> float | None:
        fee = self.fee()
        return None if fee is None else fee / self.virtual_size()


@dataclass(frozen=True, slots=True)
class _Input:
    """A row of `inputs`."""

    tx: _Tx
    index: int
    place: tuple[int, int, int]
    witness: bytes
    coin: tuple[PackedCoin, int] | None

    def script(self) -> bytes | None:
        """Return the script that the input spends."""
        return None if self.coin is None else script_of(*self.coin)

    def type(self) -> int | None:
        if self.coin is None:
            return None
        coin = self.coin[0]
        known = {0: "pubkeyhash", 1: "scripthash"}.get(coin.kind, "pubkey") if coin.kind < 6 else None
        return solve(coin.body) if known is None else SCRIPT_TYPES.index(known)

    def address(self) -> str | None:
        if self.coin is None or 2 <= self.coin[0].kind < 6:  # a public key has no address
            return None
        script = self.script()
        return None if script is None else address_of(script, *self.tx.block.network)

    def spent_height(self) -> int | None:
        return None if self.coin is None else self.coin[0].code >> 1 or None

    def inscription(self) -> Inscription:
        """Return the inscription in the witness, with 0 envelopes if there is none."""
        return inscription_in(leaf_script(self.witness) or b"") or Inscription(0, None, None)

    def content_type(self) -> str | None:
        """Return the content type of the inscription, or None unless it is printable ASCII."""
        found = self.inscription().content_type
        return found.decode() if found is not None and all(0x20 <= byte < 0x7F for byte in found) else None

    def number(self, at: int) -> int:
        return int(_U32.unpack_from(self.tx.block.raw, at)[0])


@dataclass(frozen=True, slots=True)
class _Output:
    """A row of `outputs`."""

    tx: _Tx
    index: int
    value: int
    script: bytes

    def op_return(self) -> bytes | None:
        return b"".join(null_pushes(self.script)) if solve(self.script) == _NULLDATA else None

    def op_return_script(self) -> bytes | None:
        return self.script[1:] if self.script[:1] == _OP_RETURN else None

    def op_return_protocol(self) -> str | None:
        if self.script[:1] != _OP_RETURN:
            return None
        raw, inputs = self.tx.block.raw, self.tx.span.inputs
        spent = raw[inputs[0][0] : inputs[0][0] + 32][::-1] if inputs and self.tx.index else b""
        return protocol_of(self.script, spent, in_coinbase=self.tx.index == 0)


def protocol_of(script: bytes, spent: bytes, *, in_coinbase: bool) -> str | None:
    """Return the protocol of an OP_RETURN script, or None if it has no known mark.

    `spent` is the txid that the transaction's first input spends, in display order, or b"".
    """
    push = null_data(script) if script[1:2] != b"" and not _is_number(script[1]) else b""
    for protocol in PROTOCOLS:
        if protocol.in_coinbase and not in_coinbase:
            continue
        match protocol.where:
            case Where.SCRIPT:
                place = script[1:]
            case Where.PUSH:
                place = push
            case Where.RC4:
                place = b"" if len(push) < protocol.least or not spent else _rc4(spent, push[: protocol.least])
        after = place[len(protocol.mark) : len(protocol.mark) + 1]
        follows = not protocol.next or (after != b"" and after in protocol.next)
        if len(place) >= protocol.least and place.startswith(protocol.mark) and follows:
            return protocol.name
    return None


def _is_number(opcode: int) -> bool:
    """Return True for OP_1NEGATE and OP_1 to OP_16, which push a number."""
    return opcode == _OP_1NEGATE or _OP_1 <= opcode <= _OP_16


def _rc4(key: bytes, data: bytes) -> bytes:
    """Return data decrypted by RC4."""
    state, at = list(range(256)), 0
    for number in range(256):
        at = (at + state[number] + key[number % len(key)]) & 255
        state[number], state[at] = state[at], state[number]
    made, at = bytearray(), 0
    for number, byte in enumerate(data, 1):
        at = (at + state[number & 255]) & 255
        state[number & 255], state[at] = state[at], state[number & 255]
        made.append(byte ^ state[(state[number & 255] + state[at]) & 255])
    return bytes(made)


@dataclass(frozen=True, slots=True)
class _Item:
    """A row of `items`."""

    of: _Input | _Output

    @property
    def is_input(self) -> bool:
        return isinstance(self.of, _Input)

    def entry(self) -> int | None:
        return self.of.tx.entries.get((self.is_input, self.of.index))

    def source_hash(self) -> bytes:
        return self.of.tx.block.hash_at(self.of.place[0]) if isinstance(self.of, _Input) else self.of.tx.hash()

    def source_index(self) -> int:
        return self.of.number(self.of.place[0] + 32) if isinstance(self.of, _Input) else self.of.index

    def value(self) -> int | None:
        return _OF_INPUT["value"](self.of) if isinstance(self.of, _Input) else self.of.value  # type: ignore[return-value]

    def script(self) -> bytes | None:
        return self.of.script() if isinstance(self.of, _Input) else self.of.script

    def address(self) -> str | None:
        if isinstance(self.of, _Input):
            return self.of.address()
        return address_of(self.of.script, *self.of.tx.block.network)

    def type(self) -> str | None:
        number = self.of.type() if isinstance(self.of, _Input) else solve(self.of.script)
        return None if number is None else SCRIPT_TYPES[number]


_OF_BLOCK: dict[str, Callable[[_Block], Value]] = {
    "hash": lambda block: block.hash(),
    "number": lambda block: block.height,
    "timestamp": lambda block: 1000 * block.header(3),
    "previous_hash": lambda block: block.hash_at(4),
    "merkle_root": lambda block: block.hash_at(36),
    "version": lambda block: block.header(0),
    "bits": lambda block: block.header(4),
    "nonce": lambda block: block.header(5),
    "size": lambda block: len(block.raw),
    "stripped_size": lambda block: block.stripped,
    "weight": lambda block: 3 * block.stripped + len(block.raw),
    "transaction_count": lambda block: len(block.txs),
    "coinbase_param": lambda block: block.coinbase_param(),
}
_OF_PLACE: dict[str, Callable[[_Block], Value]] = {
    "block_hash": _OF_BLOCK["hash"],
    "block_number": _OF_BLOCK["number"],
    "block_timestamp": _OF_BLOCK["timestamp"],
}
_OF_TX: dict[str, Callable[[_Tx], Value]] = {
    "hash": lambda tx: tx.hash(),
    "witness_hash": lambda tx: _displayed(wtxid(tx.block.raw, tx.span)),
    "index": lambda tx: tx.index,
    "version": lambda tx: _I32.unpack_from(tx.block.raw, tx.span.start)[0],
    "lock_time": lambda tx: _U32.unpack_from(tx.block.raw, tx.span.end - 4)[0],
    "size": lambda tx: tx.size(),
    "virtual_size": lambda tx: tx.virtual_size(),
    "weight": lambda tx: tx.weight(),
    "is_coinbase": lambda tx: tx.index == 0,
    "input_count": lambda tx: len(tx.span.inputs) if tx.index else 0,
    "output_count": lambda tx: len(tx.span.outputs),
    "input_value": lambda tx: tx.spent(),
    "output_value": lambda tx: tx.paid,
    "fee": lambda tx: tx.fee(),
    "fee_rate": lambda tx: tx.fee_rate(),
}
_OF_INPUT: dict[str, Callable[[_Input], Value]] = {
    "transaction_hash": lambda spend: spend.tx.hash(),
    "transaction_index": lambda spend: spend.tx.index,
    "index": lambda spend: spend.index,
    "spent_transaction_hash": lambda spend: spend.tx.block.hash_at(spend.place[0]),
    "spent_output_index": lambda spend: spend.number(spend.place[0] + 32),
    "script": lambda spend: spend.tx.block.raw[spend.place[1] : spend.place[2]],
    "sequence": lambda spend: spend.number(spend.place[2]),
    "witness_size": lambda spend: len(spend.witness),
    "witness": lambda spend: spend.witness or None,
    "inscription_count": lambda spend: spend.inscription().envelopes,
    "content_type": lambda spend: spend.content_type(),
    "content_size": lambda spend: None if (body := spend.inscription().body) is None else len(body),
    "content_hash": lambda spend: None if (body := spend.inscription().body) is None else content_hash(body),
    "type": lambda spend: spend.type(),
    "value": lambda spend: None if spend.coin is None else spend.coin[0].value,
    "address": lambda spend: spend.address(),
    "spent_script": lambda spend: spend.script(),
    "spent_block_number": lambda spend: spend.spent_height(),
}
_OF_OUTPUT: dict[str, Callable[[_Output], Value]] = {
    "transaction_hash": lambda output: output.tx.hash(),
    "transaction_index": lambda output: output.tx.index,
    "index": lambda output: output.index,
    "type": lambda output: solve(output.script),
    "value": lambda output: output.value,
    "script": lambda output: output.script,
    "address": lambda output: address_of(output.script, *output.tx.block.network),
    "op_return": lambda output: output.op_return(),
    "op_return_script": lambda output: output.op_return_script(),
    "op_return_protocol": lambda output: output.op_return_protocol(),
}
_OF_ITEM: dict[str, Callable[[_Item], Value]] = {
    "kind": lambda item: "input" if item.is_input else "output",
    "block_hash": lambda item: item.of.tx.block.hash(),
    "block_number": lambda item: item.of.tx.block.height,
    "block_time": lambda item: item.of.tx.block.header(3),
    "transaction_hash": lambda item: item.of.tx.hash(),
    "index": lambda item: item.of.index,
    "source_transaction_hash": lambda item: item.source_hash(),
    "source_output_index": lambda item: item.source_index(),
    "value": lambda item: item.value(),
    "script": lambda item: item.script(),
    "address": lambda item: item.address(),
    "type": lambda item: item.type(),
    "is_match": lambda item: item.entry() is not None,
    "entry": lambda item: item.entry(),
    "is_coinbase": lambda item: item.of.tx.index == 0,
    "fee": lambda item: item.of.tx.fee(),
    "size": lambda item: item.of.tx.size(),
    "virtual_size": lambda item: item.of.tx.virtual_size(),
    "weight": lambda item: item.of.tx.weight(),
}


def block_columns(
    blocks: Iterable[bytes],
    records: Iterable[bytes | None] | None,
    heights: Iterable[int],
    columns: Iterable[str],
    p2pkh_version: int,
    p2sh_version: int,
    hrp: str,
    hits: Iterable[bytes] | None,
    /,
) -> list[tuple[int, bytes | None, bytes | None, bytes]]:
    """Return columns of the tables of some blocks: blocks, transactions, inputs, outputs and items.

    A column is (number of rows, validity, offsets, data), as in Arrow's columnar format. Validity is None if every row
    has a value. Offsets are None if all values have the same size.

    Args:
        blocks: The blocks.
        records: The undo record of each block, or None for a block without one.
        heights: The height of each block, or NO_HEIGHT.
        columns: Names of columns such as "outputs.value". A name may end with ":hex" if the values are bytes.
        p2pkh_version: Version byte of the network's P2PKH addresses.
        p2sh_version: Version byte of the network's P2SH addresses.
        hrp: Human-readable part of the network's bech32 addresses.
        hits: The packed hits of each block, to include only transactions with hits; None for all transactions.

    Raises:
        FormatError: A block is malformed, as in walk_block, or pays an amount out of range; or hits are malformed or
            belong to another block.
        UndoError: An undo record does not belong to its block.
        ParameterError: The numbers of items differ, a column does not exist, or a height or a network is out of range.
        OverflowError: A column has more than 2,147,483,647 bytes.
    """
    raws = snapshots(blocks, "blocks")
    given = [None] * len(raws) if records is None else list(records)
    if len(given) != len(raws):
        raise ParameterError(f"the number of undo records ({len(given)}) must equal the number of blocks ({len(raws)})")
    beside = [None if record is None else snapshot(record) for record in given]
    at = [
        whole(height, NO_HEIGHT, 0x7FFFFFFF, "a height must be from 0 to 2^31 - 1, or -1 if it is not known")
        for height in heights
    ]
    if len(at) != len(raws):
        raise ParameterError(f"the number of heights ({len(at)}) must equal the number of blocks ({len(raws)})")
    wanted = [ColumnRows.named(name) for name in columns]
    check_network(p2pkh_version, p2sh_version, hrp)
    found = [None] * len(raws) if hits is None else snapshots(hits, "hits")
    if len(found) != len(raws):
        raise ParameterError(
            f"the number of items in hits ({len(found)}) must equal the number of blocks ({len(raws)})"
        )
    for raw, record, height, packed in zip(raws, beside, at, found, strict=True):
        _add_block(raw, record, height, wanted, (p2pkh_version, p2sh_version, hrp), packed)
    return [(made.length, made.validity, made.offsets, made.data) for made in map(ColumnRows.packed, wanted)]


class ColumnRows:
    """A column to which rows are being added."""

    def __init__(self, table: str, name: str, layout: Layout, *, is_hex: bool = False) -> None:
        self.table: str = table
        self.name: str = name
        self._layout = Layout.TEXT if is_hex else layout
        self._is_hex = is_hex
        self._values: list[Value] = []
        self._size = 0

    @classmethod
    def named(cls, name: str) -> ColumnRows:
        """Return an empty column. Raises ParameterError if no column has this name."""
        if not isinstance(name, str):
            raise TypeError(f"the name of a column must be a str, not {type(name).__name__}")
        table, _, column = name.removesuffix(HEX).partition(".")
        layout, is_hex = TABLES.get(table, {}).get(column), name.endswith(HEX)
        if layout is None or (is_hex and layout not in (Layout.HASH, Layout.BINARY)):
            raise ParameterError(f"no such column: {name[:100]}")
        return cls(table, column, layout, is_hex=is_hex)

    def add(self, value: Value) -> None:
        """Add a row."""
        if isinstance(value, bytes) and self._is_hex:
            value = value.hex()
        if isinstance(value, (bytes, str)):
            self._size += len(value)  # text is ASCII
            if self._size > _LONGEST:
                raise OverflowError("the data is larger than the kernel can handle")
        self._values.append(value)

    def packed(self) -> ColumnBuffers:
        """Return the column."""
        values = self._values
        validity = _bits([value is not None for value in values]) if None in values else None
        match self._layout:
            case Layout.BINARY | Layout.TEXT:
                pieces = [value.encode() if isinstance(value, str) else value or b"" for value in values]
                return ColumnBuffers(len(values), validity, _offsets(pieces), b"".join(pieces))  # type: ignore[arg-type]
            case Layout.HASH:
                hashes = [value if isinstance(value, bytes) else bytes(HASH_SIZE) for value in values]
                return ColumnBuffers(len(values), validity, None, b"".join(hashes))
            case Layout.BITS:
                return ColumnBuffers(len(values), validity, None, _bits([bool(value) for value in values]))
        code = {Layout.INT8: "b", Layout.INT32: "i", Layout.INT64: "q", Layout.FLOAT64: "d"}[self._layout]
        return ColumnBuffers(
            len(values), validity, None, struct.pack(f"<{len(values)}{code}", *(value or 0 for value in values))
        )


def _bits(values: Sequence[bool]) -> bytes:
    """Return booleans as bits, lowest bit first."""
    packed = bytearray((len(values) + 7) // 8)
    for number, value in enumerate(values):
        packed[number >> 3] |= value << (number & 7)
    return bytes(packed)


def _offsets(pieces: Sequence[bytes]) -> bytes:
    """Return the offset of each piece, and the total size."""
    offsets = [0]
    for piece in pieces:
        offsets.append(offsets[-1] + len(piece))
    return struct.pack(f"<{len(offsets)}i", *offsets)


def _add_block(
    raw: bytes,
    record: bytes | None,
    height: int,
    wanted: Sequence[ColumnRows],
    network: Network,
    packed: bytes | None,
) -> None:
    """Add the rows of a block to the columns that are wanted."""
    if len(raw) > MAX_BLOCK_SIZE:
        raise FormatError(
            f"must be at most {MAX_BLOCK_SIZE} bytes long, not {len(raw)}", offset=MAX_BLOCK_SIZE, field="block"
        )
    txs = list(walk_block(raw))
    paid = [_paid(raw, span) for span in txs]
    coins = None if record is None else coins_of_block(record, raw, txs)
    matches = None if packed is None else _matches(raw, txs, packed)
    stripped = len(raw) - sum(span.end - span.start - len(strip_witness(raw, span)) for span in txs)
    block = _Block(raw, None if height == NO_HEIGHT else height, network, txs, stripped)
    by_table = {table: [column for column in wanted if column.table == table] for table in TABLES}
    for column in by_table["blocks"]:
        column.add(_OF_BLOCK[column.name](block))
    for index, span in enumerate(txs):
        if matches is not None and index not in matches:
            continue
        of_tx = {} if matches is None else matches[index]
        tx = _Tx(block, span, index, coins[index] if coins and index else None, paid[index], of_tx)
        _add_tx(tx, by_table)


def _add_tx(tx: _Tx, by_table: dict[str, list[ColumnRows]]) -> None:
    """Add the rows of a transaction."""
    raw = tx.block.raw
    for column in by_table["transactions"]:
        column.add(_OF_PLACE[column.name](tx.block) if column.name in _OF_PLACE else _OF_TX[column.name](tx))
    if tx.index:
        for spend in _inputs(tx):
            for column in by_table["inputs"]:
                column.add(
                    _OF_PLACE[column.name](tx.block) if column.name in _OF_PLACE else _OF_INPUT[column.name](spend)
                )
            for column in by_table["items"]:
                column.add(_OF_ITEM[column.name](_Item(spend)))
    for number, (value_at, start, end) in enumerate(tx.span.outputs):
        output = _Output(tx, number, int.from_bytes(raw[value_at : value_at + 8], "little"), raw[start:end])
        for column in by_table["outputs"]:
            column.add(
                _OF_PLACE[column.name](tx.block) if column.name in _OF_PLACE else _OF_OUTPUT[column.name](output)
            )
        for column in by_table["items"]:
            column.add(_OF_ITEM[column.name](_Item(output)))


def _matches(raw: bytes, txs: list[TxSpan], packed: bytes) -> dict[int, dict[tuple[bool, int], int]]:
    """Return, for each transaction number, the inputs and outputs with hits, and the lowest entry of each.

    Raises FormatError if the hits are malformed or belong to another block.
    """
    found: dict[int, dict[tuple[bool, int], int]] = {}
    several = list(hits_in(packed))
    for hit in several:
        if hit.position < len(txs):
            span = txs[hit.position]
            items = (len(span.inputs) if hit.position else 0) if hit.spend else len(span.outputs)
            if hit.n < items:
                of_tx, item = found.setdefault(hit.position, {}), (hit.spend, hit.n)
                of_tx[item] = min(of_tx.get(item, hit.entry), hit.entry)
                continue
        raise FormatError("a hit belongs to a different block", offset=0, field="hits")
    txids = {position: txid(raw, txs[position]) for position in found}
    if any(txids[hit.position] != hit.txid for hit in several):
        raise FormatError("a hit belongs to a different block", offset=0, field="hits")
    return found


def _inputs(tx: _Tx) -> Iterator[_Input]:
    """Yield the inputs of a transaction with their witnesses."""
    raw, at = tx.block.raw, tx.span.witness
    for number, place in enumerate(tx.span.inputs):
        start = at
        if at:
            items, at = read_compact_size(raw, at, "witness item count")
            for _ in range(items):
                size, at = read_compact_size(raw, at, "witness item length")
                at += size
        yield _Input(tx, number, place, raw[start:at], tx.coins[number] if tx.coins else None)


def _paid(raw: bytes, span: TxSpan) -> int:
    """Return the sum of a transaction's outputs. Raises FormatError if it, or an output, is out of range."""
    total = 0
    for at, _, _ in span.outputs:
        value = int.from_bytes(raw[at : at + 8], "little")
        total += value
        if value > MAX_MONEY or total > MAX_MONEY:
            raise FormatError("a transaction pays more than 21 million coins", offset=at, field="value")
    return total


def _displayed(hash: bytes) -> bytes:
    """Return a hash in display order."""
    return hash[::-1]
