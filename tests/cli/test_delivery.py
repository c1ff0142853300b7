"""Short runs wait until nodes have requested the wallet's own transactions, and say which ones still wait."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from spvfilter.cli import delivery
from spvfilter.light import LightClient

FIRST, SECOND = bytes([1]) * 32, bytes([2]) * 32


class Client:
    """A client whose transactions are requested one by one, at each look."""

    def __init__(self, *unsent: bytes) -> None:
        self.unsent = list(unsent)
        self.looks = 0

    async def status(self) -> SimpleNamespace:
        self.looks += 1
        now = tuple(self.unsent)
        self.unsent = self.unsent[1:]
        return SimpleNamespace(unsent=now)


async def told(client: Client, *besides: bytes) -> list[str]:
    said: list[str] = []
    await delivery.deliver(cast("LightClient", client), said.append, besides)
    return said


async def test_it_looks_until_all_are_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "LOOK_S", 0)
    client = Client(FIRST, SECOND)
    assert await told(client) == []
    assert client.looks == 3


async def test_nothing_waits_for_the_transaction_of_the_command() -> None:
    client = Client(FIRST)
    assert await told(client, FIRST) == []
    assert client.looks == 1


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (1, "1 transaction is waiting for a node to request it; the next run announces it again: " + "01" * 32),
        (5, "5 transactions are waiting for a node to request them; the next run announces them again: "),
    ],
)
async def test_it_names_what_still_waits(number: int, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "DELIVER_S", 0)
    (line,) = await told(Client(*[FIRST] * number))
    assert line.startswith(said)
    assert line.count("01" * 32) == min(number, 3)
    assert line.endswith(", …") is (number > 3)
