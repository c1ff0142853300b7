"""Tests of an app with spvfilter.testing: a real client, a real node on a socket, and reorganizations on command.

pytest test_app.py

It needs the `testing` and `descriptors` extras. The app counts donations: a donation counts while a block of the best
chain contains it, even after the jar has spent it.
"""

import pytest

from spvfilter import OutPoint, SyncLightClient, TxStatus
from spvfilter.testing import LightClientFactory, RegtestNode, eventually

pytest_plugins = ["spvfilter.testing"]

JAR = "bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080"
KEY = bytes(31) + b"\x01"  # private key of JAR, published in BIP-173: for tests only
SHOP = "bcrt1qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqdku202"
GOAL = 100_000  # satoshi


class Donations:
    """The app: a counter of donations to one address."""

    def __init__(self, client: SyncLightClient) -> None:
        self._client = client

    @property
    def raised(self) -> int:
        return self._sum(TxStatus.CONFIRMED)

    @property
    def promised(self) -> int:
        return self._sum(TxStatus.PENDING)

    def _sum(self, status: TxStatus) -> int:
        # change that returns to the jar is not a donation: the net value of its transaction is negative
        return sum(max(each.net, 0) for each in self._client.history() if each.status == status)

    def banner(self) -> str:
        percent = min(100, 100 * self.raised // GOAL)
        return f"{percent} % of our goal" + (", more is on the way" if self.promised else "")


@pytest.fixture
def donations(light_client: LightClientFactory) -> Donations:
    return Donations(light_client([JAR]))


def test_confirmed_donation_counts(regtest_node: RegtestNode, donations: Donations) -> None:
    assert donations.banner() == "0 % of our goal"
    regtest_node.pay(JAR, 25_000)
    eventually(lambda: donations.banner() == "0 % of our goal, more is on the way")
    regtest_node.mine()
    eventually(lambda: donations.banner() == "25 % of our goal")


def test_donation_with_raised_fee_counts_once(regtest_node: RegtestNode, donations: Donations) -> None:
    first = regtest_node.pay(JAR, 25_000)
    eventually(lambda: donations.promised == 25_000)
    regtest_node.bump(first)
    regtest_node.mine()
    eventually(lambda: donations.raised == 25_000)
    assert donations.promised == 0


def test_double_spent_donation_does_not_count(regtest_node: RegtestNode, donations: Donations) -> None:
    paid = regtest_node.pay(JAR, 25_000)
    regtest_node.mine()
    eventually(lambda: donations.raised == 25_000)
    regtest_node.reorg(1)
    eventually(lambda: donations.raised == 0)
    assert donations.promised == 25_000
    regtest_node.double_spend(paid, in_block=True)
    eventually(lambda: donations.promised == 0)
    assert donations.banner() == "0 % of our goal"


def test_spent_donation_counts_and_change_does_not(regtest_node: RegtestNode, donations: Donations) -> None:
    paid = regtest_node.pay(JAR, 25_000)
    regtest_node.mine()
    eventually(lambda: donations.raised == 25_000)
    regtest_node.spend(OutPoint(paid, 0), to=SHOP, value=10_000, keys=[KEY])
    regtest_node.pay(JAR, 5_000)
    eventually(lambda: donations.promised == 5_000)
    regtest_node.mine()
    eventually(lambda: donations.raised == 30_000)
    assert donations.promised == 0
