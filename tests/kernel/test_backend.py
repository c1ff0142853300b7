"""The choice of the kernel's backend: SPVFILTER_BACKEND, what is installed, and the messages to the user."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import mmh3
import pytest

import spvfilter
from spvfilter import errors
from spvfilter.cli import main
from spvfilter.kernel import backend

NATIVE = "spvfilter.kernel.native"
STUBS = Path(backend.__file__).with_name("native.pyi")
HINT = "install a C compiler and Python's headers (Debian: apt install gcc python3-dev)"


@pytest.fixture
def wanted(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that sets SPVFILTER_BACKEND."""
    return lambda name: monkeypatch.setenv(backend.VARIABLE, name)


@pytest.fixture
def missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """No compiled kernel is installed."""
    monkeypatch.setitem(sys.modules, NATIVE, None)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiled kernel is installed but does not load."""

    def refuse(name: str) -> ModuleType:
        if name == NATIVE:
            raise ImportError("undefined symbol: spv_nothing", name=NATIVE)
        return importlib.import_module(name)

    monkeypatch.setattr(backend, "import_module", refuse)


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A compiled kernel is installed."""
    native = ModuleType(NATIVE)
    for name in backend.reference():
        setattr(native, name, f"compiled {name}")
    monkeypatch.setitem(sys.modules, NATIVE, native)
    return native


@pytest.mark.parametrize("name", ["", "auto", "native"])
def test_an_installed_compiled_kernel_is_used(wanted: Any, there: ModuleType, name: str) -> None:
    wanted(name)
    chosen, twin = backend.choose()
    assert chosen == "native"
    assert twin == {name: getattr(there, name) for name in backend.reference()}


def test_pure_is_used_even_if_a_compiled_kernel_exists(wanted: Any, there: ModuleType) -> None:
    wanted("pure")
    assert backend.choose() == ("pure", backend.reference())


@pytest.mark.posix
@pytest.mark.usefixtures("missing")
def test_pure_kernel_warns_unless_it_was_chosen(wanted: Any) -> None:
    wanted("auto")
    with pytest.warns(
        errors.BackendWarning, match="^spvfilter runs with the pure Python kernel, .* 10 to 100"
    ) as caught:
        assert backend.choose() == ("pure", backend.reference())
    assert len(caught) == 1
    assert issubclass(errors.BackendWarning, RuntimeWarning)
    wanted("pure")
    assert backend.choose() == ("pure", backend.reference())


@pytest.mark.usefixtures("missing")
def test_pure_kernel_does_not_warn_on_windows(wanted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted("auto")
    monkeypatch.setattr(sys, "platform", "win32")
    assert backend.choose() == ("pure", backend.reference())
    assert backend.advice() == "there is no compiled kernel for Windows"


PROGRAM = """
import sys
from spvfilter import WatchList
print(len(WatchList()), sys.modules["spvfilter.kernel"].BACKEND)
"""
POOL = """
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from spvfilter import WatchList

def size(count):
    return len(WatchList()) + count

if __name__ == "__main__":
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        print(*pool.map(size, [len(WatchList()), 1]))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the package, but without the compiled kernel and its sources."""
    ignored = shutil.ignore_patterns("__pycache__", "*.so", "csrc")
    shutil.copytree(Path(spvfilter.__file__).parent, tmp_path / "checkout" / "spvfilter", ignore=ignored)
    return tmp_path / "checkout"


def ran_in(folder: Path, program: str, **variables: str) -> tuple[str, list[str]]:
    """Run a program beside the package and return its output and the lines of its warnings."""
    (folder / "program.py").write_text(program, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SPVFILTER"))}
    ran = subprocess.run(
        [sys.executable, "-S", "program.py"],
        cwd=folder,
        env=environment | {"PYTHONPATH": os.pathsep.join(sys.path)} | variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return ran.stdout, ran.stderr.splitlines()


@pytest.mark.slow
@pytest.mark.native
def test_package_that_hides_a_compiled_one_warns_once(folder: Path) -> None:
    native = importlib.import_module(NATIVE).__file__
    assert native is not None
    kernel = folder.parent / "installed" / "spvfilter" / "kernel"
    kernel.mkdir(parents=True)
    (kernel / Path(native).name).symlink_to(native)
    printed, (warning, line) = ran_in(folder, PROGRAM, PYTHONPATH=os.pathsep.join([str(kernel.parents[1]), *sys.path]))
    assert printed == "0 pure\n"
    assert line.strip() == "from spvfilter import WatchList"
    assert warning == (
        f"{folder / 'program.py'}:3: BackendWarning: spvfilter runs with the pure Python kernel, which is 10 to 100"
        f" times slower. Python imports the uncompiled package in {folder / 'spvfilter'} instead of the compiled one in"
        f" {kernel.parent}: run the program from another folder, or with python -P. SPVFILTER_BACKEND=pure hides this"
        " warning."
    )


@pytest.mark.few(1)
@pytest.mark.posix
@pytest.mark.parametrize("is_checkout", [True, False])
def test_package_that_could_be_compiled_warns_once(folder: Path, is_checkout: bool) -> None:
    if is_checkout:
        (folder / "spvfilter" / "kernel" / "csrc").mkdir()
    libraries = folder.parent / "libraries"  # without an installed spvfilter
    libraries.mkdir()
    (libraries / "mmh3").symlink_to(Path(mmh3.__file__).parent)
    printed, (warning, _) = ran_in(folder, PROGRAM, PYTHONPATH=str(libraries))
    assert printed == "0 pure\n"
    then = f"run pip install -e {folder}" if is_checkout else "spvfilter again with pip's --force-reinstall"
    assert f"The compiled kernel is not installed: {HINT}, then {then}" in warning


@pytest.mark.slow
def test_pure_kernel_by_choice_never_warns(folder: Path) -> None:
    assert ran_in(folder, PROGRAM, SPVFILTER_BACKEND="pure") == ("0 pure\n", [])


@pytest.mark.slow
@pytest.mark.posix
def test_worker_processes_do_not_repeat_the_warning(folder: Path) -> None:
    printed, warnings = ran_in(folder, POOL)
    assert printed == "0 1\n"
    assert sum("BackendWarning" in line for line in warnings) == 1


@pytest.mark.posix
@pytest.mark.usefixtures("missing")
def test_a_forced_but_missing_native_kernel_has_a_helpful_error(wanted: Any) -> None:
    wanted("native")
    with pytest.raises(
        errors.BackendError, match="SPVFILTER_BACKEND=native, but the compiled kernel is not installed: "
    ) as caught:
        backend.choose()
    assert HINT in str(caught.value)
    assert isinstance(caught.value, ImportError)


@pytest.mark.posix
def test_a_compiled_kernel_of_other_sources_is_refused(wanted: Any, there: ModuleType) -> None:
    wanted("native")
    del there.walk_block
    with pytest.raises(
        errors.BackendError, match=r"does not load .*walk_block.*: it was compiled from different sources"
    ):
        backend.choose()


@pytest.mark.posix
@pytest.mark.usefixtures("broken")
def test_a_compiled_kernel_that_fails_to_load_causes_a_warning(wanted: Any) -> None:
    wanted("auto")
    with pytest.warns(
        errors.BackendWarning, match="runs with the pure Python kernel, .* does not load .undefined symbol: spv_nothing"
    ):
        assert backend.choose() == ("pure", backend.reference())
    wanted("native")
    with pytest.raises(errors.BackendError, match="undefined symbol: spv_nothing"):
        backend.choose()


@pytest.mark.posix
def test_a_compiled_kernel_of_another_python_is_refused(wanted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A free-threaded Python loads files named after the stable ABI, but does not support that ABI."""

    def refuse(name: str) -> ModuleType:
        if name == NATIVE:
            raise SystemError("init function of native returned uninitialized object")
        return importlib.import_module(name)

    monkeypatch.setattr(backend, "import_module", refuse)
    wanted("native")
    with pytest.raises(errors.BackendError, match=r"uninitialized object: it was compiled for a different Python"):
        backend.choose()


@pytest.mark.parametrize("name", ["fast", "Native", "pure "])
def test_another_name_is_an_error(wanted: Any, name: str) -> None:
    wanted(name)
    with pytest.raises(errors.ParameterError, match=f"SPVFILTER_BACKEND must be native, pure or auto, not '{name}'"):
        backend.choose()


@pytest.mark.posix
@pytest.mark.usefixtures("missing")
def test_the_version_explains_how_to_get_the_compiled_kernel(wanted: Any, capsys: pytest.CaptureFixture[str]) -> None:
    wanted("auto")
    assert main(["--version"]) == 0
    first, *more = capsys.readouterr().out.splitlines()
    assert first.startswith("spvfilter ")
    assert len(more) == 1
    assert HINT in more[0]
    wanted("pure")
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"{first}\n"


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["pure", pytest.param("native", marks=pytest.mark.native)])
def test_the_backend_is_the_forced_one(name: str) -> None:
    ran = python("from spvfilter.kernel import BACKEND; print(BACKEND)", name)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, f"{name}\n", "")


@pytest.mark.native
def test_the_compiled_kernel_imports_no_reference_module() -> None:
    ran = python(
        "import sys, spvfilter.kernel; print(*(name for name in sys.modules if 'kernel.pure' in name))", "native"
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "\n", "")


@pytest.mark.native
def test_both_kernels_have_the_same_names() -> None:
    native, reference = importlib.import_module(NATIVE), backend.reference()
    assert public(native) == reference.keys()
    assert public(native) == set(re.findall(r"\w+ as (\w+)", STUBS.read_text(encoding="utf-8")))
    for name, twin in reference.items():
        if isinstance(twin, type):
            assert public(getattr(native, name)) == public(twin), name


def public(of: object) -> set[str]:
    return {name for name in dir(of) if not name.startswith("_")}


def test_the_command_reports_a_missing_forced_backend_on_one_line() -> None:
    ran = python(
        f"import sys; sys.modules[{NATIVE!r}] = None; from spvfilter.cli import main; sys.exit(main(['demo']))",
        "native",
    )
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("spvfilter: SPVFILTER_BACKEND=native, but the compiled kernel is not installed: ")
    assert ran.stderr.count("\n") == 1


def python(code: str, name: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, backend.VARIABLE: name}
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, env=environment, timeout=60
    )
