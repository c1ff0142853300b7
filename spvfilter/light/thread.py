"""ClientThread: runs a light client in a thread with its own event loop. Other threads call it and wait.

The loop runs in a daemon thread, so a program that never leaves its client can still exit. Waiting threads wake up ten
times a second, so a signal is handled promptly, no matter to which thread the system delivers it.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Generic, TypeVar  # Any: the send type of a coroutine

from spvfilter.errors import NotRunningError
from spvfilter.light.client import LightClient

T = TypeVar("T")

TURN_S = 0.1
"""Time between checks for pending signals, in seconds."""
_EXIT_S = 2.0  # seconds to wait for the loop when the interpreter exits


class Call(Generic[T]):
    """One call: a task in the loop, and the thread that is waiting for it."""

    def __init__(self, start: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._start = start
        self._over = threading.Event()
        self._task: asyncio.Task[T] | None = None
        self._is_cancelled = False

    def begin(self) -> None:
        """Start the task, in the loop's thread."""
        if self._is_cancelled:
            self._over.set()
            return
        self._task = asyncio.ensure_future(self._run())
        self._task.add_done_callback(lambda _: self._over.set())

    async def _run(self) -> T:
        """Call the function within the task, so that an error about wrong arguments also becomes the call's error."""
        return await self._start()

    def cancel(self) -> None:
        """Cancel the task, in the loop's thread."""
        self._is_cancelled = True
        if self._task is not None:
            self._task.cancel()

    def wait(self, seconds: float) -> bool:
        """Wait until the task has ended. Return True if it has."""
        return self._over.wait(seconds)

    @property
    def has_result(self) -> bool:
        """True if the task has ended and returned a value."""
        task = self._task
        return self._over.is_set() and task is not None and not task.cancelled() and task.exception() is None

    def result(self) -> T:
        """Return the result of the task, which has ended.

        Raises the task's error, or NotRunningError if the `with` block of the client ended first.
        """
        if self._task is None or self._task.cancelled():
            raise NotRunningError("the client is closed: its `with` block has ended")
        return self._task.result()


class ClientThread:
    """One run of a client, from entering the client's `with` block to leaving it."""

    def __init__(self, client: LightClient) -> None:
        self._client = client
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name="spvfilter-client", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._main: asyncio.Task[None] | None = None
        self._entered = threading.Event()
        self._leaving: asyncio.Event | None = None
        self._is_told = False  # True if the thread was told to leave the client
        self._error: BaseException | None = None  # raised by entering or leaving
        self._calls: set[Call[Any]] = set()

    @property
    def is_here(self) -> bool:
        """True if this process started the thread. A forked child does not have the thread."""
        return self._pid == os.getpid()

    # In the thread

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        except BaseException as error:  # the waiting thread raises it
            self._error = error
        finally:
            self._entered.set()

    async def _live(self) -> None:
        self._loop, self._main, self._leaving = asyncio.get_running_loop(), asyncio.current_task(), asyncio.Event()
        if self._is_told:
            return
        async with self._client:
            self._entered.set()
            await self._leaving.wait()

    def _leave(self) -> None:
        assert self._leaving is not None
        self._leaving.set()

    # In other threads

    def enter(self) -> None:
        """Start the thread and wait until the client is running. Raises the same errors as entering the client."""
        try:
            self._thread.start()
            atexit.register(self._exit)
            while not self._entered.wait(TURN_S):
                pass
        except BaseException:
            self._end(force=True)
            raise
        if self._error is not None:
            self._end()

    def leave(self) -> None:
        """Leave the client and wait until the thread has ended. Does nothing in a forked child.

        If Ctrl-C interrupts the wait, KeyboardInterrupt is raised only once the thread has ended. A second Ctrl-C
        raises it immediately, and the thread ends on its own. Errors from leaving the client are raised as well.
        """
        if self.is_here:
            self._end()

    def _end(self, *, force: bool = False) -> None:
        """End the thread. With `force`, it ends even while the client is being entered."""
        interruption = self._tell(force=force)
        while self._thread.is_alive():
            try:
                self._thread.join(TURN_S)
            except BaseException as error:
                if interruption is not None:
                    raise
                interruption = error
        atexit.unregister(self._exit)
        if interruption is not None:
            raise interruption
        if self._error is not None and not force:
            raise self._error

    def _tell(self, *, force: bool) -> BaseException | None:
        """Tell the thread to end. Returns an exception that interrupted this, such as KeyboardInterrupt, or None."""
        interruption: BaseException | None = None
        while True:
            try:
                self._is_told = True
                loop, main = self._loop, self._main
                if loop is not None and main is not None:
                    with suppress(RuntimeError):  # it has ended already
                        loop.call_soon_threadsafe(main.cancel if force and not self._entered.is_set() else self._leave)
                return interruption
            except BaseException as error:
                if interruption is not None:
                    raise
                interruption = error

    def _exit(self) -> None:
        """Stop silently when the interpreter exits without leaving the client.

        The database stays consistent, as after a power failure.
        """
        loop = self._loop
        if self.is_here and loop is not None and self._thread.is_alive():
            loop.set_exception_handler(lambda _, __: None)
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(loop.stop)
            self._thread.join(_EXIT_S)

    def call(
        self,
        start: Callable[[], Coroutine[Any, Any, T]],
        deadline: float | None,
        keep: Callable[[T], None] | None = None,
    ) -> T:
        """Run a coroutine in the loop and wait for its result.

        Args:
            start: Function that returns the coroutine.
            deadline: End of the wait, by time.monotonic.
            keep: Function to call with a result that arrived although the wait was interrupted.

        Raises:
            TimeoutError: The deadline has passed.
            NotRunningError: The client is not running, or is running in another process.
        """
        loop = self._loop
        if not self.is_here:
            raise NotRunningError("the client is running in another process: a forked child needs its own client")
        if threading.current_thread() is self._thread:
            raise NotRunningError("the client cannot be called from its own thread, because it would wait for itself")
        if loop is None or self._is_told:
            raise NotRunningError("the client is closed: its `with` block has ended")
        call = Call(start)
        try:
            try:
                loop.call_soon_threadsafe(call.begin)
            except RuntimeError:  # the loop is closed
                raise NotRunningError("the client is closed: its `with` block has ended") from None
            while not call.wait(TURN_S if deadline is None else max(0.0, min(TURN_S, deadline - time.monotonic()))):
                if not self._thread.is_alive() and not call.wait(0):
                    raise NotRunningError("the client is closed: its `with` block has ended")
                if deadline is not None and time.monotonic() >= deadline:
                    raise TimeoutError("the time limit set with timeout() has expired")
            return call.result()
        except BaseException as error:
            self._give_up(loop, call)
            if call.has_result:
                if isinstance(error, TimeoutError):
                    return call.result()  # it arrived at the last moment
                if keep is not None:
                    keep(call.result())
            raise

    def _give_up(self, loop: asyncio.AbstractEventLoop, call: Call[T]) -> None:
        """Cancel a call and wait until it is over."""
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(call.cancel)
        while not call.wait(TURN_S):
            if not self._thread.is_alive():
                return
