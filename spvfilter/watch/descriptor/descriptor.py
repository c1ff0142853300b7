"""Output descriptors (BIP-380 ff.), parsed and checked: one Descriptor for each path of a multipath (BIP-389)."""

from __future__ import annotations

import re

from spvfilter._dataclass import dataclass, field
from spvfilter._public import public
from spvfilter.address import address_to_script
from spvfilter.errors import DescriptorError
from spvfilter.network import Network
from spvfilter.watch.descriptor import keys
from spvfilter.watch.descriptor.checksum import checksum, without_checksum
from spvfilter.watch.descriptor.derivation import Derive, deriving
from spvfilter.watch.keychain import MAX_INDEXES

# BIP-381 ff.
TOP_FUNCTIONS = ("addr", "combo", "multi", "pk", "pkh", "raw", "rawtr", "sh", "sortedmulti", "tr", "wpkh", "wsh")
_LONGEST = 150_000  # characters; 999 keys of a taproot multisig, with their paths
_MAX_RAW = 10_000  # bytes of a script, Core script.h MAX_SCRIPT_SIZE
_MAX_BARE_KEYS = 3  # Core policy: more are not relayed, and no descriptor
_MULTIPATH = re.compile(r"<([^<>]*)>")
_EMPTY = re.compile(r"[({,][,)}]")
_STEP = re.compile(r"\d{1,10}")


@public
@dataclass(frozen=True, slots=True)
class Descriptor:
    """An output descriptor with a single path: what pays it at each index."""

    text: str
    """With its checksum."""
    network: Network
    kind: str
    """The functions around the keys: "sh(wpkh)"."""
    size: int
    """The number of its indexes: 1 without a '*', else 2^31."""
    _derive: Derive = field(repr=False, compare=False)

    def scripts(self, index: int) -> tuple[bytes, ...]:
        """The scriptPubKeys of an index: one, up to four of combo(). Raises DescriptorError."""
        return self._derive(index)


def is_descriptor(text: str) -> bool:
    """Whether a text starts as an output descriptor."""
    return text.startswith(tuple(f"{name}(" for name in TOP_FUNCTIONS))


@public
def parse_descriptor(text: str, network: Network) -> list[Descriptor]:
    """The descriptors in a text: two for a multipath <0;1>, or for an extended public key whose prefix names a script
    type.

    The checksum may be left away. Raises DescriptorError for what is none or has private keys, WrongNetworkError for
    keys or addresses of another network, and DescriptorError without the extra `descriptors` for all but addr() and
    raw().
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
            f"an output descriptor starts with {', '.join(f'{name}(' for name in TOP_FUNCTIONS)} or is a ypub, zpub,"
            " upub or vpub"
        )
    body = without_checksum(text)
    _check_keys(body, network)
    return [_one(each, network) for each in _paths(body)]


def _check_keys(body: str, network: Network) -> None:
    """Raises DescriptorError, WrongNetworkError for an extended key that cannot be used as it stands."""
    for key, path in keys.extended_keys(body):
        raw = keys.check_key(key, network)
        if key[:4] not in ("xpub", "tpub"):
            raise DescriptorError(
                f"{key[:4]}… in a descriptor, whose functions say what a prefix would: write it as"
                f" {keys.as_plain(key, raw)}"
            )
        if re.search(r"['hH]", path):
            raise DescriptorError(
                f"a hardened step behind {key[:4]}…, which only the private key can take: give the key that lies"
                " behind it"
            )
        if path.count("<") > 1:
            raise DescriptorError(f"two multipaths <…> behind one {key[:4]}…")


def _paths(body: str) -> list[str]:
    """The descriptors without multipaths that one with them stands for (BIP-389): the same choice in every <…>."""
    choices = [found[1].split(";") for found in _MULTIPATH.finditer(body)]
    if not choices:
        return [body]
    if any(len(steps) != len(choices[0]) for steps in choices):
        raise DescriptorError("the multipaths <…> of a descriptor have as many parts each")
    for steps in choices:
        if len(steps) < 2 or not all(_STEP.fullmatch(step) for step in steps):
            raise DescriptorError("a multipath is two or more numbers, such as <0;1>")
        if len({int(step) for step in steps}) < len(steps):
            raise DescriptorError("a multipath has each number once")
    # called at once
    return [_MULTIPATH.sub(lambda found: found[1].split(";")[number], body) for number in range(len(choices[0]))]  # noqa: B023


def _one(body: str, network: Network) -> Descriptor:
    """A descriptor without multipaths and checksum."""
    name, _, rest = body.partition("(")
    if not rest.endswith(")"):
        raise DescriptorError(f"{name}(…) is cut or followed by something: it ends with ')' and perhaps #CHECKSUM")
    inner = rest[:-1]
    size = MAX_INDEXES if "*" in body else 1
    full = f"{body}#{checksum(body)}"
    if name not in ("addr", "raw") and _EMPTY.search(body):  # libwally would take some
        raise DescriptorError("an argument of the descriptor is empty: a bracket or a comma too many")
    match name:
        case "addr":
            script = address_to_script(inner, network)
            return Descriptor(full, network, name, 1, lambda index: (script,))
        case "raw":
            script = _raw(inner)
            return Descriptor(full, network, name, 1, lambda index: (script,))
        case "multi" | "sortedmulti" if inner.count(",") > _MAX_BARE_KEYS:
            raise DescriptorError(
                f"{name}() has at most {_MAX_BARE_KEYS} keys where it is not within sh() or wsh(): more are not relayed"
            )
    derive = deriving(body)
    derive(0)  # what cannot be derived is refused now
    return Descriptor(full, network, _kind(body), size, derive)


def _raw(text: str) -> bytes:
    if not 2 <= len(text) <= 2 * _MAX_RAW or len(text) % 2 or not re.fullmatch(r"[0-9a-fA-F]*", text):
        raise DescriptorError(f"raw() has a script of 1 to {_MAX_RAW:,} bytes in pairs of hex digits")
    return bytes.fromhex(text)


def _kind(body: str) -> str:
    """The outermost functions of a descriptor: sh(wsh(sortedmulti(…))) is "sh(wsh(sortedmulti))"."""
    names = re.match(r"(?:[a-z_]+\()*", body)
    assert names is not None
    parts = names[0].split("(")[:-1]
    return "(".join(parts) + ")" * (len(parts) - 1)
