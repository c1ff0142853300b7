"""A wallet's scripts of every type, and foreign scripts, from numbered private keys that sign their spends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from hashlib import sha256

from spvfilter import signing
from spvfilter.kernel import multisig_keys
from spvfilter.node.blocktree import TipChange
from spvfilter.node.consensus import UnspentOutput
from spvfilter.node.regtest import Regtest
from spvfilter.node.scripts import Lock, multisig, p2pk, p2pkh, p2sh, p2tr, p2wpkh, p2wsh
from spvfilter.primitives import OutPoint, TxOut
from spvfilter.signatures import SigHashes, Validity, verify_spends
from spvfilter.signatures.curve import find_curve
from spvfilter.transaction import Transaction, TxIn
from support.blocks.signing import der

_SECRETS: dict[bytes, bytes] = {}
"""Private keys of all numbered keys so far, by public key and by the scripts that one key signs for."""

_ALL_ANYONE = 0x81  # the hash type SIGHASH_ALL with SIGHASH_ANYONECANPAY


def secret(number: int) -> bytes:
    """The private key of a number. Everybody knows it."""
    return sha256(b"key %d" % number).digest()


ONE = bytes(31) + b"\x01"
"""The private key 1. BIP-173 has the addresses of its public key."""


@cache
def key(number: int) -> bytes:
    """The public key of a number, 33 bytes."""
    return public_key(secret(number))


def public_key(private: bytes) -> bytes:
    """The public key of a private key, which `build_tx` signs with from now on.

    Without libsecp256k1 the result is any bytes, and signatures stay made up: no client can check them then.
    """
    curve = find_curve()
    if curve is None:
        return b"\x02" + sha256(private).digest()
    found = curve.public_key(private)
    scripts = [each.script_pubkey for each in (p2pk(found), p2pkh(found), p2wpkh(found), p2tr(found[1:]))]
    _SECRETS.update(dict.fromkeys([found, *scripts, p2sh(p2wpkh(found)).script_pubkey], private))
    return found


def build_tx(inputs: Sequence[TxIn], outputs: Sequence[TxOut], *, version: int = 2, lock_time: int = 0) -> bytes:
    """A transaction whose inputs with `spent` are signed with numbered keys."""
    scripts = [txin.spent.script_pubkey for txin in inputs if txin.spent is not None]
    names = [name for script in scripts for name in (script, *multisig_keys(script))]
    keys = dict.fromkeys(_SECRETS[name] for name in names if name in _SECRETS)
    return signing.build_tx(inputs, outputs, version=version, lock_time=lock_time, keys=list(keys) or None)


def sign_again(raw: bytes, spent: TxOut) -> bytes:
    """A transaction with one P2WPKH input, nested or not, and with another signature of its numbered key.

    It signs every output too, but no other input, so both signatures are valid. Without libsecp256k1 it is made up.
    """
    tx, curve = Transaction.parse(raw), find_curve()
    signature, (_, name) = bytes(71), tx.witnesses[0]
    if curve is not None:
        digest = SigHashes(tx, [spent]).segwit(0, p2pkh(name).script_pubkey, _ALL_ANYONE)
        assert digest is not None
        signature = der(curve.sign_ecdsa(_SECRETS[name], digest)) + bytes([_ALL_ANYONE])
    txin = TxIn(OutPoint.parse(tx.inputs[0]), tx.script_sigs[0], (signature, name), tx.sequences[0])
    outputs = [TxOut(out.value, out.script_pubkey) for out in tx.outputs]
    return signing.build_tx([txin], outputs, version=tx.version, lock_time=tx.lock_time)


def private_key_of(script: bytes) -> bytes | None:
    """The numbered private key that alone signs for a script; None if there is none."""
    return _SECRETS.get(script)


def is_signed(lock: Lock) -> bool:
    """True if numbered keys sign the spends of a lock."""
    return any(name in _SECRETS for name in (lock.script_pubkey, *multisig_keys(lock.script_pubkey)))


def check_signed(tx: Transaction, coin_of: Callable[[bytes], UnspentOutput | None]) -> None:
    """Check that no signature for a numbered key is made up. `coin_of` finds the coins that the transaction spends."""
    coins = [coin_of(outpoint) for outpoint in tx.inputs]
    spent = [None if coin is None else TxOut(coin.value, coin.script_pubkey) for coin in coins]
    ours = [number for number, out in enumerate(spent) if out is not None and is_signed(Lock(out.script_pubkey))]
    if ours:
        found = verify_spends(tx, spent, ours)
        assert found.validity is not Validity.WRONG, f"input {found.index} of {tx} is not signed: {found.reason}"


class SignedMempool:
    """Checks each transaction that enters the mempool of a Regtest, as one of its listeners."""

    def __init__(self, regtest: Regtest) -> None:
        self._regtest = regtest
        regtest.listeners.append(self)

    def on_tip(self, change: TipChange) -> None:
        """Do nothing: most transactions of blocks were in the mempool."""

    def on_tx(self, tx: Transaction) -> None:
        check_signed(tx, self._regtest.mempool.coin_of)


LOCKS: list[Lock] = [
    p2pkh(key(1)),
    p2wpkh(key(2)),
    p2sh(p2wpkh(key(3))),
    p2wsh(b"\x54"),
    p2sh(p2wsh(b"\x52")),
    p2tr(key(6)[1:]),
    p2sh(Lock(b"\x53")),
    p2pk(key(8)),
    multisig(1, [key(9), key(10)]),
]
STRANGER = p2wpkh(key(99))
BIP173 = p2wpkh(public_key(ONE))  # bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080
FOREIGN = p2wpkh(key(77))  # pays miners and foreign wallets
