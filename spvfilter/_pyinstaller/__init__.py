"""The folder of the hook by which PyInstaller bundles the whole package. PyInstaller finds it by an entry point."""

from __future__ import annotations

from pathlib import Path


def get_hook_dirs() -> list[str]:
    """Return the folders with hooks of PyInstaller."""
    return [str(Path(__file__).parent)]
