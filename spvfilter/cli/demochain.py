"""A small regtest chain made in memory for the demo: linked, with true merkle roots and commitments, but neither mined nor signed."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from hashlib import sha256
from itertools import count

from spvfilter.address import script_to_address
from spvfilter.hashes import sha256d
from spvfilter.kernel import merkle_root, parse_tx, txid, wtxid
from spvfilter.network import REGTEST
from spvfilter.primitives import Header, OutPoint, TxOut, compact_size

NETWORK = REGTEST
STRANGERS = 40  # transactions of others in each block
_COMMITMENT_PREFIX = bytes.fromhex("6a24aa21a9ed")  # BIP-141 § Commitment structure
_SUBSIDY = 50 * 100_000_000  # satoshi
_START = 1_700_000_000  # time of the first block
_BITS = 0x207FFFFF  # regtest's easiest target


def _digest(what: str) -> bytes:
    return sha256(f"spvfilter demo: {what}".encode()).digest()


def _scripts(owner: str) -> dict[str, bytes]:
    """One scriptPubKey of each kind, of hashes that no key is known to."""
    hashes = {kind: _digest(f"{owner} {kind}") for kind in ("P2PKH", "P2SH", "P2WPKH", "P2WSH", "P2TR")}
    return {
        "P2PKH": b"\x76\xa9\x14" + hashes["P2PKH"][:20] + b"\x88\xac",
        "P2SH": b"\xa9\x14" + hashes["P2SH"][:20] + b"\x87",
        "P2WPKH": b"\x00\x14" + hashes["P2WPKH"][:20],
        "P2WSH": b"\x00\x20" + hashes["P2WSH"],
        "P2TR": b"\x51\x20" + hashes["P2TR"],
    }


def wallet_addresses() -> dict[str, str]:
    """The demo wallet: an address of each kind."""
    addresses = {kind: script_to_address(script, NETWORK) for kind, script in _scripts("wallet").items()}
    return {kind: address for kind, address in addresses.items() if address is not None}


def _transaction(spent: Sequence[tuple[OutPoint, bool]], paid: Sequence[TxOut]) -> bytes:
    """A transaction with a made-up signature and key for each input, in its witness where the flag says so, else in its scriptSig."""
    inputs, witness = b"", b""
    for outpoint, segwit in spent:
        signature, key = _digest(f"signature {outpoint}") * 2 + bytes(7), b"\x02" + _digest(f"key {outpoint}")
        proof = compact_size(len(signature)) + signature + compact_size(len(key)) + key  # pushes and stack items look the same
        inputs += bytes(outpoint) + (b"\x00" if segwit else compact_size(len(proof)) + proof) + b"\xfe\xff\xff\xff"
        witness += b"\x02" + proof if segwit else b"\x00"
    return _serialise(len(spent), inputs, paid, witness if any(segwit for _, segwit in spent) else b"")


def _coinbase(height: int, paid: Sequence[TxOut], witness_root: bytes) -> bytes:
    """It states its height (BIP-34; OP_1 to OP_16 here) and commits to the witnesses (BIP-141)."""
    tag = b"spvfilter demo"
    script_sig = bytes((0x50 + height, len(tag))) + tag
    commitment = TxOut(0, _COMMITMENT_PREFIX + sha256d(witness_root + bytes(32)))
    inputs = bytes(32) + b"\xff" * 4 + compact_size(len(script_sig)) + script_sig + b"\xff" * 4
    return _serialise(1, inputs, [*paid, commitment], b"\x01\x20" + bytes(32))


def _serialise(input_count: int, inputs: bytes, paid: Sequence[TxOut], witness: bytes) -> bytes:
    marker = b"\x00\x01" if witness else b""
    outputs = compact_size(len(paid)) + b"".join(map(bytes, paid))
    return b"\x02\0\0\0" + marker + compact_size(input_count) + inputs + outputs + witness + bytes(4)


class DemoChain:
    """Blocks on regtest's genesis: coins for strangers, receipts on every kind of address, spends, one block that is all strangers'."""

    def __init__(self) -> None:
        self.blocks: list[bytes] = []
        self._tip = NETWORK.genesis_hash
        self._names = count()
        self._coins: deque[tuple[OutPoint, int]] = deque()  # what strangers may spend, and its value
        self._pending: list[bytes] = []  # transactions of the next block, but for the coinbase
        self._mine(coins=STRANGERS)
        wallet = _scripts("wallet")
        pkh = self._receive(wallet["P2PKH"], 50_000_000)
        wpkh = self._receive(wallet["P2WPKH"], 110_000_000)
        self._trade_and_mine()
        self._receive(wallet["P2SH"], 7_500_000)
        tr = self._receive(wallet["P2TR"], 30_000_000)
        self._trade_and_mine()
        wsh = self._spend([(pkh, False)], 20_000_000, TxOut(29_990_000, wallet["P2WSH"]))
        self._trade_and_mine()
        self._trade_and_mine()  # strangers only
        change = self._spend([(wpkh, True), (tr, True)], 90_000_000, TxOut(49_980_000, wallet["P2WPKH"]))
        self._spend([(change, True)], 9_000_000, TxOut(40_970_000, wallet["P2WPKH"]))  # in the same block
        self._trade_and_mine()
        self._spend([(wsh, True)], 28_980_000, TxOut(1_000_000, wallet["P2TR"]))
        self._trade_and_mine()

    def _stranger(self, value: int) -> TxOut:
        number = next(self._names)
        kinds = list(_scripts(f"stranger {number}").values())
        return TxOut(value, kinds[number % len(kinds)])

    def _add(self, raw: bytes, *strangers: tuple[int, int]) -> bytes:
        """Put a transaction into the next block; `strangers` are its outputs that they can spend, (index, value). Its txid."""
        tx_hash = txid(raw, parse_tx(raw))
        self._pending.append(raw)
        self._coins.extend((OutPoint(tx_hash, index), value) for index, value in strangers)
        return tx_hash

    def _receive(self, script: bytes, value: int) -> OutPoint:
        """A stranger pays the wallet."""
        coin, worth = self._coins.popleft()
        change = self._stranger(worth - value)
        raw = _transaction([(coin, True)], [TxOut(value, script), change])
        return OutPoint(self._add(raw, (1, change.value)), 0)

    def _spend(self, coins: Sequence[tuple[OutPoint, bool]], value: int, change: TxOut) -> OutPoint:
        """The wallet pays a stranger; the outpoint of its change."""
        raw = _transaction(coins, [self._stranger(value), change])
        return OutPoint(self._add(raw, (0, value)), 1)

    def _trade_and_mine(self) -> None:
        """Strangers pay each other, half of them before and half after what the wallet does, and a block is made of all."""
        wallets, self._pending = self._pending, []
        for number in range(STRANGERS):
            if number == STRANGERS // 2:
                self._pending += wallets
            coin, worth = self._coins.popleft()
            paid, change = self._stranger(worth // 2), self._stranger(worth - worth // 2)
            self._add(_transaction([(coin, number % 2 == 0)], [paid, change]), (0, paid.value), (1, change.value))
        self._mine()

    def _mine(self, coins: int = 1) -> None:
        """A block of what is pending, its coinbase paying so many equal outputs."""
        height = len(self.blocks) + 1
        paid = [self._stranger(_SUBSIDY // coins) for _ in range(coins)]
        spans = [(raw, parse_tx(raw)) for raw in self._pending]
        witness_root, _ = merkle_root([bytes(32), *(wtxid(*span) for span in spans)])
        coinbase = _coinbase(height, paid, witness_root)
        coinbase_hash = txid(coinbase, parse_tx(coinbase))
        root, _ = merkle_root([coinbase_hash, *(txid(*span) for span in spans)])
        header = Header(0x20000000, self._tip, root, _START + 600 * height, _BITS, 0)
        transactions = [coinbase, *self._pending]
        self.blocks.append(bytes(header) + compact_size(len(transactions)) + b"".join(transactions))
        self._coins.extend((OutPoint(coinbase_hash, index), output.value) for index, output in enumerate(paid))
        self._tip, self._pending = header.hash, []
