"""Find private keys and seed phrases in JSON files. A warning names their fields, but no secret is kept or repeated."""

from __future__ import annotations

import re

from spvfilter.watch.descriptor.keys import private_key_in, secret_in

_PRIVATE_NAMES = frozenset(
    [
        "xprv",
        "xpriv",
        "tprv",
        "zprv",
        "yprv",
        "seed",
        "seedphrase",
        "seed_phrase",
        "mnemonic",
        "mnemonics",
        "words",
        "passphrase",
        "privkey",
        "priv_key",
        "private_key",
        "privatekey",
        "private_keys",
        "master_private_key",
        "master_private_keys",
        "extprivkey",
        "wif",
        "keypairs",
        "encryptedsecret",
        "secret",
        "hdseed",
        "hd_seed",
        "entropy",
    ]
)
"""Field names, in lower case, that wallets use for private keys, even encrypted ones."""
_SHOWN = re.compile(r"[A-Za-z][A-Za-z0-9_/]{0,30}")
_MOST_NAMED = 5
"""Number of fields that a warning names (our choice)."""


def private_fields(data: object) -> list[str]:
    """Return the names of the fields in a JSON value that contain private keys, each once."""
    found: dict[str, None] = {}
    harmless: dict[str, str] = {}  # names that were checked already, with the name to report; files repeat them
    left: list[tuple[str, object]] = [("", data)]
    while left:
        name, value = left.pop()
        if isinstance(value, dict):
            for key, inner in value.items():
                if key in harmless:
                    left.append((harmless[key] or name, inner))
                elif key.lower() in _PRIVATE_NAMES:
                    found.update({key: None} if inner else {})
                elif private_key_in(key) is not None:
                    found[name or "(without a name)"] = None
                else:
                    harmless[key] = key if _SHOWN.fullmatch(key) else ""
                    left.append((harmless[key] or name, inner))
        elif isinstance(value, list):
            left.extend((name, inner) for inner in value)
        elif isinstance(value, str) and is_private(value):
            found[name or "(without a name)"] = None
    return sorted(found)


def is_private(text: str) -> bool:
    """Return True if text may be or contain a private key or a seed phrase."""
    return secret_in(text) is not None


def warning_of(names: list[str], what: str = "field") -> str:
    """Return the warning about private keys in some fields or columns."""
    shown = ", ".join(names[:_MOST_NAMED]) + (", …" if len(names) > _MOST_NAMED else "")
    several = "s" if len(names) > 1 else ""
    return (
        f"the file contains private keys, in the {what}{several} {shown}: they were not kept. A reader of the file "
        "can spend the coins: keep it in a safe place, and export a watch-only file"
    )
