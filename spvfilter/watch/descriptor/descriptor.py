"""Output descriptors (BIP-380 ff.), parsed and validated: one Descriptor for each path of a multipath (BIP-389)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from spvfilter._public import public
from spvfilter.address import address_to_script
from spvfilter.errors import DescriptorError
from spvfilter.network import Network
from spvfilter.watch.descriptor import keys
from spvfilter.watch.descriptor.checksum import checksum, without_checksum
from spvfilter.watch.descriptor.derivation import Derive, deriving
from spvfilter.watch.keychain import MAX_INDEXES

TOP_FUNCTIONS = ("addr", "combo", "multi", "pk", "pkh", "raw", "rawtr", "sh", "sortedmulti", "tr", "wpkh", "wsh")
"""The names of the functions with which a descriptor may start (BIP-381 ff.)."""
_LONGEST = 150_000
"""Largest length of a descriptor in characters (our choice): a taproot multisig with 999 keys and their paths fits."""
_MAX_RAW = 10_000
"""Largest size of a script in raw(), in bytes (Core script.h MAX_SCRIPT_SIZE)."""
_MAX_BARE_KEYS = 3
"""Largest number of keys of a bare multisig. Core does not relay larger scripts, and rejects their descriptors."""
_MULTIPATH = re.compile(r"<([^<>]*)>")
_EMPTY = re.compile(r"[({,][,)}]")
_STEP = re.compile(r"\d{1,10}")


@public
@dataclass(frozen=True, slots=True)
class Descriptor:
    """An output descriptor with a single path, which derives scripts by index."""

    text: str
    """The descriptor with its checksum."""
    network: Network
    """Network of the keys and addresses."""
    kind: str
    """The descriptor's functions without their arguments, such as "sh(wpkh)"."""
    size: int
    """Number of indexes of the descriptor: 2^31 if it contains a '*', else 1."""
    _derive: Derive = field(repr=False, compare=False)

    def scripts(self, index: int) -> tuple[bytes, ...]:
        """Return the scriptPubKeys of an index: one script, or up to four scripts for combo().

        Args:
            index: Index of the scripts, from 0. A descriptor without a '*' ignores it.

        Raises:
            DescriptorError: The index cannot be derived.
        """
        return self._derive(index)


def is_descriptor(text: str) -> bool:
    """Return True if a text starts like an output descriptor, such as "wpkh("."""
    return text.startswith(tuple(f"{name}(" for name in TOP_FUNCTIONS))


@public
def parse_descriptor(text: str, network: Network) -> list[Descriptor]:
    """Parse an output descriptor, or an extended public key whose prefix names a script type.

    Args:
        text: A descriptor with or without checksum, or a ypub, zpub, upub or vpub.
        network: Network of the keys and addresses.

    Returns:
        One descriptor for each path of a multipath such as <0;1>. For an extended public key there are two, for its
        receiving and change addresses.

    Raises:
        DescriptorError: The text is not a descriptor, has a private key, or its scripts cannot be derived. Without the
            extra `descriptors`, only the scripts of addr() and raw() can be derived.
        WrongNetworkError: A key or address belongs to another network.
        TypeError: `text` is not a str.
    """
    if not isinstance(text, str):
        raise TypeError(f"a descriptor is a str, not {type(text).__name__}")
    text = text.strip()
    if len(text) > _LONGEST:
        raise DescriptorError(f"a descriptor has at most {_LONGEST:,} characters, not {len(text):,}")
    keys.refuse_private_keys(text)
    if keys.is_extended_key(text):
        text = keys.descriptor_of_key(text, network)
    if not is_descriptor(text):
        raise DescriptorError(
            f"expected an output descriptor, which starts with {', '.join(f'{name}(' for name in TOP_FUNCTIONS)},"
            " or a ypub, zpub, upub or vpub"
        )
    body = without_checksum(text)
    _check_keys(body, network)
    return [_one(each, network) for each in _paths(body)]


def _check_keys(body: str, network: Network) -> None:
    """Check the extended keys of a descriptor.

    Raises DescriptorError for an invalid key or path, and WrongNetworkError for a key of another network.
    """
    for key, path in keys.extended_keys(body):
        raw = keys.check_key(key, network)
        if key[:4] not in ("xpub", "tpub"):
            raise DescriptorError(
                f"{key[:4]}… in a descriptor, which needs an xpub or tpub: write the key as {keys.as_plain(key, raw)}"
            )
        if re.search(r"['hH]", path):
            raise DescriptorError(
                f"a hardened step after {key[:4]}…, which only the private key can derive: give the public key after"
                " that step"
            )
        if path.count("<") > 1:
            raise DescriptorError(f"two multipaths <…> after one {key[:4]}…, expected at most one")


def _paths(body: str) -> list[str]:
    """Return the single-path descriptors of a multipath descriptor (BIP-389).

    Descriptor number i has part i of every multipath <…>. A descriptor without multipaths is returned alone. Raises
    DescriptorError for invalid multipaths.
    """
    choices = [found[1].split(";") for found in _MULTIPATH.finditer(body)]
    if not choices:
        return [body]
    if any(len(steps) != len(choices[0]) for steps in choices):
        raise DescriptorError("the multipaths <…> of a descriptor differ in their number of parts")
    for steps in choices:
        if len(steps) < 2 or not all(_STEP.fullmatch(step) for step in steps):
            raise DescriptorError("expected a multipath of two or more numbers, such as <0;1>")
        if len({int(step) for step in steps}) < len(steps):
            raise DescriptorError("a multipath <…> has a number twice")
    # B023 does not apply: the function is called at once
    return [_MULTIPATH.sub(lambda found: found[1].split(";")[number], body) for number in range(len(choices[0]))]  # noqa: B023


def _one(body: str, network: Network) -> Descriptor:
    """Parse a descriptor that has no multipath and no checksum. Raises DescriptorError if it is invalid."""
    name, _, rest = body.partition("(")
    if not rest.endswith(")"):
        raise DescriptorError(f"{name}(…) is incomplete or has text after it: expected ')' and perhaps #CHECKSUM")
    inner = rest[:-1]
    size = MAX_INDEXES if "*" in body else 1
    full = f"{body}#{checksum(body)}"
    if name not in ("addr", "raw") and _EMPTY.search(body):  # libwally accepts some empty arguments
        raise DescriptorError("an argument of the descriptor is empty: there is one bracket or comma too many")
    match name:
        case "addr":
            script = address_to_script(inner, network)
            return Descriptor(full, network, name, 1, lambda index: (script,))
        case "raw":
            script = _raw(inner)
            return Descriptor(full, network, name, 1, lambda index: (script,))
        case "multi" | "sortedmulti" if inner.count(",") > _MAX_BARE_KEYS:
            raise DescriptorError(
                f"{name}() outside sh() and wsh() has at most {_MAX_BARE_KEYS} keys: nodes do not relay more"
            )
    derive = deriving(body)
    derive(0)  # raises DescriptorError now if nothing can be derived
    return Descriptor(full, network, _kind(body), size, derive)


def _raw(text: str) -> bytes:
    if not 2 <= len(text) <= 2 * _MAX_RAW or len(text) % 2 or not re.fullmatch(r"[0-9a-fA-F]*", text):
        raise DescriptorError(f"expected raw(HEX) with a script of 1 to {_MAX_RAW:,} bytes")
    return bytes.fromhex(text)


def _kind(body: str) -> str:
    """Return a descriptor's functions without their arguments: "sh(wsh(sortedmulti))" for sh(wsh(sortedmulti(…)))."""
    names = re.match(r"(?:[a-z_]+\()*", body)
    assert names is not None
    parts = names[0].split("(")[:-1]
    return "(".join(parts) + ")" * (len(parts) - 1)
