"""Builds transactions from inputs and outputs, and signs them with private keys."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spvfilter._public import naming
from spvfilter.primitives import TxOut
from spvfilter.signatures.sign import sign_inputs
from spvfilter.transaction import TxIn, serialize

__all__ = ["build_tx"]


@naming
def build_tx(
    inputs: Sequence[TxIn],
    outputs: Sequence[TxOut],
    *,
    version: int = 2,
    lock_time: int = 0,
    keys: Iterable[bytes] | None = None,
) -> bytes:
    """Serialize a transaction, in segwit form if an input has a witness (BIP-144), and sign it if you give keys.

        coin = (await client.unspent())[0]
        spent = TxOut(coin.value, coin.script_pubkey)
        raw = build_tx([TxIn(coin.outpoint, spent=spent)], [TxOut(50_000, payee)], keys=[key])

    This is for tests and demos: keep the private keys of real money in a wallet. P2PK, P2PKH, P2WPKH, P2SH-P2WPKH and
    taproot outputs without scripts (BIP-86) need only `spent`. For multisig in P2SH or P2WSH, also give the script:
    push it in `script_sig`, or make it the last item of `witness`.

    Args:
        inputs: The inputs. Give `spent` if you want to sign them.
        outputs: The outputs.
        version: Version of the transaction, an i32.
        lock_time: Lock time, a u32.
        keys: Private keys, 32 bytes each, in any order. None leaves the inputs as they are. An input that no key
            matches stays as it is if somebody else has signed it.

    Raises:
        ParameterError: `version` or `lock_time` is out of range, a private key is invalid, no key matches an input, or
            an input lacks `spent` or its script. Signing also needs the wallycore or the btclib-secp256k1 package.
    """
    signed = inputs if keys is None else sign_inputs(inputs, outputs, keys, version=version, lock_time=lock_time)
    return serialize(signed, outputs, version=version, lock_time=lock_time)
