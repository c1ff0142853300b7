"""Plan: the choices that make a life, and its outcome."""

from __future__ import annotations

from dataclasses import dataclass

from simulation.violation import Violation
from spvfilter.light.events import Mode

FAULTS = ("peers", "lies", "lines", "disk", "kill", "clock", "reorg", "entries", "mempool")
KINDS = (
    "schemes",
    "keychain",
    "discovery",
    "small",
    "user",
    "twins",
    "restores",
    "floods",
    "cancels",
    "accounts",
    "reorgs",
    "stops",
    "high",
    "silent",
)
"""Fields of a plan that make another life from the same seed."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The choices that make a life. The same plan gives the same life."""

    seed: int
    """Every random choice follows from it and from the mode."""
    mode: Mode
    """The way in which the client searches."""
    faults: tuple[str, ...] = FAULTS
    """Kinds of faults that may happen."""
    peers: tuple[str, ...] | None = None
    """Behaviours of the peers besides an honest one. By default they are drawn."""
    bug: str | None = None
    """Name of a planted bug."""
    schemes: bool = False
    """True if there are more peers, from the later part of the library."""
    keychain: bool = False
    """True if the wallet has a keychain, whose addresses are used out of order."""
    discovery: bool = False
    """True if the client knows few addresses or none, and discovers the others."""
    small: bool = False
    """True if limits of blocks and messages are small, and mode and kept filters change between runs."""
    user: bool = False
    """True if the user does more: broadcasts again, bumps fees, abandons, relabels."""
    cancels: bool = False
    """True if a user of the real client cancels calls. Its timing differs from run to run."""
    floods: bool = False
    """True if attackers flood the client with unconfirmed payments, at the real bounds."""
    restores: bool = False
    """True if earlier copies of the database take its place. Not together with `user`."""
    accounts: bool = False
    """True if the wallet has 1 to 50 accounts, which come and go while the client runs. Not together with `keychain`.
    """
    reorgs: bool = False
    """True if the client restarts again and again while its nodes are in the middle of a reorganization."""
    stops: bool = False
    """True if tasks of the engine are cancelled at random awaits."""
    high: bool = False
    """True if the chain has more than 2,000 blocks, so that filter checkpoints matter."""
    silent: bool = False
    """True if the wallet has a silent payment address, whose payments a node or a tweak server helps to find."""
    twins: bool = False
    """True for two lives that differ only in foreign unconfirmed transactions."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of a life."""

    hours: float = 0.0
    """Virtual time."""
    messages: int = 0
    """Messages that the client sent and received."""
    blocks: int = 0
    """Blocks of all branches of the true chain."""
    restarts: int = 0
    """Starts of the client after the first one."""
    slowest_step_s: float = 0.0
    """Longest step of the engine, processor time. Only floods judge it."""
    digest: str = ""
    """Equal for equal lives."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a life."""

    plan: Plan
    """The choices that made it."""
    violation: Violation | None
    """The invariant that did not hold, if there is one."""
    seconds: float
    """Processor time."""
    tally: Tally
    """Counts."""
