"""Columns of block tables as Python values, and the same values from python-bitcoinlib. No assertions."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from bitcoin.core import CBlock, CTransaction
from bitcoin.core.serialize import VarIntSerializer

from spvfilter.kernel.blocktables import HEX, TABLES, Layout
from spvfilter.network import Network
from support.blocks.undo import Spent

CODES = {Layout.INT8: "b", Layout.INT32: "i", Layout.INT64: "q", Layout.FLOAT64: "d"}
EVERY = [f"{table}.{name}" for table, columns in TABLES.items() for name in columns]
"""Names of all columns without the ones in hex."""
HEXES = [
    f"{table}.{name}{HEX}"
    for table, columns in TABLES.items()
    for name, layout in columns.items()
    if layout in (Layout.HASH, Layout.BINARY)
]
"""Names of all columns in hex."""


def of_network(network: Network) -> tuple[int, int, str]:
    return network.p2pkh_version, network.p2sh_version, network.hrp


def layout_of(name: str) -> Layout:
    table, column = name.removesuffix(HEX).split(".")
    return Layout.TEXT if name.endswith(HEX) else TABLES[table][column]


def bits(raw: bytes, count: int) -> list[bool]:
    return [bool(raw[number // 8] >> number % 8 & 1) for number in range(count)]


def values(name: str, column: tuple[int, bytes | None, bytes | None, bytes]) -> list[Any]:
    """The values of a column, with None for rows without a value."""
    length, validity, offsets, data = column
    layout, found = layout_of(name), list[Any]()
    match layout:
        case Layout.HASH:
            found = [data[32 * row : 32 * row + 32] for row in range(length)]
        case Layout.BITS:
            found = bits(data, length)
        case Layout.BINARY | Layout.TEXT:
            at = struct.unpack(f"<{length + 1}i", offsets or b"")
            found = [data[at[row] : at[row + 1]] for row in range(length)]
            if layout is Layout.TEXT:
                found = [each.decode() for each in found]
        case _:
            found = list(struct.unpack(f"<{length}{CODES[layout]}", data))
    return (
        found
        if validity is None
        else [v if is_valid else None for v, is_valid in zip(found, bits(validity, length), strict=True)]
    )


def rows_of_block(
    raw: bytes, height: int | None, spent: Sequence[Sequence[Spent]] | None
) -> dict[str, list[dict[str, Any]]]:
    """The rows of all tables by python-bitcoinlib, without addresses, types and OP_RETURN data."""
    block = CBlock.deserialize(raw)
    txs = block.vtx
    stripped = len(raw) - sum(len(tx.serialize()) - len(without_witness(tx)) for tx in txs)
    place = {"block_hash": block.GetHash()[::-1], "block_number": height, "block_timestamp": 1000 * block.nTime}
    tables: dict[str, list[dict[str, Any]]] = {
        "blocks": [
            {
                "hash": block.GetHash()[::-1],
                "number": height,
                "timestamp": 1000 * block.nTime,
                "previous_hash": block.hashPrevBlock[::-1],
                "merkle_root": block.hashMerkleRoot[::-1],
                "version": block.nVersion,
                "bits": block.nBits,
                "nonce": block.nNonce,
                "size": len(raw),
                "stripped_size": stripped,
                "weight": 3 * stripped + len(raw),
                "transaction_count": len(txs),
                "coinbase_param": bytes(txs[0].vin[0].scriptSig),
            }
        ],
        "transactions": [],
        "inputs": [],
        "outputs": [],
    }
    for index, tx in enumerate(txs):
        coins = spent[index - 1] if spent is not None and index else None
        size, base = len(tx.serialize()), len(without_witness(tx))
        paid = sum(out.nValue for out in tx.vout)
        fee = None if coins is None else sum(coin.value for coin in coins) - paid
        tables["transactions"].append(
            place
            | {
                "hash": tx.GetTxid()[::-1],
                "witness_hash": tx.GetHash()[::-1],
                "index": index,
                "version": tx.nVersion,
                "lock_time": tx.nLockTime,
                "size": size,
                "virtual_size": -(-(3 * base + size) // 4),
                "weight": 3 * base + size,
                "is_coinbase": index == 0,
                "input_count": len(tx.vin) if index else 0,
                "output_count": len(tx.vout),
                "input_value": None if coins is None else sum(coin.value for coin in coins),
                "output_value": paid,
                "fee": fee,
                "fee_rate": None if fee is None else fee / -(-(3 * base + size) // 4),
            }
        )
        of_tx = place | {"transaction_hash": tx.GetTxid()[::-1], "transaction_index": index}
        for number, txin in enumerate(tx.vin if index else ()):
            coin = None if coins is None else coins[number]
            stack = tx.wit.vtxinwit[number].scriptWitness.stack if tx.wit.vtxinwit else []
            has_witness = size != base
            tables["inputs"].append(
                of_tx
                | {
                    "index": number,
                    "spent_transaction_hash": txin.prevout.hash[::-1],
                    "spent_output_index": txin.prevout.n,
                    "script": bytes(txin.scriptSig),
                    "sequence": txin.nSequence,
                    "witness_size": witness_size(stack) if has_witness else 0,
                    "witness": serialized(stack) if has_witness else None,
                    "value": None if coin is None else coin.value,
                    "spent_script": None if coin is None else coin.script,
                    "spent_block_number": None if coin is None else coin.height or None,
                }
            )
        for number, out in enumerate(tx.vout):
            tables["outputs"].append(of_tx | {"index": number, "value": out.nValue, "script": bytes(out.scriptPubKey)})
    return tables


def without_witness(tx: CTransaction) -> bytes:
    return bytes(CTransaction(tx.vin, tx.vout, tx.nLockTime, tx.nVersion).serialize())


def serialized(stack: Sequence[bytes]) -> bytes:
    """A witness stack as transactions have it."""
    return b"".join(
        (
            VarIntSerializer.serialize(len(stack)),
            *(VarIntSerializer.serialize(len(item)) + bytes(item) for item in stack),
        )
    )


def witness_size(stack: Sequence[bytes]) -> int:
    return count_size(len(stack)) + sum(count_size(len(item)) + len(item) for item in stack)


def count_size(number: int) -> int:
    return 1 if number < 0xFD else 3 if number < 0x10000 else 5
