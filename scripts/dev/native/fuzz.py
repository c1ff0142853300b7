"""Fuzzes the kernel's C code, each target in two ways.

- `fast` runs small inputs without sanitizers, at least 50,000 a second. A guard page behind each input shows reads
  beyond its end.
- `deep` runs large inputs under ASan and UBSan, and traces every comparison. It takes a quarter of the time.

The corpus, the findings and the counts stay in .fuzz/NAME (corpus/, findings/, runs.tsv), so that the totals of several
runs add up.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import programs

VECTORS = "SPVFILTER_VECTORS"
DEEP_SHARE = 1 / 4  # Share of the time for `deep`.
TURN = 240  # Seconds for one target before the next one, about.
LARGEST = 1 << 20  # Bytes of the largest input that is replayed.
ENVIRONMENT = {"ASAN_OPTIONS": "quarantine_size_mb=32:malloc_context_size=12"}

INTERRUPTED = 72  # exit status of libFuzzer after an interrupt

Mode = Literal["fast", "deep"]
WAYS: dict[Mode, programs.Way] = {"fast": programs.FAST, "deep": programs.DEEP}
MAX_SIZE: dict[Mode, int] = {"fast": 1024, "deep": 20_000}  # bytes


class Stop:
    """A signal handler: the first Ctrl-C or SIGTERM ends the fuzzing and begins the replay.

    The counts of the run that it ends are kept.
    """

    def __init__(self) -> None:
        self.asked = False
        self.process: int | None = None

    def __call__(self, number: int, frame: object) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        if self.process is not None:
            os.kill(self.process, signal.SIGTERM)


STOP = Stop()


@dataclass
class Total:
    """Totals of all runs of one target."""

    executions: int = 0
    """Number of inputs that were run."""
    seconds: float = 0.0
    """Processor time in seconds."""

    def rate(self) -> str:
        """Executions per second of processor time, as text."""
        return f"{self.executions / self.seconds:,.0f}" if self.seconds else "-"


@dataclass
class Replay:
    """The result of a run of the corpus under the sanitizers."""

    inputs: int = 0
    """Number of inputs."""
    edges: int = 0
    """Number of edges that they reach."""
    passed: bool = True
    """True if no input failed."""


@dataclass(frozen=True)
class Target:
    """A fuzz target and its folder."""

    name: str
    """Name of the target: the file name in tests/native/fuzz without its suffix."""

    @property
    def home(self) -> Path:
        return programs.ROOT / ".fuzz" / self.name

    @property
    def corpus(self) -> Path:
        return self.home / "corpus"

    @property
    def seeds(self) -> Path:
        return self.home / "seeds"

    @property
    def runs(self) -> Path:
        return self.home / "runs.tsv"

    def findings(self) -> list[Path]:
        return sorted((self.home / "findings").iterdir())

    def program(self, mode: Mode) -> Path:
        return programs.fuzzer(WAYS[mode], self.name)

    def prepare(self, vectors: str) -> None:
        """Make the folders and the seeds. Earlier findings that pass now are moved to the corpus."""
        for folder in (self.corpus, self.seeds, self.home / "findings"):
            folder.mkdir(parents=True, exist_ok=True)
        for old in self.seeds.iterdir():
            old.unlink()
        subprocess.run(
            [sys.executable, str(programs.TESTS / "seeds.py"), self.name, vectors, str(self.seeds)],
            check=True,
            env=os.environ | {"SPVFILTER_BACKEND": "pure"},
        )
        for found in self.findings():
            if not self.execute("deep", [str(found)])[0]:
                found.rename(self.corpus / found.name)

    def execute(self, mode: Mode, arguments: Sequence[str]) -> tuple[int, float]:
        """Run the fuzzer, and return its exit status and its processor time in seconds. Its output is in log-MODE."""
        command = [
            str(self.program(mode)),
            "-timeout=60",
            "-rss_limit_mb=2048",
            "-print_final_stats=1",
            f"-artifact_prefix={self.home / 'findings'}/",
            *arguments,
        ]
        with self.log(mode).open("w") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | ENVIRONMENT)
            STOP.process = process.pid
            _, status, usage = os.wait4(process.pid, 0)
            STOP.process = None
        return os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime

    def log(self, mode: Mode) -> Path:
        return self.home / f"log-{mode}"

    def fuzz(self, mode: Mode, seconds: float) -> bool:
        """Fuzz for this time. Returns True if nothing was found."""
        status, used = self.execute(
            mode,
            [
                f"-max_total_time={max(1, round(seconds))}",
                f"-max_len={MAX_SIZE[mode]}",
                str(self.corpus),
                str(self.seeds),
            ],
        )
        executions = 0
        for line in self.log(mode).read_text(errors="replace").splitlines():
            if line.startswith("stat::number_of_executed_units:"):
                executions = int(line.split()[1])
        with self.runs.open("a") as runs:
            runs.write(f"{mode}\t{executions}\t{used:.2f}\n")
        if status not in (0, INTERRUPTED):
            self.tell(mode)
            return False
        return True

    def tell(self, mode: Mode) -> None:
        print(f"fuzz {self.name}, {mode}: found something", file=sys.stderr)
        print(*self.log(mode).read_text(errors="replace").splitlines()[-60:], sep="\n", file=sys.stderr)

    def minimise(self) -> None:
        """Reduce the corpus to fewer inputs that reach the same edges."""
        fewer = self.home / "fewer"
        shutil.rmtree(fewer, ignore_errors=True)
        fewer.mkdir()
        status, _ = self.execute("deep", ["-merge=1", f"-max_len={LARGEST}", str(fewer), str(self.corpus)])
        if status:
            self.tell("deep")
            return
        shutil.rmtree(self.corpus)
        fewer.rename(self.corpus)

    def replay(self) -> Replay:
        """Run every input once, under ASan and UBSan."""
        status, _ = self.execute("deep", ["-runs=0", f"-max_len={LARGEST}", str(self.corpus), str(self.seeds)])
        replay = Replay(
            inputs=sum(1 for folder in (self.corpus, self.seeds) for _ in folder.iterdir()), passed=not status
        )
        for line in self.log("deep").read_text(errors="replace").splitlines():
            words = line.split()
            if "INITED" in words and "cov:" in words:
                replay.edges = int(words[words.index("cov:") + 1])
        if status:
            self.tell("deep")
        return replay

    def totals(self) -> dict[str, Total]:
        """Read the totals of all runs so far."""
        totals = {"fast": Total(), "deep": Total()}
        for line in self.runs.read_text().splitlines() if self.runs.exists() else ():
            mode, executions, seconds = line.split("\t")
            totals[mode].executions += int(executions)
            totals[mode].seconds += float(seconds)
        return totals


def in_turn(target: Target, seconds: float) -> bool:
    """Fuzz fast, then deep with the corpus of the fast run. Returns True if nothing was found."""
    fast = target.fuzz("fast", seconds * (1 - DEEP_SHARE))
    return fast and (STOP.asked or target.fuzz("deep", seconds * DEEP_SHARE))


def print_table(targets: Sequence[Target], replays: dict[str, Replay]) -> None:
    print(f"{'target':<12}{'executions':>16}{'fast/s':>10}{'deep/s':>10}{'replayed':>10}{'edges':>8}{'findings':>10}")
    overall = 0
    for target in targets:
        totals, replay = target.totals(), replays[target.name]
        executions = totals["fast"].executions + totals["deep"].executions
        overall += executions
        print(
            f"{target.name:<12}{executions:>16,}{totals['fast'].rate():>10}{totals['deep'].rate():>10}{replay.inputs:>10,}"
            f"{replay.edges:>8,}{len(target.findings()):>10}"
        )
    print(f"{'all':<12}{overall:>16,}   (per second of one processor)")


def finish(targets: Sequence[Target]) -> bool:
    """Minimize and replay the corpora, and print the table. Returns True if nothing was found."""
    replays = {}
    for target in targets:
        target.minimise()
        replays[target.name] = target.replay()
    print_table(targets, replays)
    return not any(target.findings() for target in targets) and all(replay.passed for replay in replays.values())


def one(target: Target, seconds: float, vectors: str) -> int:
    target.prepare(vectors)
    if not in_turn(target, seconds) or target.findings():
        return 1
    replay, totals = target.replay(), target.totals()
    print(
        f"fuzz {target.name}: {totals['fast'].executions:,} executions fast, {totals['deep'].executions:,} deep"
        f" ({totals['fast'].rate()} and {totals['deep'].rate()} per second of one processor), {replay.edges} edges,"
        " nothing found"
    )
    return 0


def every(targets: Sequence[Target], hours: float, vectors: str) -> int:
    for target in targets:
        target.prepare(vectors)
        for mode in WAYS:
            target.program(mode)
    signal.signal(signal.SIGINT, STOP)
    signal.signal(signal.SIGTERM, STOP)
    share = 3600 * hours / len(targets)
    rounds = max(1, round(share / TURN))
    for target in list(targets) * rounds:
        if STOP.asked:
            break
        in_turn(target, share / rounds)
    return not finish(targets)


def main() -> int:
    names = programs.targets()
    parser = argparse.ArgumentParser(
        prog="scripts/fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", nargs="?", choices=names, metavar="NAME", help=f"a target: {', '.join(names)}")
    parser.add_argument("seconds", nargs="?", type=float, metavar="SECONDS", help="how long to fuzz it")
    parser.add_argument(
        "--all", type=float, metavar="HOURS", help="fuzz every target in turn, then minimize and replay"
    )
    arguments = parser.parse_args()
    if (arguments.all is None) == (arguments.seconds is None):
        parser.error("give NAME SECONDS, or --all HOURS")
    vectors = os.environ.get(VECTORS) or parser.error(f"set {VECTORS} to the folder of vectors")
    if arguments.all is None:
        return one(Target(arguments.name), arguments.seconds, vectors)
    return every([Target(name) for name in names], arguments.all, vectors)


if __name__ == "__main__":
    sys.exit(main())
