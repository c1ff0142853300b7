"""Requests for announced transactions: each is requested once, and from the next peer if one does not answer."""

from __future__ import annotations

import random

import pytest

from spvfilter.p2p import txrequests
from spvfilter.p2p.txrequests import REQUEST_S, Item, TxRequests
from support.vectors import effort

TX, WTX = 1, 5


def item(number: int, kind: int = WTX) -> Item:
    return kind, number.to_bytes(32, "big")


def arrived(requests: TxRequests, number: int) -> bool:
    return requests.arrived(bytes(32), number.to_bytes(32, "big"), TX, WTX)


def test_announced_transaction_is_requested_once() -> None:
    requests = TxRequests()
    assert requests.announced(1, [item(1), item(2), item(1)], 0) == [item(1), item(2)]
    assert requests.announced(2, [item(1), item(3)], 0) == [item(3)]
    assert requests.arrived(b"t" * 32, item(1)[1], TX, WTX)
    assert not requests.arrived(b"t" * 32, item(1)[1], TX, WTX)
    assert requests.announced(3, [item(1), (TX, b"t" * 32)], 0) == []
    assert requests.arrived(b"u" * 32, item(9)[1], TX, WTX)  # unsolicited


def test_transaction_with_two_ids_comes_once() -> None:
    requests = TxRequests()
    assert requests.announced(1, [(WTX, b"w" * 32)], 0) == [(WTX, b"w" * 32)]
    assert requests.announced(2, [(TX, b"t" * 32)], 0) == [(TX, b"t" * 32)]
    assert requests.arrived(b"t" * 32, b"w" * 32, TX, WTX)
    assert not requests.arrived(b"t" * 32, b"w" * 32, TX, WTX)
    assert requests.expired(2 * REQUEST_S) == {}


@pytest.mark.parametrize("how", ["expired", "missing", "left"])
def test_next_announcer_is_asked_when_a_peer_fails(how: str) -> None:
    requests = TxRequests()
    requests.announced(1, [item(1), item(2)], 0)
    requests.announced(2, [item(1)], 1)
    requests.announced(3, [item(1)], 2)

    def fail(peer: int, now: float) -> dict[int, list[Item]]:
        if how == "expired":
            return requests.expired(now)
        return requests.missing(peer, [item(1), item(2)], now) if how == "missing" else requests.left(peer, now)

    assert requests.expired(REQUEST_S - 1) == {}
    assert fail(1, REQUEST_S) == {2: [item(1)]}
    assert requests.unanswered == 1  # No other peer announced item 2.
    assert requests.missing(3, [item(1)], REQUEST_S) == {}  # peer 3 was not asked yet
    assert fail(2, 2 * REQUEST_S) == {3: [item(1)]}
    assert fail(3, 3 * REQUEST_S) == {}
    assert requests.unanswered == 2
    assert requests.announced(4, [item(1)], 4 * REQUEST_S) == [item(1)]


def test_item_that_a_notfound_repeats_counts_once() -> None:
    requests = TxRequests()
    requests.announced(1, [item(1), item(2)], 0)
    for peer in (2, 3):
        requests.announced(peer, [item(2)], 0)
    assert requests.missing(1, [item(1), item(2), item(1), item(2)], 1) == {2: [item(2)]}
    assert requests.unanswered == 1


def test_open_requests_of_a_peer_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(txrequests, "MAX_ANNOUNCEMENTS", 3)
    requests = TxRequests()
    assert len(requests.announced(1, map(item, range(5)), 0)) == 3
    assert requests.ignored == 2
    assert requests.announced(2, [item(4)], 0) == [item(4)]
    assert arrived(requests, 0)
    assert len(requests.announced(1, map(item, range(10, 15)), 0)) == 1


def test_remembered_ids_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(txrequests, "SEEN", 10)
    requests = TxRequests()
    for number in range(1, 20):
        requests.announced(1, [item(number)], 0)
        assert requests.arrived(bytes([number]) * 32, item(number)[1], TX, WTX)
    assert requests.announced(1, [item(19)], 0) == []
    assert requests.announced(1, [item(1)], 0) == [item(1)]


@pytest.mark.parametrize("seed", range(effort(20, 50, 2_000)))
def test_every_transaction_of_an_honest_peer_comes_once(seed: int) -> None:
    rng = random.Random(seed)
    requests, now = TxRequests(), 0.0
    honest, others = 0, (1, 2, 3)
    asked: dict[int, list[Item]] = {peer: [] for peer in (honest, *others)}
    given: list[int] = []

    def send(wanted: dict[int, list[Item]]) -> None:
        for peer, items in wanted.items():
            asked[peer] += items

    numbers = range(30)
    for number in rng.sample(numbers, 30):
        for peer in rng.sample((honest, *others), 4):
            if peer == honest or rng.random() < 0.5:
                send({peer: requests.announced(peer, [item(number)], now)})
    for _ in range(200):
        now += rng.uniform(0, REQUEST_S / 4)
        send(requests.expired(now))
        action = rng.random()
        if action < 0.5 and asked[honest]:
            got = asked[honest].pop(rng.randrange(len(asked[honest])))
            number = int.from_bytes(got[1], "big")
            if requests.arrived(b"txid" + got[1][4:], got[1], TX, WTX):
                given.append(number)
        elif action < 0.6:
            peer = rng.choice(others)
            send(requests.left(peer, now))
        elif action < 0.7:
            peer = rng.choice(others)
            send(requests.missing(peer, asked[peer][:3], now))
    assert sorted(given) == list(numbers)
