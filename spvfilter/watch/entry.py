"""Parse an entry of a watch list: an address, a descriptor, an extended public key or a `bitcoin:` URI."""

from __future__ import annotations

import re
from typing import NamedTuple, Protocol

from spvfilter.address import address_to_script
from spvfilter.errors import AddressError, ParameterError, WrongNetworkError, alternatives
from spvfilter.network import NETWORKS, Network
from spvfilter.watch.arguments import check_not_private
from spvfilter.watch.descriptor import keys
from spvfilter.watch.descriptor.descriptor import is_descriptor

_URI = re.compile(r"bitcoin:", re.IGNORECASE)
_HRPS = frozenset(each.hrp for each in NETWORKS)
"""Names of the parameters that contain another address (BIP-321): the prefixes of segwit addresses."""
_LONGEST_URI = 4_000  # characters (our choice)
_HEX_KEY = re.compile(r"0[23][0-9a-fA-F]{64}|0[467][0-9a-fA-F]{128}")
_HEX_32 = re.compile(r"[0-9a-fA-F]{64}")
_COLUMN = re.compile(
    r"[\"']?(address(es)?|addr|label|name|wallet|txid|script|amount|date|index|path|type)[\"']?", re.IGNORECASE
)
_PHRASE = re.compile(r"[a-z]+([ ,]+[a-z]+){8,}", re.IGNORECASE)
_KIND = re.compile(r"(script|pubkey|data|outpoint|keychain|data-prefix|script-type):")
_SPACED_KEY = re.compile(r"\[[0-9a-fA-F]{8}[/0-9hH']{0,200}\][ \t]+[xyztuvYZUV]p(ub|rv)")
_SEPARATED = re.compile(r"[;\t|]")
_SHORTEST = 20  # characters of a text that may be an address


class Uri(NamedTuple):
    """The parts of a `bitcoin:` URI (BIP-21, BIP-321) that matter to a watch list."""

    address: str | None
    """Address after `bitcoin:`, or None if there is none."""
    others: tuple[tuple[str, str], ...]
    """Addresses in parameters such as `bc=` and `tb=`, as pairs (name of the parameter, address)."""
    label: str | None
    """The label, or None if the URI has none."""


class EntrySink(Protocol):
    """An object to which entries can be added, such as a WatchList.

    Its methods raise ParameterError for an invalid entry.
    """

    network: Network

    def add_address(self, address: str, label: str | None = None) -> None: ...
    def add_descriptor(self, text: str, label: str | None = None) -> object: ...


def is_uri(text: str) -> bool:
    """Return True if text starts like a `bitcoin:` URI."""
    return _URI.match(text) is not None


def is_kind(text: str) -> bool:
    """Return True if text starts with a kind of entry and a colon, such as `script:`."""
    return _KIND.match(text) is not None


def add_entry(watch: EntrySink, text: str, label: str | None = None) -> None:
    """Parse the text of an entry, and add the entry to `watch`.

    Raises AddressError if an address is invalid, DescriptorError if a descriptor or extended key is, and ParameterError
    if a URI or label is. The message says what was found and what to do.
    """
    if is_uri(text):
        uri = parse_uri(text)
        check_not_private(uri.label)
        for address in addresses_of(uri, watch.network):
            watch.add_address(address, label or uri.label)
    elif is_descriptor(text) or keys.is_extended_key(text):
        watch.add_descriptor(text, label)
    elif (why := explained(text)) is not None:
        raise AddressError(why)
    else:
        watch.add_address(text, label)


def parse_uri(text: str) -> Uri:
    """Return the contents of a `bitcoin:` URI (BIP-21, BIP-321).

    Raises ParameterError if the URI is too long, requires an unknown parameter or has two labels, and AddressError if
    it contains no address.
    """
    if len(text) > _LONGEST_URI:
        raise ParameterError(f"a bitcoin: URI must be at most {_LONGEST_URI:,} characters long, not {len(text):,}")
    address, _, query = text[len("bitcoin:") :].removeprefix("//").partition("?")
    others: list[tuple[str, str]] = []
    labels: list[str] = []
    for part in filter(None, query.split("&")):
        name, _, value = part.partition("=")
        name = name.lower()
        if name.startswith("req-"):
            raise ParameterError("this bitcoin: URI requires an unknown parameter, req-…: give only its address")
        if name == "label":
            labels.append(_percent_decoded(value))
        elif name in _HRPS:
            others.append((name, _percent_decoded(value)))
    if len(labels) > 1:
        raise ParameterError("this bitcoin: URI contains more than one label: remove all but one")
    if not (address or others):
        raise AddressError("this bitcoin: URI contains no address, and only addresses can be watched")
    return Uri(_percent_decoded(address) or None, tuple(others), labels[0] or None if labels else None)


def addresses_of(uri: Uri, network: Network) -> list[str]:
    """Return the addresses of a URI that belong to a network, each once.

    Raises AddressError if any address is invalid, and WrongNetworkError if none belongs to the network.
    """
    found: dict[str, None] = {}
    wrong: WrongNetworkError | None = None
    for address in (uri.address, *(address for name, address in uri.others if name == network.hrp)):
        if address is None:
            continue
        if (why := explained(address)) is not None:
            raise AddressError(why)
        try:
            address_to_script(address, network)
            found[address] = None
        except WrongNetworkError as error:
            wrong = error
    if found:
        return list(found)
    if wrong is not None:
        raise wrong
    owners = tuple(each.name for each in NETWORKS if each.hrp in dict(uri.others))
    raise WrongNetworkError(
        f"this bitcoin: URI contains addresses for {alternatives(owners)}, not for {network}: choose its network",
        owners,
    )


def _percent_decoded(value: str) -> str:
    raw = re.sub(
        rb"%([0-9a-fA-F]{2})", lambda found: bytes((int(found[1], 16),)), value.encode("utf-8", "surrogateescape")
    )
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise ParameterError("this bitcoin: URI contains a label or an address that is not UTF-8") from None


def explained(text: str) -> str | None:
    """Return an error message for text that is certainly not an address, or None if it may be one.

    The message says what the text looks like and what to do. It never repeats the text, which may be a secret.
    """
    if _HEX_KEY.fullmatch(text):
        return "expected an address, found a public key: give its address, or in a watch list write pubkey: before it"
    if _HEX_32.fullmatch(text):
        return "expected an address, found 64 hex digits: a private key, a hash or a txid is not an address"
    if _SPACED_KEY.match(text):
        return "there is a space between the origin […] and the key: remove it"
    if text[:1] in ("{", "[", "]", "}", '"'):
        return (
            "this looks like JSON or quoted CSV: a watch list has one entry per line, ADDRESS or ADDRESS,LABEL, without"
            " quotes"
        )
    if _COLUMN.fullmatch(re.split(r"[,;\t| ]", text, maxsplit=1)[0]):
        return "this looks like the header of a table: delete the line; each line is ADDRESS or ADDRESS,LABEL"
    if found := _KIND.match(text):
        return f"{found[1]}:… is a line of a watch list, not an address: put it in a file and pass that with --watch"
    if _PHRASE.fullmatch(text):
        return "this looks like a seed phrase: keep it secret; give the wallet's addresses or its descriptor"
    if (found := _SEPARATED.search(text)) and found.start() >= _SHORTEST:
        name = {";": "';'", "\t": "a tab", "|": "'|'"}[found[0]]
        return f"the address and its label are separated by {name}: write a comma between them"
    if text.find(" ") >= _SHORTEST:
        return "there is a space after an address: write one entry on each line, as ADDRESS or ADDRESS,LABEL"
    return None
