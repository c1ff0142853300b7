"""An app's tests with spvfilter.testing: a real client, a real node on a socket, and reorganisations on command.

pytest test_app.py

The app is a donation counter. Its tests say what a user sees: a donation counts once, when a block has it, and while a
block has it.
"""

import pytest

from spvfilter import SyncLightClient
from spvfilter.testing import LightClientFactory, RegtestNode, eventually

pytest_plugins = ["spvfilter.testing"]

JAR = "bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080"
GOAL = 100_000  # satoshi


class Donations:
    """The app."""

    def __init__(self, client: SyncLightClient) -> None:
        self._client = client

    @property
    def raised(self) -> int:
        return self._client.balance().confirmed

    @property
    def promised(self) -> int:
        return self._client.balance().pending_in

    def banner(self) -> str:
        percent = min(100, 100 * self.raised // GOAL)
        return f"{percent} % of our goal" + (", more is on the way" if self.promised else "")


@pytest.fixture
def donations(light_client: LightClientFactory) -> Donations:
    return Donations(light_client([JAR]))


def test_a_donation_counts_once_a_block_has_it(regtest_node: RegtestNode, donations: Donations) -> None:
    assert donations.banner() == "0 % of our goal"
    regtest_node.pay(JAR, 25_000)
    eventually(lambda: donations.banner() == "0 % of our goal, more is on the way")
    regtest_node.mine()
    eventually(lambda: donations.banner() == "25 % of our goal")


def test_a_donation_whose_fee_is_raised_counts_once(regtest_node: RegtestNode, donations: Donations) -> None:
    first = regtest_node.pay(JAR, 25_000)
    eventually(lambda: donations.promised == 25_000)
    regtest_node.bump(first)
    regtest_node.mine()
    eventually(lambda: donations.raised == 25_000)
    assert donations.promised == 0


def test_a_donation_that_is_taken_back_does_not_count(regtest_node: RegtestNode, donations: Donations) -> None:
    paid = regtest_node.pay(JAR, 25_000)
    regtest_node.mine()
    eventually(lambda: donations.raised == 25_000)
    regtest_node.reorg(1)
    eventually(lambda: donations.raised == 0)
    assert donations.promised == 25_000
    regtest_node.double_spend(paid, in_block=True)
    eventually(lambda: donations.promised == 0)
    assert donations.banner() == "0 % of our goal"
