"""Questions of a session: facts that a method needs before it can answer.

`WalletLink` finds the fact and calls `then` with it. The result is the answer, or another question.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from spvfilter.store.scriptviews import TxProof


@dataclass(frozen=True, slots=True)
class ExploreScript:
    """Search the scripts past the keychain windows for a script hash. `then` is called when the search has ended."""

    script_hash: str
    then: Callable[[], Answer]


@dataclass(frozen=True, slots=True)
class FindTransaction:
    """Read a transaction from the database, or get None if the database lacks it."""

    txid: bytes
    then: Callable[[TxProof | None], Answer]


@dataclass(frozen=True, slots=True)
class FetchBranch:
    """Fetch the block of one of the wallet's transactions whose merkle branch the database lacks.

    `then` gets the position of the transaction in the block, and its branch. `WalletLink` stores the branch.
    """

    height: int
    txid: bytes
    then: Callable[[int, bytes], Answer]


@dataclass(frozen=True, slots=True)
class FindReserved:
    """Find the wallet's outpoints that are frozen, or that a pending transaction certainly spends."""

    then: Callable[[Collection[bytes]], Answer]


@dataclass(frozen=True, slots=True)
class PrepareProof:
    """Compute the merkle tree of all headers up to a checkpoint. `then` is called when its nodes are known."""

    checkpoint: int
    then: Callable[[], Answer]


@dataclass(frozen=True, slots=True)
class SendTransactions:
    """Broadcast transactions together, parents first. `then` gets an error for each, or None if it was sent."""

    raws: tuple[bytes, ...]
    host: str
    """Host of the session, which is limited to a share of the transactions that are only relayed."""
    then: Callable[[list[str | None]], Answer]


Question = ExploreScript | FindReserved | FindTransaction | FetchBranch | PrepareProof | SendTransactions
Answer = object
"""A value for JSON, or a Question."""
