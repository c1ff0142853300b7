"""The directory of the hook with which PyInstaller bundles the whole package. An entry point names it."""

from __future__ import annotations

from pathlib import Path


def get_hook_dirs() -> list[str]:
    """Return the directories that contain PyInstaller hooks."""
    return [str(Path(__file__).parent)]
