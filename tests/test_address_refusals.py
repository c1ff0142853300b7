"""Every reason to refuse an address, by its message; secrets are never repeated."""

from __future__ import annotations

import re
import traceback
from itertools import permutations
from typing import Any

import pytest
from bitcoin.base58 import encode as base58_encode
from hypothesis import given

from spvfilter.address import Bech32Encoding, address_to_script, bech32_decode, bech32_encode, script_to_address
from spvfilter.errors import AddressError, ParameterError, WrongNetworkError
from spvfilter.hashes import sha256d
from spvfilter.network import MAINNET, NETWORKS, REGTEST, SIGNET, TESTNET3, Network
from support.blocks.addresses import P2PKH, P2TR, P2WPKH, refusal, scripts

# Published test keys only: BIP-32 vector 1, and the WIF and phrase of documentation.
XPRV = "xprv9s21ZrQH143K3QTDL4LXw2F7HEK3wJUD2nW2nRk4stbPy6cq3jPPqjiChkVvvNKmPGJxWUtg6LnF5kejMRNNU3TGtRBeJgk33yuGBxrMPHi"
XPUB = "xpub661MyMwAqRbcFtXgS5sYJABqqG9YLmC4Q1Rdap9gSE8NqtwybGhePY2gZ29ESFjqJoCu1Rupje8YtGqsefD265TMg7usUDFdp6W1EGMcet8"
WIF = "5HueCGU8rMjxEXxiPuD5BDku4MkFqeZyd4dZ1jvhTVqvbTLvyTJ"
PHRASE = "abandon abandon abandon abandon abandon abandon abandon abandon abandon abandon abandon about"
SILENT = (  # BIP-352, first vector
    "sp1qqgste7k9hx0qftg6qmwlkqtwuy6cycyavzmzj85c6qdfhjdpdjtdgqjuexzk6murw56suy3e0rd2cgqvycxttddwsvgxe2u"
    "sfpxumr70xc9pkqwv"
)
SILENT_MESSAGE = (
    "this is a silent payment address, which never appears on the chain: only its owner's scan key finds its payments"
)
HEX_KEY = "0c28fca386c7a227600b2fe50b7cae11ec86d3bf1fbe471be89827e19d72aa1d"


def base58check(raw: bytes) -> str:
    return str(base58_encode(raw + sha256d(raw)[:4]))


def segwit(version: int, values: bytes, encoding: Bech32Encoding, hrp: str = "bc") -> str:
    return bech32_encode(hrp, bytes((version,)) + values, encoding)


class TestWrongNetwork:
    @pytest.mark.parametrize(("given_for", "asked_on"), list(permutations(NETWORKS, 2)), ids=str)
    @given(script=scripts)
    def test_address_of_another_network_is_refused_by_name(
        self, given_for: Network, asked_on: Network, script: bytes
    ) -> None:
        address = script_to_address(script, given_for)
        assert address is not None
        if script_to_address(script, asked_on) == address:
            assert address_to_script(address, asked_on) == script
            return
        error = refusal(address, asked_on)
        assert isinstance(error, WrongNetworkError)
        assert given_for.name in error.networks
        assert asked_on.name not in error.networks
        assert all(name in str(error) for name in error.networks)
        assert address in str(error)

    @pytest.mark.parametrize(
        ("address", "network", "message"),
        [
            (P2PKH, REGTEST, f"this address is for mainnet, not for regtest: '{P2PKH}'"),
            (
                "mzK2FFDEhxqHcmrJw1ysqFkVyhUULo45hZ",
                MAINNET,
                (
                    "this address is for testnet3, testnet4, signet or regtest, not for mainnet:"
                    " 'mzK2FFDEhxqHcmrJw1ysqFkVyhUULo45hZ'"
                ),
            ),
            (P2WPKH.upper(), SIGNET, f"this address is for mainnet, not for signet: '{P2WPKH.upper()}'"),
            (
                "tb1qrp33g0q5c5txsp9arysrx4k6zdkfs4nce4xj0gdcccefvpysxf3q0sl5k7",
                REGTEST,
                (
                    "this address is for testnet3, testnet4 or signet, not for regtest: "
                    "'tb1qrp33g0q5c5txsp9arysrx4k6zdkfs4nce4xj0gdcccefvpysxf3q0sl5k7'"
                ),
            ),
        ],
    )
    def test_message_names_the_networks_it_belongs_to(self, address: str, network: Network, message: str) -> None:
        error = refusal(address, network)
        assert isinstance(error, WrongNetworkError)
        assert str(error) == f"{message}; choose its network, or give another address"

    def test_regtest_bech32_address_is_of_regtest_alone(self) -> None:
        address = script_to_address(b"\x00\x14" + bytes(20), REGTEST)
        assert address is not None
        error = refusal(address, TESTNET3)
        assert isinstance(error, WrongNetworkError)
        assert error.networks == ("regtest",)

    def test_bad_checksum_is_never_called_a_wrong_network(self) -> None:
        assert not isinstance(refusal(P2WPKH[:-1] + "5", TESTNET3), WrongNetworkError)
        assert not isinstance(refusal(P2PKH[:-1] + "b", TESTNET3), WrongNetworkError)


V20, V32 = bytes(32), bytes(52)  # zero programs of 20 and 32 bytes as 5-bit values
CAUSES = {
    "empty": ("", "the address is empty"),
    "trailing newline": (P2PKH + "\n", "whitespace character U+000A at position 35"),
    "leading space": (" " + P2PKH, "whitespace character U+0020 at position 1"),
    "space inside": (P2WPKH[:5] + " " + P2WPKH[5:], "whitespace character U+0020 at position 6"),
    "no-break space": (P2WPKH + "\u00a0", "whitespace character U+00A0 at position 43"),
    "control character": (P2WPKH[:5] + "\x7f" + P2WPKH[5:], "control character U+007F at position 6"),
    "Cyrillic lookalike": (P2WPKH.replace("c", "\u0441", 1), "non-ASCII character U+0441 at position 2"),
    "zero-width space": (P2PKH + "\u200b", "non-ASCII character U+200B at position 35"),
    "lone surrogate": (P2PKH + "\ud800", "non-ASCII character U+D800 at position 35"),
    "91 characters": ("1" * 91, "an address must be at most 90 characters long, not 91"),
    "a megabyte": ("bc1q" + "q" * 1_000_000, "an address must be at most 90 characters long, not 1000004"),
    "base58 character": ("1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfN0", "bad base58 character '0' at position 34"),
    "base58 checksum": (P2PKH[:-1] + "b", "bad base58 checksum, so a character is wrong"),
    "a word": ("hello", "not an address"),
    "a txid": ("0f" * 32, "not an address"),
    "base58 of a checksum alone": (base58check(b""), "a base58 address must encode 20 bytes, not 0"),
    "base58 of no payload": (base58check(b"\x00"), "a base58 address must encode 20 bytes, not 0"),
    "base58 of 19 bytes": (base58check(b"\x00" + bytes(19)), "a base58 address must encode 20 bytes, not 19"),
    "base58 of 21 bytes": (base58check(b"\x05" + bytes(21)), "a base58 address must encode 20 bytes, not 21"),
    "base58 version": (base58check(b"\x30" + bytes(20)), "base58 version byte 48 belongs to no known network"),
    "mixed case": ("bc1" + P2WPKH[3:].upper(), "upper and lower case are mixed"),
    "mixed case prefix": ("Bc1" + P2WPKH[3:], "upper and lower case are mixed"),
    "bech32 without checksum": ("bc1qqqqq", "too short for a bech32 checksum"),
    "bech32 character": (P2WPKH[:10] + "b" + P2WPKH[11:], "bad bech32 character 'b' at position 11"),
    "bech32 upper character": (
        P2WPKH[:10].upper() + "B" + P2WPKH[11:].upper(),
        "bad bech32 character 'B' at position 11",
    ),
    "bech32 checksum": (P2WPKH[:-1] + "5", "bad bech32 checksum, so a character is wrong"),
    "prefix of another coin": (
        bech32_encode("ltc", b"\x00" + V20, Bech32Encoding.BECH32),
        "human-readable part 'ltc' belongs to no known network",
    ),
    "separator in the data": (
        segwit(1, V20, Bech32Encoding.BECH32M, hrp="bc1q"),
        "human-readable part 'bc1q' belongs to no known network",
    ),
    "no witness version": (bech32_encode("bc", b"", Bech32Encoding.BECH32M), "the witness version is missing"),
    "witness version 17": (segwit(17, V20, Bech32Encoding.BECH32M), "the witness version must be at most 16, not 17"),
    "witness version 31": (segwit(31, V20, Bech32Encoding.BECH32), "the witness version must be at most 16, not 31"),
    "bech32m on v0": (
        segwit(0, V20, Bech32Encoding.BECH32M),
        "witness version 0 must have a bech32 checksum, not bech32m",
    ),
    "bech32 on v1": (
        segwit(1, V32, Bech32Encoding.BECH32),
        "witness version 1 must have a bech32m checksum, not bech32",
    ),
    "bech32 on v16": (
        segwit(16, V32, Bech32Encoding.BECH32),
        "witness version 16 must have a bech32m checksum, not bech32",
    ),
    "no program": (segwit(1, b"", Bech32Encoding.BECH32M), "a witness program must be 2 to 40 bytes long, not 0"),
    "program of 1 byte": (
        segwit(1, bytes(2), Bech32Encoding.BECH32M),
        "a witness program must be 2 to 40 bytes long, not 1",
    ),
    "program of 41 bytes": (
        segwit(1, bytes(66), Bech32Encoding.BECH32M),
        "a witness program must be 2 to 40 bytes long, not 41",
    ),
    "v0 program of 2 bytes": (
        segwit(0, bytes(4), Bech32Encoding.BECH32),
        "a witness program of version 0 must be 20 or 32 bytes long, not 2",
    ),
    "v0 program of 21 bytes": (
        segwit(0, bytes(34), Bech32Encoding.BECH32),
        "a witness program of version 0 must be 20 or 32 bytes long, not 21",
    ),
    "five bits of padding": (
        segwit(1, bytes(9), Bech32Encoding.BECH32M),
        "the padding must be at most 4 bits long, not 5",
    ),
    "seven bits of padding": (
        segwit(1, bytes(11), Bech32Encoding.BECH32M),
        "the padding must be at most 4 bits long, not 7",
    ),
    "padding not zero": (segwit(1, bytes(51) + b"\x01", Bech32Encoding.BECH32M), "the padding bits must be zero"),
    "extended public key": (
        XPUB,
        "expected an address, got an extended public key (xpub…): give one address, or call add_descriptor,"
        " which watches all its addresses",
    ),
    "extended private key": (
        XPRV,
        "expected an address, got an extended private key (xprv…): give the addresses derived from it",
    ),
    "descriptor": (
        f"wpkh({XPUB}/0/*)",
        "expected an address, got an output descriptor: give one address, or call add_descriptor,"
        " which watches all its addresses",
    ),
    "descriptor of an address": (
        f"addr({P2PKH})",
        "expected an address, got an output descriptor: give one address, or call add_descriptor,"
        " which watches all its addresses",
    ),
    "private key": (WIF, "expected an address, but this looks like a private key (WIF)"),
    "silent payment address": (SILENT, SILENT_MESSAGE),
    "silent payment address in capitals": (SILENT.upper(), SILENT_MESSAGE),
    "silent payment address of a test network": ("tsp1" + SILENT[3:], SILENT_MESSAGE),
    "private scan key": (
        "spscan1q" + SILENT[4:],
        "expected an address, got a private scan or spend key of silent payments",
    ),
    "private spend key": ("tspspend1q", "expected an address, got a private scan or spend key of silent payments"),
}


class TestEveryCauseHasItsMessage:
    @pytest.mark.parametrize("cause", CAUSES)
    def test_message_says_the_cause(self, cause: str) -> None:
        address, message = CAUSES[cause]
        error = refusal(address)
        assert re.fullmatch(re.escape(message) + r"(: .*)?", str(error)), str(error)
        assert not isinstance(error, WrongNetworkError)

    @pytest.mark.parametrize("cause", CAUSES)
    def test_message_is_short_one_line_and_printable(self, cause: str) -> None:
        message = str(refusal(CAUSES[cause][0]))
        assert len(message) < 200
        assert message.replace("…", "").isprintable()

    @pytest.mark.parametrize(
        "address", [P2PKH[:-1] + "b", P2WPKH[:-1] + "5", P2TR[:-1] + "5", base58check(b"\x30" + bytes(20))]
    )
    def test_message_shows_the_offending_address(self, address: str) -> None:
        assert repr(address) in str(refusal(address))

    @pytest.mark.parametrize("size", [size for size in range(2, 41) if size not in (20, 32)])
    def test_v0_program_of_any_other_size_is_refused(self, size: int) -> None:
        address = segwit(0, bytes((size * 8 + 4) // 5), Bech32Encoding.BECH32)
        assert str(refusal(address)).startswith(
            f"a witness program of version 0 must be 20 or 32 bytes long, not {size}"
        )

    @pytest.mark.parametrize("text", [None, 7, P2PKH.encode(), ["a"]], ids=repr)
    def test_value_that_is_no_string_is_a_type_error(self, text: Any) -> None:
        with pytest.raises(TypeError, match="an address must be a str, not"):
            address_to_script(text, MAINNET)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "the separator '1' is missing"),
            ("a" * 91, "a bech32 string must be at most 90 characters long, not 91"),
            ("qyrz8wqd2c9m", "the separator '1' is missing"),
            ("1qyrz8wqd2c9m", "the human-readable part is empty"),
            ("in1muywd", "too short for a bech32 checksum"),
            ("a12uel5m", "bad bech32 checksum"),
            ("A12uel5l", "upper and lower case are mixed"),
            ("lt1igcx5c0", "bad bech32 character 'i' at position 4"),
            ("a 12uel5l", "whitespace character U+0020 at position 2"),
        ],
    )
    def test_bech32_message_says_the_cause(self, text: str, message: str) -> None:
        with pytest.raises(AddressError, match=re.escape(message)):
            bech32_decode(text)

    @pytest.mark.parametrize(
        ("hrp", "values", "message"),
        [
            ("", b"", "not ''"),
            ("BC", b"", "not 'BC'"),
            ("b c", b"", "not 'b c'"),
            ("b\u00e9", b"", "not 'b"),
            ("bc", b"\x20", "a bech32 value must be from 0 to 31, not 32"),
            ("bc", bytes(82), "a bech32 string must be at most 90 characters long, not 91"),
        ],
    )
    def test_bech32_encode_makes_no_invalid_string(self, hrp: str, values: bytes, message: str) -> None:
        with pytest.raises(ParameterError, match=re.escape(message)):
            bech32_encode(hrp, values, Bech32Encoding.BECH32)


class TestSecrets:
    @pytest.mark.parametrize(
        "secret",
        [
            XPRV,
            XPRV[:-1],
            "z" + XPRV[1:],
            WIF,
            WIF[:-1] + "1",  # mistyped
            WIF[:-1],  # cut
            WIF[:20] + "0" + WIF[21:],
            WIF[:20] + "-" + WIF[21:],
            WIF + " ",
            "L5nJeqKmpHp4P7F8ZYyjwc5a7P4d8EabuGAzfGJk7yC1BJyzNaEd",
            HEX_KEY,
            PHRASE,
            PHRASE[:80],
            bech32_encode("nsec", bytes(range(20)) + bytes(range(32)), Bech32Encoding.BECH32),
            f"wpkh({XPRV})",
            f"{P2WPKH},{WIF[:40]}",
            f"{P2WPKH} {WIF}",
            "zebra",
            "7.umbrella",
            "zebra yellow wagon vacuum",
            "S6c56bnXQiBjk9mqSYE7ykVQ7NzrRy",  # a mini private key
        ],
    )
    def test_no_piece_of_a_secret_is_repeated(self, secret: str) -> None:
        for network in NETWORKS:
            shown = "".join(traceback.format_exception(refusal(secret, network))).rpartition("AddressError: ")[2]
            leaked = [secret[at : at + 5] for at in range(len(secret) - 4) if secret[at : at + 5] in shown]
            assert not leaked, shown

    def test_a_possible_secret_is_described_by_its_length(self) -> None:
        assert str(refusal(PHRASE)).endswith(f": {len(PHRASE)} characters, not shown because they may be a secret")

    def test_every_prefix_of_an_extended_key_is_known(self) -> None:
        for letter in "xyzYZtuvUV":
            assert str(refusal(letter + XPRV[1:])).startswith(
                f"expected an address, got an extended private key ({letter}prv…)"
            )
            assert str(refusal(letter + XPUB[1:])).startswith(
                f"expected an address, got an extended public key ({letter}pub…)"
            )
