"""The public names: each has one home, which type checkers see and its `__module__` names."""

from __future__ import annotations

import ast
import builtins
import inspect
import subprocess
import sys
import threading
import typing
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import spvfilter
from spvfilter import errors
from spvfilter._public import deferred
from support.project.publicnames import MODULES, ROOMS, loaded, members, own, public
from support.project.raising import is_kernel, plain
from support.project.rules import PACKAGE, assert_none

FACE: ModuleType = spvfilter  # typed so that type checkers do not know its attributes
INTERNAL = ["_pyinstaller", "cli", "kernel", "light.engine", "signatures", "silent"]
# names that the kernel defines, with the name of the room as their `__module__`
GIVEN = {"filters": {"GcsQuery"}, "wire.messages": {"Flaw", "ProvedTx"}}
HIDDEN = {  # classes in signatures that users never create, and the code that does
    ("scan.BlockFiles", "BlockFile"): "handed to Plan",
    ("scan.BlockFiles", "UndoFile"): "handed to Plan",
    ("scan.PartScan", "ParquetForm"): "handed to the writers of Parquet",
    ("scan.MatchBatch", "LineLabels"): "made by Matcher.scan_batches",
    ("bloom.redis.RedisBloomFilter", "RedisLayout"): "made by create, create_from and open",
    ("bloom.redis.RedisScalableBloomFilter", "SeriesLayout"): "made by create, create_from and open",
    ("node.Node", "ServerConnection"): "one of its own sockets",
    ("light.EventStream", "EventHub"): "made by LightClient.events",
    ("store.Store", "WriterLock"): "made by `open`",
    ("watch.WatchList", "Budget"): "made by textfile",
    ("watch.WatchList", "Contents"): "made by textfile",
    ("watch.Windows", "Budget"): "made by textfile",
    ("watch.WatchList", "SilentSearch"): "made by silent_search",
    ("watch.WatchList", "Found"): "made by SilentSearch",
    ("watch.Windows", "Found"): "made by SilentSearch",
    ("watch.Windows", "SilentKeychain"): "made by add_descriptor",
    ("store.CompactFilterRows", "MarkedRows"): "made by Store",
    ("store.CompactFilterRows", "FilterState"): "handed from `state` to `reset` by Store",
}
ABSENT = {  # names in annotations that only type checkers import, with a stand-in
    **dict.fromkeys(["Buffer", "Client", "Keys", "Mask", "Nulls", "Padding", "Redis"], object),
    "bdk": SimpleNamespace(Wallet=object),
    **dict.fromkeys(["pa", "pd"], SimpleNamespace(Table=object, DataFrame=object)),
}
FIRST = range(30, 51)  # allowed number of names in spvfilter itself


def kinds(cls: type) -> set[type]:
    """A class and all its subclasses."""
    return {cls}.union(*map(kinds, cls.__subclasses__()))


def source(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def re_exported(path: Path) -> dict[str, str]:
    """The modules that a type checker sees behind the names of a package, by name."""
    (guarded,) = (node for node in source(path).body if isinstance(node, ast.If))
    assert ast.unparse(guarded.test) == "TYPE_CHECKING"
    seen: dict[str, str] = {}
    for node in guarded.body:
        assert isinstance(node, ast.ImportFrom)
        for alias in node.names:
            assert (
                alias.name == alias.asname
            )  # the same name twice makes a re-export (typing's rules for py.typed packages)
            assert alias.name not in seen
            seen[alias.name] = str(node.module)
    return seen


def decorated(path: Path) -> Iterator[str]:
    """Names of the classes and functions that a module decorates as public, as the outermost decorator."""
    for node in source(path).body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
            if "public" in decorators:
                assert decorators[0] == "public"
                yield node.name


def test_every_package_is_public_or_internal() -> None:
    packages = {".".join(path.parent.relative_to(PACKAGE).parts) for path in PACKAGE.glob("*/**/__init__.py")}
    assert {room for room in packages if room not in INTERNAL and room.split(".")[0] not in INTERNAL} == set(ROOMS)


@pytest.mark.parametrize("room", ["", *ROOMS])
def test_type_checkers_see_the_real_names(room: str) -> None:
    package = loaded(room) if room else FACE
    seen = re_exported(Path(str(package.__file__)))
    assert package.__all__ == sorted(seen)
    for name, module in seen.items():
        assert getattr(package, name) is getattr(import_module(module), name)


@pytest.mark.parametrize("room", ["", *ROOMS])
def test_a_package_lists_its_names_and_has_no_others(room: str) -> None:
    package = loaded(room) if room else FACE
    assert dir(package) == sorted(package.__all__)
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'nonsense'"):
        package.nonsense  # noqa: B018
    modules = {path.stem for path in Path(str(package.__file__)).parent.iterdir()}
    assert not modules & set(package.__all__)  # the module would take the name's place once it is loaded


@pytest.mark.parametrize("room", MODULES)
def test_a_module_lists_each_name_once(room: str) -> None:
    names = loaded(room).__all__
    assert len(set(names)) == len(names) > 0
    assert all(hasattr(loaded(room), name) for name in names)


def test_a_first_program_needs_one_import() -> None:
    homes: dict[str, list[object]] = {}
    for _, name, value in public():
        homes.setdefault(name, []).append(value)
    assert len(FACE.__all__) in FIRST
    for name in set(FACE.__all__) - {"__version__"}:
        (value,) = homes[name]
        assert getattr(FACE, name) is value


@pytest.mark.parametrize("room", ROOMS)
def test_exported_names_are_decorated_where_they_are_defined(room: str) -> None:
    folder = PACKAGE / Path(*room.split("."))
    marked = {name for path in folder.glob("*.py") for name in decorated(path)}
    assert marked | GIVEN.get(room, set()) == {name for place, name, _ in own() if place == room}


def test_a_public_name_tells_where_it_is_imported_from() -> None:
    assert len(own()) > 300
    assert_none(
        f"{room}.{name}: {value.__module__}.{value.__qualname__}"
        for room, name, value in own()
        if (value.__module__, value.__qualname__) != (f"spvfilter.{room}", name)
    )


def test_values_of_the_kernel_tell_that_they_are_its_own() -> None:
    kernel = loaded("kernel")
    assert {
        value.__module__ for value in (getattr(kernel, name) for name in decorated(PACKAGE / "kernel" / "values.py"))
    } == {"spvfilter.kernel"}


def test_every_error_is_public() -> None:
    for path in PACKAGE.rglob("*.py"):
        if not {"cli", "_pyinstaller"} & {*path.relative_to(PACKAGE).parts}:
            import_module(
                ".".join(["spvfilter", *path.relative_to(PACKAGE).with_suffix("").parts]).removesuffix(".__init__")
            )
    found = {
        cls
        for cls in kinds(errors.SpvFilterError) | kinds(errors.SpvFilterWarning)
        if cls.__module__.startswith("spvfilter")
    }
    assert {cls.__name__ for cls in found} == set(errors.__all__)
    assert {cls.__module__ for cls in found} == {"spvfilter.errors"}
    assert set(FACE.__all__) & set(errors.__all__) < set(errors.__all__)


def test_annotations_of_classes_can_be_evaluated() -> None:
    classes = [value for _, _, value in own() if inspect.isclass(value)]
    hints = {cls: typing.get_type_hints(cls) for cls in classes}  # raises NameError for an unknown name
    assert_none(cls for cls in classes if not hints[cls].keys() >= inspect.get_annotations(cls).keys())


def test_sources_of_functions_are_found() -> None:
    functions = [value for _, _, value in own() if inspect.isfunction(value)]
    assert_none(each for each in functions if f"def {each.__name__}(" not in inspect.getsource(each))
    assert_none(each for each in functions if each.__module__ not in sys.modules)


def classes_in(hint: object) -> Iterator[type]:
    """The classes that an annotation is made of."""
    if isinstance(hint, type):
        yield hint
    for part in typing.get_args(hint):
        for piece in part if isinstance(part, list) else [part]:
            yield from classes_in(piece)


def test_classes_in_public_signatures_are_public() -> None:
    homes = {f"spvfilter.{room}" for room in [*MODULES, *ROOMS, "kernel"]} | {loaded("kernel").WatchTable.__module__}
    hidden: set[tuple[str, str]] = set()
    for room, name, value in own():
        functions = [value, *(plain(member) for _, member in members(value))] if inspect.isclass(value) else [value]
        for function in [
            each for each in functions if inspect.isclass(each) or (inspect.isfunction(each) and not is_kernel(each))
        ]:
            for cls in {
                cls for hint in typing.get_type_hints(function, localns=ABSENT).values() for cls in classes_in(hint)
            }:
                if cls.__module__.startswith("spvfilter") and cls.__module__ not in homes:
                    hidden.add((f"{room}.{name}", cls.__name__))
    assert hidden == HIDDEN.keys()


def test_a_deferred_module_is_used_only_once_it_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second thread waits until the first one has imported it, even if that takes long."""
    (tmp_path / "takeslong.py").write_text(
        "import threading\nbegun.set()\nassert going_on.wait(60)\nlast = 1\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(tmp_path)
    begun, going_on = threading.Event(), threading.Event()
    monkeypatch.setattr(builtins, "begun", begun, raising=False)
    monkeypatch.setattr(builtins, "going_on", going_on, raising=False)
    module, found = deferred("takeslong"), list[object]()
    threads = [threading.Thread(target=lambda: found.append(module.last)) for _ in range(2)]
    threads[0].start()
    assert begun.wait(60)
    threads[1].start()
    threads[1].join(0.05)
    going_on.set()
    for thread in threads:
        thread.join(60)
    assert found == [1, 1]


def test_modules_of_the_package_are_its_attributes() -> None:
    program = "import spvfilter; print(spvfilter.kernel.BACKEND, spvfilter.bloom.sizing.__name__)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.split() == [FACE.kernel.BACKEND, "spvfilter.bloom.sizing"]
    for wrong in ("cores", "_publics", "__path"):
        with pytest.raises(AttributeError, match="has no attribute"):
            getattr(FACE, wrong)
