"""Questions of a session: facts that a method needs before it can answer. The shell finds them out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spvfilter.store.scriptviews import ProvedTx


@dataclass(frozen=True, slots=True)
class ExploreScript:
    """Whether further scripts of the keychains have a hash. `then` is called when the search has ended."""

    script_hash: str
    then: Callable[[], Answer]


@dataclass(frozen=True, slots=True)
class FindTransaction:
    """A transaction of the database, or None."""

    txid: bytes
    then: Callable[[ProvedTx | None], Answer]


@dataclass(frozen=True, slots=True)
class FetchBlock:
    """A whole block of the best chain, from a peer."""

    height: int
    then: Callable[[bytes], Answer]
    own_txid: bytes | None = None
    """Transaction of the wallet whose merkle branch the database lacks. The shell stores it."""


@dataclass(frozen=True, slots=True)
class PrepareProof:
    """The merkle tree of all headers up to a checkpoint. `then` is called when its nodes are known."""

    checkpoint: int
    then: Callable[[], Answer]


@dataclass(frozen=True, slots=True)
class SendTransactions:
    """The errors of transactions that are broadcast in this order, or None for each one without an error."""

    raws: tuple[bytes, ...]
    then: Callable[[list[str | None]], Answer]


Question = ExploreScript | FindTransaction | FetchBlock | PrepareProof | SendTransactions
Answer = object
"""A value for JSON, or a Question."""
