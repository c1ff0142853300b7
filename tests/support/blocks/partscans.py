"""Scans and exports that leave files in a directory: those files, and an engine that can stop. No assertions."""

from __future__ import annotations

from pathlib import Path

from spvfilter.errors import SourceError
from spvfilter.scan import PartSummary, PartTask, Threads


class Recorder(Threads):
    """Threads that record the tasks they run. If `stops_after` is given, they fail after that many tasks."""

    def __init__(self, jobs: int = 1, *, stops_after: int | None = None) -> None:
        super().__init__(jobs)
        self.tasks: list[PartTask] = []
        self._stops_after = stops_after

    async def run(self, task: PartTask) -> PartSummary:
        if len(self.tasks) == self._stops_after:
            raise SourceError("the power is off")
        self.tasks.append(task)
        return await super().run(task)


def everything(out: Path) -> dict[str, bytes]:
    """All files but the manifest, which contains the times of the outputs."""
    files = (path for path in sorted(out.rglob("*")) if path.is_file() and path.name != "manifest.json")
    return {str(path.relative_to(out)): path.read_bytes() for path in files}


def results(out: Path) -> dict[str, bytes]:
    """The files with the results."""
    return {path.name: path.read_bytes() for path in sorted(out.glob("[a-z]*.*")) if path.name != "manifest.json"}
