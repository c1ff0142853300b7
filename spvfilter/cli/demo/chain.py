"""The demo's regtest chain: valid proof of work, merkle roots and witness commitments, and the wallet's spends."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import count

from spvfilter.address import script_to_address
from spvfilter.hashes import sha256d
from spvfilter.network import REGTEST
from spvfilter.node.blocktree import subsidy
from spvfilter.node.build import build_block, build_coinbase
from spvfilter.node.scripts import SIGNATURE, Lock, p2pkh, p2sh, p2tr, p2wpkh, p2wsh
from spvfilter.primitives import OutPoint
from spvfilter.protocol import HEADER_SIZE
from spvfilter.signatures import find_curve
from spvfilter.signing import build_tx
from spvfilter.transaction import Transaction, TxIn

NETWORK = REGTEST
FOREIGN_TXS = 40  # foreign transactions in each block
_START = 1_700_000_000  # Unix time; the first block is 600 seconds later
# Public keys of `wallet_keys`, the last one tweaked (BIP-86). With these, the demo needs no libsecp256k1.
_WALLET_KEYS = {
    "P2PKH": bytes.fromhex("027f653c1628de7bbe85d7922db54e49275c0da8d8186b7832401286f5e6f21f88"),
    "P2SH": bytes.fromhex("02d46eb2b559fa7f52f34deadac53b45d9a2df82a786a8263101955c2203e18235"),
    "P2WPKH": bytes.fromhex("036be977a6ac5fd45532a193f6e1c570d1ba964ec907889bda73fcde08a49c3415"),
    "P2WSH": bytes.fromhex("03706bdfaf43baad975c5dd337b61e1f7dc98871704bac25c3c819c39785a88958"),
    "P2TR": bytes.fromhex("03d000cf630f0b11e7aed22f0f323177ffabe4abaf83041e10201b3c3e9fb460f5"),
}


def wallet_keys() -> dict[str, bytes]:
    """Return the private keys of the demo's wallet."""
    return {kind: sha256(f"spvfilter demo: wallet {kind}".encode()).digest() for kind in _WALLET_KEYS}


def _locks(keys: Mapping[str, bytes]) -> dict[str, Lock]:
    """Return a lock of each kind for the public keys."""
    return {
        "P2PKH": p2pkh(keys["P2PKH"]),
        "P2SH": p2sh(p2wpkh(keys["P2SH"])),
        "P2WPKH": p2wpkh(keys["P2WPKH"]),
        "P2WSH": p2wsh(b"\x21" + keys["P2WSH"] + b"\xac", [SIGNATURE]),
        "P2TR": p2tr(keys["P2TR"][1:]),
    }


def _made_up(owner: str) -> dict[str, bytes]:
    """Return public keys whose private keys nobody knows."""
    return {kind: b"\x02" + sha256(f"spvfilter demo: {owner} {kind}".encode()).digest() for kind in _WALLET_KEYS}


def wallet_addresses() -> dict[str, str]:
    """Return the addresses of the demo's wallet, one of each kind."""
    addresses = {kind: script_to_address(lock.script_pubkey, NETWORK) for kind, lock in _locks(_WALLET_KEYS).items()}
    return {kind: address for kind, address in addresses.items() if address is not None}


def _spends(raw: bytes, locks: Sequence[Lock]) -> list[TxIn]:
    """Return inputs that spend the first outputs of a transaction. `locks` are the locks of these outputs."""
    tx = Transaction.parse(raw)
    return [lock.spends(OutPoint(tx.txid, index), tx.output(index).value) for index, lock in enumerate(locks)]


class DemoChain:
    """A regtest chain that contains payments to the wallet, spends, and a block that does not involve the wallet.

    Most blocks also contain foreign transactions. The first block is followed by `empty` blocks without transactions:
    with COINBASE_MATURITY of them, the first coinbase is mature, and a node accepts the chain.

    The wallet's spends are signed if libsecp256k1 is installed. Other signatures are made up.
    """

    def __init__(self, empty: int = 0) -> None:
        self.blocks: list[bytes] = []
        self._tip = NETWORK.genesis_hash
        self._names = count()
        self._coins: deque[tuple[TxIn, int]] = deque()  # coins for foreign transactions, with their values
        self._pending: list[bytes] = []  # transactions of the next block, except the coinbase
        self._mine(coins=FOREIGN_TXS)
        for _ in range(empty):
            self._mine()
        wallet = _locks(_WALLET_KEYS)
        pkh = self._receive(wallet["P2PKH"], 50_000_000)
        wpkh = self._receive(wallet["P2WPKH"], 110_000_000)
        self._trade_and_mine()
        self._receive(wallet["P2SH"], 7_500_000)
        tr = self._receive(wallet["P2TR"], 30_000_000)
        self._trade_and_mine()
        wsh = self._spend([pkh], 20_000_000, wallet["P2WSH"], 29_990_000)
        self._trade_and_mine()
        self._trade_and_mine()  # a block that does not involve the wallet
        change = self._spend([wpkh, tr], 90_000_000, wallet["P2WPKH"], 49_980_000)
        self._spend([change], 9_000_000, wallet["P2WPKH"], 40_970_000)  # in the same block
        self._trade_and_mine()
        self._spend([wsh], 28_980_000, wallet["P2TR"], 1_000_000)
        self._trade_and_mine()

    def time(self) -> float:
        """Time of the next block (Unix time)."""
        return _START + 600 * (len(self.blocks) + 1)

    def next_payments(self) -> tuple[bytes, bytes]:
        """Return two unconfirmed transactions: a payment to the wallet's P2TR address, and a spend of this payment."""
        wallet, self._pending = _locks(_WALLET_KEYS), []
        received = self._receive(wallet["P2TR"], 12_500_000)
        self._spend([received], 10_000_000, wallet["P2WPKH"], 2_490_000)
        payment, spend = self._pending
        return payment, spend

    def _foreign_lock(self) -> Lock:
        """Return a new lock that does not belong to the wallet."""
        number = next(self._names)
        kinds = list(_locks(_made_up(f"stranger {number}")).values())
        return kinds[number % len(kinds)]

    def _add(self, coins: Sequence[TxIn], *paid: tuple[Lock, int], keys: Iterable[bytes] | None = None) -> list[TxIn]:
        """Put a transaction into the next block and return inputs that spend its outputs."""
        raw = build_tx(coins, [lock.pays(value) for lock, value in paid], keys=keys)
        self._pending.append(raw)
        return _spends(raw, [lock for lock, _ in paid])

    def _receive(self, lock: Lock, value: int) -> TxIn:
        """Pay the wallet, and return the input that spends the payment."""
        coin, worth = self._coins.popleft()
        received, change = self._add([coin], (lock, value), (self._foreign_lock(), worth - value))
        self._coins.append((change, worth - value))
        return received

    def _spend(self, coins: Sequence[TxIn], value: int, lock: Lock, change: int) -> TxIn:
        """Let the wallet pay a foreign address, and return the input that spends the change."""
        keys = None if find_curve() is None else wallet_keys().values()
        paid, kept = self._add(coins, (self._foreign_lock(), value), (lock, change), keys=keys)
        self._coins.append((paid, value))
        return kept

    def _trade_and_mine(self) -> None:
        """Mine a block that contains the wallet's transactions, with foreign transactions before and after them."""
        wallets, self._pending = self._pending, []
        for number in range(FOREIGN_TXS):
            if number == FOREIGN_TXS // 2:
                self._pending += wallets
            coin, worth = self._coins.popleft()
            values = (worth // 2, worth - worth // 2)
            self._coins.extend(
                zip(self._add([coin], *((self._foreign_lock(), value) for value in values)), values, strict=True)
            )
        self._mine()

    def _mine(self, coins: int = 1) -> None:
        """Mine a block of the pending transactions. Its coinbase pays `coins` equal outputs."""
        height = len(self.blocks) + 1
        locks, value = [self._foreign_lock() for _ in range(coins)], subsidy(height) // coins
        coinbase = build_coinbase(height, [lock.pays(value) for lock in locks], self._pending)
        if height == 1:  # later coinbases do not mature within this chain
            self._coins.extend((coin, value) for coin in _spends(coinbase, locks))
        self.blocks.append(build_block(self._tip, _START + 600 * height, [coinbase, *self._pending]))
        self._tip = sha256d(self.blocks[-1][:HEADER_SIZE])
        self._pending = []
