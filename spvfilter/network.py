"""Parameters of the five networks as frozen values. There is no global "current network"."""

from __future__ import annotations

from dataclasses import dataclass

from spvfilter.errors import ParameterError


@dataclass(frozen=True, slots=True)
class Network:
    """What differs between Bitcoin's networks (Core kernel/chainparams.cpp)."""

    name: str
    magic: bytes  # 4 bytes that open every P2P message and every blk*.dat record
    p2pkh_version: int  # base58check version byte
    p2sh_version: int
    wif_version: int
    hrp: str  # human-readable part of bech32 addresses
    genesis_hash: bytes  # wire order
    bip34_height: int  # from here on the coinbase states its height
    default_port: int

    def __str__(self) -> str:
        return self.name

    @classmethod
    def named(cls, name: str) -> Network:
        """The network called `name`. Raises ParameterError that lists the known ones."""
        try:
            return _BY_NAME[name]
        except KeyError:
            raise ParameterError(f"unknown network {name[:40]!r}: {', '.join(_BY_NAME)}") from None

    def __reduce__(self) -> tuple[object, ...]:
        return (Network.named, (self.name,))


def _hash(display: str) -> bytes:
    return bytes.fromhex(display)[::-1]


MAINNET = Network(
    "mainnet", bytes.fromhex("f9beb4d9"), 0x00, 0x05, 0x80, "bc",
    _hash("000000000019d6689c085ae165831e934ff763ae46a2a6c172b3f1b60a8ce26f"), 227_931, 8333,
)  # fmt: skip
TESTNET3 = Network(
    "testnet3", bytes.fromhex("0b110907"), 0x6F, 0xC4, 0xEF, "tb",
    _hash("000000000933ea01ad0ee984209779baaec3ced90fa3f408719526f8d77f4943"), 21_111, 18333,
)  # fmt: skip
TESTNET4 = Network(
    "testnet4", bytes.fromhex("1c163f28"), 0x6F, 0xC4, 0xEF, "tb",
    _hash("00000000da84f2bafbbc53dee25a72ae507ff4914b867c565be350b0da8bf043"), 1, 48333,
)  # fmt: skip
SIGNET = Network(
    "signet", bytes.fromhex("0a03cf40"), 0x6F, 0xC4, 0xEF, "tb",
    _hash("00000008819873e925422c1ff0f99f7cc9bbb232af63a077a480a3633bee1ef6"), 1, 38333,
)  # fmt: skip
REGTEST = Network(
    "regtest", bytes.fromhex("fabfb5da"), 0x6F, 0xC4, 0xEF, "bcrt",
    _hash("0f9188f13cb7b2c71f2a335e3a4fc328bf5beb436012afca590b1a11466e2206"), 1, 18444,
)  # fmt: skip

NETWORKS = (MAINNET, TESTNET3, TESTNET4, SIGNET, REGTEST)
_BY_NAME = {known.name: known for known in NETWORKS}
