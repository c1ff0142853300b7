"""Fuzzes encrypted streams (BIP-324): damages what one side sends, and checks what the other side makes of it.

    python -m support.peers.v2fuzz SECONDS [SEED]

Each round has its own seed, which a failure names. A round with the same seed repeats the failure.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable

from spvfilter.wire.codec import Frame
from spvfilter.wire.events import Role
from spvfilter.wire.messages.filters import CFilter
from spvfilter.wire.messages.table import LIMITS
from spvfilter.wire.streams import MessageStream, UndecidedStream
from spvfilter.wire.v2 import MAX_CONTENTS, MAX_GARBAGE
from support.peers.sessions import MAGIC, THEIRS, encoded
from support.peers.v2peers import Item, drawn, items, stream, taken

FIELDS = {"magic", "garbage", "length", "tag", "command"}  # of the errors that a stream may raise


def messages(rng: random.Random) -> list[Frame]:
    """Messages to send, some of them with an unknown command, and filters that can be joined."""
    found = []
    for _ in range(rng.randrange(12)):
        if rng.random() < 0.4:
            found.append(Frame("cfilter", bytes(CFilter(0, rng.randbytes(32), rng.randbytes(rng.randrange(300))))))
        else:
            command = rng.choice([*LIMITS, "unknown"])
            found.append(Frame(command, rng.randbytes(min(rng.randrange(200), LIMITS.get(command, 200)))))
    return found


def damage(data: bytearray, packets: list[tuple[int, int]], rng: random.Random) -> int:
    """Damage bytes in place; return the offset of the first byte that may differ. `packets` are spans of the bytes."""
    at = rng.randrange(len(data) + 1)
    match rng.randrange(7):
        case 0 if at < len(data):  # flip a bit
            data[at] ^= 1 << rng.randrange(8)
        case 1:  # cut the rest
            del data[at:]
        case 2:  # lose some bytes
            del data[at : at + rng.randint(1, 40)]
        case 3:  # insert some bytes
            data[at:at] = rng.randbytes(rng.randint(1, 40))
        case 4 if packets:  # repeat a packet
            start, at = rng.choice(packets)
            data[at:at] = data[start:at]
        case 5 if len(packets) > 1:  # exchange two packets
            number = rng.randrange(len(packets) - 1)
            (at, middle), (_, end) = packets[number : number + 2]
            data[at:end] = data[middle:end] + data[at:middle]
        case _:  # replace the rest by noise
            data[at:] = rng.randbytes(rng.choice((10, 100, MAX_GARBAGE + 100)))
    return at


def flat(found: list[Item]) -> list[Frame]:
    """The messages among items, with joined filters as separate messages."""
    result: list[Frame] = []
    for item in found:
        if isinstance(item, Frame):
            result.append(item)
        elif isinstance(item, list):
            result += (Frame("cfilter", bytes(CFilter(0, *each))) for each in item)
    return result


def receive(side: MessageStream, data: bytes, rng: random.Random, answer: Callable[[bytes], object]) -> list[Item]:
    """Feed bytes in pieces and return the items of the side. `answer` gets the bytes that the side sends."""
    found: list[Item] = []
    while data:
        size = rng.choice((1, 3, 20, 300, len(data)))
        side.feed(data[:size])
        data = data[size:]
        if isinstance(side, UndecidedStream):
            side = side.decided() or side
        side.joins_filters = rng.random() < 0.8
        answer(taken(side))
        found += items(side)
        assert side.buffered <= max(MAX_CONTENTS, MAX_GARBAGE) + 65_536
    return found


def check(seed: int) -> None:
    """One round: a stream with one damage never yields a message that was not sent, and fails only by its errors."""
    rng = random.Random(seed)
    is_inbound = rng.random() < 0.5
    sender = stream(Role.OUTBOUND if is_inbound else Role.INBOUND, rng.randrange(1 << 30))
    receiver: MessageStream
    if is_inbound:
        receiver = UndecidedStream(MAGIC, drawn(rng.randrange(1 << 30)), LIMITS)
    else:
        receiver = stream(Role.OUTBOUND, rng.randrange(1 << 30))
    first = taken(sender)
    if rng.random() < 0.1:  # noise, a plain message, or both
        noise = rng.choice((b"", encoded(THEIRS), MAGIC)) + rng.randbytes(rng.randrange(6_000))
        receive(receiver, noise, rng, lambda data: None)
        return
    if rng.random() < 0.2:  # the damage is in the key or in the garbage
        damaged = bytearray(first)
        damage(damaged, [], rng)
        found = receive(receiver, bytes(damaged), rng, sender.feed)
        found += receive(receiver, taken(sender), rng, sender.feed) if not is_inbound else []
        assert not flat(found)
        return
    receiver.feed(first)
    if isinstance(receiver, UndecidedStream):
        receiver = receiver.decided() or receiver
    sender.feed(taken(receiver))
    sent, data, packets = messages(rng), bytearray(taken(sender)), []
    start = len(data)
    for command, payload in sent:
        sender.send(command, payload)
        packet = taken(sender)
        packets.append((len(data), len(data) + len(packet)))
        data += packet
    honest = bytes(data)
    at = damage(data, packets, rng)
    found = receive(receiver, bytes(data), rng, lambda data: None)
    fields = {item[0] for item in found if isinstance(item, tuple) and not isinstance(item, Frame)}
    assert fields <= FIELDS, fields
    whole = sum(end <= at for _, end in packets) if at >= start else 0
    received = flat(found)
    if bytes(data) == honest:
        assert received == sent
    assert received == sent[: len(received)]
    assert len(received) >= whole


def main(seconds: float, seed: int | None = None) -> None:
    """Run rounds for some seconds, or the round of one seed."""
    if seed is not None:
        check(seed)
        return
    first = random.SystemRandom().randrange(1 << 40)
    end, rounds = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        try:
            check(first + rounds)
        except BaseException:
            print(f"v2: failed with seed {first + rounds}", file=sys.stderr)
            raise
        rounds += 1
    print(f"v2: {rounds:,} rounds from seed {first}, no failure")


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else None)
