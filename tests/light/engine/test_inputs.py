"""Reports of a peer's session become inputs in the same order, each with little work for the engine."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from spvfilter.errors import SessionError
from spvfilter.light.engine.inputs import MAX_WORK, FencePassed, Heard, HeardTogether, Input, Malformed, inputs_of
from spvfilter.primitives import Header
from spvfilter.wire import events
from spvfilter.wire.events import Received, ReceivedFilters, SessionEvent
from spvfilter.wire.messages import table as wire
from spvfilter.wire.messages.addresses import NetId, PeerAddress
from spvfilter.wire.messages.merkleblock import MerkleBlock
from spvfilter.wire.messages.table import InvItem, InvType, Message

RNG = random.Random(1)
ITEMS = tuple(InvItem(InvType.WTX, RNG.randbytes(32)) for _ in range(50_000))


def messages_in(event: Input) -> list[Message]:
    match event:
        case Heard(_, message):
            return [message]
        case HeardTogether(_, heard):
            return [each.message for each in heard if isinstance(each, Received)]
    return []


def items_in(event: Input) -> list[InvItem]:
    inventories = (wire.Inv, wire.GetData, wire.NotFound)
    return [item for message in messages_in(event) if isinstance(message, inventories) for item in message.items]


@pytest.mark.parametrize("kind", [wire.Inv, wire.GetData, wire.NotFound])
def test_a_message_of_many_items_is_split_before_its_pong(
    kind: Callable[[tuple[InvItem, ...]], Message],
) -> None:
    made = list(inputs_of(7, [Received(kind(ITEMS)), events.Fenced(5)], lambda nonce: nonce))
    assert made[-1] == FencePassed(7, 5)
    parts = [items_in(each) for each in made[:-1]]
    assert [item for part in parts for item in part] == list(ITEMS)
    assert all(0 < len(part) <= MAX_WORK for part in parts)
    # `kind` is a class
    assert all(isinstance(message, kind) for each in made for message in messages_in(each))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [wire.Addr, wire.AddrV2])
def test_a_message_of_addresses_is_split_into_small_parts(
    kind: Callable[[tuple[PeerAddress, ...]], Message],
) -> None:
    told = tuple(PeerAddress(at, 1, NetId.IPV6, b"\x26" + RNG.randbytes(15), 8333) for at in range(1_000))
    made = list(inputs_of(7, [Received(kind(told)), events.Fenced(5)], lambda nonce: nonce))
    assert made[-1] == FencePassed(7, 5)
    parts = [
        message.addresses
        for each in made
        for message in messages_in(each)
        if isinstance(message, wire.Addr | wire.AddrV2)
    ]
    assert [each for part in parts for each in part] == list(told)
    assert len(parts) == len(made) - 1 >= 20


def test_messages_with_much_work_become_several_inputs() -> None:
    headers = [Received(wire.Headers(tuple(RNG.randbytes(80) for _ in range(200)))) for _ in range(50)]
    made = list(inputs_of(7, headers, lambda nonce: nonce))
    assert [message for each in made for message in messages_in(each)] == [each.message for each in headers]
    numbers = [sum(len(bytes(message)) // 81 for message in messages_in(each)) for each in made]
    assert 5 <= len(numbers) <= 15
    assert max(numbers) <= MAX_WORK
    header = Header.parse(bytes(80))
    proofs = [
        Received(MerkleBlock(header, 4_000, tuple(RNG.randbytes(32) for _ in range(1_000)), bytes(250)))
        for _ in range(50)
    ]
    assert 10 <= len(list(inputs_of(7, proofs, lambda nonce: nonce))) <= 25
    pongs = [Received(wire.FeeFilter(1_000)) for _ in range(50)]
    assert len(list(inputs_of(7, pongs, lambda nonce: nonce))) == 1


@pytest.mark.long
def test_splitting_neither_loses_nor_reorders_messages() -> None:
    rng = random.Random(3)
    for _ in range(50):
        made: list[SessionEvent] = []
        for _ in range(rng.randrange(1, 30)):
            choices: list[SessionEvent] = [
                Received(wire.Inv(ITEMS[: rng.choice([1, 10, 2_000, 2_001, 4_500])])),
                Received(wire.Tx(rng.randbytes(rng.choice([100, 90_000, 300_000])))),
                Received(wire.Block(rng.randbytes(rng.choice([200, 900_000])))),
                Received(wire.Addr(())),
                ReceivedFilters(((bytes(32), b"\x00"),) * rng.choice([1, 1_000])),
                events.Fenced(rng.randrange(100)),
                events.Misbehaved(SessionError("pong", cause=events.Cause.UNSOLICITED_PONG)),
            ]
            made.append(rng.choice(choices))
        inputs = list(inputs_of(7, made, lambda nonce: nonce))
        assert [each for given in inputs for each in flat(given)] == [
            each for event in made for each in flat_event(event)
        ]


def flat(given: Input) -> list[object]:
    """Return the items and whole events of an input."""
    match given:
        case Heard(_, message):
            return flat_event(Received(message))
        case HeardTogether(_, heard):
            return [part for each in heard for part in flat_event(each)]
        case FencePassed(_, token):
            return flat_event(events.Fenced(token))
        case Malformed(_, error):
            return [("malformed", error)]
    raise AssertionError(given)


def flat_event(event: SessionEvent) -> list[object]:
    match event:
        case Received(wire.Inv(items)):
            return list(items)
        case ReceivedFilters(filters):
            return list(filters)
        case Received(message):
            return [message]
        case events.Misbehaved(error):
            return [("malformed", error)]
    return [event]
