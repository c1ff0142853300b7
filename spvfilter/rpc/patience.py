"""How often and for how long a node is asked again that does not answer as it should."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from spvfilter._dataclass import dataclass
from spvfilter._public import deferred, public
from spvfilter.errors import NodeAnswerError, NodeBusyError, NodeError, NodeUnreachableError, ParameterError

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = deferred("asyncio")

T = TypeVar("T")
_log = logging.getLogger(__name__)
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0
_MOST_WRONG = 3  # answers in a row that are not what was asked for


@public
@dataclass(frozen=True, slots=True)
class Patience:
    """How a node is asked again that does not answer as it should.

    One that is down, starting or overloaded is asked for `seconds` after its last answer, with pauses that grow from
    0.5 s to 30 s; None is for ever. A wrong answer is asked for again twice. `told` gets a sentence each time that
    something goes wrong. `sleep` and `clock` are asyncio.sleep and time.monotonic by default.

    Raises ParameterError for a negative number of seconds.
    """

    seconds: float | None = 600.0
    told: Callable[[str], None] | None = None
    sleep: Callable[[float], Awaitable[None]] | None = None
    clock: Callable[[], float] = time.monotonic
    """Seconds."""

    def __post_init__(self) -> None:
        if self.seconds is not None and not self.seconds >= 0:
            raise ParameterError(f"patience is a number of seconds, 0 or more: {self.seconds}")

    async def ask(self, call: Callable[[], Awaitable[T]], *, is_known: bool = True) -> T:
        """Await `call()` until it succeeds. Raises the last NodeError.

        Of a node that never answered, a refused connection is final.
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
        """Sleep."""
        await (self.sleep or asyncio.sleep)(seconds)

    def tell(self, sentence: str) -> None:
        """Log a sentence, and pass it on."""
        _log.info("%s", sentence)
        if self.told is not None:
            self.told(sentence)
