"""Pictures that commands draw with matplotlib, the extra `plot`: only a PNG file is ever replaced."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING

from spvfilter.errors import ParameterError, SourceError
from spvfilter.files import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PNG = b"\x89PNG\r\n\x1a\n"  # the start of every PNG file


def check_picture(name: str) -> Path:
    """The path of a picture that can be drawn. Raises ParameterError, also without matplotlib; SourceError, OSError."""
    path = Path(name)
    if path.suffix.lower() != ".png":
        raise ParameterError(f"--plot makes a PNG picture: give a name that ends with .png, not {name!r}")
    if path.exists():
        with path.open("rb") as file:
            if file.read(len(_PNG)) != _PNG:
                raise SourceError(f"{name} exists and is not a PNG picture")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise SourceError(f"{name}: {path.parent} is not a writable directory")
    try:
        import matplotlib.figure  # noqa: F401  only whether it is there
    except ImportError:
        raise ParameterError("--plot needs matplotlib: pip install 'spvfilter[plot]'") from None
    return path


def save_picture(figure: Figure, path: Path) -> None:
    """Write a figure in place of an earlier picture. Raises OSError."""
    picture = io.BytesIO()
    figure.savefig(picture, format="png")
    with replacing(path) as file:
        file.write(picture.getvalue())
