"""Recognize files exported by wallets from their contents."""

from __future__ import annotations

import os
import pathlib
import re
from collections.abc import Callable

from spvfilter._public import public
from spvfilter.errors import ParameterError, WatchFileError
from spvfilter.watch.imports.binary import refusal_of
from spvfilter.watch.imports.branches import read_branch_lines, read_branches
from spvfilter.watch.imports.bsms import read_bsms
from spvfilter.watch.imports.caravan import read_caravan
from spvfilter.watch.imports.coldcard import read_coldcard, read_multisig_text
from spvfilter.watch.imports.core import read_core
from spvfilter.watch.imports.electrum import read_electrum, with_changes
from spvfilter.watch.imports.jsontext import parse_json
from spvfilter.watch.imports.labelfile import read_labels
from spvfilter.watch.imports.liana import read_liana
from spvfilter.watch.imports.policy import read_policy
from spvfilter.watch.imports.privatekeys import private_fields, warning_of
from spvfilter.watch.imports.sparrow import read_sparrow
from spvfilter.watch.imports.specter import read_specter
from spvfilter.watch.imports.table import read_table
from spvfilter.watch.imports.walletfile import WalletFile
from spvfilter.watch.imports.wasabi import read_wasabi

MAX_FILE = 64_000_000
"""Largest size of a wallet file in bytes (our choice). A watch list, with one entry per line, may be larger."""
_LONGEST_ORIGIN = 4_000
"""Number of characters within which a key origin must end (our choice)."""
_ORIGIN = re.compile(r"\[[^\[\]{}\"\n]*\][ \t]*[0-9A-Za-z]")
"""A key origin and the start of its key. In JSON no letter or digit follows a bracket."""
_Reader = Callable[[object], WalletFile | None]
_JSON_READERS: tuple[_Reader, ...] = (
    read_core,
    read_policy,
    read_specter,
    read_electrum,
    read_coldcard,
    read_wasabi,
    read_caravan,
    read_liana,
    read_branches,
)
_TEXT_READERS: tuple[Callable[[str], WalletFile | None], ...] = (
    read_labels,
    read_bsms,
    read_sparrow,
    read_branch_lines,
    read_multisig_text,
    read_table,
)
KINDS = (
    "Bitcoin Core listdescriptors, Sparrow, Specter, Electrum, Coldcard, Wasabi, Caravan, Liana, BSMS (BIP-129), a"
    " wallet policy (BIP-388), labels (BIP-329), External: and Internal: descriptors, CSV"
)
"""The kinds of files, for error messages."""


@public
def read_wallet_file(path: str | os.PathLike[str]) -> WalletFile:
    """Read a file that a wallet exported. Private keys are never kept.

    `WatchList.load` reads the same files. Use this function for the wallet's name, its birthday and its networks.

    Args:
        path: Path of the file.

    Raises:
        WatchFileError: The file is not a wallet file, or it is damaged. The error says which export to use.
        OSError: The file cannot be read.
    """
    path = pathlib.Path(path)
    with path.open("rb") as file:
        data = file.read(MAX_FILE + 1)
    try:
        if (why := refusal_of(data)) is not None:
            raise ParameterError(why)
        wallet = parse_wallet(data)
    except ParameterError as error:
        raise WatchFileError(str(path), ((0, str(error)),)) from None
    if wallet is None:
        raise WatchFileError(str(path), ((0, f"not a wallet file: expected one of these kinds: {KINDS}"),))
    return wallet


def is_candidate(start: bytes) -> bool:
    """Return True if a file that starts with these bytes may be a wallet file, so it must be read as a whole."""
    text = start.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
    if is_json(text):
        return True
    try:
        return any(read(text) is not None for read in _TEXT_READERS)
    except ParameterError:  # the start of the file may end within a row
        return True


def is_json(text: str) -> bool:
    """Return True if text can only be JSON. (A key expression also begins with a bracket, before its origin.)"""
    start = text.lstrip()[:_LONGEST_ORIGIN]
    return start.startswith("{") or (start.startswith("[") and _ORIGIN.match(start) is None)


def parse_wallet(data: bytes) -> WalletFile | None:
    """Parse a wallet file, and return its contents, or None if the file may be a watch list.

    Raises ParameterError if the file is damaged, too large, or an unknown kind of JSON.
    """
    if len(data) > MAX_FILE:
        raise ParameterError(
            f"a wallet file must be at most {MAX_FILE:,} bytes long: export only the wallet's descriptors"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ParameterError(f"not UTF-8: {error.reason} at byte {error.start}: save the file as UTF-8") from None
    if "\n" not in text:
        text = text.replace("\r", "\n")  # the line endings of old Macs
    for read in _TEXT_READERS:
        if (wallet := read(text)) is not None:
            return wallet
    return _of_json(text) if is_json(text) else None


def _of_json(text: str) -> WalletFile:
    """Return the contents of a JSON file. Raises ParameterError if no reader knows its fields."""
    try:
        data = parse_json(text)
    except ParameterError:
        if '"wallet_type"' not in text:
            raise
        data = with_changes(text)
    private = private_fields(data)
    for read in _JSON_READERS:
        if (wallet := read(data)) is not None:
            return wallet.with_warning(warning_of(private)) if private else wallet
    if private:
        raise ParameterError(warning_of(private))
    raise ParameterError(f"unknown kind of JSON: expected one of these kinds of wallet file: {KINDS}")
