"""Descriptor records of BSMS (BIP-129): four lines, with a descriptor, its paths and the wallet's first address.

```
BSMS 1.0
wsh(sortedmulti(2,[…]xpub…/**,[…]xpub…/**))
/0/*,/1/*
bc1q…
```
"""

from __future__ import annotations

import re

from spvfilter.errors import ParameterError
from spvfilter.watch.descriptor.checksum import without_checksum
from spvfilter.watch.descriptor.descriptor import is_descriptor
from spvfilter.watch.descriptor.keys import private_key_in
from spvfilter.watch.imports.walletfile import ImportedDescriptor, WalletFile, networks_of_text

_VERSION = "BSMS 1.0"
_NO_PATHS = "no path restrictions"
_PATH = re.compile(r"(?:/\d{1,10})*/\*")
_MOST_PATHS = 16
"""Largest number of paths (our choice). Wallets write two, for receiving and change addresses."""


def read_bsms(text: str) -> WalletFile | None:
    """Return the wallet in a descriptor record, or None if the text has a different format.

    Raises ParameterError if the version is not supported or a line is invalid.
    """
    if not text.startswith("BSMS "):
        return None
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines[0] != _VERSION:
        raise ParameterError(f"unsupported version of a BSMS file (BIP-129): only {_VERSION} is supported")
    if len(lines) > 2 and not is_descriptor(lines[1]):
        raise ParameterError(
            "this is a BSMS key record (BIP-129), which contains only one signer's key: give the wallet's descriptor"
            " record"
        )
    if len(lines) != 4:
        raise ParameterError(f"a BSMS descriptor record (BIP-129) must have 4 lines, not {len(lines)}: export it again")
    _, template, paths, first = lines
    if (what := private_key_in(template)) is not None:
        raise ParameterError(f"line 2 contains {what}, which was not kept: give the record with public keys")
    texts = _descriptors(template, paths)
    return WalletFile(
        "BSMS",
        networks=networks_of_text(template),
        descriptors=tuple(
            ImportedDescriptor(each, first_address=None if number else first) for number, each in enumerate(texts)
        ),
    )


def _descriptors(template: str, paths: str) -> list[str]:
    """Return the descriptor of each path."""
    if "/**" not in template:
        return [template]
    body = without_checksum(template)
    if paths.lower() == _NO_PATHS:
        raise ParameterError(
            "line 3 of a BSMS record must list paths such as /0/*,/1/*, because the descriptor uses /**"
        )
    found = [each.strip() for each in paths.split(",")]
    if len(found) > _MOST_PATHS or not all(_PATH.fullmatch(each) for each in found):
        raise ParameterError(f"line 3 of a BSMS record must list 1 to {_MOST_PATHS} paths such as /0/*,/1/*")
    return [body.replace("/**", path) for path in found]
