"""Parameters of Bitcoin's networks: mainnet, testnet3, testnet4, signet with its custom variants, and regtest."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, fields, replace
from functools import partial

from spvfilter import hashes, primitives, protocol
from spvfilter._public import naming, readable
from spvfilter.errors import ParameterError

__all__ = [
    "MAINNET",
    "NETWORKS",
    "REGTEST",
    "SIGNET",
    "TESTNET3",
    "TESTNET4",
    "Network",
]


@readable
@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The parameters of one network, as frozen values (Core kernel/chainparams.cpp).

    The header of a signet block does not contain the block's signature, which is in the coinbase (BIP-325). Therefore
    anyone can mine a chain of signet headers that looks valid.
    """

    name: str
    """Name of the network, such as "mainnet"."""
    magic: bytes
    """The first 4 bytes of every P2P message and of every record in a blk*.dat file."""
    default_port: int
    """TCP port of the P2P protocol."""
    dns_seeds: tuple[str, ...] = field(default=(), repr=False)
    """Host names that resolve to addresses of nodes."""
    p2pkh_version: int
    """Version byte of P2PKH addresses (base58check)."""
    p2sh_version: int
    """Version byte of P2SH addresses (base58check)."""
    hrp: str
    """Human-readable part of bech32 addresses."""
    genesis: bytes = field(repr=False)
    """Header of the genesis block, 80 bytes."""
    genesis_hash: bytes
    """Hash of the genesis block, 32 bytes in wire order."""
    bip34_height: int
    """Height at and above which coinbases must contain their height, and headers must have at least version 2."""
    bip66_height: int
    """Height at and above which headers must have at least version 3."""
    bip65_height: int
    """Height at and above which headers must have at least version 4."""
    segwit_height: int
    """Height at and above which a block with a witness commitment contains the witnesses (BIP-141)."""
    pow_limit: int
    """The highest target that the network allows, as an integer."""
    pow_limit_bits: int
    """The highest target in compact form, a u32."""
    retargets: bool = True
    """True if the difficulty changes every 2,016 blocks."""
    min_difficulty_blocks: bool = False
    """True if a block more than 20 minutes after its parent may have the highest target."""
    bip94: bool = False
    """True if BIP-94 applies: retargets use the bits of a period's first block; timewarps are at most 600 seconds."""
    halving_interval: int = 210_000
    """Number of blocks after which the subsidy halves."""
    min_chain_work: int = 0
    """Least work, in expected hashes, that a chain needs to be stored."""
    checkpoints: tuple[tuple[int, bytes], ...] = field(default=(), repr=False)
    """Pairs of height and block hash (wire order), ascending. No fork may start below a checkpoint."""
    filter_checkpoints: tuple[tuple[int, bytes], ...] = field(default=(), repr=False)
    """Pairs of height and basic filter header (BIP-157, wire order), ascending."""
    signet_challenge: bytes | None = field(default=None, repr=False)
    """The script that the signature of a signet block must satisfy (BIP-325). None if the network isn't a signet."""

    def __str__(self) -> str:
        return self.name

    @classmethod
    @naming
    def named(cls, name: str) -> Network:
        """Return the network with this name. Raises ParameterError, which lists the known names, if there is none.

        The name of a custom signet is "signet:" followed by its challenge in hex.
        """
        if name in _BY_NAME:
            return _BY_NAME[name]
        if name.startswith(_CUSTOM_SIGNET):
            return cls.signet(name.removeprefix(_CUSTOM_SIGNET))
        raise ParameterError(f"unknown network {name[:40]!r}: choose one of {', '.join(_BY_NAME)}")

    @classmethod
    def of(cls, network: Network | str) -> Network:
        """Return a network, given as an object or by its name.

        Raises ParameterError for an unknown name, and TypeError for any other type.
        """
        if isinstance(network, str):
            return cls.named(network)
        if not isinstance(network, Network):
            raise TypeError(f"network: expected a Network or its name, not {type(network).__name__}")
        return network

    @classmethod
    @naming
    def signet(cls, challenge: bytes | str) -> Network:
        """Return the signet with this challenge script, given as bytes or hex. The default challenge gives `SIGNET`.

        The magic is derived from the challenge (BIP-325). All signets have the same genesis block. Raises
        ParameterError if the hex is not valid, or if the script is empty or longer than 10,000 bytes.
        """
        if isinstance(challenge, str):
            try:
                challenge = bytes.fromhex(challenge)
            except ValueError:
                raise ParameterError("a signet's challenge must be hex digits, two for each byte") from None
        if not 0 < len(challenge) <= protocol.MAX_SCRIPT_SIZE:
            raise ParameterError(
                f"a signet's challenge must be 1 to {protocol.MAX_SCRIPT_SIZE} bytes long, not {len(challenge)}"
            )
        if challenge == SIGNET.signet_challenge:
            return SIGNET
        return replace(
            SIGNET,
            name=_CUSTOM_SIGNET + challenge.hex(),
            magic=hashes.sha256d(primitives.compact_size(len(challenge)) + challenge)[:4],
            dns_seeds=(),
            min_chain_work=0,
            signet_challenge=bytes(challenge),
        )

    @classmethod
    def of_magic(cls, magic: bytes, first: Network | None = None) -> Network | None:
        """Return the network with this magic, or None. `first`, if given, is tried before the five known networks."""
        known = NETWORKS if first is None else (first, *NETWORKS)
        return next((each for each in known if each.magic == magic), None)

    def __reduce__(self) -> tuple[object, ...]:
        if _BY_NAME.get(self.name) is self or self.name.startswith(_CUSTOM_SIGNET):
            return Network.named, (self.name,)
        return partial(Network, **{known.name: getattr(self, known.name) for known in fields(self)}), ()


def _hash(display: str) -> bytes:
    return bytes.fromhex(display)[::-1]


def _checkpoints(lines: str) -> tuple[tuple[int, bytes], ...]:
    pairs = (line.split() for line in lines.strip().splitlines())
    return tuple((int(height), _hash(display)) for height, display in pairs)


def _genesis(time: int, bits: int, nonce: int, merkle_root: str) -> bytes:
    return struct.pack("<i32s32sIII", 1, bytes(32), _hash(merkle_root), time, bits, nonce)


_MERKLE_ROOT = "4a5e1e4baab89f3a32518a88c31bc87f618f76673e2cc77ab2127b7afdeda33b"  # The Times 03/Jan/2009
_LIMIT = (1 << 224) - 1

MAINNET = Network(
    name="mainnet",
    magic=bytes.fromhex("f9beb4d9"),
    default_port=8333,
    dns_seeds=(
        *("seed.bitcoin.sipa.be", "dnsseed.bluematt.me", "seed.bitcoin.jonasschnelli.ch", "seed.btc.petertodd.net"),
        *("seed.bitcoin.sprovoost.nl", "dnsseed.emzy.de", "seed.bitcoin.wiz.biz", "seed.mainnet.achownodes.xyz"),
    ),
    p2pkh_version=0x00,
    p2sh_version=0x05,
    hrp="bc",
    genesis=_genesis(1_231_006_505, 0x1D00FFFF, 2_083_236_893, _MERKLE_ROOT),
    genesis_hash=_hash("000000000019d6689c085ae165831e934ff763ae46a2a6c172b3f1b60a8ce26f"),
    bip34_height=227_931,
    bip66_height=363_725,
    bip65_height=388_381,
    segwit_height=481_824,
    pow_limit=_LIMIT,
    pow_limit_bits=0x1D00FFFF,
    min_chain_work=0x1128750F82F4C366153A3A030,  # work at height 938,343
    # up to 295,000 the checkpoints of Core before version 29; then last blocks of difficulty periods, as in Electrum
    checkpoints=_checkpoints("""
        11111  0000000069e244f73d78e8fd29ba2fd2ed618bd6fa2ee92559f542fdb26e7c1d
        33333  000000002dd5588a74784eaa7ab0507a18ad16a236e7b1ce69f00d7ddfb5d0a6
        74000  0000000000573993a3c9e41ce34471c079dcf5f52a0e824a81e7f953b8661a20
        105000 00000000000291ce28027faea320c8d2b054b2e0fe44a773f3eefb151d6bdc97
        134444 00000000000005b12ffd4cd315cd34ffd4a594f430ac814c91184a0d42d2b0fe
        168000 000000000000099e61ea72015e79632f216fe6cb33d7899acb35b75c8303b763
        193000 000000000000059f452a5f7340de6682a977387c17010ff6e6c3bd83ca8b1317
        210000 000000000000048b95347e83192f69cf0366076336c639f9b7228e9ba171342e
        216116 00000000000001b4f4b433e81ee46494af945cf96014816a4e2370f11b23df4e
        225430 00000000000001c108384350f74090433e7fcf79a606b8e797f065b130575932
        250000 000000000000003887df1f29024b06fc2200b55f8af8f35453d7be294df2d214
        279000 0000000000000001ae8c72a0b0c301f67e3afca10e819efa9041e458e9bd7e40
        295000 00000000000000004d9b4ef50f0f9d686fd69db2e03af35a100370c64632a983
        403199 00000000000000000404b6939e6c35a5448386e5d58f318c82ce2fefb7d73e47
        503999 000000000000000000720da39f66f29337b9a29223e1ce05fd5ee57bb72a9223
        604799 00000000000000000002fb021eeb13e47021920faf6e5daa3c40bc552c4d248e
        705599 000000000000000000029da63650d127e160033c93393da77302320bd8ee4958
        806399 00000000000000000002f985a10a40897d04888ac10c8ac75867a50b016eb6ef
        907199 00000000000000000000a4b1cede1eba74d67df322ca415468f277aa7b508f47
    """),
    # basic filter headers that the light client Neutrino has used for years
    filter_checkpoints=_checkpoints("""
        100000 f28cbc1ab369eb01b7b5fe8bf59763abb73a31471fe404a26a06be4153aa7fa5
        200000 e5031471732f4fbfe7a25f6a03acc1413300d5c56ae8e06b95046b8e4c0f32b3
        300000 1bd50220fcdde929ca3143c91d2dd9a9bfedb38c452ba98dbb51e719bff8aa5b
        400000 5d973ab1f1c569c70deec1c1a8fb2e317a260f1656edb3b262c65f78ef192e3a
        500000 5d16ca293c9bdc0a9bc279b63f99fb661be38b095a59a44200a807caaa631a3c
        600000 bde0854d0b2f4386a860462547140e0c6817f5b4b2ab515ef70e204e377598f8
        660000 08312375fabc082b17fa8ee88443feb350c19a34bb7483f94f7478fa4ad33032
    """),
)
TESTNET3 = Network(
    name="testnet3",
    magic=bytes.fromhex("0b110907"),
    default_port=18333,
    dns_seeds=(
        *("testnet-seed.bitcoin.jonasschnelli.ch", "seed.tbtc.petertodd.net", "seed.testnet.bitcoin.sprovoost.nl"),
        *("testnet-seed.bluematt.me", "seed.testnet.achownodes.xyz"),
    ),
    p2pkh_version=0x6F,
    p2sh_version=0xC4,
    hrp="tb",
    genesis=_genesis(1_296_688_602, 0x1D00FFFF, 414_098_458, _MERKLE_ROOT),
    genesis_hash=_hash("000000000933ea01ad0ee984209779baaec3ced90fa3f408719526f8d77f4943"),
    bip34_height=21_111,
    bip66_height=330_776,
    bip65_height=581_885,
    segwit_height=834_624,
    pow_limit=_LIMIT,
    pow_limit_bits=0x1D00FFFF,
    min_difficulty_blocks=True,
    min_chain_work=0x17DDE1C649F3708D14B6,  # work at height 4,842,348
    checkpoints=_checkpoints("546 000000002a936ca763904c3c35fce2f3556c559c0214345d31b1bcebf76acb70"),
)
TESTNET4 = Network(
    name="testnet4",
    magic=bytes.fromhex("1c163f28"),
    default_port=48333,
    dns_seeds=("seed.testnet4.bitcoin.sprovoost.nl", "seed.testnet4.wiz.biz"),
    p2pkh_version=0x6F,
    p2sh_version=0xC4,
    hrp="tb",
    genesis=_genesis(
        1_714_777_860, 0x1D00FFFF, 393_743_547, "7aa0a7ae1e223414cb807e40cd57e667b718e42aaf9306db9102fe28912b7b4e"
    ),
    genesis_hash=_hash("00000000da84f2bafbbc53dee25a72ae507ff4914b867c565be350b0da8bf043"),
    bip34_height=1,
    bip66_height=1,
    bip65_height=1,
    segwit_height=1,
    pow_limit=_LIMIT,
    pow_limit_bits=0x1D00FFFF,
    min_difficulty_blocks=True,
    bip94=True,
    min_chain_work=0x9A0FE15D0177D086304,  # work at height 123,613
)
SIGNET = Network(
    name="signet",
    magic=bytes.fromhex("0a03cf40"),
    default_port=38333,
    dns_seeds=("seed.signet.bitcoin.sprovoost.nl", "seed.signet.achownodes.xyz"),
    p2pkh_version=0x6F,
    p2sh_version=0xC4,
    hrp="tb",
    genesis=_genesis(1_598_918_400, 0x1E0377AE, 52_613_770, _MERKLE_ROOT),
    genesis_hash=_hash("00000008819873e925422c1ff0f99f7cc9bbb232af63a077a480a3633bee1ef6"),
    bip34_height=1,
    bip66_height=1,
    bip65_height=1,
    segwit_height=1,
    pow_limit=0x377AE << 216,
    pow_limit_bits=0x1E0377AE,
    min_chain_work=0xB463EA0A4B8,  # work at height 293,175
    signet_challenge=bytes.fromhex(
        "512103ad5e0edad18cb1f0fc0d28a3d4f1f3e445640337489abb10404f2d1e086be4"
        "30210359ef5021964fe22d6f8e05b2463c9540ce96883fe3b278760f048f5189f2e6c452ae"
    ),
)
REGTEST = Network(
    name="regtest",
    magic=bytes.fromhex("fabfb5da"),
    default_port=18444,
    p2pkh_version=0x6F,
    p2sh_version=0xC4,
    hrp="bcrt",
    genesis=_genesis(1_296_688_602, 0x207FFFFF, 2, _MERKLE_ROOT),
    genesis_hash=_hash("0f9188f13cb7b2c71f2a335e3a4fc328bf5beb436012afca590b1a11466e2206"),
    bip34_height=1,
    bip66_height=1,
    bip65_height=1,
    segwit_height=0,
    pow_limit=(1 << 255) - 1,
    pow_limit_bits=0x207FFFFF,
    retargets=False,
    min_difficulty_blocks=True,
    halving_interval=150,
)

NETWORKS = (MAINNET, TESTNET3, TESTNET4, SIGNET, REGTEST)
_CUSTOM_SIGNET = "signet:"
_BY_NAME = {known.name: known for known in NETWORKS}
