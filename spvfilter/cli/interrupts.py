"""Signals that Python would not notice while the command line waits."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

_NUDGE = signal.SIGURG  # without a handler it does nothing
_PAUSE_S = 0.02
_DROPPED = 0  # in the pipe, among the numbers of signals


@contextmanager
def never_lost() -> Iterator[None]:
    """An interrupt ends the block whenever it comes.

    Python runs the handler of a signal in the main thread, between two instructions. A signal that comes after the last
    instruction before a system call, but before the call blocks, does not end the call: the handler waits until the
    call returns, for a pipe perhaps for ever. So does one that another thread receives. And Python drops a
    KeyboardInterrupt that a destructor or the callback of a weak reference raises. Here a thread is told of every
    signal (`signal.set_wakeup_fd`) and sends SIGURG to the main thread, which ends its system call with EINTR, until a
    handler has run there; what was dropped is sent again.

    An event loop with signal handlers of its own takes the telling over, and wakes itself. Nothing is done outside the
    main thread and in a program that has a wakeup descriptor, or a handler of SIGURG, of its own.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(_NUDGE) is not signal.SIG_DFL:
        yield
        return
    with _Nudger().hearing():
        yield


class _Nudger:
    def __init__(self) -> None:
        self._main = threading.get_ident()
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)
        self._noticed = False  # a plain attribute: a handler may not take a lock
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="spvfilter-signals", daemon=True)
        self._usual_hook = sys.unraisablehook

    @contextmanager
    def hearing(self) -> Iterator[None]:
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
        """Start the thread, which receives no signals: those that the main thread puts off must not come through it."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._thread.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _close(self) -> None:
        self._ended.set()
        if self._thread.is_alive():  # as it is not in a forked child, whose pipe is its parent's
            with suppress(BlockingIOError):  # it is full, and about to be read
                # an end of file would not come while a forked child has the other end, too
                os.write(self._writing, bytes([_DROPPED]))
            self._thread.join()
        os.close(self._writing)
        os.close(self._reading)

    def _notice(self, number: int, frame: object) -> None:
        """The handler of the nudge. Python runs those of signals with lower numbers, SIGINT among them, before it."""
        self._noticed = True

    def _dropped(self, given: UnraisableHookArgs) -> None:
        if issubclass(given.exc_type, KeyboardInterrupt) and self._thread.is_alive():
            os.write(self._writing, bytes([_DROPPED]))
        else:
            self._usual_hook(given)

    def _serve(self) -> None:
        while not self._ended.is_set():
            told = set(os.read(self._reading, 4096))
            if _DROPPED in told and not self._ended.wait(_PAUSE_S):  # by then the destructor has ended
                os.kill(os.getpid(), signal.SIGINT)
            if told - {_DROPPED, _NUDGE}:
                self._nudge()

    def _nudge(self) -> None:
        self._noticed = False
        while not self._noticed and not self._ended.wait(_PAUSE_S):
            signal.pthread_kill(self._main, _NUDGE)
