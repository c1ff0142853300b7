"""A process on Linux that pretends to be on Windows: it lacks functions of POSIX, and cannot remove open files.

`pretend` changes the process until its end. `pytest -p support.commands.windows --capture=sys` runs tests in such a
process.
"""

from __future__ import annotations

import asyncio.unix_events
import concurrent.futures.process
import ctypes
import errno
import importlib
import logging.handlers
import mmap
import multiprocessing.popen_spawn_posix
import multiprocessing.resource_tracker
import multiprocessing.shared_memory
import os
import platform
import random
import shutil
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
import tempfile
import urllib.request
import uuid
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Any

import pytest

# Modules that choose between systems when they are imported: here they choose Linux, before the pretence begins.
_STANDARD = [concurrent.futures.process, ctypes, logging.handlers, multiprocessing.popen_spawn_posix, platform, random]
_STANDARD += [shutil, socket, sqlite3, ssl, subprocess, tempfile, urllib.request, uuid]
_PACKAGES = ["bitcoin.core", "httpx", "hypothesis", "mmh3", "numpy", "pytest", "redis.asyncio", "rich.console"]

MODULES = ["fcntl", "grp", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty"]
MISSING: dict[ModuleType, str] = {
    os: (
        "fork forkpty register_at_fork wait3 wait4 waitid killpg setsid getpgrp getpgid tcgetpgrp "
        "getuid geteuid getgid getegid getgroups setuid setgid chown fchown lchown nice "
        "pread pwrite preadv pwritev posix_fadvise posix_fallocate mkfifo mknod memfd_create fchmod fchdir "
        "sysconf getloadavg sched_getaffinity sched_setaffinity sched_yield statvfs fstatvfs set_blocking "
        "O_NOFOLLOW O_NONBLOCK O_CLOEXEC O_DIRECTORY O_SYNC O_DSYNC O_NOCTTY O_PATH"
    ),
    signal: (
        "SIGHUP SIGQUIT SIGKILL SIGPIPE SIGALRM SIGUSR1 SIGUSR2 SIGURG SIGSTOP SIGTSTP SIGCONT SIGCHLD SIGWINCH "
        "SIG_BLOCK SIG_UNBLOCK SIG_SETMASK pthread_kill pthread_sigmask sigwait sigpending siginterrupt alarm setitimer"
    ),
    mmap: (
        "MAP_PRIVATE MAP_SHARED MAP_ANON MAP_ANONYMOUS MAP_NORESERVE MAP_POPULATE PROT_READ PROT_WRITE PROT_EXEC "
        "MADV_HUGEPAGE MADV_DONTNEED MADV_WILLNEED"
    ),
}


class Mapping(mmap.mmap):
    """A mapping with the arguments that it has on Windows."""

    def __new__(cls, fileno: int, length: int, tagname: str | None = None, access: int = 0, offset: int = 0) -> Mapping:
        return super().__new__(cls, fileno, length, access=access or mmap.ACCESS_WRITE, offset=offset)

    madvise = property()


def pretend() -> None:
    """Turn this process into one on Windows."""
    if hasattr(os, "process_cpu_count"):  # Python 3.13; on Windows it is cpu_count
        os.process_cpu_count = os.cpu_count
    for name in _PACKAGES:
        with suppress(ImportError):
            importlib.import_module(name)
    sys.modules["msvcrt"] = _msvcrt()
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment]  # importing it raises ImportError
    _refuse_open_files()
    for module, names in MISSING.items():
        for name in names.split():
            if hasattr(module, name):
                delattr(module, name)
    os.O_BINARY = 0  # type: ignore[attr-defined]
    mmap.mmap = Mapping  # type: ignore[assignment, misc]
    shutil.which = lambda *_, **__: None  # it would ask the registry of Windows
    shutil._use_fd_functions = False  # type: ignore[attr-defined]
    multiprocessing.resource_tracker._HAVE_SIGMASK = False  # type: ignore[attr-defined]
    for change in ("add_signal_handler", "remove_signal_handler"):
        setattr(asyncio.unix_events._UnixSelectorEventLoop, change, _unsupported)
    sys.platform = "win32"


def _unsupported(*given: object) -> None:
    raise NotImplementedError


def _msvcrt() -> ModuleType:
    """The module of Windows, with locks of Linux: a second descriptor cannot lock the file, in this process neither."""
    import fcntl

    flock, unlocked, exclusive = fcntl.flock, fcntl.LOCK_UN, fcntl.LOCK_EX | fcntl.LOCK_NB

    def locking(descriptor: int, mode: int, size: int) -> None:
        assert size == 1
        assert os.lseek(descriptor, 0, os.SEEK_CUR) > os.fstat(descriptor).st_size, "others could not read the file"
        try:
            flock(descriptor, {0: unlocked, 2: exclusive}[mode])
        except BlockingIOError:
            raise PermissionError(errno.EACCES, "Permission denied") from None

    made = ModuleType("msvcrt")
    vars(made).update(locking=locking, LK_UNLCK=0, LK_NBLCK=2)
    return made


def _refuse_open_files() -> None:
    """Open files cannot be removed or replaced, and directories cannot be opened."""
    opening: Callable[..., int] = os.open

    def open_file(path: Any, flags: int, *given: Any, **named: Any) -> int:
        if os.path.isdir(path) and not flags & os.O_EXCL:  # noqa: PTH112
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opening(path, flags, *given, **named)

    def guarded(function: Callable[..., None]) -> Callable[..., None]:
        def guard(*paths: Any, **named: Any) -> None:
            if any(map(_is_open, paths)):
                raise PermissionError(errno.EACCES, "The process cannot access the file", str(paths[0]))
            function(*paths, **named)

        return guard

    os.open = open_file
    for name in ("remove", "rename", "replace", "unlink"):
        setattr(os, name, guarded(getattr(os, name)))


def _is_open(path: object) -> bool:
    """Whether this process has a file open, or mapped."""
    with suppress(OSError):
        wanted = os.stat(path)  # type: ignore[arg-type]  # noqa: PTH116
        for number in os.listdir("/proc/self/fd"):  # noqa: PTH208
            with suppress(OSError):
                if os.path.samestat(os.fstat(int(number)), wanted):
                    return True
    return False


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Pretend before anything imports the package, if pytest loads this module as a plugin."""
    pretend()
