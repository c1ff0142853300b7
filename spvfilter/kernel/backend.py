"""Which twin of the kernel runs: the compiled one where it is installed, else the reference. No loops here."""

from __future__ import annotations

import os
from importlib import import_module

from spvfilter.errors import ParameterError

VARIABLE = "SPVFILTER_BACKEND"
HOW_TO_COMPILE = (
    "install a C compiler (Debian: apt install gcc python3-dev) and spvfilter again: pip install --force-reinstall --no-cache-dir"
)

# what the twins define, by the reference's modules
_REFERENCE = {
    "pure": (
        *("bip37_scan_block", "bip37_scan_tx", "check_block", "is_p2pk", "is_pubkey", "merkle_root", "multisig_keys", "parse_tx"),
        *("strip_witness", "txid", "walk_block", "walk_tx", "wtxid"),
    ),
    "pure_address": ("decode_address",),
    "pure_bits": ("BitCore", "CounterCore"),
    "pure_gcs": ("GcsQuery", "gcs_build", "gcs_check"),
    "pure_headers": ("header_hashes",),
    "pure_table": ("WatchTable",),
}


def reference() -> dict[str, object]:
    """The readable twin, by name."""
    return {name: getattr(import_module(f"spvfilter.kernel.{module}"), name) for module, names in _REFERENCE.items() for name in names}


def compiled() -> dict[str, object]:
    """The compiled twin, by name. Raises ImportError where it is not installed."""
    native = import_module("spvfilter.kernel.native")
    return {name: getattr(native, name) for names in _REFERENCE.values() for name in names}


def choose() -> tuple[str, dict[str, object]]:
    """The backend's name, "native" or "pure", and its twin; see the package for the rules and errors."""
    wanted = os.environ.get(VARIABLE) or "auto"
    if wanted not in ("native", "pure", "auto"):
        raise ParameterError(f"{VARIABLE} is native, pure or auto, not {wanted!r}")
    if wanted != "pure":
        try:
            return "native", compiled()
        except ImportError as error:
            if wanted == "native":
                raise ImportError(f"{VARIABLE}=native, but the compiled kernel is not there ({error}); {HOW_TO_COMPILE}") from error
    return "pure", reference()
