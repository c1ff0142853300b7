"""The rules of ARCHITECTURE.md: imports between rooms, asyncio, modules loaded by an import."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from sysconfig import get_path

import pytest

from support.project.installed import ROOT
from support.project.rules import PACKAGE, assert_none, modules, nodes, tree

# Higher floors may import lower ones. Rooms of one floor never import each other, except on the ground floor, which has
# the order below.
FLOORS = [
    [
        "errors",
        "_arguments",
        "_public",
        "_system",
        "protocol",
        "hashes",
        "primitives",
        "network",
        "files",
        "compression",
    ],
    ["kernel"],
    ["transaction"],
    ["bloom", "wire", "chain", "address", "signatures"],
    ["silent"],
    ["filters", "watch", "signing"],
    ["store"],
    ["wallet", "p2p", "rpc"],
    ["light", "scan", "node"],
    ["electrum"],
    ["cli", "interop", "testing"],
]
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
GROUND = FLOORS[0]
APART = {  # imports that the floors would allow
    "p2p": {"wallet", "store"},
    "rpc": {"store", "filters", "watch"},
    "wallet": {"p2p"},
    "scan": {"store", "wallet", "p2p"},
    "node": {"store", "wallet", "p2p", "rpc"},
    "light": {"rpc"},
    "electrum": {"rpc", "scan", "node"},
}
SILENT = "light.engine."  # runs without sockets, clocks or asyncio; its own loop runs its tasks
AWAITING = (
    "_public.",  # decorates coroutines of the others
    "p2p.",
    "rpc.",
    "light.",
    "scan.",
    "node.",
    "cli.",
    "__main__.",
    "bloom.redis.",
    "interop.",
    "testing",
    "electrum.budget.",
    "electrum.connection.",
    "electrum.server.",
    "electrum.wallet.",
)
CIRCLES: list[set[str]] = []
DOOR = ("__init__", "_version", "_pyinstaller")  # the package itself, and the hook that freezes it, import nothing else


def room(module: str) -> str:
    top = module.split(".")[0]
    return {"__main__": "cli"}.get(top, top)


@cache
def imports(module: str) -> list[str]:
    """Absolute names of all modules and names that a module imports anywhere."""
    names: list[str] = []
    for node in nodes(module):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            assert node.module is not None
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def rooms_entered(module: str) -> set[str]:
    """Rooms from which a module imports. Names imported from the package itself belong to no room and fail."""
    entered = {room(name.removeprefix("spvfilter.")) for name in imports(module) if name.startswith("spvfilter.")} - {
        "_version"
    }
    assert entered <= FLOOR_OF.keys(), f"{module} imports {entered - FLOOR_OF.keys()}"
    return entered


def test_every_module_lives_in_a_room() -> None:
    assert len(modules()) > 20
    assert {room(module) for module in modules()} - FLOOR_OF.keys() == set(DOOR)


def may_import(here: str, entered: str) -> bool:
    if here in GROUND and entered in GROUND:
        return GROUND.index(entered) < GROUND.index(here)
    return FLOOR_OF[entered] < FLOOR_OF[here] and entered not in APART.get(here, ())


def test_imports_point_down_only() -> None:
    pairs = [
        (module, room(module), entered)
        for module in modules()
        if module not in DOOR
        for entered in rooms_entered(module)
    ]
    assert_none(
        f"{module} imports {entered}"
        for module, here, entered in pairs
        if entered != here and not may_import(here, entered)
    )
    assert may_import("wallet", "store")
    assert not may_import("store", "wallet")  # up
    assert not may_import("scan", "p2p")  # apart


def imported_modules(module: str) -> set[str]:
    """The package's own modules that a module imports, by dotted names within the package."""
    known = set(modules())
    imported: set[str] = set()
    for name in (name.removeprefix("spvfilter.") for name in imports(module) if name.startswith("spvfilter.")):
        holder = name.rpartition(".")[0]
        imported.add(
            next(
                found
                for found in (name, f"{name}.__init__", holder, f"{holder}.__init__", "__init__")
                if found in known
            )
        )
    return imported - {module}


def circles() -> list[set[str]]:
    """Groups of modules that import each other, directly or indirectly (Tarjan's strongly connected components)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    found: list[set[str]] = []

    def visit(module: str) -> None:
        number[module] = lowest[module] = len(number)
        path.append(module)
        for other in imported_modules(module):
            if other not in number:
                visit(other)
            if other in path:
                lowest[module] = min(lowest[module], lowest[other])
        if lowest[module] == number[module]:
            at = path.index(module)
            if len(path) - at > 1:
                found.append(set(path[at:]))
            del path[at:]

    for module in modules():
        if module not in number and module not in DOOR and not module.endswith(".__init__"):
            visit(module)
    return found


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert circles() == CIRCLES


def test_imports_of_real_modules_are_found() -> None:
    assert rooms_entered("filters.bip37") == {
        "_public",
        "bloom",
        "errors",
        "filters",
        "kernel",
        "primitives",
        "protocol",
        "wire",
    }
    assert {"address", "kernel", "watch"} <= rooms_entered("watch.watchlist")
    assert {"light", "watch", "filters"} <= set.union(
        *(rooms_entered(module) for module in modules() if room(module) == "cli")
    )


def importing(names: tuple[str, ...], importers: list[str]) -> list[str]:
    """Imports of these modules, or of names in them."""
    found = [(module, name) for module in importers for name in imports(module)]
    return [
        f"{module} imports {name}"
        for module, name in found
        if f"{name}.".startswith(tuple(f"{each}." for each in names))
    ]


def test_no_module_loads_keys_or_sets_a_global_network() -> None:
    assert_none(importing(("bitcoin.wallet", "bitcoin.core.key", "bitcoin.SelectParams", "bitcoin.params"), modules()))
    named = [(module, getattr(node, "id", getattr(node, "attr", ""))) for module in modules() for node in nodes(module)]
    assert_none(module for module, name in named if name == "SelectParams")


def test_only_named_rooms_open_sockets_or_await() -> None:
    silent = [module for module in modules() if module.startswith(SILENT)]
    plain = [module for module in modules() if not f"{module}.".startswith(AWAITING)]
    assert len(silent) > 50
    assert len(plain) > 200
    assert_none(importing(("socket", "asyncio", "ssl", "selectors", "http", "urllib"), silent + plain))
    assert_none(at for module in silent for at in places(module, (ast.AsyncFor, ast.AsyncWith)))
    assert_none(at for module in plain for at in places(module, (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor)))


def places(module: str, kinds: tuple[type[ast.expr | ast.stmt], ...]) -> list[str]:
    return [f"{module}:{node.lineno}: {type(node).__name__}" for node in nodes(module) if isinstance(node, kinds)]


def test_the_engine_uses_no_connection_and_no_clock() -> None:
    silent = [module for module in modules() if module.startswith(SILENT)]
    assert_none(module for module in silent if "p2p" in rooms_entered(module))
    assert_none(importing(("time", "secrets", "threading", "concurrent", "sqlite3"), silent))


def test_the_library_never_prints() -> None:
    library = [module for module in modules() if room(module) != "cli"]
    assert_none(
        f"{module}:{node.lineno}"
        for module in library
        for node in nodes(module)
        if isinstance(node, ast.Name) and node.id == "print"
    )


PLACEHOLDER = re.compile(r"\{[a-z_]+(\.[a-z_]+)*\}")


def unfilled(nodes: list[ast.AST]) -> list[str]:
    """Texts with a placeholder that nothing fills, as the text is no f-string. Docstrings are left out."""
    described = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    texts = [(id(node), node.value) for node in nodes if isinstance(node, ast.Constant)]
    return [text for at, text in texts if isinstance(text, str) and PLACEHOLDER.search(text) and at not in described]


def test_no_message_shows_a_placeholder() -> None:
    made_elsewhere = {"bloom.redis.seriesscripts"}  # its Lua is filled by `format`
    assert {module for module in modules() if unfilled(nodes(module))} == made_elsewhere
    example = ast.parse('x = "of " f"{y}"; z = "for {watch.network}"')
    assert unfilled([*ast.walk(example)]) == ["for {watch.network}"]


def test_a_module_has_a_docstring() -> None:
    assert_none(module for module in modules() if not ast.get_docstring(tree(module)))


CSRC = ROOT / "spvfilter" / "kernel" / "csrc"  # wheels leave it out
C_FLOORS = [
    ["spv.h", "spv.c", "array.h", "fork.h", "fork.c"],
    ["hash"],
    ["block"],
    ["watch", "bloom", "gcs"],
    ["binding"],
]  # as in the comment of spv.h
C_FLOOR_OF = {folder: floor for floor, folders in enumerate(C_FLOORS) for folder in folders}


def c_files() -> list[str]:
    return sorted(str(path.relative_to(CSRC)) for path in CSRC.rglob("*.[ch]"))


def includes(file: str) -> list[str]:
    """The files of the kernel that a file includes, in order."""
    return re.findall(r'^#include "(.+)"$', (CSRC / file).read_text(encoding="utf-8"), re.MULTILINE)


def test_every_c_file_has_a_floor_and_existing_includes() -> None:
    files = c_files()
    assert len(files) > 60
    assert {file.split("/")[0] for file in files} == C_FLOOR_OF.keys()
    assert {included for file in files for included in includes(file)} <= set(files)


def may_include(here: str, there: str) -> bool:
    return there == here or C_FLOOR_OF[there] < C_FLOOR_OF[here] or C_FLOOR_OF[here] == C_FLOOR_OF[there] == 0


def test_c_includes_point_down_only() -> None:
    pairs = [(file, included) for file in c_files() for included in includes(file)]
    assert_none(
        f"{file} includes {included}"
        for file, included in pairs
        if not may_include(file.split("/")[0], included.split("/")[0])
    )
    assert not may_include("hash", "block")


def test_no_circle_of_c_includes() -> None:
    assert list(TopologicalSorter({file: includes(file) for file in c_files()}).static_order())


def is_described(file: str) -> bool:
    header = str(Path(file).with_suffix(".h"))
    if file.endswith(".c") and (CSRC / header).exists():
        return includes(file)[0] == header  # the header has the description
    return (CSRC / file).read_text(encoding="utf-8").startswith("/* ")


def test_a_c_file_describes_itself() -> None:
    assert_none(file for file in c_files() if not is_described(file))


def test_a_c_file_s_name_does_not_repeat_its_folder() -> None:
    paths = [Path(file) for file in c_files()]
    assert_none(path for path in paths if path.name.startswith(tuple(f"{folder}_" for folder in path.parts[:-1])))


def loaded_by(code: str) -> set[str]:
    """Names of the modules that a fresh interpreter has loaded after `code`. -S leaves out imports of editable
    installations.
    """
    command = [sys.executable, "-S", "-c", f"{code}\nimport sys; print(*sys.modules)"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PACKAGE.parent), get_path("platlib")])}
    return set(subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.split())


HEAVY = {"asyncio", "bitcoin", "httpx", "mmh3", "rich", "hashlib", "tempfile", "sqlite3", "socket", "zmq"}


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert not loaded_by("import spvfilter") & HEAVY


LOADED = ("spvfilter._public", "spvfilter._arguments", "spvfilter.errors")  # with every room


def test_a_room_loads_only_modules_of_used_names() -> None:
    rooms = {f"spvfilter.{name.removesuffix('.__init__')}" for name in modules() if "lazy" in names_bound(name)} - {
        "spvfilter.__init__"
    }
    assert len(rooms) > 10
    loaded = loaded_by("\n".join(f"import {room}" for room in rooms))
    assert {name for name in loaded if name.startswith("spvfilter")} == rooms | {"spvfilter", *LOADED}
    assert not loaded & HEAVY


SLOW = {
    "asyncio",
    "csv",
    "datetime",
    "decimal",
    "httpx",
    "ipaddress",
    "json",
    "mmap",
    "multiprocessing",
    "pathlib",
    "pickle",
    "random",
    "secrets",
    "socket",
    "sqlite3",
    "ssl",
    "tempfile",
    "urllib.parse",
    "zmq",
}
MOST = {  # most of the package's own modules, without the kernel; each takes about 0.8 ms
    "from spvfilter import LightClient": 130,
    "from spvfilter import Matcher": 120,
    "import spvfilter.cli.scan.command": 22,
}


@pytest.mark.parametrize("code", MOST)
def test_an_import_loads_few_modules(code: str) -> None:
    loaded = loaded_by(code)
    assert not loaded & {"numpy", "httpx", "zmq", "rich", "pyarrow", "bitcoin.core", "redis", "cryptography"}
    own = {name for name in loaded if name.startswith("spvfilter.") and not name.startswith("spvfilter.kernel")}
    assert 0 < len(own) <= MOST[code], sorted(own)


@pytest.mark.parametrize(
    ("code", "later"),
    [
        (
            "from spvfilter import LightClient",
            "light.engine.engine light.running wire.session store.store wallet.books",
        ),
        ("import spvfilter.cli.scan.command", "scan.matcher scan.remote watch.watchlist address kernel"),
    ],
)
def test_modules_for_a_run_are_imported_when_it_begins(code: str, later: str) -> None:
    names = {f"spvfilter.{name}" for name in later.split()}
    assert names - {"spvfilter.kernel"} <= {f"spvfilter.{name}" for name in modules()}
    assert not loaded_by(code) & names


def test_the_command_line_imports_slow_modules_when_used() -> None:
    assert not loaded_by("import spvfilter.cli.scan.command") & SLOW


def deferred_in(module: str) -> set[str]:
    """Names of the modules that a module imports on first use."""
    calls = [node for node in nodes(module) if isinstance(node, ast.Call) and ast.unparse(node.func) == "deferred"]
    return {ast.literal_eval(node.args[0]) for node in calls}


def test_only_the_command_line_and_optional_packages_wait() -> None:
    """Every other module is imported at the top, in plain sight."""
    needs_numpy = {"spvfilter.kernel.masks"}
    own = {"spvfilter", *sys.stdlib_module_names}
    waiting = {module: deferred_in(module) - needs_numpy for module in modules() if room(module) != "cli"}
    assert any(waiting.values())
    assert not {module: names for module, names in waiting.items() if {name.split(".")[0] for name in names} & own}


def test_no_two_public_classes_have_one_name() -> None:
    homes: dict[str, list[str]] = {}
    for module in modules():
        for node in tree(module).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(module)
    assert {"WatchList", "LightClient"} <= homes.keys()
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


def names_bound(module: str) -> set[str]:
    """Names that a module imports."""
    return {alias.name for node in nodes(module) if isinstance(node, ast.ImportFrom) for alias in node.names}


def test_a_public_name_loads_only_its_own_room() -> None:
    watch = loaded_by("from spvfilter import WatchList")
    assert "spvfilter.watch.watchlist" in watch
    assert not watch & {"asyncio", "rich", "spvfilter.filters.bip37", "bitcoin.wallet", "bitcoin.core.key"}
    assert not loaded_by("from spvfilter import Bip37Filter") & {
        "asyncio",
        "rich",
        "spvfilter.watch.watchlist",
        "spvfilter.address",
    }
