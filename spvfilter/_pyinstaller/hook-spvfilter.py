"""Tells PyInstaller which modules this package names only in strings: lazily imported ones, and the kernel."""

from __future__ import annotations

from PyInstaller.utils.hooks import collect_submodules

hiddenimports = collect_submodules(
    "spvfilter", filter=lambda name: not name.startswith(("spvfilter._pyinstaller", "spvfilter.testing"))
)
