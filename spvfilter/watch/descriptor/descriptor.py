"""Output descriptors (BIP-380 ff.), parsed and validated: one Descriptor for each path of a multipath (BIP-389)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from spvfilter._public import public, warn
from spvfilter.address import address_to_script, owner_of
from spvfilter.errors import DescriptorError, DescriptorWarning, KeychainError, remedy
from spvfilter.network import Network
from spvfilter.watch.descriptor import derivation, keyexpression, keys
from spvfilter.watch.descriptor.checksum import checksum, split_checksum
from spvfilter.watch.descriptor.derivation import Outputs
from spvfilter.watch.descriptor.expression import fault, parse_expression
from spvfilter.watch.descriptor.spending import Spending
from spvfilter.watch.keychain import MAX_INDEXES, WindowSource

T = TypeVar("T")

TOP_FUNCTIONS = ("addr", "combo", "multi", "pk", "pkh", "raw", "rawtr", "sh", "sortedmulti", "tr", "wpkh", "wsh")
"""The names of the functions that a descriptor may start with (BIP-381 ff.)."""
_STARTS = (*(f"{name}(" for name in TOP_FUNCTIONS), "sp(")
_LONGEST = 150_000
"""Largest length of a descriptor in characters (our choice): a taproot multisig with 999 keys and their paths fits."""
_MOST_EXPANDED = 1_500_000
"""Largest total length of the descriptors that a multipath expands to, in characters (our choice)."""
_MAX_RAW = 10_000
"""Largest size of a script in raw(), in bytes (Core script.h MAX_SCRIPT_SIZE)."""
_TOGETHER = 1_000
"""Largest number of indexes that are derived in one batch (our choice)."""
_ONE_KEY = re.compile(r"(?:wpkh|pkh|tr|sh\(wpkh)\([^(),<>{}#]+/\*\)\)?#[a-z0-9]{8}")
"""A descriptor with one extended key, one path with a wildcard, and a checksum."""
_MULTIPATH = re.compile(r"<([^<>]*)>")


@public
@dataclass(frozen=True, slots=True)
class Descriptor(WindowSource):
    """An output descriptor with a single path, which derives scripts by index."""

    text: str
    """The descriptor with its checksum."""
    network: Network
    """Network of the keys and addresses."""
    kind: str
    """The descriptor's functions without their arguments, such as "sh(wpkh)"."""
    size: int
    """Number of indexes of the descriptor: 2^31 if it contains a '*', else 1."""
    keys: int
    """Number of keys in the descriptor, all of which are derived for each index."""
    lacks_wildcard: bool
    """True if the descriptor contains an extended key but no wildcard, so it has only one script."""
    problems: tuple[str, ...]
    """Messages about the rules that the descriptor breaks. Only a stored descriptor may break any."""
    _derive: Callable[[Sequence[int]], list[tuple[bytes, ...]]] = field(repr=False, compare=False)
    _spend: Callable[[int], tuple[Spending, ...]] = field(repr=False, compare=False)

    def scripts(self, index: int) -> tuple[bytes, ...]:
        """Return the scriptPubKeys of an index: a single script, or up to four for combo().

        Args:
            index: Index of the scripts, from 0. A descriptor without a '*' ignores it.

        Raises:
            DescriptorError: The index cannot be derived.
        """
        return self._of(lambda index: self._derive([index])[0], index)

    def spending(self, index: int) -> tuple[Spending, ...]:
        """Return what is needed to spend each output of an index, in the order of `scripts`.

        Args:
            index: Index of the outputs, from 0. A descriptor without a '*' ignores it.

        Raises:
            DescriptorError: The index cannot be derived, or the descriptor uses musig().
        """
        return self._of(self._spend, index)

    def window(self, indexes: range) -> list[tuple[bytes, ...]]:
        """Return the scripts of each index. Deriving many in one call is faster than one at a time.

        If it raises any error, one of the indexes cannot be derived.
        """
        parts = (indexes[at : at + _TOGETHER] for at in range(0, len(indexes), _TOGETHER))
        return [scripts for part in parts for scripts in self._derive(part)]

    def __reduce__(self) -> tuple[object, ...]:
        return type(self)._again, (self.text, self.network)

    @classmethod
    def _again(cls, text: str, network: Network) -> Descriptor:
        (made,) = parse_descriptor(text, network, is_stored=True)  # it may break rules
        return made

    def _of(self, derive: Callable[[int], T], index: int) -> T:
        try:
            return derive(index)
        except DescriptorError:
            raise
        except (ValueError, RuntimeError):
            raise DescriptorError(f"index {index} of the descriptor cannot be derived: use the next index") from None


class LazyDescriptor(WindowSource):
    """A stored descriptor with one key. It is not parsed until it derives its first script.

    Most of 10,000 stored keychains derive nothing in a run. A descriptor with one key cannot break a miniscript rule.
    """

    def __init__(self, text: str, network: Network) -> None:
        self.text: str = text
        """The descriptor with its checksum."""
        self.network: Network = network
        """Network of the key."""
        self._parsed: Descriptor | None = None

    @classmethod
    def find(cls, text: str, network: Network) -> LazyDescriptor | None:
        """Return a lazy descriptor, or None if the text has a different form or the `descriptors` extra is missing."""
        try:
            keyexpression.wally()
        except ImportError:
            return None
        return cls(text, network) if _ONE_KEY.fullmatch(text) else None

    def scripts(self, index: int) -> tuple[bytes, ...]:
        """Return what `Descriptor.scripts` returns.

        Raises:
            KeychainError: The text is not a valid descriptor.
            DescriptorError: The index cannot be derived.
        """
        return self._parse(index).scripts(index)

    def window(self, indexes: range) -> list[tuple[bytes, ...]]:
        """Return what `Descriptor.window` returns."""
        return self._parse(indexes.start).window(indexes)

    def _parse(self, index: int) -> Descriptor:
        if self._parsed is None:
            try:
                (self._parsed,) = parse_descriptor(self.text, self.network, is_stored=True)
            except DescriptorError as error:
                raise KeychainError(
                    f"cannot derive the script at index {index}, which the window must contain: {error}"
                ) from error
        return self._parsed


def is_silent_text(text: str) -> bool:
    """Return True if text starts like a silent payment descriptor, sp()."""
    return text.lstrip().startswith("sp(")


def is_descriptor(text: str) -> bool:
    """Return True if text starts like an output descriptor, such as "wpkh(", or like sp() for silent payments."""
    return text.startswith(_STARTS)


@public
def parse_descriptor(text: str, network: Network, *, is_stored: bool = False) -> list[Descriptor]:
    """Parse an output descriptor, or an extended public key whose prefix names a script type.

    Args:
        text: A descriptor, with or without a checksum, or a ypub, zpub, upub or vpub.
        network: Network of the keys and addresses.
        is_stored: True if a database or a saved list already contains the descriptor. If it is valid but not sane, it
            is accepted, and `Descriptor.problems` lists the rules that it breaks.

    Returns:
        One descriptor for each path of a multipath such as <0;1>. An extended public key yields two, one for its
        receiving and one for its change addresses.

    Raises:
        DescriptorError: The text is not a descriptor, contains a private key, or breaks a rule. The message gives the
            position. Without the `descriptors` extra, only addr() and raw() are accepted.
        WrongNetworkError: A key or address belongs to another network.
        TypeError: `text` is not a str.
    """
    if not isinstance(text, str):
        raise TypeError(f"a descriptor must be a str, not {type(text).__name__}")
    text = text.strip()
    if len(text) > _LONGEST:
        raise DescriptorError(f"a descriptor must be at most {_LONGEST:,} characters long, not {len(text):,}")
    if is_silent_text(text):
        raise DescriptorError(
            "sp() derives no scripts, because its payments are found in transactions: pass it to "
            "WatchList.add_descriptor"
        )
    keys.refuse_private_keys(text)
    if keys.is_extended_key(text):
        text = keys.descriptor_of_key(text, network)
    if not is_descriptor(text):
        if owner_of(text) is not None:
            raise DescriptorError("expected a descriptor, found an address: watch the address, or write addr(ADDRESS)")
        if text[:8].lower() == "bitcoin:":
            raise DescriptorError(
                "expected a descriptor, found a bitcoin: URI: watch its address, or write addr(ADDRESS)"
            )
        raise DescriptorError(
            f"expected an output descriptor, which starts with {', '.join(f'{name}(' for name in TOP_FUNCTIONS)},"
            " or a ypub, zpub, upub or vpub"
        )
    if found := re.search(r"\s", text):
        raise fault(found.start(), "a descriptor must not contain a space or line break: remove it")
    body, stated = split_checksum(text)
    name, _, inner = body.partition("(")
    if name in ("addr", "raw"):
        return [_constant(name, inner, f"{body}#{stated}", network)]
    _require_library()
    return _ranged(body, stated, network, is_stored=is_stored)


def check_wildcard(descriptors: list[Descriptor], *, require_ranged: bool) -> None:
    """Issue a DescriptorWarning if the descriptors contain extended keys but no wildcard.

    Raises DescriptorError instead if `require_ranged` is True.
    """
    if not any(each.lacks_wildcard for each in descriptors):
        return
    text = descriptors[0].text
    is_bare = any(not path for _, path in keys.extended_keys(text))
    advice = "write /<0;1>/* after each extended key" if is_bare else "write /* after the path of each extended key"
    shown = text if len(text) <= 40 else f"{text[:40]}…"
    message = f"{shown} has no wildcard '*', so it has only one address: to watch all addresses of its keys, {advice}"
    if require_ranged:
        raise DescriptorError(message)
    warn(message, DescriptorWarning)


def warn_of_problems(descriptor: Descriptor) -> None:
    """Issue a DescriptorWarning for each rule that a stored descriptor breaks."""
    for problem in descriptor.problems:
        warn(
            f"the stored descriptor #{descriptor.text.partition('#')[2]} is not safe to use: {problem}. It is still "
            "watched, but you should move its coins to another wallet",
            DescriptorWarning,
        )


def _require_library() -> None:
    """Raise DescriptorError if libwally is not installed."""
    try:
        keyexpression.wally()
    except ImportError:
        raise DescriptorError(
            f"an output descriptor needs wallycore; {remedy('descriptors')}, or give its addresses instead"
        ) from None


def _ranged(body: str, stated: str, network: Network, *, is_stored: bool) -> list[Descriptor]:
    """Parse a descriptor that contains keys. `body` is its text without the checksum."""
    problems: list[str] = []

    def refuse(error: DescriptorError) -> None:
        if not is_stored:
            raise error
        problems.append(str(error))

    reading = keyexpression.Reading(network, refuse)
    outputs = derivation.read_outputs(parse_expression(body), reading)
    texts = [(each, stated if each == body else checksum(each)) for each in _single_paths(body, reading.paths)]
    lacks_wildcard = reading.has_extended and not reading.is_ranged
    size = MAX_INDEXES if reading.is_ranged else 1

    def spends(path: int) -> Callable[[int], tuple[Spending, ...]]:
        return lambda index: tuple(derivation.spending_of(each, path, index) for each in outputs.each)

    return [
        _checked(
            Descriptor(
                full, network, _kind(body), size, reading.keys, lacks_wildcard, tuple(problems), derive, spends(path)
            )
        )
        for path, (full, derive) in enumerate(_derived(texts, outputs))
    ]


def _derived(
    texts: list[tuple[str, str]], outputs: Outputs
) -> list[tuple[str, Callable[[Sequence[int]], list[tuple[bytes, ...]]]]]:
    """Return the text with its checksum, and the function that derives the scripts, for each path."""
    try:
        return [(f"{text}#{stated}", outputs.scripts(path)) for path, (text, stated) in enumerate(texts)]
    except DescriptorError:
        raise
    except (ValueError, RuntimeError):
        raise DescriptorError(
            "one of the descriptor's paths cannot be derived: replace its number with the next one"
        ) from None


def _checked(descriptor: Descriptor) -> Descriptor:
    descriptor.scripts(0)  # raises DescriptorError now if nothing can be derived
    return descriptor


def _single_paths(body: str, count: int) -> list[str]:
    """Return the single-path descriptors of a multipath descriptor (BIP-389).

    Descriptor number i contains part i of every multipath <…>. `count` is the number of parts: 1 if there is no
    multipath.
    """
    if count == 1:
        return [body]
    parts = _MULTIPATH.split(body)  # texts and multipaths in turn
    if count * sum(map(len, parts[::2])) > _MOST_EXPANDED:
        raise DescriptorError(
            f"a multipath of {count:,} numbers makes this descriptor too long: give its paths separately"
        )
    choices = [part.split(";") if place % 2 else [part] * count for place, part in enumerate(parts)]
    return ["".join(each) for each in zip(*choices, strict=True)]


def _constant(name: str, inner: str, full: str, network: Network) -> Descriptor:
    """Parse addr() or raw(), which have one script and no key. `full` is the text with its checksum."""
    if not inner.endswith(")"):
        raise DescriptorError(f"{name}(…) is incomplete or has text after it: expected ')' or ')#CHECKSUM' at the end")
    script = address_to_script(inner[:-1], network) if name == "addr" else _raw(inner[:-1])
    return Descriptor(
        full,
        network,
        name,
        1,
        0,
        False,
        (),
        lambda indexes: [(script,)] * len(indexes),
        lambda index: (Spending(script),),
    )


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
