"""The choice of the spvfilter under test: this checkout, or with `--installed` the package that pip installed."""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[3]
OPTION, VARIABLE = "--installed", "SPVFILTER_INSTALLED"
"""The option of pytest, and the variable that passes it to children."""


def prefer_installed() -> None:
    """Keep the tree, which `python -m pytest` puts first, from hiding the installed package. Children inherit that.

    An editable installation of this checkout counts as installed. If nothing is installed, the tree is tested.
    """
    if OPTION in sys.argv:
        os.environ[VARIABLE] = "1"
    found, sys.path[:] = sys.path[:], [entry for entry in sys.path if Path(entry).resolve() != ROOT]
    if find_spec("spvfilter") is None:
        sys.path[:] = found
        os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    os.environ["PYTHONSAFEPATH"] = "1"


def wrong_package(folder: Path) -> str | None:
    """Return what is wrong if the tests import spvfilter from this folder; None if it is the one to test."""
    if os.environ.get(VARIABLE) or folder.resolve() == ROOT / "spvfilter":
        return None
    return (
        f"the tests would run {folder}, not this checkout: run `scripts/dev/venv dev` and use .venv/bin/python, or test"
        f" the installed package with {OPTION}"
    )


def is_compiled() -> bool:
    package = find_spec("spvfilter")
    assert package is not None
    assert package.origin is not None
    kernel = Path(package.origin).with_name("kernel")
    # find_spec would import spvfilter.kernel, which warns without a compiled kernel
    return PathFinder.find_spec("spvfilter.kernel.native", [str(kernel)]) is not None


prefer_installed()
if not is_compiled():  # choose the pure kernel: the suite treats its warning as an error
    os.environ.setdefault("SPVFILTER_BACKEND", "pure")
