"""The verbose form of transactions: the fields of Bitcoin Core's getrawtransaction, with their values."""

from __future__ import annotations

import pytest
from bitcoin.core import CTransaction

from spvfilter.address import script_to_address
from spvfilter.chain import HeaderChain
from spvfilter.electrum.txdetails import tx_details
from spvfilter.network import REGTEST
from spvfilter.node.scripts import p2wpkh
from spvfilter.primitives import OutPoint, TxOut
from spvfilter.store.ledger import TxStatus
from spvfilter.store.scriptviews import TxProof
from spvfilter.transaction import Transaction, TxIn
from support.blocks.build import coinbase
from support.blocks.headerchains import NOW, regular
from support.blocks.locks import build_tx, key
from support.oracles.electrumoracle import double, shown

SPENT = OutPoint(bytes(range(32)), 7), OutPoint(bytes(32), 258)
NO_ADDRESS = bytes.fromhex("6a0100")


def chain_of_3() -> HeaderChain:
    chain = HeaderChain(REGTEST)
    chain.accept(regular(chain, 3), NOW)
    return chain


def details(raw: bytes, height: int | None = None) -> dict[str, object]:
    """Details of a transaction at a height of the chain."""
    chain = chain_of_3()
    block_hash = None if height is None else chain.hash_at(min(height, 3))
    status = TxStatus.PENDING if height is None else TxStatus.CONFIRMED
    return tx_details(TxProof(Transaction.parse(raw).txid, raw, status, False, height, block_hash, None, None), chain)


def test_details_name_inputs_outputs_and_sizes() -> None:
    lock = p2wpkh(key(2))
    inputs = TxIn(SPENT[0], witness=(bytes(71), key(1)), sequence=0xFFFFFFFD), TxIn(SPENT[1], b"\x01\x07", sequence=0)
    raw = build_tx(inputs, [TxOut(29_000_000, lock.script_pubkey), TxOut(1, NO_ADDRESS)], lock_time=9)
    tx = CTransaction.deserialize(raw)
    weight = 3 * len(tx.serialize(params={"include_witness": False})) + len(raw)
    address = script_to_address(lock.script_pubkey, REGTEST)
    assert details(raw) == {
        "txid": shown(tx.GetTxid()),
        "hash": shown(double(raw)),
        "version": tx.nVersion,
        "size": len(raw),
        "vsize": (weight + 3) // 4,
        "weight": weight,
        "locktime": 9,
        "hex": raw.hex(),
        "vin": [
            {"txid": shown(SPENT[0].txid), "vout": 7, "scriptSig": {"hex": ""}, "sequence": 0xFFFFFFFD},
            {"txid": shown(SPENT[1].txid), "vout": 258, "scriptSig": {"hex": "0107"}, "sequence": 0},
        ],
        "vout": [
            {"n": 0, "value": 0.29, "scriptPubKey": {"hex": lock.script_pubkey.hex(), "address": address}},
            {"n": 1, "value": 1e-8, "scriptPubKey": {"hex": NO_ADDRESS.hex()}},
        ],
    }


@pytest.mark.parametrize(("height", "confirmations"), [(1, 3), (3, 1), (0, 4)])
def test_details_of_a_confirmed_transaction_name_its_block(height: int, confirmations: int) -> None:
    raw = build_tx([TxIn(SPENT[0])], [TxOut(5, NO_ADDRESS)])
    found, chain = details(raw, height), chain_of_3()
    assert found["confirmations"] == confirmations
    assert found["blockhash"] == shown(chain.hash_at(height))
    assert found["time"] == found["blocktime"] == chain.time_at(height)


@pytest.mark.parametrize("height", [None, 4])
def test_details_name_no_block_outside_of_the_chain(height: int | None) -> None:
    found = details(build_tx([TxIn(SPENT[0])], [TxOut(5, NO_ADDRESS)]), height)
    assert not found.keys() & {"blockhash", "confirmations", "time", "blocktime"}


def test_details_of_a_coinbase_show_its_script() -> None:
    raw = coinbase(300, script_sig=b"\x07")
    assert details(raw)["vin"] == [{"coinbase": "022c0107", "sequence": 0xFFFFFFFF}]
