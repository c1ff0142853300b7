"""The verbose answer to blockchain.transaction.get: a transaction in the form of Bitcoin Core's RPC."""

from __future__ import annotations

from spvfilter.address import script_to_address
from spvfilter.chain import HeaderChain
from spvfilter.primitives import OutPoint, hash_to_hex
from spvfilter.store.scriptviews import TxProof
from spvfilter.transaction import Transaction


def tx_details(proved: TxProof, chain: HeaderChain) -> dict[str, object]:
    """Return the fields of Core's `getrawtransaction`, except disassembled scripts and witnesses.

    Values are in BTC, as in Core.
    """
    tx = Transaction.parse(proved.raw)
    found: dict[str, object] = {
        "txid": tx.txid_hex,
        "hash": tx.wtxid_hex,
        "version": tx.version,
        "size": len(tx.raw),
        "vsize": tx.virtual_size,
        "weight": tx.weight,
        "locktime": tx.lock_time,
        "hex": tx.raw.hex(),
        "vin": _inputs(tx),
        "vout": [
            {
                "n": index,
                "value": output.value / 100_000_000,
                "scriptPubKey": _script(output.script_pubkey, chain),
            }
            for index, output in enumerate(tx.outputs)
        ],
    }
    if proved.height is not None and proved.block_hash is not None and proved.height <= chain.height:
        time = chain.time_at(proved.height)
        confirmations = chain.height - proved.height + 1
        found |= {"blockhash": hash_to_hex(proved.block_hash), "confirmations": confirmations}
        found |= {"time": time, "blocktime": time}
    return found


def _inputs(tx: Transaction) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for outpoint, sequence, (_, start, end) in zip(tx.inputs, tx.sequences, tx.span.inputs, strict=True):
        script = tx.raw[start:end].hex()
        if tx.is_coinbase:
            rows.append({"coinbase": script, "sequence": sequence})
            continue
        spent = OutPoint.parse(outpoint)
        row: dict[str, object] = {"txid": spent.txid_hex, "vout": spent.index, "scriptSig": {"hex": script}}
        rows.append(row | {"sequence": sequence})
    return rows


def _script(script: bytes, chain: HeaderChain) -> dict[str, object]:
    address = script_to_address(script, chain.network)
    found: dict[str, object] = {"hex": script.hex()}
    return found if address is None else {**found, "address": address}
