"""Silent payments for tests: a wallet's keys and descriptors, and transactions that pay its addresses."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from spvfilter.address import Bech32Encoding, bech32_encode
from spvfilter.hashes import hash160
from spvfilter.kernel.pure.address import to_5_bits
from spvfilter.network import MAINNET, Network
from spvfilter.primitives import TxOut
from spvfilter.silent.address import SilentAddress, silent_prefix
from support import build


def public(private: int) -> bytes:
    """The compressed public key of a private key."""
    from btclib_secp256k1 import keys

    return bytes(keys.pubkey_from_prvkey(private.to_bytes(32, "big")))


class Wallet:
    """The keys of a silent payment wallet."""

    def __init__(self, scan: int = 7, spend: int = 11, network: Network = MAINNET) -> None:
        self.scan_key = scan.to_bytes(32, "big")
        self.spend_key = spend.to_bytes(32, "big")
        self.spend_pubkey = public(spend)
        self.network = network
        self.scan_pubkey = public(scan)

    @property
    def scan_text(self) -> str:
        return encoded(f"{self._prefix}scan", self.scan_key + self.spend_pubkey)

    @property
    def _prefix(self) -> str:
        return silent_prefix(self.network)

    @property
    def descriptor(self) -> str:
        return f"sp([deadbeef/352h/0h/0h]{self.scan_text})"

    def address(self, label: int | None = None) -> SilentAddress:
        from btclib_secp256k1 import silentpayments

        spend = self.spend_pubkey
        if label is not None:
            point, _ = silentpayments.label(self.scan_key, label)
            spend = bytes(silentpayments.labeled_spend_pubkey(spend, point))
        return SilentAddress(self.scan_pubkey, spend, self.network)


def encoded(hrp: str, payload: bytes, version: int = 0) -> str:
    values = bytes((version,)) + to_5_bits(payload)
    return bech32_encode(hrp, values, Bech32Encoding.BECH32M, limit=2_000)


def payment(
    addresses: Sequence[SilentAddress], *, salt: int = 0, kind: str = "p2wpkh", value: int = 50_000, inputs: int = 1
) -> tuple[bytes, list[TxOut]]:
    """A transaction that pays addresses, and the outputs that it spends. Its keys depend on `salt`."""
    from btclib_secp256k1 import silentpayments

    privates = [1_000 + 10 * salt + number for number in range(inputs)]
    spends, spent = [], []
    for number, private in enumerate(privates):
        key = public(private)
        program = b"\0\x14" + hash160(key)
        txid = sha256(b"coin" + bytes((number,)) + salt.to_bytes(4, "big")).digest()
        if kind == "p2wpkh":
            spends.append(build.TxIn(txid, number, witness=(bytes(71), key)))
            spent.append(TxOut(1_000_000, program))
        elif kind == "p2tr":
            spends.append(build.TxIn(txid, number, witness=(bytes(64),)))
            spent.append(TxOut(1_000_000, b"\x51\x20" + key[1:]))
        else:
            raise ValueError(kind)
    smallest = min(each.outpoint for each in spends)
    keys = {"taproot_prvkeys": privates} if kind == "p2tr" else {"prvkeys": privates}
    made = silentpayments.create_outputs(
        [(each.scan_pubkey, each.spend_pubkey) for each in addresses],
        smallest,
        **{name: [each.to_bytes(32, "big") for each in values] for name, values in keys.items()},
    )
    outputs = [build.TxOut(value + number, b"\x51\x20" + bytes(key)) for number, key in enumerate(made)]
    return build.tx(spends, [*outputs, build.TxOut(1, b"\x51")]), spent
