"""Addresses and scripts of every kind, and the error with which one is refused."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st

from spvfilter.address import address_to_script
from spvfilter.errors import AddressError
from spvfilter.network import MAINNET, Network

P2WPKH = "bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4"
P2TR = "bc1p0xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7vqzk5jj0"
P2PKH = "1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa"  # the genesis block's key
P2SH = "3P14159f73E4gFr7JterCCQh9QjiTjiZrG"
hash20 = st.binary(min_size=20, max_size=20)
scripts = st.one_of(
    hash20.map(lambda key_hash: b"\x76\xa9\x14" + key_hash + b"\x88\xac"),
    hash20.map(lambda key_hash: b"\xa9\x14" + key_hash + b"\x87"),
    hash20.map(lambda program: b"\x00\x14" + program),
    st.binary(min_size=32, max_size=32).map(lambda program: b"\x00\x20" + program),
    st.builds(
        lambda version, program: bytes((0x50 + version, len(program))) + program,
        st.integers(1, 16),
        st.binary(min_size=2, max_size=40),
    ),
)


def refusal(address: str, network: Network = MAINNET) -> AddressError:
    with pytest.raises(AddressError) as caught:
        address_to_script(address, network)
    return caught.value
