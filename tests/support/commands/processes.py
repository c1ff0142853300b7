"""Ways to run the command line as a process: piped, redirected by a shell, or on a terminal."""

from __future__ import annotations

import os
import pty
import selectors
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

from support.commands.forkedcommands import ForkedCommand

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
    if code or shell or sys.platform == "win32":
        return subprocess.run(words, input=stdin, capture_output=True, env=environment(), timeout=60)
    (theirs, into), (out, output), (err, errors) = os.pipe(), os.pipe(), os.pipe()
    child = ForkedCommand(STRICT, [str(word) for word in argv], [theirs, output, errors], environment())
    for end in (theirs, output, errors):
        os.close(end)
    feed = threading.Thread(target=write_all, args=(into, stdin))
    feed.start()
    stdout, stderr = read_all([out, err], timeout=60)
    feed.join()
    return subprocess.CompletedProcess(words, child.wait(timeout=60), stdout, stderr)


def write_all(pipe: int, data: bytes) -> None:
    """Write bytes into a pipe, whose reader may end early, and close it."""
    with suppress(BrokenPipeError), open(pipe, "wb", buffering=0) as file:
        while data:
            data = data[file.write(data) :]


def read_all(pipes: list[int], timeout: float) -> list[bytes]:
    """Read pipes to their ends, all at the same time, and close them."""
    read = dict.fromkeys(pipes, b"")
    with selectors.DefaultSelector() as selector:
        for pipe in pipes:
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(timeout)
            assert ready, f"no output for {timeout} s"
            for key, _ in ready:
                if data := os.read(key.fd, 65536):
                    read[key.fd] += data
                else:
                    selector.unregister(key.fd)
                    os.close(key.fd)
    return list(read.values())


def on_terminal(*argv: object, code: str = "", stdin: bytes = b"", **more: str) -> tuple[int, str]:
    """Run the command with standard output and error on a terminal of 80 columns. Returns the terminal's text."""
    ours, theirs = pty.openpty()
    reader, into = os.pipe()
    try:
        child: subprocess.Popen[bytes] | ForkedCommand
        if code:
            words = command(*argv, code=code)
            child = subprocess.Popen(words, stdin=reader, stdout=theirs, stderr=theirs, env=environment(**more))
        else:
            child = ForkedCommand(STRICT, [str(word) for word in argv], [reader, theirs, theirs], environment(**more))
    finally:
        os.close(theirs)
        os.close(reader)
    write_all(into, stdin)
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
