"""Silent payment addresses, `sp1…` and `tsp1…` (BIP-352 § Address encoding)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from spvfilter.address import Bech32Encoding, bech32_decode, bech32_encode, from_5_bits
from spvfilter.errors import AddressError, FormatError, WrongNetworkError, alternatives
from spvfilter.kernel import is_pubkey
from spvfilter.kernel.pure.address import to_5_bits
from spvfilter.network import MAINNET, NETWORKS, Network

MAX_SILENT_LENGTH = 1_023
"""Largest length of a silent payment address in characters (BIP-352 § Address encoding)."""
_KEYS_SIZE = 66  # bytes: two compressed public keys
_FORBIDDEN_VERSION = 31  # reserved for a change that older wallets cannot understand (BIP-352 § Address encoding)


def silent_prefix(network: Network) -> str:
    """Return the human-readable part of a network's silent payment addresses: "sp", or "tsp" on a test network."""
    return "sp" if network.p2pkh_version == MAINNET.p2pkh_version else "tsp"


@dataclass(frozen=True, slots=True)
class SilentAddress:
    """A silent payment address: two public keys, from which each sender derives outputs.

    Only the sender and the owner of the address can link these outputs to it.
    """

    scan_pubkey: bytes
    """Compressed public key whose private key finds the payments, 33 bytes."""
    spend_pubkey: bytes
    """Compressed public key whose private key spends them, 33 bytes. A label is already added to it."""
    network: Network = MAINNET
    """Network of the address. All test networks write addresses in the same way."""
    version: int = 0
    """Version of the address, 0 to 30. Later versions may append data, which is not stored here."""

    @classmethod
    def parse(cls, text: str, network: Network = MAINNET) -> Self:
        """Decode an address.

        Raises:
            AddressError: The string is not a silent payment address, or has version 31.
            WrongNetworkError: The address belongs to mainnet and `network` is a test network, or the reverse.
            TypeError: `text` is not a str.
        """
        if not isinstance(text, str):
            raise TypeError(f"an address must be a str, not {type(text).__name__}")
        hrp, values, encoding = bech32_decode(text, limit=MAX_SILENT_LENGTH)
        if hrp not in ("sp", "tsp") or encoding is not Bech32Encoding.BECH32M or not values:
            raise AddressError("not a silent payment address: expected a bech32m string that starts with sp1 or tsp1")
        if hrp != silent_prefix(network):
            owners = tuple(known.name for known in NETWORKS if silent_prefix(known) == hrp)
            raise WrongNetworkError(
                f"this silent payment address is for {alternatives(owners)}, not for {network}: choose its network, or"
                " give another address",
                owners,
            )
        version = values[0]
        if version >= _FORBIDDEN_VERSION:
            raise AddressError(
                f"unsupported silent payment address version {version}: ask for an address of version 0 to 30"
            )
        try:
            payload = from_5_bits(values[1:])
        except FormatError as error:
            raise AddressError(f"malformed silent payment address: {error.message}") from None
        if len(payload) < _KEYS_SIZE or (version == 0 and len(payload) != _KEYS_SIZE):
            raise AddressError(
                f"a version {version} silent payment address needs {'at least ' if version else ''}{_KEYS_SIZE} bytes,"
                f" not {len(payload)}"
            )
        scan, spend = payload[:33], payload[33:_KEYS_SIZE]
        if not (is_pubkey(scan) and is_pubkey(spend)):
            raise AddressError("a silent payment address must contain two compressed public keys (02… or 03…)")
        return cls(scan, spend, network, version)

    def __str__(self) -> str:
        values = bytes((self.version,)) + to_5_bits(self.scan_pubkey + self.spend_pubkey)
        hrp = silent_prefix(self.network)
        return bech32_encode(hrp, values, Bech32Encoding.BECH32M, limit=MAX_SILENT_LENGTH)
