"""Patience: how often, and for how long, to retry a request to a node."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from spvfilter._public import public
from spvfilter.errors import NodeAnswerError, NodeBusyError, NodeError, NodeUnreachableError, ParameterError

T = TypeVar("T")
_log = logging.getLogger(__name__)
_FIRST_PAUSE_S = 0.5  # Seconds before the first retry (our choice). The pause then doubles each time.
_LONGEST_PAUSE_S = 30.0  # Longest pause, in seconds (our choice).
_MOST_WRONG = 3  # Number of wrong answers after which a request fails (our choice).


@public
@dataclass(frozen=True, slots=True)
class Patience:
    """How often, and for how long, to retry a request to a node.

    While the node is down, starting or overloaded, the request is retried after pauses of 0.5 s to 30 s. After a wrong
    answer, it is retried twice. Raises ParameterError if `seconds` is negative.
    """

    seconds: float | None = 600.0
    """Seconds after which an unanswered request fails. None means that it is retried forever."""
    told: Callable[[str], None] | None = None
    """Function to call with a message before each retry."""
    sleep: Callable[[float], Awaitable[None]] | None = None
    """Asynchronous function that waits for a number of seconds. None means `asyncio.sleep`."""
    clock: Callable[[], float] = time.monotonic
    """Function that returns the seconds since an arbitrary start."""

    def __post_init__(self) -> None:
        if self.seconds is not None and not self.seconds >= 0:
            raise ParameterError(f"patience must be 0 seconds or more, not {self.seconds}")

    async def ask(self, call: Callable[[], Awaitable[T]], *, is_known: bool = True) -> T:
        """Await `call()` repeatedly until it succeeds, and return its result.

        A failed connection is retried only if `is_known` is True, that is, if the node has answered before.

        Raises:
            NodeError: The call failed, and Patience allows no more retries. This is the error of the last call.
        """
        begun, pause, wrong = self.clock(), _FIRST_PAUSE_S, 0
        while True:
            try:
                return await call()
            except NodeAnswerError as error:
                wrong += 1
                if wrong >= _MOST_WRONG:
                    raise
                problem: NodeError = error
            except (NodeBusyError, NodeUnreachableError) as error:
                if isinstance(error, NodeUnreachableError) and not is_known:
                    raise
                if self.seconds is not None and self.clock() - begun + pause > self.seconds:
                    raise
                problem = error
            self.tell(f"{problem}; trying again")
            await self.pause(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    async def pause(self, seconds: float) -> None:
        """Wait for a number of seconds."""
        await (self.sleep or asyncio.sleep)(seconds)

    def tell(self, sentence: str) -> None:
        """Log a message, and pass it to the function `told`."""
        _log.info("%s", sentence)
        if self.told is not None:
            self.told(sentence)
