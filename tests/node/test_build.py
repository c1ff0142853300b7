"""Builders of the embedded node: scripts of every type, transactions and mined blocks. python-bitcoinlib and other
builders check them.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

import pytest
from bitcoin.core import CBlock, CTransaction
from bitcoin.core.script import CScript

from spvfilter.errors import ParameterError
from spvfilter.hashes import hash160
from spvfilter.kernel import check_block
from spvfilter.node.build import BITS, build_block, build_coinbase, height_push, mine
from spvfilter.node.scripts import SIGNATURE, Lock, multisig, op_return, p2pk, p2pkh, p2sh, p2tr, p2wpkh, p2wsh, push
from spvfilter.primitives import Header, OutPoint, TxOut
from spvfilter.signing import build_tx
from spvfilter.transaction import TxIn
from spvfilter.watch.watchlist import WatchList
from support.blocks import build

KEY = b"\x02" + sha256(b"key").digest()
LONG_KEY = b"\x04" + sha256(b"x").digest() + sha256(b"y").digest()
OTHER = b"\x03" + sha256(b"other").digest()
XONLY = sha256(b"taproot").digest()
COIN = OutPoint(sha256(b"funding").digest(), 3)

LOCKS: dict[str, Callable[[], Lock]] = {
    "p2pk": lambda: p2pk(KEY),
    "p2pk uncompressed": lambda: p2pk(LONG_KEY),
    "p2pkh": lambda: p2pkh(KEY),
    "p2wpkh": lambda: p2wpkh(KEY),
    "p2tr": lambda: p2tr(XONLY),
    "multisig": lambda: multisig(1, [KEY, OTHER]),
    "p2sh": lambda: p2sh(multisig(2, [KEY, OTHER])),
    "p2sh-p2wpkh": lambda: p2sh(p2wpkh(KEY)),
    "p2wsh": lambda: p2wsh(multisig(1, [KEY]).script_pubkey, (b"", SIGNATURE)),
    "p2sh-p2wsh": lambda: p2sh(p2wsh(multisig(1, [KEY]).script_pubkey, (b"", SIGNATURE))),
    "op_return": lambda: op_return(b"data", b""),
}


@pytest.mark.parametrize(
    ("name", "script"),
    [
        ("p2pk", build.p2pk(KEY)),
        ("p2pk uncompressed", build.p2pk(LONG_KEY)),
        ("p2pkh", build.p2pkh(hash160(KEY))),
        ("p2wpkh", build.p2wpkh(hash160(KEY))),
        ("p2tr", build.p2tr(XONLY)),
        ("multisig", build.multisig(1, [KEY, OTHER])),
        ("p2sh", build.p2sh(hash160(build.multisig(2, [KEY, OTHER])))),
        ("p2sh-p2wpkh", build.p2sh(hash160(build.p2wpkh(hash160(KEY))))),
        ("p2wsh", build.p2wsh(sha256(build.multisig(1, [KEY])).digest())),
        ("p2sh-p2wsh", build.p2sh(hash160(build.p2wsh(sha256(build.multisig(1, [KEY])).digest())))),
        ("op_return", b"\x6a\x04data\x00"),
    ],
)
def test_every_type_of_output_has_its_script(name: str, script: bytes) -> None:
    lock = LOCKS[name]()
    assert lock.script_pubkey == script
    assert lock.pays(7) == TxOut(7, script)


@pytest.mark.parametrize(
    ("name", "pushes", "items"),
    [
        ("p2pk", [SIGNATURE], []),
        ("p2pkh", [SIGNATURE, KEY], []),
        ("p2wpkh", [], [SIGNATURE, KEY]),
        ("p2tr", [], [64]),
        ("multisig", [b"", SIGNATURE], []),
        ("p2sh", [b"", SIGNATURE, SIGNATURE, build.multisig(2, [KEY, OTHER])], []),
        ("p2sh-p2wpkh", [build.p2wpkh(hash160(KEY))], [SIGNATURE, KEY]),
        ("p2wsh", [], [b"", SIGNATURE, build.multisig(1, [KEY])]),
        (
            "p2sh-p2wsh",
            [build.p2wsh(sha256(build.multisig(1, [KEY])).digest())],
            [b"", SIGNATURE, build.multisig(1, [KEY])],
        ),
    ],
)
def test_every_type_is_spent_with_its_pushes_and_witness(
    name: str, pushes: list[bytes], items: list[bytes | int]
) -> None:
    txin = LOCKS[name]().spends(COIN)
    assert txin.outpoint == COIN
    assert [b"" if op == 0 else data for op, data, _ in CScript(txin.script_sig).raw_iter()] == pushes
    assert [len(item) if item[:1] == b"\x6e" else item for item in txin.witness] == items


@pytest.mark.parametrize("name", sorted(set(LOCKS) - {"op_return"}))
def test_a_watch_list_finds_receipt_and_spend(name: str) -> None:
    lock = LOCKS[name]()
    watch = WatchList("regtest")
    watch.add_script(lock.script_pubkey)
    paying = build_tx([TxIn(COIN)], [TxOut(1, b"\x51"), lock.pays(2)])
    (receipt,) = watch.match_tx(paying)
    (spend,) = watch.match_tx(build_tx([lock.spends(receipt.outpoint)], [TxOut(1, b"\x51")]))
    assert (receipt.index, receipt.value, spend.outpoint) == (1, 2, receipt.outpoint)


@pytest.mark.parametrize("size", [0, 1, 75, 76, 255, 256, 65_535, 65_536])
def test_a_push_of_any_size_can_be_read(size: int) -> None:
    data = bytes(size)
    ((_, read, _),) = CScript(push(data)).raw_iter()
    assert (read or b"") == data


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: p2pk(KEY[1:]), "65 bytes that start with 04, 06 or 07; got 32 bytes"),
        (lambda: p2wpkh(b"\x05" + KEY[1:]), "65 bytes that start with 04, 06 or 07; got 33 bytes"),
        (lambda: p2tr(KEY), "32 bytes long, not 33"),
        (lambda: multisig(0, [KEY]), "not 0 of 1"),
        (lambda: multisig(2, [KEY]), "not 2 of 1"),
        (lambda: multisig(1, [KEY] * 17), "not 1 of 17"),
    ],
)
def test_keys_of_the_wrong_size_or_number_are_refused(wrong: Callable[[], Lock], said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        wrong()


@pytest.mark.parametrize("name", sorted(LOCKS))
def test_python_bitcoinlib_reads_the_same_transaction(name: str) -> None:
    lock = LOCKS[name]()
    raw = build_tx(
        [lock.spends(COIN), TxIn(COIN, b"\x01\x02", (), 5)], [lock.pays(9), TxOut(0, b"")], version=1, lock_time=77
    )
    tx = CTransaction.deserialize(raw)
    assert tx.serialize() == raw
    assert (tx.nVersion, tx.nLockTime) == (1, 77)
    assert [(txin.prevout.hash, txin.prevout.n, bytes(txin.scriptSig), txin.nSequence) for txin in tx.vin] == [
        (COIN.txid, 3, lock.script_sig, 0xFFFFFFFE),
        (COIN.txid, 3, b"\x01\x02", 5),
    ]
    assert [(out.nValue, bytes(out.scriptPubKey)) for out in tx.vout] == [(9, lock.script_pubkey), (0, b"")]
    assert bool(lock.witness) == build.is_segwit(raw)
    if lock.witness:
        assert tuple(tx.wit.vtxinwit[0].scriptWitness.stack) == lock.witness


@pytest.mark.parametrize("height", [0, 1, 16, 17, 127, 128, 255, 256, 32_767, 32_768, 8_388_607, 8_388_608])
def test_a_coinbase_states_its_height_by_bip34(height: int) -> None:
    assert build.coinbase(height, script_sig=b"\x00\x00")[42:].startswith(height_push(height))


def test_a_block_has_proof_of_work_a_parent_and_commitments() -> None:
    spend = build_tx([p2wpkh(KEY).spends(COIN)], [TxOut(1, b"\x51")])
    legacy = build_tx([p2pkh(KEY).spends(COIN)], [TxOut(1, b"\x51")])
    coinbase = build_coinbase(5, [TxOut(50, b"\x51")], [spend, legacy], extra=b"extra")
    raw = build_block(bytes(31) + b"\x07", 1_700_000_000, [coinbase, spend, legacy])
    check_block(raw)
    block = CBlock.deserialize(raw)
    assert (block.nBits, block.nTime, block.hashPrevBlock) == (BITS, 1_700_000_000, bytes(31) + b"\x07")
    assert int.from_bytes(block.GetHash(), "little") < 1 << 255
    assert block.calc_merkle_root() == block.hashMerkleRoot
    assert bytes(block.vtx[0].vout[-1].scriptPubKey) == build.commitment_script([coinbase, spend, legacy])


def test_mining_uses_the_first_valid_nonce() -> None:
    for time in range(20):
        mined = mine(Header(4, bytes(32), bytes(32), time, BITS, 0))
        tries = [Header(4, bytes(32), bytes(32), time, BITS, nonce).hash[31] for nonce in range(mined.nonce + 1)]
        assert [byte > 0x7F for byte in tries] == [True] * mined.nonce + [False]
