"""Modules that define the public names of each package, so that the site can link a name to its source."""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from pathlib import Path

_DEFINITION = re.compile(r"^(?:class|def|async def) (\w+)", re.MULTILINE)


def followed(app: object, module: str, attribute: str) -> str | None:
    """Module that defines an attribute of a package, or None. A handler of Sphinx's viewcode-follow-imported."""
    return _definitions(module).get(attribute.partition(".")[0]) if module else None


@cache
def _definitions(package: str) -> dict[str, str]:
    """Modules by the names that they define, for the names that a package exports."""
    folder = Path(str(import_module(package).__file__))
    if folder.name != "__init__.py":
        return {}
    return {
        name: f"{package}.{path.stem}"
        for path in sorted(folder.parent.glob("*.py"))
        for name in _DEFINITION.findall(path.read_text(encoding="utf-8"))
    }
