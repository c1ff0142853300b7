"""Output scripts of every type, and inputs that spend these outputs with made-up signatures.

The embedded node does not check scripts. For wallets, which do check them, `build_tx` makes real signatures if you pass
private keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from spvfilter._public import public
from spvfilter.errors import ParameterError
from spvfilter.hashes import hash160
from spvfilter.kernel import is_pubkey
from spvfilter.primitives import OutPoint, TxOut
from spvfilter.transaction import TxIn

MAX_MULTISIG_KEYS = 16  # most keys in a bare multisig script (Core Solver, MatchMultisig)
# A made-up ECDSA signature: 71 bytes that look like DER, with SIGHASH_ALL.
SIGNATURE = bytes.fromhex("30440220" + "5b" * 32 + "0220" + "1d" * 32 + "01")
SCHNORR_SIGNATURE = b"\x6e" * 64  # a made-up BIP-340 signature


@public
@dataclass(frozen=True, slots=True)
class Lock:
    """A scriptPubKey, and the scriptSig and the witness of an input that spends it."""

    script_pubkey: bytes
    """ScriptPubKey of an output."""
    script_sig: bytes = b""
    """ScriptSig of an input that spends an output with `script_pubkey`."""
    witness: tuple[bytes, ...] = ()
    """Items of the witness stack of an input that spends an output with `script_pubkey`."""

    def pays(self, value: int) -> TxOut:
        """Make an output of `value` satoshi with this scriptPubKey."""
        return TxOut(value, self.script_pubkey)

    def spends(self, outpoint: OutPoint, value: int | None = None) -> TxIn:
        """Make an input that spends an output with this scriptPubKey.

        `value` is the value of the output in satoshi. Pass it if `build_tx` should sign the input.
        """
        spent = None if value is None else self.pays(value)
        return TxIn(outpoint, self.script_sig, self.witness, spent=spent)


def push(data: bytes) -> bytes:
    """Encode the shortest script operation that pushes `data`, other than OP_1 to OP_16 (Core CScript::operator<<)."""
    size = len(data)
    if size <= 75:
        return bytes((size,)) + data
    if size <= 0xFF:
        return bytes((0x4C, size)) + data
    if size <= 0xFFFF:
        return b"\x4d" + size.to_bytes(2, "little") + data
    return b"\x4e" + size.to_bytes(4, "little") + data


@public
def p2pk(key: bytes) -> Lock:
    """Make a pay-to-public-key lock (P2PK). Raises ParameterError unless the key is a public key of 33 or 65 bytes."""
    return Lock(push(_public(key)) + b"\xac", push(SIGNATURE))


@public
def p2pkh(key: bytes) -> Lock:
    """Make a pay-to-public-key-hash lock (P2PKH).

    Raises ParameterError unless the key is a public key of 33 or 65 bytes.
    """
    return Lock(b"\x76\xa9\x14" + hash160(_public(key)) + b"\x88\xac", push(SIGNATURE) + push(key))


@public
def p2wpkh(key: bytes) -> Lock:
    """Make a pay-to-witness-public-key-hash lock (P2WPKH, BIP-141).

    Raises ParameterError unless the key is a public key of 33 or 65 bytes.
    """
    return Lock(b"\x00\x14" + hash160(_public(key)), witness=(SIGNATURE, key))


@public
def p2tr(output_key: bytes) -> Lock:
    """Make a pay-to-taproot lock for the key path (P2TR, BIP-341).

    Raises ParameterError unless the key is 32 bytes long.
    """
    if len(output_key) != 32:
        raise ParameterError(f"a taproot output key must be 32 bytes long, not {len(output_key)}")
    return Lock(b"\x51\x20" + output_key, witness=(SCHNORR_SIGNATURE,))


@public
def multisig(required: int, keys: Sequence[bytes]) -> Lock:
    """Make a bare multisig lock that needs `required` signatures by 1 to 16 keys.

    Raises ParameterError if the number of keys or signatures is invalid, or if a key is not a public key.
    """
    if not 1 <= required <= len(keys) <= MAX_MULTISIG_KEYS:
        raise ParameterError(
            f"multisig must be m of n with 1 ≤ m ≤ n ≤ {MAX_MULTISIG_KEYS}, not {required} of {len(keys)}"
        )
    script = bytes((0x50 + required,)) + b"".join(push(_public(key)) for key in keys) + bytes((0x50 + len(keys), 0xAE))
    return Lock(script, b"\x00" + push(SIGNATURE) * required)


@public
def p2sh(redeem: Lock) -> Lock:
    """Make a pay-to-script-hash lock (P2SH, BIP-16).

    If `redeem` is the lock of a witness program, the result is P2SH-P2WPKH or P2SH-P2WSH.
    """
    script_sig = redeem.script_sig + push(redeem.script_pubkey)
    return Lock(b"\xa9\x14" + hash160(redeem.script_pubkey) + b"\x87", script_sig, redeem.witness)


@public
def p2wsh(script: bytes, items: Sequence[bytes] = ()) -> Lock:
    """Make a pay-to-witness-script-hash lock (P2WSH, BIP-141).

    `items` are the script's arguments on the witness stack.
    """
    return Lock(b"\x00\x20" + sha256(script).digest(), witness=(*items, script))


@public
def op_return(*data: bytes) -> Lock:
    """Make an output that carries data and that nobody can spend."""
    return Lock(b"\x6a" + b"".join(map(push, data)))


def _public(key: bytes) -> bytes:
    if not is_pubkey(key):
        raise ParameterError(
            "a public key must be 33 bytes that start with 02 or 03, or 65 bytes that start with 04, 06 or 07; got"
            f" {len(key)} bytes"
        )
    return key
