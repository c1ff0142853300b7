"""Conversations of the encrypted transport with a second implementation of BIP-324, in random pieces."""

from __future__ import annotations

import random
from typing import Any

import pytest

from spvfilter.network import NETWORKS
from spvfilter.wire import v2
from spvfilter.wire.codec import Frame
from spvfilter.wire.events import Role
from spvfilter.wire.v2 import SHORT_IDS, V2Stream
from support.peers.v2peers import Item, items, taken
from support.vectors import effort, vector_cases
from wire import bip324
from wire.bip324 import Twin

pytestmark = pytest.mark.v2

NAMES = [*SHORT_IDS.values(), "version", "verack", "sendaddrv2", "wtxidrelay", "twelve_chars", "x"]
NUMBERS = {command: number for number, command in SHORT_IDS.items()}
GARBAGE = (0, 1, 15, 16, 17, 4_079, 4_094, 4_095)


def contents_of(command: str, payload: bytes, *, is_short: bool) -> bytes:
    if is_short and command in NUMBERS:
        return bytes((NUMBERS[command],)) + payload
    return b"\0" + command.encode().ljust(12, b"\0") + payload


class Conversation:
    """A stream and a second one of any role. Their bytes arrive in random pieces."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        magic, is_initiator = rng.choice(NETWORKS).magic, rng.random() < 0.5
        ours, theirs = (rng.choice([rng.choice(GARBAGE), rng.randrange(4_096)]) for _ in range(2))
        draws = random.Random(rng.random())

        def draw(size: int) -> bytes:
            return ours.to_bytes(2, "little") if size == 2 else draws.randbytes(size)

        self.ours = V2Stream(magic, Role.INBOUND if is_initiator else Role.OUTBOUND, draw)
        self.twin = Twin(magic, rng, is_initiator=is_initiator, garbage=rng.randbytes(theirs))
        self.version = rng.randbytes(rng.choice([0, 0, 1, 300]))
        self.decoys = [rng.randbytes(rng.randrange(50)) for _ in range(rng.choice([0, 0, 1, 3]))]
        self.sent: list[bytes] = []
        self.expected: list[Frame] = []
        self.found: list[Item] = []

    def payload(self) -> bytes:
        rng = self.rng
        return rng.randbytes(rng.choice([0, 1, 8, 62, 63, 64, rng.randrange(200)]))

    def speak(self) -> None:
        """Each side sends some messages, and the twin sends decoys and unknown commands."""
        rng = self.rng
        for _ in range(rng.choice([0, 1, 2, 5])):
            command, payload = rng.choice(NAMES), self.payload()
            self.ours.send(command, payload)
            self.sent.append(contents_of(command, payload, is_short=True))
        for _ in range(rng.choice([0, 1, 2, 5]) if self.twin.has_keys() else 0):
            command, payload = rng.choice(NAMES), self.payload()
            self.twin.send(contents_of(command, payload, is_short=rng.random() < 0.8))
            self.expected.append(Frame(command, payload))
            if rng.random() < 0.2:
                self.twin.send(self.payload(), is_decoy=True)

    def carry(self) -> None:
        """Carry all bytes to the other side, in pieces."""
        rng = self.rng
        while self.ours.outgoing or self.twin.out:
            if self.ours.outgoing:
                size = rng.choice([1, 3, 16, 64, 1_000, 100_000])
                data = bytes(self.ours.outgoing[:size])
                del self.ours.outgoing[:size]
                self.twin.feed(data, self.version, self.decoys)
            if self.twin.out:
                size = rng.choice([1, 3, 16, 64, 1_000, 100_000])
                data = bytes(self.twin.out[:size])
                del self.twin.out[:size]
                self.ours.feed(data)
                if rng.random() < 0.7:
                    self.found += items(self.ours)
        self.found += items(self.ours)

    def check(self) -> None:
        assert self.found == self.expected
        assert self.twin.versions == [b""]
        assert self.twin.found == self.sent
        assert self.ours.session_id == self.twin.session_id
        assert self.ours.buffered == 0


def talk(seed: int, turns: int) -> Conversation:
    conversation = Conversation(seed)
    conversation.speak()  # Before the key exchange.
    for _ in range(turns):
        conversation.carry()
        conversation.speak()
    conversation.carry()
    conversation.check()
    return conversation


def test_random_conversations_with_a_second_implementation() -> None:
    first = random.randrange(1 << 32)
    for seed in range(first, first + effort(5, 15, 1_000)):
        print("seed", seed)
        talk(seed, 4)


def test_the_second_implementation_changes_keys_at_the_same_packets() -> None:
    for seed in range(effort(1, 1, 20)):
        conversation = talk(seed, 260)
        assert conversation.twin.send_packet.packets > 2 * v2.REKEY_INTERVAL
        assert conversation.twin.take_packet.packets > 2 * v2.REKEY_INTERVAL


def test_the_second_implementation_takes_large_messages() -> None:
    conversation = Conversation(7)
    conversation.carry()
    payload = conversation.rng.randbytes(effort(70_000, 100_000, 4_000_000))
    conversation.ours.send("block", payload)
    conversation.twin.send(contents_of("tx", payload, is_short=True))
    conversation.carry()
    assert conversation.found == [Frame("tx", payload)]
    assert conversation.twin.found == [contents_of("block", payload, is_short=True)]


@vector_cases("10_p2p/bip324_ellswift_decode.json")
def test_the_second_implementation_decodes_published_keys(case: Any) -> None:
    point = bip324.decoded(bytes.fromhex(case["ellswift"]))
    assert point is not None and point[0].to_bytes(32, "big").hex() == case["x"]


def test_a_connection_of_another_network_finds_no_terminator() -> None:
    rng = random.Random(1)
    ours = V2Stream(NETWORKS[0].magic, Role.INBOUND, rng.randbytes)
    twin = Twin(NETWORKS[1].magic, rng, is_initiator=True, garbage=bytes(4_095))
    ours.feed(bytes(twin.out))
    twin.out.clear()
    twin.feed(taken(ours)[:64])
    ours.feed(bytes(twin.out))
    ((field, message),) = items(ours)
    assert field == "garbage" and "no garbage terminator" in str(message)
