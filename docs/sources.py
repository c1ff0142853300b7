"""An extension of Sphinx: finds the module that defines a public name, so that the site can link to its source."""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_DEFINITION = re.compile(r"^(?:class|def|async def) (\w+)", re.MULTILINE)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.connect("viewcode-follow-imported", followed)
    return {"parallel_read_safe": True}


def followed(app: Sphinx, module: str, attribute: str) -> str | None:
    """Module that defines an attribute of a package, or None if viewcode finds it by itself."""
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
