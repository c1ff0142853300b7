"""Log messages of the package, printed to standard error like other messages of a command."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

from spvfilter.cli.term.page import complain


class UnrepeatedMessages(logging.Handler):
    """Prints log messages about peers or files to standard error, and a repeated message about one of them once."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[str, str] = {}  # the last message about each peer, without its numbers

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        peer, _, rest = message.partition(": ")
        kind = re.sub(r"[0-9.]+", "#", rest)
        if self._last.get(peer) != kind:
            self._last[peer] = kind
            complain(message)


@contextmanager
def handled_by(name: str, handler: logging.Handler) -> Iterator[None]:
    """Context manager: a logger's messages go only to this handler."""
    logger = logging.getLogger(name)
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]
