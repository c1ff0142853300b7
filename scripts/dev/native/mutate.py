"""Mutation testing of the kernel's tests: changes one random token of the C code, which some test should notice.

A mutant that compiles without a warning goes through these steps until one fails:

1. The self-test with small blocks, and the seeds of the fuzz targets, under ASan and UBSan, then under MSan.
2. The self-test without blocks under TSan.
3. The self-test with all real blocks.
4. The tests of the kernel under pytest.

A mutant whose objects are equal to the original's changes nothing. Other equivalent mutants are listed in
tests/native/equivalents.tsv with the reason, and are not run. Any other survivor needs a new test.

Everything happens in a copy of the tree, build/mutate/tree. The results are in build/mutate/results.tsv.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import programs
from mutants import Mutant, sites

HOME = programs.ROOT / "build/mutate"
TREE = HOME / "tree"
CSRC = TREE / programs.CSRC.relative_to(programs.ROOT)
TESTS = TREE / programs.TESTS.relative_to(programs.ROOT)
# A folder with a link to the package of the tree. tests/support/project/installed.py ignores one next to the tests.
INSTALLED = HOME / "installed"
RESULTS = HOME / "results.tsv"
EQUIVALENTS = programs.TESTS / "equivalents.tsv"
# tests/kernel/test_docs.py runs scripts/dev/native/docstrings.py
COPIED = ("spvfilter", "tests", "scripts", "pyproject.toml")
FOLDERS = ("tests/kernel", "tests/bloom", "tests/filters")
# Tests that need a server, and tests of the binding's memory.
UNRELATED = ("tests/bloom/redis", "tests/kernel/test_cores_leaks.py")
SMALL, ALL = 60_000, 1 << 40  # Bytes: upper limits for the blocks of the first and of the last self-test.
SLACK = 4  # A mutant may use this many times the processor time of the original.
LEAST = 10  # Seconds of processor time that a mutant may use in any case.
WALL = 600  # Seconds on the clock that a mutant may take, as it may wait instead of working.

# The warnings of scripts/check.
CHECKED = ("-std=c11", "-pthread", "-Wall", "-Wextra", "-Wconversion", "-Werror", f"-I{CSRC}", f"-I{TESTS}")
WRAPPED = tuple(f"-Wl,--wrap={name}" for name in programs.WRAPPED)
SANITIZED = ("clang", *CHECKED, "-O1", "-g", *programs.SANITIZERS)
MEMORY = ("clang", *CHECKED, "-O1", "-g", "-fsanitize=memory", "-fno-sanitize-recover=all")
THREADS = ("clang", *CHECKED, "-O1", "-g", "-fsanitize=thread")
NATIVE = ("gcc", *CHECKED, "-O3", "-g0", "-fvisibility=hidden", "-fPIC", "-isystem", sysconfig.get_path("include"))
ARM = ("aarch64-linux-gnu-gcc", *CHECKED, "-O2", "-static")

DISPATCH = """
#include <string.h>
#define TARGET(name) int replay_##name(int argc, char **argv);
TARGETS
#undef TARGET
int selftest(int argc, char **argv);
int main(int argc, char **argv) {
#define TARGET(name) if (!strcmp(argv[1], #name)) return replay_##name(argc - 1, argv + 1);
TARGETS
    return selftest(argc - 1, argv + 1);
}
"""


def in_tree(sources: Iterable[Path]) -> list[Path]:
    return [TREE / path.relative_to(programs.ROOT) for path in sources]


def compile_all(folder: Path, jobs: Sequence[tuple[str, list[str]]]) -> bool:
    """Run each command to compile an object of this name in `folder`. Returns True if all succeed."""

    def compile_one(job: tuple[str, list[str]]) -> bool:
        name, command = job
        return not subprocess.run(
            [*command, "-c", "-o", str(folder / name)], capture_output=True, check=False
        ).returncode

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return all(pool.map(compile_one, jobs))


class Program:
    """A program that is linked from objects. A mutant changes a few of them."""

    def __init__(
        self, name: str, compiler: Sequence[str], link: Sequence[str], sources: dict[str, tuple[Path, tuple[str, ...]]]
    ) -> None:
        self.name = name
        self.compiler = compiler
        self.link = link
        self.sources = sources  # source and further flags, by name of the object
        self.base, self.changed, self.made = HOME / name / "base", HOME / name / "changed", HOME / name / "made"
        for folder in (self.base, self.changed):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        programs.OBJECTS.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            self.reads = dict(zip(sources, pool.map(self.compile_base, sources), strict=True))

    def job(self, made: str) -> tuple[str, list[str]]:
        source, flags = self.sources[made]
        return made, [*self.compiler, *flags, str(source)]

    def compile_base(self, made: str) -> set[Path]:
        """Compile an object of the original, and return the files that it is made from.

        An object that an earlier run made from the same text is used again.
        """
        _, command = self.job(made)
        key = programs.digest(programs.headers_digest(), self.sources[made][0].read_bytes(), *command)
        cached = programs.OBJECTS / f"{Path(made).stem}-{key}.o"
        rule = cached.with_suffix(".d")
        if not cached.exists():
            fresh = cached.with_suffix(".new")
            subprocess.run([*command, "-MMD", "-MF", str(rule), "-c", "-o", str(fresh)], check=True)
            fresh.rename(cached)
        (self.base / made).symlink_to(cached)
        return {Path(word) for word in rule.read_text().partition(":")[2].split() if word != "\\"}

    def rebuild(self, path: Path) -> bool | None:
        """Compile a changed file. Returns True if an object differs, and None if the file does not compile."""
        for old in self.changed.iterdir():
            old.unlink()
        concerned = [made for made in self.sources if path in self.reads[made]]
        if not compile_all(self.changed, [self.job(made) for made in concerned]):
            return None
        return any((self.changed / made).read_bytes() != (self.base / made).read_bytes() for made in concerned)

    def make(self) -> Path:
        changed = {path.name for path in self.changed.iterdir()}
        objects = [str((self.changed if made in changed else self.base) / made) for made in self.sources]
        subprocess.run([*self.compiler, *self.link, *objects, "-o", str(self.made)], check=True, capture_output=True)
        return self.made


def selftest(compiler: Sequence[str], name: str) -> Program:
    """Make one program of the self-test and the replays of all fuzz targets. Its first argument names the part."""
    sources: dict[str, tuple[Path, tuple[str, ...]]] = {}

    def add(source: Path, *flags: str, suffix: str = "") -> None:
        sources["_".join(source.relative_to(TREE).parts) + suffix + ".o"] = source, flags

    dispatch = TESTS / "dispatch.c"
    dispatch.write_text(DISPATCH.replace("TARGETS", "\n".join(f"TARGET({target})" for target in programs.targets())))
    add(dispatch)
    for target in programs.targets():
        add(TESTS / f"fuzz/{target}.c", f"-DLLVMFuzzerTestOneInput=fuzz_{target}")
        add(TESTS / "replay.c", f"-DLLVMFuzzerTestOneInput=fuzz_{target}", f"-Dmain=replay_{target}", suffix=target)
    for source in in_tree(programs.selftest_sources()):
        add(source, "-Dmain=selftest")
    for source in in_tree([*programs.shared_sources(), *programs.kernel_sources()]):
        add(source)
    return Program(name, compiler, WRAPPED, sources)


def extension() -> Program:
    sources: dict[str, tuple[Path, tuple[str, ...]]] = {}
    for source in sorted(CSRC.rglob("*.c")):
        sources["_".join(source.relative_to(CSRC).parts) + ".o"] = source, ()
    return Program("extension", NATIVE, ("-shared",), sources)


@dataclass
class Step:
    """A command that should fail for a mutant."""

    name: str
    """Name for the report."""
    command: list[str]
    """Program and arguments."""
    limit: int = 600
    """Processor time in seconds, after which the command counts as failed."""

    def run(self) -> tuple[str | None, float]:
        """Run the command. Returns how it failed, or None, and its processor time in seconds."""

        def limits() -> None:
            resource.setrlimit(resource.RLIMIT_CPU, (self.limit, self.limit))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

        environment = os.environ | {
            "TSAN_OPTIONS": "report_thread_leaks=0",
            "ASAN_OPTIONS": "hard_rss_limit_mb=4000:max_allocation_size_mb=2000",
            "PYTHONPATH": str(INSTALLED),
            "SPVFILTER_BACKEND": "native",
            "SPVFILTER_EFFORT": "quick",
        }
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        with (HOME / "log").open("w") as log:
            process = subprocess.Popen(
                self.command,
                cwd=TREE,
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=limits,
            )
            try:
                status = process.wait(WALL)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return "time", 0.0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        if not status:
            return None, used
        return ("time" if status in (-signal.SIGKILL, -signal.SIGXCPU) else "failure"), used


class Judge:
    """Runs mutants through the steps."""

    def __init__(self, vectors: Path, c_only: bool) -> None:
        self.copy_tree()
        self.equivalents = equivalents()
        self.program = selftest(SANITIZED, "selftest")
        self.memory = selftest(MEMORY, "selftest-memory")
        self.threads = selftest(THREADS, "selftest-threads")
        self.extension = extension()
        self.arm: Program | None = None
        self.native = TREE / f"spvfilter/kernel/native{sysconfig.get_config_var('EXT_SUFFIX')}"
        blocks = [path for path in sorted((vectors / "03_blocks").iterdir()) if path.suffix in (".raw", ".blk")]
        self.blocks = {limit: [str(path) for path in blocks if path.stat().st_size < limit] for limit in (SMALL, ALL)}
        self.seeds = {target: self.make_seeds(target, vectors) for target in programs.targets()}
        *few, every = self.c_steps(self.program, [])
        self.early, self.late = few, [every]
        self.middle = self.c_steps(self.memory, [], " under MSan")[:-1]
        self.raced = [Step("self-test under TSan", [str(self.threads.made), "selftest"])]
        self.pytest = Step(
            "pytest",
            [
                sys.executable,
                "-m",
                "pytest",
                "-x",
                "-q",
                "-p",
                "no:cacheprovider",
                "--hypothesis-seed=1",
                *FOLDERS,
                *(f"--ignore={path}" for path in UNRELATED),
            ],
        )
        self.c_only = c_only
        self.calibrate([*self.early, *self.middle, *self.raced, *self.late, *(() if c_only else (self.pytest,))])

    def copy_tree(self) -> None:
        shutil.rmtree(TREE, ignore_errors=True)
        files = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard", *COPIED],
            cwd=programs.ROOT,
            check=True,
            capture_output=True,
            text=True,
        )
        for name in files.stdout.split("\n"):
            if name and (programs.ROOT / name).is_file():
                (TREE / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(programs.ROOT / name, TREE / name)
        shutil.rmtree(INSTALLED, ignore_errors=True)
        INSTALLED.mkdir()
        (INSTALLED / "spvfilter").symlink_to(TREE / "spvfilter")

    def check_imports(self) -> None:
        """Check that pytest loads the kernel of the tree: any other kernel never fails."""
        code = "import support.project.installed; from spvfilter.kernel import native; print(native.__file__)"
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(INSTALLED), str(TREE / "tests")])}
        loaded = subprocess.run(
            [sys.executable, "-c", code], cwd=TREE, env=environment, check=True, capture_output=True, text=True
        ).stdout.strip()
        if not self.native.samefile(loaded):
            raise SystemExit(f"mutate: pytest loads {loaded} instead of {self.native}")

    def make_seeds(self, target: str, vectors: Path) -> list[str]:
        folder = HOME / "seeds" / target
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        subprocess.run(
            [sys.executable, str(programs.TESTS / "seeds.py"), target, str(vectors), str(folder)],
            check=True,
            env=os.environ | {"SPVFILTER_BACKEND": "pure"},
        )
        return sorted(map(str, folder.iterdir()))

    def c_steps(self, program: Program, runner: list[str], how: str = "") -> list[Step]:
        run = [*runner, str(program.made)]
        return [
            Step(f"self-test{how}", [*run, "selftest", *self.blocks[SMALL]]),
            *(Step(f"seeds of {target}{how}", [*run, target, *self.seeds[target]]) for target in self.seeds),
            Step("self-test, all blocks", [*run, "selftest", *self.blocks[ALL]]),
        ]

    def calibrate(self, steps: Sequence[Step]) -> None:
        """Measure the original, which must pass, and set the limits of the steps."""
        self.program.make()
        self.memory.make()
        self.threads.make()
        shutil.copy(self.extension.make(), self.native)
        self.check_imports()
        for step in steps:
            failed, used = step.run()
            if failed:
                print((HOME / "log").read_text(errors="replace")[-4000:], file=sys.stderr)
                raise SystemExit(f"mutate: {step.name} fails without any change")
            step.limit = max(LEAST, round(SLACK * used))
            print(f"the original: {step.name}: {used:.1f} s", file=sys.stderr)

    def arm64(self) -> tuple[Program, list[Step]]:
        """Make the self-test for an emulator. It is needed for sources that are compiled only for ARM."""
        if self.arm is None:
            self.arm = selftest(ARM, "selftest-arm64")
        return self.arm, self.c_steps(self.arm, ["qemu-aarch64", "-cpu", "max"])[:-1]

    def judge(self, mutant: Mutant) -> str | None:
        """Return the step that a mutant failed, "same code", or "" for a survivor; None if it does not compile."""
        if row(mutant) in self.equivalents:
            return ""
        path = TREE / mutant.path.relative_to(programs.ROOT)
        source = path.read_text()
        arm64 = (
            self.arm64() if "arm" in path.stem.split("_") else None
        )  # built from the original, before the file changes
        path.write_text(mutant.apply(source))
        try:
            if arm64:
                return self.through(path, *arm64)
            ways = (
                (self.program, self.early),
                (self.memory, self.middle),
                (self.threads, self.raced),
                (self.program, self.late),
            )
            for program, steps in ways:
                caught = self.through(path, program, steps)
                if caught != "":
                    return caught
            changed = self.extension.rebuild(path)
            if not changed:
                return None if changed is None else "same code"
            if self.c_only:
                return ""
            self.native.unlink()
            shutil.copy(self.extension.make(), self.native)
            failed, _ = self.pytest.run()
            return caught_by(self.pytest, failed)
        finally:
            path.write_text(source)

    def through(self, path: Path, program: Program, steps: Sequence[Step]) -> str | None:
        if program.rebuild(path) is None:
            return None
        program.make()
        for step in steps:
            failed, _ = step.run()
            if failed:
                return caught_by(step, failed)
        return ""


def caught_by(step: Step, failed: str | None) -> str:
    return "" if failed is None else f"{step.name} (time)" if failed == "time" else step.name


def equivalents() -> dict[tuple[str, str, str], str]:
    """Read the equivalent mutants: reasons by file, line, and changed line."""
    if not EQUIVALENTS.exists():
        return {}
    rows = [line.split("\t") for line in EQUIVALENTS.read_text().splitlines()[1:]]
    return {(name, was, now): why for name, was, now, why in rows}


def drawn(seed: int, only: str) -> Iterator[Mutant]:
    """Yield random mutants, one for each place of the C code, in random order."""
    dice = random.Random(seed)
    places = []
    for path in sorted(programs.CSRC.rglob("*.[ch]")):
        if "binding" not in path.relative_to(programs.CSRC).parts and only in str(path):
            places += list(sites(path, path.read_text()))
    dice.shuffle(places)
    for place in places:
        yield dice.choice(place)


def row(mutant: Mutant) -> tuple[str, str, str]:
    source = mutant.path.read_text()
    return (str(mutant.path.relative_to(programs.CSRC)), *mutant.shown(source))


def again() -> Iterator[Mutant]:
    """Yield the survivors of the last run."""
    survivors = {
        tuple(line.split("\t")[:3]) for line in RESULTS.read_text().splitlines() if line.endswith("\tsurvived")
    }
    for path in sorted(programs.CSRC.rglob("*.[ch]")):
        for place in sites(path, path.read_text()):
            yield from (mutant for mutant in place if row(mutant) in survivors)


def report(results: Sequence[tuple[Mutant, str]]) -> int:
    known = equivalents()
    print(f"{len(results)} mutants")
    for caught, count in Counter(caught or "survived" for _, caught in results).most_common():
        print(f"{count:>6}  {caught}")
    unexplained = 0
    for mutant, caught in results:
        if caught:
            continue
        name, was, now = row(mutant)
        why = known.get((name, was, now))
        unexplained += why is None
        print(f"\n{name}:{mutant.line(mutant.path.read_text())}\n  was {was}\n  now {now}\n  {why or 'NOT EXPLAINED'}")
    print(f"\n{unexplained} survivors without an explanation")
    return 1 if unexplained else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/dev/mutate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=100, help="number of mutants that compile (default 100)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the random choice (default 1)")
    parser.add_argument("--only", default="", metavar="TEXT", help="change only files whose path contains TEXT")
    parser.add_argument("--again", action="store_true", help="run the survivors of the last run again")
    parser.add_argument("--c-only", action="store_true", help="run only the C tests, without pytest")
    arguments = parser.parse_args()
    vectors = os.environ.get("SPVFILTER_VECTORS") or parser.error("set SPVFILTER_VECTORS to the folder of vectors")
    chosen = list(again()) if arguments.again else drawn(arguments.seed, arguments.only)
    HOME.mkdir(parents=True, exist_ok=True)
    judge = Judge(Path(vectors), arguments.c_only)
    results: list[tuple[Mutant, str]] = []
    with RESULTS.open("w") as log:
        for mutant in chosen:
            caught = judge.judge(mutant)
            if caught is None:
                continue
            results.append((mutant, caught))
            print(*row(mutant), caught or "survived", sep="\t", file=log, flush=True)
            if len(results) == arguments.count and not arguments.again:
                break
    return report(results)


if __name__ == "__main__":
    sys.exit(main())
