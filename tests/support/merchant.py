"""The module examples/merchant.py, and accounts for it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

PATH = Path(__file__).parents[2] / "examples" / "merchant.py"

if TYPE_CHECKING:
    from examples import merchant as merchant
else:
    _spec = importlib.util.spec_from_file_location("merchant", PATH)
    merchant = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(merchant)

_KEY = "tpubDC2Qwo2TFsaNC4ju8nrUJ9mqVT3eSgdmy1yPqhgkjwmke3PRXutNGRYAUo6RCHTcVQaDR3ohNU9we59brGHuEKPvH1ags2nevW5opEE9Z5Q"

ACCOUNTS = {"cafe": f"wpkh({_KEY}/0/*)", "bar": f"wpkh({_KEY}/7/*)"}
"""Descriptor of each account."""
