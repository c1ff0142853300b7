"""Addresses and scriptPubKeys: published and real vectors, round trips, changed characters."""

from __future__ import annotations

import json
import string
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, strategies as st

from spvfilter.address import Bech32Encoding, address_to_script, bech32_decode, bech32_encode, script_to_address
from spvfilter.errors import AddressError, DescriptorError, WrongNetworkError
from spvfilter.network import MAINNET, NETWORKS, REGTEST, SIGNET, TESTNET3, TESTNET4, Network
from spvfilter.watch.descriptor.descriptor import parse_descriptor
from support.blocks.addresses import P2PKH, P2SH, P2TR, P2WPKH, hash20, refusal, scripts
from support.vectors import vector_cases

CHAINS = {"main": MAINNET, "test": TESTNET3, "testnet4": TESTNET4, "signet": SIGNET, "regtest": REGTEST}
BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"

networks = st.sampled_from(NETWORKS)
texts = st.one_of(
    st.text(max_size=100),
    st.text(alphabet=BASE58, max_size=60),
    st.builds(
        "{}1{}".format, st.sampled_from(["bc", "tb", "bcrt", "BC"]), st.text(alphabet=string.printable, max_size=90)
    ),
)
base58_scripts = hash20.map(lambda key_hash: b"\xa9\x14" + key_hash + b"\x87")


class TestPublishedVectors:
    @vector_cases("05_addresses/valid.json", where=lambda case: not case["is_privkey"])
    def test_valid_address_and_its_script_agree_both_ways(self, case: Any) -> None:
        network, script = CHAINS[case["chain"]], bytes.fromhex(case["script"])
        assert address_to_script(case["address"], network) == script
        assert script_to_address(script, network) == case["address"]

    @vector_cases("05_addresses/valid.json", where=lambda case: case["try_case_flip"])
    def test_case_flipped_bech32_address_is_the_same_address(self, case: Any) -> None:
        flipped = case["address"].swapcase()
        assert flipped != case["address"]
        assert address_to_script(flipped, CHAINS[case["chain"]]) == bytes.fromhex(case["script"])

    @vector_cases("05_addresses/valid.json", where=lambda case: not case["is_privkey"] and not case["try_case_flip"])
    def test_case_flipped_base58_address_is_refused(self, case: Any) -> None:
        assert not isinstance(refusal(case["address"].swapcase(), CHAINS[case["chain"]]), WrongNetworkError)

    @vector_cases("05_addresses/invalid.json")
    def test_invalid_address_is_refused_on_every_network(self, case: Any) -> None:
        for network in NETWORKS:
            assert not isinstance(refusal(case["address"], network), WrongNetworkError)

    @vector_cases("05_addresses/segwit_addresses.json", where=lambda case: case["valid"])
    def test_segwit_address_gives_its_script_and_back_in_lower_case(self, case: Any) -> None:
        network = MAINNET if case["address"].lower().startswith("bc1") else TESTNET3
        script = bytes.fromhex(case["script"])
        assert address_to_script(case["address"], network) == script
        assert script_to_address(script, network) == case["address"].lower()

    @vector_cases("05_addresses/segwit_addresses.json", where=lambda case: not case["valid"])
    def test_invalid_segwit_address_is_refused_on_every_network(self, case: Any) -> None:
        for network in NETWORKS:
            assert not isinstance(refusal(case["address"], network), WrongNetworkError)

    @vector_cases("05_addresses/bech32_strings.json", where=lambda case: case["valid"])
    def test_valid_bech32_string_decodes_and_encodes_back(self, case: Any) -> None:
        hrp, values, encoding = bech32_decode(case["string"])
        assert encoding.name.lower() == case["encoding"]
        assert bech32_encode(hrp, values, encoding) == case["string"].lower()

    @vector_cases("05_addresses/bech32_strings.json", where=lambda case: not case["valid"])
    def test_invalid_bech32_string_is_refused(self, case: Any) -> None:
        with pytest.raises(AddressError):
            bech32_decode(case["string"])

    @vector_cases("05_addresses/scripts_real.json")
    def test_real_script_has_exactly_its_address(self, case: Any) -> None:
        network, script = CHAINS[case["chain"]], bytes.fromhex(case["script"])
        assert script_to_address(script, network) == case["address"]
        if case["address"] is not None:
            assert address_to_script(case["address"], network) == script

    @vector_cases("05_addresses/base58.json")
    def test_base58_without_a_checksum_is_no_address(self, case: Any) -> None:
        assert not isinstance(refusal(case["base58"]), WrongNetworkError)

    @vector_cases("05_addresses/wif.json")
    def test_private_key_is_refused_without_repeating_it(self, case: Any) -> None:
        error = refusal(case["wif"], CHAINS[case["chain"]])
        assert str(error) == "expected an address, but this looks like a private key (WIF)"


class TestKnownAnswers:
    def test_genesis_key_hash(self) -> None:
        assert address_to_script(P2PKH, MAINNET).hex() == "76a91462e907b15cbf27d5425399ebf6f0fb50ebb88f1888ac"

    def test_pay_to_anchor_is_a_witness_v1_program(self) -> None:
        assert script_to_address(bytes.fromhex("51024e73"), MAINNET) == "bc1pfeessrawgf"
        assert address_to_script("bc1pfeessrawgf", MAINNET).hex() == "51024e73"

    @pytest.mark.parametrize(
        "script",
        [
            b"",
            b"\x00",
            b"\x51",
            b"\x41\x04" + bytes(64) + b"\xac",  # P2PK
            b"\x21\x02" + bytes(32) + b"\xac",
            b"\x51\x21\x02" + bytes(32) + b"\x51\xae",  # bare multisig
            b"\x6a\x14" + bytes(20),  # OP_RETURN
            b"\x00\x13" + bytes(19),  # v0 programs of other lengths
            b"\x00\x15" + bytes(21),
            b"\x00\x1f" + bytes(31),
            b"\x00\x28" + bytes(40),
            b"\x51\x01" + bytes(1),  # v1 programs that are too short and too long
            b"\x51\x29" + bytes(41),
            b"\x50\x14" + bytes(20),  # OP_RESERVED and OP_NOP are no versions
            b"\x61\x14" + bytes(20),
            b"\x51\x20" + bytes(31),  # push length and size disagree
            b"\x51\x20" + bytes(33),
            b"\x51\x4c\x20" + bytes(32),  # not a direct push
            b"\x76\xa9\x14" + bytes(20) + b"\x88",  # P2PKH and P2SH with a flaw
            b"\x76\xa9\x14" + bytes(20) + b"\x88\xad",
            b"\x76\xa9\x13" + bytes(20) + b"\x88\xac",
            b"\xa9\x14" + bytes(20) + b"\x88",
            b"\xa9\x14" + bytes(21) + b"\x87",
            b"\xaa\x14" + bytes(20) + b"\x87",
        ],
        ids=bytes.hex,
    )
    def test_script_without_an_address_form_gives_none(self, script: bytes) -> None:
        assert script_to_address(script, MAINNET) is None


class TestRoundTrips:
    @given(scripts, networks)
    def test_script_to_address_and_back(self, script: bytes, network: Network) -> None:
        address = script_to_address(script, network)
        assert address is not None
        assert address_to_script(address, network) == script

    @given(texts, networks)
    def test_any_text_is_an_address_or_an_address_error(self, text: str, network: Network) -> None:
        try:
            script = address_to_script(text, network)
        except AddressError:
            return
        assert script_to_address(script, network) in (text, text.lower())

    @given(st.binary(max_size=45), networks)
    def test_any_script_has_a_reversible_address_or_none(self, script: bytes, network: Network) -> None:
        address = script_to_address(script, network)
        assert address is None or address_to_script(address, network) == script

    @given(
        st.text(alphabet=st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20).map(str.lower),
        st.lists(st.integers(0, 31), max_size=60).map(bytes),
        st.sampled_from(Bech32Encoding),
    )
    def test_bech32_values_survive_encoding(self, hrp: str, values: bytes, encoding: Bech32Encoding) -> None:
        assert bech32_decode(bech32_encode(hrp, values, encoding)) == (hrp, values, encoding)


class TestCorruption:
    @pytest.mark.parametrize("address", [P2WPKH, P2TR, "bc1pfeessrawgf"])
    def test_no_bech32_address_survives_one_changed_character(self, address: str) -> None:
        printable = string.digits + string.ascii_letters + string.punctuation
        for at, original in enumerate(address):
            for char in printable.replace(original, ""):
                with pytest.raises(AddressError):
                    address_to_script(address[:at] + char + address[at + 1 :], MAINNET)

    @given(base58_scripts, st.data())
    def test_base58_address_with_one_changed_character_is_refused(self, script: bytes, data: st.DataObject) -> None:
        address = script_to_address(script, MAINNET)
        assert address is not None
        at = data.draw(st.integers(0, len(address) - 1))
        char = data.draw(st.sampled_from(BASE58.replace(address[at], "")))
        refusal(address[:at] + char + address[at + 1 :])

    @pytest.mark.parametrize("address", [P2PKH, P2SH, P2WPKH, P2TR])
    def test_truncated_address_is_refused_at_every_length(self, address: str) -> None:
        for size in range(len(address)):
            refusal(address[:size])


def test_python_bitcoinlib_is_loaded_late_and_never_its_keys() -> None:
    code = (
        "import json, sys; from spvfilter.address import address_to_script; from spvfilter.network import MAINNET\n"
        "early = [name for name in sys.modules if name.partition('.')[0] == 'bitcoin']\n"
        f"address_to_script({P2PKH!r}, MAINNET)\n"
        "print(json.dumps([early, [name for name in ('bitcoin.wallet', 'bitcoin.core.key') if name in sys.modules]]))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout) == [[], []]


def test_uri_and_address_in_wrong_places_are_named() -> None:
    address = "bc1qar0srrr7xfkvy5l643lydnw9re59gtzzwf5mdq"
    for text in (f"bitcoin:{address}?amount=1", f"BITCOIN:{address.upper()}"):
        with pytest.raises(AddressError, match="expected an address, got a bitcoin: URI"):
            address_to_script(text, MAINNET)
    for text in (address, "bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080"):
        with pytest.raises(DescriptorError, match=r"expected a descriptor, found an address: .* addr\(ADDRESS\)"):
            parse_descriptor(text, MAINNET)
