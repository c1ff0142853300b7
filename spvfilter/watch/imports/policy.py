"""Wallet policies (BIP-388): a descriptor template with `@0`, `@1`, … for the keys and `/**` for `/<0;1>/*`.

```
{"name": "w", "descriptor_template": "wsh(sortedmulti(2,@0/**,@1/**))", "keys_info": ["[0f056943/48h/…]xpub…", …]}
```
"""

from __future__ import annotations

import re

from spvfilter.errors import ParameterError, counted
from spvfilter.watch.descriptor.checksum import without_checksum
from spvfilter.watch.descriptor.keys import private_key_in
from spvfilter.watch.imports.accountkeys import BRANCHES
from spvfilter.watch.imports.jsontext import field_of
from spvfilter.watch.imports.walletfile import ImportedDescriptor, WalletFile, name_in, networks_of_text

_TEMPLATES = (
    "descriptor_template",
    "description_template",
    "descriptorTemplate",
    "wallet_policy",
    "template",
    "policy",
)
_KEYS = ("keys_info", "keysInfo", "key_info", "keys")
_PLACEHOLDER = re.compile(r"@(\d{1,4})")
_LONGEST = 150_000
"""Largest length of a template, and of its descriptor, in characters (our choice: the limit for descriptors)."""


def read_policy(data: object) -> WalletFile | None:
    """Return the wallet that a JSON value describes, or None if the value has a different format.

    Raises ParameterError if the policy refers to a missing key or does not use all of its keys.
    """
    if not isinstance(data, dict):
        return None
    template, found = field_of(data, *_TEMPLATES), field_of(data, *_KEYS)
    if not isinstance(template, str) or "@" not in template or not isinstance(found, list):
        return None
    keys = [each for each in found if isinstance(each, str)]
    if len(keys) < len(found):
        raise ParameterError("the wallet policy (BIP-388) contains a key that is not text: expected [ORIGIN]xpub…")
    name = name_in(field_of(data, "name", "wallet_name"))
    text = _filled(template, keys)
    return WalletFile(
        "BIP-388", name, networks_of_text(text), descriptors=(ImportedDescriptor(without_template(text), name),)
    )


def without_template(text: str) -> str:
    """Replace `/**` (BIP-388) in a descriptor with `/<0;1>/*`. Other text is returned unchanged.

    Raises DescriptorError if the checksum is wrong.
    """
    return without_checksum(text.strip()).replace("/**", BRANCHES) if "/**" in text else text


def _filled(template: str, keys: list[str]) -> str:
    """Return the template with the keys in place of their numbers."""
    numbers = [int(each) for each in _PLACEHOLDER.findall(template)]
    if max(numbers, default=0) >= len(keys):
        raise ParameterError(
            f"the wallet policy (BIP-388) refers to key @{max(numbers)}, but lists only {counted(len(keys), 'key')}:"
            " export it again"
        )
    if len(set(numbers)) < len(keys):
        raise ParameterError("the wallet policy (BIP-388) does not use one of its keys: export it again")
    for key in keys:
        if (what := private_key_in(key)) is not None:
            raise ParameterError(f"a key of a wallet policy is {what}, which was not kept: use public keys only")
        if any(char in key for char in "(){},*#@"):
            raise ParameterError(
                "a key of a wallet policy (BIP-388) contains a bracket or a path: expected [ORIGIN]xpub…"
            )
    if len(template) + sum(len(keys[number]) for number in numbers) > _LONGEST:
        raise ParameterError(f"a wallet policy (BIP-388) must be at most {_LONGEST:,} characters long")
    return _PLACEHOLDER.sub(lambda found: keys[int(found[1])], template)
