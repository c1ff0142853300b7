"""An entry as people write it: an address, an output descriptor, an extended public key or a bitcoin:

URI; and words for what is none.
"""

from __future__ import annotations

import re
from typing import Protocol

from spvfilter.errors import AddressError, ParameterError
from spvfilter.watch.descriptor import keys
from spvfilter.watch.descriptor.descriptor import is_descriptor

_URI = re.compile(r"bitcoin:", re.IGNORECASE)
_URI_PARAMETERS = ("amount", "label", "message")  # BIP-21; of others, those that start with req- must be understood
_LONGEST_URI = 4_000  # characters
_HEX_KEY = re.compile(r"0[23][0-9a-fA-F]{64}|0[467][0-9a-fA-F]{128}")
_HEX_32 = re.compile(r"[0-9a-fA-F]{64}")
_COLUMN = re.compile(
    r"[\"']?(address(es)?|addr|label|name|wallet|txid|script|amount|date|index|path|type)[\"']?", re.IGNORECASE
)
_PHRASE = re.compile(r"[a-z]+( +[a-z]+){8,}")
_KIND = re.compile(r"(script|pubkey|data|outpoint|keychain):")
_SEPARATED = re.compile(r"[;\t|]")


class Sink(Protocol):
    """A receiver of entries, such as a WatchList. Every method raises ParameterError for an entry that it refuses."""

    def add_address(self, address: str, label: str | None = None) -> None: ...
    def add_descriptor(self, text: str, label: str | None = None) -> object: ...


def add_entry(watch: Sink, text: str, label: str | None = None) -> None:
    """Watch what a text names.

    Raises ParameterError, DescriptorError, AddressError, each of which says what it is, and what to do.
    """
    if _URI.match(text):
        address, named = parse_uri(text)
        watch.add_address(address, label or named)
    elif is_descriptor(text) or keys.is_extended_key(text):
        watch.add_descriptor(text, label)
    elif (why := explained(text)) is not None:
        raise AddressError(why)
    else:
        watch.add_address(text, label)


def parse_uri(text: str) -> tuple[str, str | None]:
    """The address and the label of a bitcoin: URI (BIP-21).

    Raises ParameterError for one that asks for what is not known here.
    """
    if len(text) > _LONGEST_URI:
        raise ParameterError(f"a bitcoin: URI of {len(text):,} characters, expected at most {_LONGEST_URI:,}")
    address, _, query = text[len("bitcoin:") :].removeprefix("//").partition("?")
    if not address:
        raise AddressError("a bitcoin: URI without an address: only addresses can be watched")
    label: str | None = None
    for part in filter(None, query.split("&")):
        name, _, value = part.partition("=")
        if name.lower().startswith("req-") and name.lower() not in _URI_PARAMETERS:
            raise ParameterError(
                "a bitcoin: URI with a parameter req-…, which is not known here: give its address alone"
            )
        if name.lower() == "label":
            label = _percent_decoded(value) or None
    return address, label


def _percent_decoded(value: str) -> str:
    raw = re.sub(
        rb"%([0-9a-fA-F]{2})", lambda found: bytes((int(found[1], 16),)), value.encode("utf-8", "surrogateescape")
    )
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise ParameterError("a bitcoin: URI whose label is not UTF-8") from None


def explained(text: str) -> str | None:
    """What a text is that is certainly no address, and what to do with it; None if it may be one.

    None of it is repeated.
    """
    if _HEX_KEY.fullmatch(text):
        return "a public key where an address is expected: in a watch list write pubkey: before it, or give its address"
    if _HEX_32.fullmatch(text):
        return "64 hex digits where an address is expected: a private key, a hash or a txid is no address"
    if text[:1] in ("{", "[", "]", "}", '"'):
        return (
            "this looks like JSON or quoted CSV: a watch list has one entry per line, ADDRESS or ADDRESS,LABEL, without"
            " quotes"
        )
    if _COLUMN.fullmatch(re.split(r"[,;\t| ]", text, maxsplit=1)[0]):
        return "this looks like the header of a table: leave the line out; each line is ADDRESS or ADDRESS,LABEL"
    if found := _KIND.match(text):
        return f"{found[1]}:… is a line of a watch list, not an address: give it in a file with --watch"
    if _PHRASE.fullmatch(text):
        return "this looks like a seed phrase: keep it to yourself, and give the wallet's addresses or its descriptor"
    if (found := _SEPARATED.search(text)) and found.start() >= 20:
        name = {";": "';'", "\t": "a tab", "|": "'|'"}[found[0]]
        return f"separated by {name}: write a comma between address and label"
    return None
