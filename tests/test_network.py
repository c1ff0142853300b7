"""The parameters of the five networks as published; genesis hashes are recomputed from their header fields."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import re

import pytest

from spvfilter.chain.difficulty import encode_bits
from spvfilter.errors import ParameterError
from spvfilter.network import MAINNET, NETWORKS, REGTEST, SIGNET, TESTNET3, TESTNET4, Network
from spvfilter.primitives import Header, hash_from_hex, hash_to_hex

# Core kernel/chainparams.cpp: name, magic, P2PKH and P2SH versions, bech32 prefix, port, BIP-34 and segwit height
PUBLISHED = [
    (MAINNET, "mainnet", "f9beb4d9", 0, 5, "bc", 8333, 227931, 481824),
    (TESTNET3, "testnet3", "0b110907", 111, 196, "tb", 18333, 21111, 834624),
    (TESTNET4, "testnet4", "1c163f28", 111, 196, "tb", 48333, 1, 1),
    (SIGNET, "signet", "0a03cf40", 111, 196, "tb", 38333, 1, 1),
    (REGTEST, "regtest", "fabfb5da", 111, 196, "bcrt", 18444, 1, 0),
]
SIGNET_CHALLENGE = (  # Core kernel/chainparams.cpp, SigNetParams
    "512103ad5e0edad18cb1f0fc0d28a3d4f1f3e445640337489abb10404f2d1e086be4"
    "30210359ef5021964fe22d6f8e05b2463c9540ce96883fe3b278760f048f5189f2e6c452ae"
)
MERKLE_ROOT = "4a5e1e4baab89f3a32518a88c31bc87f618f76673e2cc77ab2127b7afdeda33b"
MERKLE_ROOT_TESTNET4 = "7aa0a7ae1e223414cb807e40cd57e667b718e42aaf9306db9102fe28912b7b4e"
# Core kernel/chainparams.cpp CreateGenesisBlock: merkle root, time, bits, nonce, hash
GENESIS = [
    (
        MAINNET,
        MERKLE_ROOT,
        1231006505,
        0x1D00FFFF,
        2083236893,
        "000000000019d6689c085ae165831e934ff763ae46a2a6c172b3f1b60a8ce26f",
    ),
    (
        TESTNET3,
        MERKLE_ROOT,
        1296688602,
        0x1D00FFFF,
        414098458,
        "000000000933ea01ad0ee984209779baaec3ced90fa3f408719526f8d77f4943",
    ),
    (
        TESTNET4,
        MERKLE_ROOT_TESTNET4,
        1714777860,
        0x1D00FFFF,
        393743547,
        "00000000da84f2bafbbc53dee25a72ae507ff4914b867c565be350b0da8bf043",
    ),
    (
        SIGNET,
        MERKLE_ROOT,
        1598918400,
        0x1E0377AE,
        52613770,
        "00000008819873e925422c1ff0f99f7cc9bbb232af63a077a480a3633bee1ef6",
    ),
    (
        REGTEST,
        MERKLE_ROOT,
        1296688602,
        0x207FFFFF,
        2,
        "0f9188f13cb7b2c71f2a335e3a4fc328bf5beb436012afca590b1a11466e2206",
    ),
]


@pytest.mark.parametrize(("known", "name", "magic", "p2pkh", "p2sh", "hrp", "port", "bip34", "segwit"), PUBLISHED)
def test_parameters_are_as_published(
    known: Network, name: str, magic: str, p2pkh: int, p2sh: int, hrp: str, port: int, bip34: int, segwit: int
) -> None:
    assert (known.name, known.magic.hex(), known.hrp) == (name, magic, hrp)
    assert (known.p2pkh_version, known.p2sh_version) == (p2pkh, p2sh)
    assert (known.default_port, known.bip34_height, known.segwit_height) == (port, bip34, segwit)


@pytest.mark.parametrize(("known", "merkle_root", "time", "bits", "nonce", "published"), GENESIS)
def test_genesis_hash_is_that_of_the_genesis_header(
    known: Network, merkle_root: str, time: int, bits: int, nonce: int, published: str
) -> None:
    assert hash_to_hex(known.genesis_hash) == published
    header = Header(1, bytes(32), hash_from_hex(merkle_root), time, bits, nonce)
    assert bytes(header) == known.genesis
    assert header.hash == known.genesis_hash
    assert known.pow_limit_bits == bits == encode_bits(known.pow_limit)


def test_checkpoints_ascend_and_are_met_by_the_minimum_of_work() -> None:
    for known in NETWORKS:
        heights = [height for height, _ in known.checkpoints]
        assert heights == sorted(set(heights))
        assert all(len(block_hash) == 32 and block_hash.endswith(bytes(4)) for _, block_hash in known.checkpoints)
        assert (known.min_chain_work > 0) == (known is not REGTEST)
    assert len(MAINNET.checkpoints) == 19
    assert MAINNET.checkpoints[0] == (
        11_111,
        hash_from_hex("0000000069e244f73d78e8fd29ba2fd2ed618bd6fa2ee92559f542fdb26e7c1d"),
    )
    assert TESTNET3.checkpoints == (
        (546, hash_from_hex("000000002a936ca763904c3c35fce2f3556c559c0214345d31b1bcebf76acb70")),
    )


def test_seeds_are_names_of_hosts() -> None:
    for known in NETWORKS:
        assert bool(known.dns_seeds) == (known is not REGTEST)
        assert all(re.fullmatch(r"[a-z0-9-]+(\.[a-z0-9-]+)+", seed) for seed in known.dns_seeds)


def test_five_networks_have_their_own_magics() -> None:
    assert NETWORKS == (MAINNET, TESTNET3, TESTNET4, SIGNET, REGTEST)
    assert len({known.magic for known in NETWORKS}) == len({known.genesis_hash for known in NETWORKS}) == 5


@pytest.mark.parametrize("known", NETWORKS, ids=str)
def test_network_is_found_by_the_name_it_prints(known: Network) -> None:
    assert Network.named(str(known)) is known


@pytest.mark.parametrize("name", ["", "main", "testnet", "Mainnet", "mainnet "])
def test_unknown_name_is_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(ParameterError) as caught:
        Network.named(name)
    assert str(caught.value) == f"unknown network {name!r}: choose one of mainnet, testnet3, testnet4, signet, regtest"


@pytest.mark.parametrize("known", NETWORKS, ids=str)
def test_pickling_and_copying_return_the_same_object(known: Network) -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(known, protocol)) is known
    assert copy.copy(known) is known
    assert copy.deepcopy(known) is known


def test_a_network_of_ones_own_is_pickled_by_its_values() -> None:
    own = dataclasses.replace(REGTEST, min_chain_work=7)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(own, protocol)) == own != REGTEST
    assert copy.deepcopy(own) == copy.copy(own) == own
    assert len({own, REGTEST, dataclasses.replace(REGTEST)}) == 2


def test_a_network_prints_in_a_few_lines() -> None:
    assert all(len(repr(known)) < 600 for known in NETWORKS)


def test_network_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        MAINNET.hrp = "tb"  # type: ignore[misc]


# BIP-325 and Core kernel/chainparams.cpp: the magic is the start of the hash of the challenge with its length.
CHALLENGES = {"51": "54d26fbd", SIGNET_CHALLENGE: "0a03cf40"}


@pytest.mark.parametrize(("challenge", "magic"), CHALLENGES.items())
def test_challenge_gives_the_magic_of_a_signet(challenge: str, magic: str) -> None:
    made = Network.signet(challenge)
    assert made.magic.hex() == magic
    assert made.genesis_hash == SIGNET.genesis_hash
    assert made == Network.signet(bytes.fromhex(challenge)) == Network.signet(challenge.upper())


def test_default_challenge_is_signet_itself() -> None:
    assert Network.signet(SIGNET_CHALLENGE) is SIGNET


@pytest.mark.parametrize("challenge", ["51", "00" * 300, "ab" * 10_000])
def test_custom_signet_is_found_by_its_name(challenge: str) -> None:
    custom = Network.signet(challenge)
    assert Network.named(str(custom)) == pickle.loads(pickle.dumps(custom)) == copy.deepcopy(custom) == custom
    assert custom != SIGNET
    assert (custom.dns_seeds, custom.min_chain_work) == ((), 0)


@pytest.mark.parametrize(
    ("challenge", "message"),
    [
        ("", "must be 1 to 10000 bytes long, not 0"),
        ("00" * 10_001, "must be 1 to 10000 bytes long, not 10001"),
        ("5", "must be hex digits, two for each byte"),
        ("xy", "must be hex digits, two for each byte"),
    ],
)
def test_wrong_challenge_is_refused(challenge: str, message: str) -> None:
    for make in (Network.signet, lambda text: Network.named(f"signet:{text}")):
        with pytest.raises(ParameterError, match=message):
            make(challenge)


def test_magic_names_the_network_that_was_asked_for_first() -> None:
    custom = Network.signet("51")
    assert Network.of_magic(SIGNET.magic) is SIGNET
    assert Network.of_magic(custom.magic) is None
    assert Network.of_magic(custom.magic, custom) is custom
    assert Network.of_magic(SIGNET.magic, custom) is SIGNET
