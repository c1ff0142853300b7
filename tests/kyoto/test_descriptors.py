"""BDK as judge of descriptors: for random ones of every kind, the first fifty scripts of every path are the same."""

from __future__ import annotations

import random
from typing import Any

import pytest

from spvfilter.network import MAINNET, REGTEST
from spvfilter.watch.descriptor import parse_descriptor
from support.vectors import effort
from support.wallets.keychains import RandomDescriptors

pytestmark = [pytest.mark.kyoto, pytest.mark.descriptors]

SCRIPTS = 50  # of each
KINDS = ("wpkh", "pkh", "sh(wpkh)", "tr", "wsh(sortedmulti)", "miniscript", "tree")


def by_bdk(text: str, *, is_main: bool) -> list[bytes]:
    """The first scripts of a descriptor with a single path, as a wallet of BDK has them."""
    import bdkpython

    bdk: Any = bdkpython
    descriptor = bdk.Descriptor(text, bdk.NetworkKind.MAIN if is_main else bdk.NetworkKind.TEST)
    network = bdk.Network.BITCOIN if is_main else bdk.Network.REGTEST
    wallet = bdk.Wallet.create_single(descriptor, network, bdk.Persister.new_in_memory(), 1)
    kind = bdk.KeychainKind.EXTERNAL
    return [bytes(wallet.peek_address(kind, index).address.script_pubkey().to_bytes()) for index in range(SCRIPTS)]


@pytest.mark.parametrize("kind", KINDS)
def test_scripts_are_those_of_bdk(kind: str) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    made = RandomDescriptors(random.Random(seed))
    for _ in range(effort(1, 3, 2_000 // len(KINDS) + 1)):
        is_main = made.rng.random() < 0.5
        text = made.text(kind, is_main=is_main)
        for each in parse_descriptor(text, MAINNET if is_main else REGTEST):
            ours = [each.scripts(index) for index in range(SCRIPTS)]
            assert ours == [(script,) for script in by_bdk(each.text, is_main=is_main)], each.text
