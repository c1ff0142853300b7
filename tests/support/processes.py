"""Ways to run the command line as a process: piped, redirected by a shell, or on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

WITHOUT_RICH = "import sys; sys.modules['rich'] = None; from spvfilter.cli import main; sys.exit(main())"
WITH_SIGINT = (  # a test run in the background ignores SIGINT, and its children inherit that
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); from spvfilter.cli import main;"
    " sys.exit(main())"
)
# Another thread receives SIGINT, so the main thread's wait is not interrupted, as if SIGINT came just before the wait.
WITH_UNNOTICED_SIGINT = WITH_SIGINT.replace(
    "from spvfilter",
    "import threading, time; threading.Thread(target=time.sleep, args=(600,), daemon=True).start(); "
    "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}); from spvfilter",
)
# Warnings are errors, but for a type that wallycore's SWIG makes at the end of the interpreter: that error is a crash.
STRICT = ("-W", "error", "-W", "ignore:builtin type swig:DeprecationWarning")
LINES = b"alpha\nbeta\ngamma\n"


def command(*argv: object, code: str = "") -> list[str]:
    start = ["-c", code] if code else ["-m", "spvfilter"]
    return [sys.executable, *STRICT, *start, *map(str, argv)]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONUNBUFFERED": "", "COLUMNS": "80", "TERM": "xterm-256color", **more}


def process(*argv: object, stdin: bytes = b"", code: str = "", shell: str = "") -> subprocess.CompletedProcess[bytes]:
    """Run the command as a process. `shell` is a redirection that follows the command in a line of sh."""
    words = command(*argv, code=code)
    if shell:
        words = ["sh", "-c", f'"$@" {shell}', "sh", *words]
    return subprocess.run(words, input=stdin, capture_output=True, env=environment(), timeout=60)


def on_terminal(*argv: object, code: str = "", stdin: bytes = b"", **more: str) -> tuple[int, str]:
    """Run the command with standard output and error on a terminal of 80 columns. Returns the terminal's text."""
    ours, theirs = pty.openpty()
    try:
        child = subprocess.Popen(
            command(*argv, code=code), stdin=subprocess.PIPE, stdout=theirs, stderr=theirs, env=environment(**more)
        )
    finally:
        os.close(theirs)
    assert child.stdin is not None
    child.stdin.write(stdin)
    child.stdin.close()
    received = b""
    try:
        while data := os.read(ours, 65536):
            received += data
    except OSError:  # EIO: the other side is closed
        pass
    finally:
        os.close(ours)
    return child.wait(timeout=60), received.decode("utf-8").replace("\r\n", "\n")


@contextmanager
def started(*words: object) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    """A process of the command line that Ctrl-C ends, and its standard error."""
    child = subprocess.Popen(
        command(*words, code=WITH_SIGINT),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    try:
        assert child.stderr is not None
        yield child, child.stderr
    finally:
        child.kill()
        child.communicate()


def line_with(text: str, lines: IO[str]) -> str:
    """Read lines until one contains a text."""
    read = []
    for line in lines:
        read.append(line)
        if text in line:
            return line
    raise AssertionError(read)
