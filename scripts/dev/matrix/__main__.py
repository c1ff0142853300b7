"""A kill matrix of Python code: which test notices which small change of a package.

    scripts/dev/mutate matrix spvfilter/filters --seed 1 [--tests PATH…] [--sample 20] [--minutes 4]
    scripts/dev/mutate matrix spvfilter/filters --seed 1 --without TEST…
    scripts/dev/mutate matrix spvfilter/light --seed 1 --first tests/light/engine

It records once which test runs which line, and draws a sample of changes of each module. A change is tried in a fork of
a process that imported everything before. (If it takes effect on import, it needs an import of its own.)

First come all tests that execute the line and take less than a second. If they pass, slower ones follow, up to the
first failure. A test with parameters stops at its first case that fails.

`--first` asks which tests are needed in addition to others, such as slow ones in addition to fast ones. The tests of
these paths run first, the quickest first, up to the first failure. Only for changes that they all miss, the other tests
run as above. This table has a name of its own.

The table is in build/matrix. If the time is over, the next call continues it, as long as neither the package nor the
tests change. Random tests always use the same examples.

A program that a test starts runs the package unchanged, so this says nothing about tests that only start programs. The
C code is not changed (see `scripts/dev/mutate`).

A test that kills nothing alone is a candidate, no more. Choose by one seed, then look with `--without` whether the
table of another seed, of a sample at least as large, loses a kill. A test of money, secrets, exit codes, hostile input
or published data says what users rely on, and stays.
"""

from __future__ import annotations

import argparse
import csv
import gc
import hashlib
import inspect
import json
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType
from typing import NamedTuple

import coverage
import pytest
from _pytest.runner import runtestprotocol
from changes import Change, drawn

FAST = 1.0  # Seconds of processor time below which a test runs for each change of a line that it executes.
MEMORY = 6 << 30  # Bytes of address space that the tests of a change may use.
IMPORT = 60  # Seconds of processor time that an import may take.
TIMEOUTS = 3  # After so many tests that hang, the change counts as noticed.

Swap = list[tuple[FunctionType, CodeType]]
Write = Callable[[Change, str, list[str]], None]


def digest(*folders: Path) -> str:
    found = hashlib.sha256(os.environ.get("SPVFILTER_EFFORT", "").encode())
    for folder in folders:
        for path in sorted(folder.rglob("*.py")) if folder.is_dir() else [folder]:
            found.update(str(path).encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:16]


def forked(run: Callable[[], int]) -> int:
    """Run a function in a forked process group, without input and output. Returns its exit status."""
    pid = os.fork()
    if not pid:
        status = 1
        errors = os.dup(2)
        try:
            os.setpgid(0, 0)
            null = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(null, stream)
            status = run()
        except Exception:
            os.write(errors, traceback.format_exc().encode())
        finally:
            os._exit(status)
    _, raw = os.waitpid(pid, 0)
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(raw)


class Plugin:
    """Collects the tests, and passes them to a function."""

    def __init__(self, run: Callable[[list[pytest.Item]], None]) -> None:
        self.run = run
        self.collected = False

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        import hypothesis  # after pytest, which wants to rewrite its plugin

        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        hypothesis.settings.register_profile("matrix", hypothesis.settings(), derandomize=True, phases=phases)
        hypothesis.settings.load_profile("matrix")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if not session.testsfailed:  # else a module cannot be imported
            self.collected = True
            signal.setitimer(signal.ITIMER_PROF, 0)
            self.run(session.items)
        return True


def collect(tests: Sequence[str], run: Callable[[list[pytest.Item]], None], code: CodeType | None = None) -> bool:
    """Import the tests and the package in a new process, with this code of a module. Then call the function there.

    Returns True if the import succeeds.
    """

    def session() -> int:
        if code is not None:
            load = SourceFileLoader.get_code

            def get_code(loader: SourceFileLoader, name: str) -> CodeType | None:
                return code if loader.path == code.co_filename else load(loader, name)

            SourceFileLoader.get_code = get_code  # type: ignore[assignment, method-assign]
            signal.setitimer(signal.ITIMER_PROF, IMPORT)
        plugin = Plugin(run)
        with tempfile.TemporaryDirectory() as folder:
            options = [f"-pno:{name}" for name in ("cacheprovider", "testmon", "xdist", "pytest_cov")]
            pytest.main([*options, "-qqs", f"--basetemp={folder}/t", *tests], plugins=[plugin])
        return 0 if plugin.collected else 1

    return forked(session) == 0


def fails(item: pytest.Item, following: pytest.Item | None) -> bool:
    return any(report.failed for report in runtestprotocol(item, log=False, nextitem=following))


def function(test: str) -> str:
    return test.partition("[")[0]


def record(modules: Sequence[str], tests: Sequence[str], path: Path) -> None:
    """Write the time of each test, and the tests that run each line. The import is a test without a name."""
    files = [str(Path(name).resolve()) for name in modules]
    measure = coverage.Coverage(data_file=None, config_file=False, include=files)

    def run(items: list[pytest.Item]) -> None:
        seconds, failed = {}, []
        for item, following in zip(items, [*items[1:], None], strict=True):
            measure.switch_context(item.nodeid)
            start = time.process_time()
            if fails(item, following):
                failed.append(item.nodeid)
            seconds[item.nodeid] = time.process_time() - start
        measure.stop()
        lines = {name: measure.get_data().contexts_by_lineno(str(Path(name).resolve())) for name in modules}
        path.write_text(json.dumps({"seconds": seconds, "failed": failed, "lines": lines}), encoding="utf-8")

    measure.start()
    collected = collect(tests, run)
    measure.stop()
    if not collected:
        raise SystemExit(f"matrix: the tests cannot be imported: pytest {' '.join(tests)}")


class Judge:
    """Runs the tests of each change."""

    def __init__(self, tests: Sequence[str], first: Sequence[str], known: Path, write: Write, until: float) -> None:
        found = json.loads(known.read_text(encoding="utf-8"))
        self.tests = tests
        self.first = tuple(first)
        self.seconds: dict[str, float] = found["seconds"]
        self.failed: set[str] = {*found["failed"]}
        self.lines: dict[str, dict[str, list[str]]] = found["lines"]
        self.results = known.with_suffix(".results")
        self.write = write
        self.until = until

    def executing(self, path: str, first: int = 1, last: int = 1 << 30) -> set[str]:
        lines = self.lines[path].items()
        return {name for line, names in lines if first <= int(line) <= last for name in names} - self.failed

    def run(self, changes: Sequence[Change]) -> None:
        """Judge the changes, as many as there is time for."""
        swapped, imported = [], []
        for change in changes:
            before, after = change.codes()
            if before == after:
                self.write(change, "same code", [])
            elif "" not in self.executing(change.path, *change.lines) and swaps(before, after):
                swapped.append(change)
            else:
                imported.append(change)
        if swapped and time.monotonic() < self.until:
            collect(self.tests, lambda items: self.swapped(items, swapped))
        for change in imported:  # these take longer
            if time.monotonic() < self.until:
                self.imported(change)

    def imported(self, change: Change) -> None:
        """Judge a change of a line that runs on import. A test of any line of the module may notice it."""
        tests = self.executing(change.path) - {""}
        _, code = change.codes()
        files = sorted({name.partition("::")[0] for name in tests})
        if not tests:
            self.write(change, "not run", [])
        elif not collect(files, lambda items: self.judge(change, items, tests, []), code):
            self.write(change, "import", [])

    def swapped(self, items: list[pytest.Item], changes: Sequence[Change]) -> None:
        """Judge changes of functions, by giving the functions other code."""
        gc.unfreeze()
        functions = [each for each in gc.get_objects() if isinstance(each, FunctionType)]
        for change in changes:
            if time.monotonic() < self.until:
                before, after = change.codes()
                codes = swaps(before, after)
                swap = [(each, codes[each.__code__]) for each in functions if each.__code__ in codes]
                swap = [(each, code) for each, code in swap if each.__code__.co_filename == code.co_filename]
                tests = self.executing(change.path, *change.lines)
                assert swap or not tests, change
                self.judge(change, items, tests, swap)

    def judge(self, change: Change, items: list[pytest.Item], tests: set[str], swap: Swap) -> None:
        items = [item for item in items if item.nodeid in tests]
        quickest = sorted(items, key=lambda item: self.seconds[item.nodeid])
        killers, _ = self.attempt([item for item in quickest if item.nodeid.startswith(self.first)], swap, first=True)
        if killers:
            self.write(change, "first", killers)
            return
        items = [item for item in items if not item.nodeid.startswith(self.first)]
        slow = [item for item in quickest if item in items and self.seconds[item.nodeid] >= FAST]
        killers, hung = self.attempt([item for item in items if item not in slow], swap, first=False)
        verdict = "time" if hung else "fast"
        if not killers:
            killers, _ = self.attempt(slow, swap, first=True)
            verdict = "slow" if killers else "survived" if quickest else "not run"
        self.write(change, verdict, killers)

    def attempt(self, items: list[pytest.Item], swap: Swap, *, first: bool) -> tuple[list[str], bool]:
        """Return the tests that fail, crash or hang, and True if others were not run because of that."""
        killers: list[str] = []
        for _ in range(TIMEOUTS):
            self.results.write_text("")
            forked(partial(self.child, items, swap, {*killers}, first=first))
            rows = [line.split() for line in self.results.read_text().splitlines()]
            killers += [function(items[int(at)].nodeid) for at, failed in rows if failed == "1"]
            if len(rows) == len(items) or (first and killers):
                return killers, False
            killers.append(function(items[len(rows)].nodeid))
            items = [] if first else items[len(rows) + 1 :]
        return list(dict.fromkeys(killers)), bool(items)

    def child(self, items: list[pytest.Item], swap: Swap, killers: set[str], *, first: bool) -> int:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        for each, code in swap:
            each.__code__ = code
        with self.results.open("a") as results:
            for at, (item, following) in enumerate(zip(items, [*items[1:], None], strict=True)):
                allowed = 2 + 10 * self.seconds[item.nodeid]
                signal.setitimer(signal.ITIMER_PROF, allowed)  # These signals end the process.
                signal.setitimer(signal.ITIMER_REAL, 30 * allowed)
                failed = function(item.nodeid) not in killers and fails(item, following)
                print(at, int(failed), file=results, flush=True)
                if failed:
                    killers.add(function(item.nodeid))
                    if first:
                        break
        return 0


def parts(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from parts(constant)


def swaps(before: CodeType, after: CodeType) -> dict[CodeType, CodeType]:
    """Return the functions that differ, as they were and as they are. It is empty if functions cannot be swapped."""
    new = {(code.co_qualname, code.co_firstlineno): code for code in parts(after)}
    found = {}
    for code in parts(before):
        other = new.get((code.co_qualname, code.co_firstlineno), code)
        if code != other and code.co_flags & inspect.CO_OPTIMIZED:
            found[code] = other
            if code.co_freevars != other.co_freevars:
                return {}
    return found


class Row(NamedTuple):
    """A row of the table."""

    module: str
    line: str
    was: str
    now: str
    place: str
    choice: str
    verdict: str
    tests: str


def rows(table: Path) -> list[Row]:
    if not table.exists():
        return []
    with table.open(encoding="utf-8", newline="") as file:
        return [Row(*row) for row in csv.reader(file, "excel-tab")]


def report(found: Sequence[Row], judge: Judge) -> None:
    verdicts = Counter(row.verdict for row in found)
    print(f"{len(found)} changes:", ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common()))
    for module in sorted({row.module for row in found}):
        own = Counter(row.verdict for row in found if row.module == module)
        print(f"  {module}:", ", ".join(f"{count} {verdict}" for verdict, count in own.most_common()))
    kills: dict[str, set[int]] = {
        function(test): set() for path in judge.lines for test in judge.executing(path) if test
    }
    alone: Counter[str] = Counter()
    for at, row in enumerate(found):
        killers = row.tests.split()
        for test in killers:
            kills[test].add(at)
        alone.update(killers if len(killers) == 1 and row.verdict != "first" else ())
    seconds: defaultdict[str, float] = defaultdict(float)
    for test, spent in judge.seconds.items():
        seconds[function(test)] += spent
    print("\ntests: kills alone, kills, seconds, and another test with all of these kills")
    for test in sorted(kills, key=lambda test: (-alone[test], -len(kills[test]), test)):
        wider = max((len(kills[other]), other) for other in kills if kills[test] <= kills[other])[1]
        beside = "" if alone[test] or not kills[test] or wider == test else wider
        print(f"{alone[test]:>6} {len(kills[test]):>6} {seconds[test]:>8.2f}  {test}  {beside}".rstrip())
    print("\nchanges that no test notices")
    for row in found:
        if row.verdict in ("survived", "not run"):
            print(f"  {row.module}:{row.line} ({row.verdict})\n    was {row.was}\n    now {row.now}")
    if judge.failed:
        print("\ntests that fail without a change:", *sorted(judge.failed))


def without(found: Sequence[Row], tests: set[str]) -> int:
    lost = [row for row in found if row.tests and {*row.tests.split()} <= tests]
    for row in lost:
        print(f"{row.module}:{row.line}\n  was {row.was}\n  now {row.now}\n  {row.tests}")
    print(f"{len(lost)} of {sum(bool(row.tests) for row in found)} kills lost")
    return 1 if lost else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/dev/mutate matrix", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("package", type=Path, help="package or module, such as spvfilter/filters")
    parser.add_argument("--seed", type=int, required=True, help="seed of the sample")
    parser.add_argument("--sample", type=int, default=20, help="changes of each module (default 20)")
    parser.add_argument("--tests", nargs="+", metavar="PATH", help="tests (default: those in the same place of tests/)")
    parser.add_argument("--first", nargs="+", default=[], metavar="PATH", help="run these tests before all others")
    parser.add_argument("--minutes", type=float, default=120, help="stop after this time (default 120)")
    parser.add_argument(
        "--without", nargs="+", metavar="TEST", help="show the kills that the table loses without these"
    )
    arguments = parser.parse_args()
    package: Path = arguments.package
    until = time.monotonic() + 60 * arguments.minutes
    place = package.parts[1:]
    if package.is_dir():
        modules = sorted(str(path) for path in package.rglob("*.py"))
        tests = arguments.tests or [str(Path("tests", *place))]
    else:
        modules = [str(package)]
        tests = arguments.tests or [str(Path("tests", *place[:-1], f"test_{package.name}"))]
    state = digest(Path(__file__).parent / "changes.py", package, *map(Path, tests))
    home = Path("build/matrix", ".".join(package.with_suffix("").parts), state)
    home.mkdir(parents=True, exist_ok=True)
    name = "-".join([str(arguments.seed), *arguments.first]).replace("/", ".")
    known, table = home / "tests.json", home / f"{name}.tsv"
    if not known.exists():
        record(modules, tests, known)

    def write(change: Change, verdict: str, killers: list[str]) -> None:
        row = (change.path, change.lines[0], change.was, change.now, change.place, change.choice, verdict)
        with table.open("a", encoding="utf-8", newline="") as file:
            csv.writer(file, "excel-tab").writerow((*row, " ".join(killers)))

    changes = [change for path in modules for change in drawn(path, arguments.seed, arguments.sample)]
    done = {(row.module, row.place, row.choice) for row in rows(table)}
    judge = Judge(tests, arguments.first, known, write, until)
    judge.run([each for each in changes if (each.path, str(each.place), str(each.choice)) not in done])
    drawn_now = {(each.path, str(each.place), str(each.choice)) for each in changes}
    found = [row for row in rows(table) if (row.module, row.place, row.choice) in drawn_now]
    print(f"{table}: {len(found)} of {len(changes)} changes")
    if arguments.without:
        return without(found, {function(test) for test in arguments.without})
    report(found, judge)
    return 0 if len(found) == len(changes) else 3


if __name__ == "__main__":
    os.environ["COVERAGE_CORE"] = "ctrace"  # the other one forgets lines that an earlier test ran
    sys.exit(main())
