"""Signals: an interrupt ends every wait of the command line, and SIGTERM shuts a running command down cleanly."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from spvfilter._public import deferred
from spvfilter.cli.term.page import complain

if TYPE_CHECKING:
    import asyncio
    from sys import UnraisableHookArgs
else:
    asyncio = deferred("asyncio")

TERMINATED = 143
"""Exit code, 128 + SIGTERM."""
_NUDGE: int = getattr(signal, "SIGURG", 0)
"""The signal that wakes the main thread: SIGURG, which has no effect without a handler. Windows lacks it."""
_PAUSE_S = 0.02  # time between two nudges (our choice)
_DROPPED = 0
"""A byte in the pipe for a dropped interrupt. No signal has this number."""


def on_signal(number: int, react: Callable[[], object]) -> Callable[[], object]:
    """Call `react` in the running loop whenever signal `number` arrives, until the returned function is called."""
    loop = asyncio.get_running_loop()
    if sys.platform == "win32":  # its loop has no signal handlers, but every signal wakes it
        before = signal.signal(number, lambda *_: loop.call_soon_threadsafe(react))
        return partial(signal.signal, number, before)
    loop.add_signal_handler(number, react)
    return partial(loop.remove_signal_handler, number)


@contextmanager
def never_lost() -> Iterator[None]:
    """Context manager: an interrupt ends the `with` block at any moment.

    Without it Python can lose an interrupt in three ways:

    - A signal arrives after the last bytecode before a system call, but before the call blocks. The handler then waits
      until the call returns. For a pipe, that may be never.
    - Another thread receives the signal. The main thread's system call continues.
    - A destructor or the callback of a weak reference raises the KeyboardInterrupt, and Python drops it.

    Here a thread reads every signal from `signal.set_wakeup_fd`. It sends SIGURG to the main thread until a handler has
    run there; SIGURG makes the system call fail with EINTR. A dropped interrupt is sent again.

    An event loop with its own signal handlers replaces the wakeup descriptor and wakes up on its own. The context
    manager does nothing outside the main thread, on Windows, and in a program that has its own wakeup
    descriptor or its own handler of SIGURG.
    """
    if sys.platform == "win32":  # its signals do not end a system call
        yield
        return
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(_NUDGE) is not signal.SIG_DFL:
        yield
        return
    with _Nudger().hearing():
        yield


class _Nudger:
    """A thread that makes the main thread run the handlers of signals that have arrived."""

    def __init__(self) -> None:
        self._main = threading.get_ident()
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)  # type: ignore[attr-defined, unused-ignore]
        self._noticed = False  # a plain attribute: a signal handler must not take a lock
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="spvfilter-signals", daemon=True)
        self._usual_hook = sys.unraisablehook

    @contextmanager
    def hearing(self) -> Iterator[None]:
        """Context manager: the thread runs in the `with` block, unless the program has its own wakeup descriptor."""
        before = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        if before != -1:
            signal.set_wakeup_fd(before)
            self._close()
            yield
            return
        signal.signal(_NUDGE, self._notice)
        try:
            self._start()
            sys.unraisablehook = self._dropped
            yield
        finally:
            sys.unraisablehook = self._usual_hook
            signal.set_wakeup_fd(-1)
            self._close()
            signal.signal(_NUDGE, signal.SIG_DFL)

    def _start(self) -> None:
        """Start the thread with all signals blocked: it must not receive a signal that the main thread blocks."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # type: ignore[attr-defined, unused-ignore]
        try:
            self._thread.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)  # type: ignore[attr-defined, unused-ignore]

    def _close(self) -> None:
        """End the thread and close the pipe."""
        self._ended.set()
        if self._thread.is_alive():  # False in a forked child, which shares the pipe with its parent.
            # A byte wakes the thread; closing the pipe would not while a forked child has it open.
            with suppress(BlockingIOError):  # A full pipe also wakes the thread.
                os.write(self._writing, bytes([_DROPPED]))
            self._thread.join()
        os.close(self._writing)
        os.close(self._reading)

    def _notice(self, number: int, frame: object) -> None:
        """Handle the nudge. Python runs the handlers of lower signal numbers, such as SIGINT, before this one."""
        self._noticed = True

    def _dropped(self, given: UnraisableHookArgs) -> None:
        """Handle an exception that Python cannot raise: if it is an interrupt, send the interrupt again."""
        if issubclass(given.exc_type, KeyboardInterrupt) and self._thread.is_alive():
            os.write(self._writing, bytes([_DROPPED]))
        else:
            self._usual_hook(given)

    def _serve(self) -> None:
        """Read signal numbers from the pipe until the end."""
        while not self._ended.is_set():
            told = set(os.read(self._reading, 4096))
            if _DROPPED in told and not self._ended.wait(_PAUSE_S):  # the destructor has returned by then
                os.kill(os.getpid(), signal.SIGINT)
            if told - {_DROPPED, _NUDGE}:
                self._nudge()

    def _nudge(self) -> None:
        """Send SIGURG to the main thread until its handler has run."""
        self._noticed = False
        while not self._noticed and not self._ended.wait(_PAUSE_S):
            signal.pthread_kill(self._main, _NUDGE)  # type: ignore[attr-defined, unused-ignore]


async def terminable(work: Coroutine[object, object, int]) -> int:
    """Run `work` and return its exit code.

    SIGTERM cancels it, with exit code 143; a second SIGTERM kills the process.
    """
    task, told = asyncio.current_task(), asyncio.Event()
    assert task is not None

    def terminate() -> None:
        forget()
        told.set()
        task.cancel()

    forget = on_signal(signal.SIGTERM, terminate)
    try:
        return await work
    except asyncio.CancelledError:
        if not told.is_set():
            raise
        complain("terminated")
        return TERMINATED
