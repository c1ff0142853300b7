"""Address discovery in the simulated network: answers of DNS seeds, and addresses that nodes announce."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from simulation.node import Node, NodeEnd
from spvfilter.light.engine.inputs import SeedAnswer
from spvfilter.network import REGTEST, Network
from spvfilter.wire.messages import table as wire
from spvfilter.wire.messages.addresses import NetId, PeerAddress

_SEEDS = ("seed1.example", "seed2.example", "seed3.example")
_NOBODIES = 5  # Most unreachable hosts in a seed's answer. More would hide an honest host for hours.
_MADE_UP = 50  # Unreachable addresses that an honest node announces. A liar announces 20 times as many.
_SLOWEST_S = 3.0  # Longest delay of an answer.
_AGAIN_S = 1_200.0  # Average interval at which a liar announces more addresses.


class Discovery:
    """The sources of addresses for the client. All chance comes from `rng`."""

    def __init__(self, rng: random.Random, nodes: Sequence[Node], wall: Callable[[], float]) -> None:
        self._rng = rng
        self._nodes = nodes
        self._wall = wall
        has_seeds = rng.random() < 0.5
        self.network: Network = replace(REGTEST, dns_seeds=_SEEDS if has_seeds else ())
        self._of_a_liar = {name for name in _SEEDS if rng.random() < 0.3}
        honest = [node.addresses[0] for node in nodes if node.behaviour.is_honest and node.behaviour.is_full]
        others = [address for node in nodes for address in node.addresses if rng.random() < 0.15]
        self.named = list(
            dict.fromkeys([*([] if has_seeds else [rng.choice(honest)]), *(others if rng.random() < 0.5 else ())])
        )
        self._reliable = rng.choice(_SEEDS)  # this seed knows an honest node with all services
        self._honest = honest

    # DNS seeds

    def resolve(self, services: int) -> tuple[SeedAnswer, ...]:
        """The answers of all seeds. Some seeds fail, and some belong to liars."""
        return tuple(self._answer(name, services) for name in _SEEDS)

    def delay(self) -> float:
        """Seconds until an answer arrives."""
        return self._rng.random() * _SLOWEST_S

    def _answer(self, name: str, services: int) -> SeedAnswer:
        rng = self._rng
        if name != self._reliable and rng.random() < 0.2:
            return SeedAnswer(name, 0, (), OSError("no such name"))
        hosts = [
            node.host
            for node in self._nodes
            if (not node.behaviour.is_honest if name in self._of_a_liar else rng.random() < 0.7)
        ]
        hosts += [self._nobody() for _ in range(rng.randrange(_NOBODIES))]
        if name == self._reliable:
            hosts[20:] = [address.rpartition(":")[0] for address in self._honest]
        return SeedAnswer(name, services if rng.random() < 0.5 else 0, tuple(hosts))

    # Addresses that nodes announce

    def asked(self, end: NodeEnd) -> None:
        """A node was asked for addresses by getaddr."""
        end.node.timeline.after(self.delay(), partial(self._tell, end))

    def _tell(self, end: NodeEnd) -> None:
        if not end.is_open or end.session.ready is None:
            return
        node, rng = end.node, self._rng
        told = [self._told(other) for other in self._nodes if node.behaviour.is_honest or not other.behaviour.is_honest]
        if node.behaviour.is_honest:
            told += [self._made_up(rng.uniform(0, 86_400 * 20)) for _ in range(rng.randrange(_MADE_UP))]
        else:
            told += [self._made_up(60.0) for _ in range(rng.choice([0, _MADE_UP, 20 * _MADE_UP - len(told)]))]
            told += [replace(self._told(other), port=rng.choice([1, 18_445])) for other in self._nodes]
            node.timeline.after(rng.expovariate(1 / _AGAIN_S), partial(self._tell, end))
        rng.shuffle(told)
        end.session.send(wire.AddrV2(tuple(told[:1_000])))
        end.work()

    def _told(self, node: Node) -> PeerAddress:
        rng = self._rng
        age = rng.uniform(0, 86_400) if node.behaviour.is_honest else rng.choice([-86_400.0, 0.0])
        return PeerAddress(
            int(self._wall() - age), int(node.behaviour.services), NetId.IPV4, _packed(node.host), 18_444
        )

    def _made_up(self, age: float) -> PeerAddress:
        return PeerAddress(int(self._wall() - age), 0x4D, NetId.IPV4, _packed(self._nobody()), 18_444)

    def _nobody(self) -> str:
        """An unreachable host."""
        return ".".join(map(str, (self._rng.randrange(100, 120), *self._rng.randbytes(2), self._rng.randrange(1, 255))))


def _packed(host: str) -> bytes:
    return bytes(map(int, host.split(".")))
