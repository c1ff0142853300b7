"""The edition of spvfilter that all machines of a Dask cluster must share: the version and the format of tasks."""

from __future__ import annotations

from spvfilter._version import __version__

TASK_FORMAT = 1
"""Version of the format of tasks and answers. Increase it whenever a class that workers receive or return changes."""
EDITION = f"{__version__} (task format {TASK_FORMAT})"
"""The version and the task format, which must be the same on all machines of a cluster."""


def edition() -> str:
    """Return the edition of the machine that runs this function."""
    return EDITION


def mismatch(theirs: str, ours: str) -> str:
    """Describe how a worker's edition differs from this machine's, and what to do about it."""
    return f"has spvfilter {theirs}, but this machine has {ours}: install the same version on all machines"
