"""The choice of the kernel's backend: the compiled kernel if it is installed, else the reference in Python."""

from __future__ import annotations

import os
import sys
import warnings
from importlib import import_module

from spvfilter.errors import BackendError, BackendWarning, ParameterError

VARIABLE = "SPVFILTER_BACKEND"  # The environment variable that chooses the backend.
_NATIVE = "spvfilter.kernel.native"
_KERNEL = os.path.dirname(__file__)  # noqa: PTH120  pathlib takes long to import
_PACKAGE = os.path.dirname(_KERNEL)  # noqa: PTH120
_COMPILER = "install a C compiler and Python's headers (Debian: apt install gcc python3-dev)"

# The names that both backends define, by the module of the reference.
_REFERENCE = {
    "pure.blocks": (
        *(
            "bip37_scan_block",
            "bip37_scan_tx",
            "block_txids",
            "block_txs",
            "check_amounts",
            "check_block",
            "is_p2pk",
            "is_pubkey",
            "merkle_branches",
            "merkle_root",
            "multisig_keys",
            "parse_tx",
            "spent_outpoints",
        ),
        *("strip_witness", "txid", "walk_block", "walk_tx", "wtxid"),
    ),
    "pure.address": ("decode_address", "encode_address"),
    "pure.bits": ("BitCore", "CounterCore"),
    "pure.childkeys": ("child_keys",),
    "pure.series": ("SeriesCore",),
    "pure.files": ("ReadBuffer", "read_at"),
    "pure.frames": ("joined_frames", "sound_frames"),
    "pure.fuse": ("FuseCore", "fuse_build", "fuse_merge"),
    "pure.gcs": ("GcsQuery", "gcs_build", "gcs_check"),
    "pure.headers": (
        *("chain_filter_headers", "filter_hashes", "find_header", "header_bits", "header_hashes"),
        *("index_headers", "join_indexes", "judge_headers", "linked_headers"),
    ),
    "pure.merkleblock": ("extract_matches", "parse_merkleblock"),
    "pure.columnlines": ("column_lines",),
    "pure.hitcolumns": ("hit_columns",),
    "pure.packed": ("add_hit_sums", "count_hits", "hit_lines", "hit_sums", "is_ascending", "pack_hits", "unpack_hits"),
    "pure.rows": ("row_mark",),
    "pure.scriptaddresses": ("script_addresses",),
    "pure.silent": ("silent_candidate",),
    "pure.table": ("WatchTable",),
    "pure.tables": ("block_columns",),
    "pure.thrift": ("thrift_end",),
    "pure.undo": ("spent_coins",),
}


def reference() -> dict[str, object]:
    """Return the functions and types of the reference, by name."""
    return {
        name: getattr(import_module(f"spvfilter.kernel.{module}"), name)
        for module, names in _REFERENCE.items()
        for name in names
    }


def compiled() -> dict[str, object]:
    """Return the compiled functions and types, by name.

    Raises ImportError if they are missing, broken, or compiled from different sources.
    """
    try:
        native = import_module(_NATIVE)
    except SystemError as error:  # a free-threaded Python starts to load a module compiled for a different Python
        raise ImportError(f"{error}: it was compiled for a different Python", name=_NATIVE) from error
    try:
        return {name: getattr(native, name) for names in _REFERENCE.values() for name in names}
    except AttributeError as error:
        raise ImportError(f"{error}: it was compiled from different sources", name=_NATIVE) from error


def choose() -> tuple[str, dict[str, object]]:
    """Return the name of the backend ("native" or "pure"), and its functions and types.

    The docstring of spvfilter.kernel explains the rules and the errors.
    """
    wanted = os.environ.get(VARIABLE) or "auto"
    if wanted not in ("native", "pure", "auto"):
        raise ParameterError(f"{VARIABLE} must be native, pure or auto, not {wanted!r}")
    if wanted != "pure":
        try:
            return "native", compiled()
        except ImportError as error:
            if wanted == "native":
                raise BackendError(f"{VARIABLE}=native, but {_complaint(error)}") from error
            if sys.platform != "win32" and not _is_worker():
                _warn(_complaint(error))
    return "pure", reference()


def advice() -> str | None:
    """Return one line that says why the pure kernel is used and how to get the compiled one.

    Returns None if the user chose the pure kernel, or if the compiled kernel loads.
    """
    if os.environ.get(VARIABLE) == "pure":
        return None
    try:
        compiled()
    except ImportError as error:
        return _complaint(error)
    return None


def _warn(complaint: str) -> None:
    """Warn once, and attribute the warning to the line of the program that imported the package."""
    level, frame = 1, sys._getframe().f_back
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith("<frozen importlib"):  # which warnings.warn does not count
            level += 1
            if not file.startswith((_PACKAGE + os.sep, import_module.__code__.co_filename)):
                break
        frame = frame.f_back
    warnings.warn(
        "spvfilter runs with the pure Python kernel, which is 10 to 100 times slower. "
        f"{complaint[0].upper()}{complaint[1:]}. {VARIABLE}=pure hides this warning.",
        BackendWarning,
        stacklevel=level,
    )


def _is_worker() -> bool:
    """True if `multiprocessing` started this process. Its parent process has already warned."""
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.current_process().name != "MainProcess"


def _is_missing(error: ImportError) -> bool:
    """Return True if the compiled kernel is not installed, or False if it is installed but does not load."""
    return isinstance(error, ModuleNotFoundError) and error.name == _NATIVE


def _complaint(error: ImportError) -> str:
    """Return the reason for using the pure kernel, and advice for the user, as one clause."""
    if sys.platform == "win32":
        return "there is no compiled kernel for Windows"
    if _is_missing(error) and (other := _hidden()) is not None:
        return (
            f"Python imports the uncompiled package in {_PACKAGE} instead of the compiled one in {other}: "
            "run the program from another folder, or with python -P"
        )
    found = "is not installed" if _is_missing(error) else f"does not load ({error})"
    if os.path.isdir(os.path.join(_KERNEL, "csrc")):  # noqa: PTH112, PTH118
        root = os.path.dirname(_PACKAGE)  # noqa: PTH120
        return f"the compiled kernel {found}: {_COMPILER}, then run pip install -e {root}"
    return f"the compiled kernel {found}: {_COMPILER}, then spvfilter again with pip's --force-reinstall --no-cache-dir"


def _hidden() -> str | None:
    """Return the folder of an installed compiled package that comes later on `sys.path` than this one, or None."""
    from importlib.machinery import PathFinder

    for entry in sys.path:
        package = os.path.join(os.path.abspath(entry), "spvfilter")  # noqa: PTH100, PTH118
        folder = os.path.join(package, "kernel")  # noqa: PTH118
        if os.path.realpath(folder) == os.path.realpath(_KERNEL):
            continue
        if PathFinder.find_spec(_NATIVE, [folder]) is not None:
            return package
    return None
