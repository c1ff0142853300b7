"""The folder of vectors, and the scaling of long tests by effort. No assertions."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest

EFFORT = os.environ.get("SPVFILTER_EFFORT", "quick")
if EFFORT not in ("quick", "ci", "full"):
    raise pytest.UsageError(f"SPVFILTER_EFFORT is quick, ci or full, not {EFFORT!r}")


def effort(quick: int, ci: int, full: int) -> int:
    """The count of a long test for SPVFILTER_EFFORT."""
    return {"quick": quick, "ci": ci, "full": full}[EFFORT]


def first_of(few: int, *values: object) -> list[Any]:
    """Parameters of which all but the first few are marked `long`."""
    return [pytest.param(each, marks=[pytest.mark.long] * (number >= few)) for number, each in enumerate(values)]


def spread(few: int, count: int, begin: int) -> set[int]:
    """Numbers of a few cases among `count`, evenly spread from any one on.

    Their distances vary, so that the cases differ in all parameters of their test.
    """
    step = max(1, count // few)
    return {(begin + number * count // few + number % step) % count for number in range(few)}


def vectors_root() -> Path | None:
    named = os.environ.get("SPVFILTER_VECTORS")
    root = Path(named) if named else None
    return root if root and (root / "MANIFEST.md").is_file() else None


def vector_path(name: str) -> Path:
    root = vectors_root()
    assert root is not None, "mark the test with pytest.mark.vectors"
    return root / name


@cache
def vector_file(name: str) -> Any:
    """A JSON file of the vectors, read once."""
    return json.loads(vector_path(name).read_text(encoding="utf-8"))


def vector_cases(name: str, where: Any = None) -> pytest.MarkDecorator:
    """Parametrise `case` over the vectors of a file; without the data one case remains, which the marker skips or
    fails.
    """
    cases: list[Any] = [pytest.param(None, id="missing", marks=pytest.mark.vectors)]
    if vectors_root() is not None:
        chosen = [case for case in vector_file(name)["vectors"] if where is None or where(case)]
        assert chosen, f"no vectors left in {name}"
        cases = [
            pytest.param(
                case,
                id=str(case.get("id", number)) if isinstance(case, dict) else str(number),
                marks=pytest.mark.vectors,
            )
            for number, case in enumerate(chosen)
        ]
    return pytest.mark.parametrize("case", cases)
