"""An independent oracle: python-bitcoinlib parses, a dict of scripts and a filter written from the BIP's text decide.

Nothing here imports the package under test.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import lru_cache

import mmh3
from bitcoin.core import CBlock, CTransaction, CTxIn, CTxOut, Hash160
from bitcoin.core.script import CScript, CScriptInvalidError

from support.blocks.build import outpoint, p2pk, p2pkh, p2sh, p2wpkh, var_bytes

Found = tuple[str, bytes, int, bytes, int | None]  # kind, txid, index, outpoint, value


def is_key(data: bytes) -> bool:
    """33 bytes 02 or 03, 65 bytes 04, 06 or 07."""
    return (len(data) == 33 and data[0] in (2, 3)) or (len(data) == 65 and data[0] in (4, 6, 7))


@lru_cache(maxsize=1 << 16)  # the scripts of real blocks are asked for again for each wallet
def operations(script: bytes) -> tuple[tuple[tuple[int, bytes | None], ...], bool]:
    """Opcodes with their data up to the first that does not parse, and whether all did."""
    found = []
    try:
        for opcode, data, _ in CScript(script).raw_iter():
            found.append((int(opcode), None if data is None else bytes(data)))
    except CScriptInvalidError:
        return tuple(found), False
    return tuple(found), True


def pushed(script: bytes) -> Iterator[bytes]:
    return (data for _, data in operations(script)[0] if data)


def keys_of_multisig(script: bytes) -> list[bytes]:
    """OP_m, n keys, OP_n, OP_CHECKMULTISIG and nothing else, with 1 <= m <= n <= 16."""
    if not script or script[-1] != 0xAE:
        return []
    found, whole = operations(script)
    if not whole or len(found) < 4 or found[-1][0] != 0xAE:
        return []
    required, total = found[0][0] - 0x50, found[-2][0] - 0x50
    keys = [data or b"" for _, data in found[1:-2]]
    return keys if 1 <= required <= total <= 16 and len(keys) == total and all(map(is_key, keys)) else []


def pays_key(script: bytes) -> bool:
    """Pay-to-pubkey, its key pushed directly, or bare multisig."""
    return (len(script) >= 2 and is_key(script[1:-1]) and script == p2pk(script[1:-1])) or bool(
        keys_of_multisig(script)
    )


class Wallet:
    """The wallet's entries, and the outpoints learned so far."""

    def __init__(self) -> None:
        self.scripts: set[bytes] = set()
        self.keys: set[bytes] = set()
        self.data: set[bytes] = set()
        self.coins: dict[bytes, int | None] = {}

    def add_key(self, key: bytes) -> None:
        key_hash = Hash160(key)
        self.scripts |= {p2pk(key), p2pkh(key_hash), p2wpkh(key_hash), p2sh(Hash160(p2wpkh(key_hash)))}
        self.keys.add(key)

    def block(self, block: CBlock) -> list[Found]:
        """Everything in a block that concerns the wallet, in order; its coins are kept for the blocks to come."""
        return [found for tx in block.vtx for found in self.transaction(tx)]

    def transaction(self, tx: CTransaction) -> list[Found]:
        found: list[Found] = []
        txid = tx.GetTxid()
        for index, txin in enumerate(tx.vin):
            spent = txin.prevout.serialize()
            if spent in self.coins:
                found.append(("input", txid, index, spent, self.coins[spent]))
            elif self.data and not self.data.isdisjoint(pushed(txin.scriptSig)):
                found.append(("input", txid, index, spent, None))
        for index, txout in enumerate(tx.vout):
            if self._wants(txout):
                self.coins[outpoint(txid, index)] = txout.nValue
                found.append(("output", txid, index, outpoint(txid, index), txout.nValue))
        return found

    def _wants(self, txout: CTxOut) -> bool:
        script = bytes(txout.scriptPubKey)
        return (
            script in self.scripts
            or bool(self.keys and not self.keys.isdisjoint(keys_of_multisig(script)))
            or bool(self.data and not self.data.isdisjoint(pushed(script)))
        )


class Filter:
    """A node's filter, from the text of BIP-37 and the rules of CBloomFilter::IsRelevantAndUpdate."""

    def __init__(self, field: bytes, hash_funcs: int, tweak: int, flags: int) -> None:
        self.field = bytearray(field)
        self.hash_funcs, self.tweak, self.flags = hash_funcs, tweak, flags

    def payload(self) -> bytes:
        return var_bytes(bytes(self.field)) + struct.pack("<IIB", self.hash_funcs, self.tweak, self.flags)

    def positions(self, data: bytes) -> Iterator[int]:
        for i in range(self.hash_funcs):
            yield mmh3.hash(data, (i * 0xFBA4C795 + self.tweak) % 2**32, signed=False) % (len(self.field) * 8)

    def __contains__(self, data: bytes) -> bool:
        return not self.field or all(self.field[at // 8] & 1 << at % 8 for at in self.positions(data))

    def insert(self, data: bytes) -> None:
        if self.field:
            for at in self.positions(data):
                self.field[at // 8] |= 1 << at % 8

    def relevant(self, tx: CTransaction) -> bool:
        if not self.field:
            return True
        txid = tx.GetTxid()
        found = txid in self
        for index, txout in enumerate(tx.vout):
            script = bytes(txout.scriptPubKey)
            if any(data in self for data in pushed(script)):
                found = True
                if self.flags & 3 == 1 or (self.flags & 3 == 2 and pays_key(script)):
                    self.insert(outpoint(txid, index))
        return found or any(self._spends(txin) for txin in tx.vin)

    def _spends(self, txin: CTxIn) -> bool:
        return txin.prevout.serialize() in self or any(data in self for data in pushed(txin.scriptSig))
