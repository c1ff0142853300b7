"""PNG pictures drawn with matplotlib (`plot` extra). A file that is not a PNG picture is never replaced."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING

from spvfilter.errors import ParameterError, SourceError, remedy
from spvfilter.files import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PNG = b"\x89PNG\r\n\x1a\n"  # every PNG file begins with these bytes


def check_picture(name: str) -> Path:
    """Check that a picture can be written to a path, and return the path.

    Raises ParameterError if the name does not end with .png or matplotlib is missing, SourceError or OSError.
    """
    path = Path(name)
    if path.suffix.lower() != ".png":
        raise ParameterError(f"--plot writes a PNG picture: give a name that ends with .png, not {name!r}")
    if path.exists():
        with path.open("rb") as file:
            if file.read(len(_PNG)) != _PNG:
                raise SourceError(f"{name} exists and is not a PNG picture: choose another name")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise SourceError(f"{name}: {path.parent} is not a writable directory")
    try:
        import matplotlib.figure  # noqa: F401  checks only that it is installed
    except ImportError:
        raise ParameterError(f"--plot needs matplotlib; {remedy('plot')}") from None
    return path


def save_picture(figure: Figure, path: Path) -> None:
    """Write a figure as PNG, replacing an earlier picture. Raises OSError."""
    picture = io.BytesIO()
    figure.savefig(picture, format="png")
    with replacing(path) as file:
        file.write(picture.getvalue())
