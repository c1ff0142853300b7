"""WatchList: the single truth about what a wallet wants, and the exact match. Filters are projections of it, never the judge."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from unicodedata import category

from spvfilter._public import public
from spvfilter.address import address_to_script, script_to_address
from spvfilter.errors import InexpressibleError, ParameterError
from spvfilter.hashes import hash160, sha256d
from spvfilter.kernel import NO_ENTRY, NO_VALUE, EntryKind, Hit, WatchTable, is_pubkey
from spvfilter.network import MAINNET, Network
from spvfilter.primitives import OutPoint, Serializable, script_pushes, to_bytes
from spvfilter.protocol import HEADER_SIZE, MAX_ELEMENT_SIZE
from spvfilter.watch import textfile
from spvfilter.watch.match import Match, MatchKind

_OP_RETURN = 0x6A


@public
class WatchList:
    """Addresses, scripts, public keys, data elements and outpoints, each with an optional label.

    | entry | what matches it exactly | BIP-37 | BIP-158 |
    |---|---|---|---|
    | address, scriptPubKey | outputs with this script; spends of them | the script's longest push; none: refused | yes |
    | public key | outputs P2PK, P2PKH, P2WPKH, P2SH-P2WPKH and bare multisig with it; their spends | yes | all but multisig |
    | data element | any push of it, in outputs (and their spends) and in scriptSigs | yes | no |
    | outpoint | its spend | yes | only where its script is watched too |

    A match of an output teaches the list its outpoint, so that the spend is the next match. Outpoints are never
    forgotten: after a reorganisation they may be spent again. An output or input is matched once, by the first of:
    outpoint, script, multisig key, data. BIP-37 finds a spend by outpoint only: see `bloom_elements`.

    Watching a public key puts the key *and* its hashes into a BIP-37 filter, which tells a peer that they belong together;
    watch addresses instead where that matters. A list is not safe to change from several threads at once.
    """

    def __init__(self, network: Network | str = MAINNET) -> None:
        self.network = Network.named(network) if isinstance(network, str) else network
        self._table = WatchTable()
        self._labels: dict[int, str] = {}

    @classmethod
    def from_addresses(cls, addresses: Iterable[str | tuple[str, str | None]], network: Network | str = MAINNET) -> WatchList:
        """A list of addresses, or of (address, label) pairs. Raises AddressError at the first that is none."""
        if isinstance(addresses, str):
            raise TypeError("an iterable of addresses expected, not one string")
        watch = cls(network)
        add, kind, network = watch._table.add, EntryKind.SCRIPT, watch.network
        for item in addresses:
            address, label = (item, None) if isinstance(item, str) else item
            entry = add(kind, address_to_script(address, network))
            if label:
                watch._label(entry, label)
        return watch

    @classmethod
    def load(cls, path: str | os.PathLike[str], network: Network | str = MAINNET) -> WatchList:
        """The list in a file of one entry per line, as `save` writes it; see spvfilter.watch.textfile for the lines.

        Raises WatchFileError with every bad line, its number and cause; no line is ever dropped.
        """
        watch = cls(network)
        with Path(path).open("rb") as file:
            textfile.read_into(watch, file, str(Path(path)))
        return watch

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything, learned outpoints included, to a file of mode 0600 that replaces `path` at once."""
        textfile.write(self, Path(path))

    def add_address(self, address: str, label: str | None = None) -> None:
        """Watch an address of the list's network. Raises AddressError, WrongNetworkError."""
        self.add_script(address_to_script(address, self.network), label)

    def add_script(self, script_pubkey: bytes, label: str | None = None) -> None:
        """Watch a whole scriptPubKey. Raises ParameterError for an empty one."""
        script = to_bytes(script_pubkey)
        if not script:
            raise ParameterError("an empty script would match every output that has none")
        self._label(self._table.add(EntryKind.SCRIPT, script), label)

    def add_pubkey(self, pubkey: bytes, label: str | None = None) -> None:
        """Watch a public key in every script that a wallet makes of it; see the class's table.

        33 bytes starting 02/03 or 65 starting 04/06/07, else ParameterError. P2TR is not among them: its key is tweaked,
        watch its address.
        """
        key = to_bytes(pubkey)
        if not is_pubkey(key):
            raise ParameterError(f"not a public key: {len(key)} bytes; 33 starting 02 or 03 expected, or 65 starting 04, 06 or 07")
        for script in pubkey_scripts(key):
            self.add_script(script, label)
        self._label(self._table.add(EntryKind.MULTISIG_KEY, key), label)

    def add_data(self, data: bytes, label: str | None = None) -> None:
        """Watch for any push of exactly these bytes, 1 to 520 of them, else ParameterError."""
        element = to_bytes(data)
        if not 1 <= len(element) <= MAX_ELEMENT_SIZE:
            raise ParameterError(f"a data element has 1 to {MAX_ELEMENT_SIZE} bytes, not {len(element)}")
        self._label(self._table.add(EntryKind.DATA, element), label)

    def add_outpoint(
        self, outpoint: OutPoint | str, label: str | None = None, *, value: int | None = None, script_pubkey: bytes | None = None
    ) -> None:
        """Watch for the spend of an outpoint (or `TXID:INDEX`, txid in display order); value in satoshi where known.

        With a script that the list watches, the outpoint counts as learned by that entry and shares its label; so does one that was
        learned already, unless a label is given.
        """
        point = OutPoint.from_text(outpoint) if isinstance(outpoint, str) else outpoint
        if value is not None and not 0 <= value < 1 << 63:
            raise ParameterError(f"value out of range: {value}")
        known = self._table.coin(bytes(point))
        entry = known.entry if known else self._table.match_script(script_pubkey) if script_pubkey else NO_ENTRY
        if entry == NO_ENTRY or label is not None:
            entry = self._table.add(EntryKind.OUTPOINT, bytes(point))
            self._label(entry, label)
        self._table.set_coin(bytes(point), entry, NO_VALUE if value is None else value, script_pubkey or None)

    def add_address_lines(self, chunk: bytes, at: int) -> tuple[int, int]:
        """Add the addresses in the lines of a file from byte `at` of `chunk` on, as far as the kernel decides; bytes and lines it took."""
        network = self.network
        taken, lines, labels = self._table.add_address_lines(chunk, at, network.p2pkh_version, network.p2sh_version, network.hrp)
        for entry, label in labels:
            self._label(entry, label.decode())
        return taken, lines

    def _label(self, entry: int, label: str | None) -> None:
        label = label.strip() if label else None
        if not label:
            return
        if not label.isprintable() and any(category(char) in ("Cc", "Cs", "Zl", "Zp") for char in label):  # a surrogate is no UTF-8
            raise ParameterError(f"a label has no control characters, line ends or surrogates: {label[:80]!r}")
        self._labels[entry] = label

    def __len__(self) -> int:
        """Entries watched for; learned outpoints are not counted."""
        return len(self._table)

    def __contains__(self, script_pubkey: bytes) -> bool:
        """Whether an output with this scriptPubKey would match."""
        return self._table.match_script(script_pubkey) != NO_ENTRY

    def __eq__(self, other: object) -> bool:
        """Same network, entries, labels and outpoints, in whatever order they came."""
        if not isinstance(other, WatchList):
            return NotImplemented
        return self.network == other.network and self._contents() == other._contents()

    __hash__ = None  # type: ignore[assignment]  # a WatchList changes

    def _contents(self) -> tuple[object, object]:
        named = {self._table.entry(entry): label for entry, label in self._labels.items()}
        entries = {entry: named.get(entry) for entry in self._table.entries()}
        coins = {point: (coin.value, coin.script, self._labels.get(coin.entry)) for point, coin in self._table.coins()}
        return entries, coins

    def __repr__(self) -> str:
        return f"<WatchList {self.network} {len(self)} entries, {sum(1 for _ in self._table.coins())} outpoints>"

    def copy(self) -> WatchList:
        twin = WatchList(self.network)
        twin._table = self._table.copy()
        twin._labels = self._labels.copy()
        return twin

    @property
    def table(self) -> WatchTable:
        """The kernel's table: what the matcher's threads scan against."""
        return self._table

    def entries(self) -> Iterator[tuple[EntryKind, bytes, str | None]]:
        """Every entry as (kind, its bytes, label), in the order they were added."""
        return ((kind, value, self._labels.get(number)) for number, (kind, value) in enumerate(self._table.entries()))

    def add_entry(self, kind: EntryKind, value: bytes, label: str | None = None) -> int:
        """Watch one entry as `entries` lists them: a key's scripts are entries of their own. Its number in the table."""
        number = self._table.add(kind, value)
        self._label(number, label)
        return number

    def label(self, entry: int) -> str | None:
        """The label of the entry with this number in the table."""
        return self._labels.get(entry)

    def script_pubkeys(self) -> Iterator[bytes]:
        """The scripts watched for, those of public keys included; bare multisig scripts of keys cannot be listed."""
        return (value for kind, value in self._table.entries() if kind == EntryKind.SCRIPT)

    def outpoints(self) -> Iterator[OutPoint]:
        """Every outpoint watched for, learned ones included."""
        return (OutPoint.parse(point) for point, _ in self._table.coins())

    def bloom_elements(self) -> list[bytes]:
        """What a BIP-37 filter must contain to find everything here: pushes and 36-byte outpoints, none twice.

        For a script its longest push (key, hash or witness program). Spends are found by outpoint: every one known is
        included, and a filter with update flag ALL lets the peer add those to come (BIP-37 § Filter matching algorithm).
        Raises InexpressibleError naming the scripts that push nothing.
        """
        elements: dict[bytes, None] = {}
        silent = []
        for kind, value in self._table.entries():
            if kind == EntryKind.SCRIPT:
                push = max(script_pushes(value), key=len, default=b"")
                if not push:
                    silent.append(value.hex())
                elements[push] = None
            elif kind != EntryKind.OUTPOINT:
                elements[value] = None
        if silent:
            shown = ", ".join(silent[:5]) + (f" and {len(silent) - 5} more" if len(silent) > 5 else "")
            raise InexpressibleError(f"BIP-37 cannot find scripts that push no data: {shown}", tuple(silent))
        elements.update((point, None) for point, _ in self._table.coins())
        return list(elements)

    def gcs_elements(self) -> list[bytes]:
        """What a BIP-158 filter is asked for to find everything here: whole scriptPubKeys, those of known outpoints included, none twice.

        Raises InexpressibleError naming what such filters cannot find: data elements, outpoints whose script is not known, scripts
        that start with OP_RETURN. Of a public key all is found but bare multisig.
        """
        scripts: dict[bytes, None] = {}
        hidden: list[str] = []
        for kind, value in self._table.entries():
            if kind == EntryKind.SCRIPT and value[0] != _OP_RETURN:
                scripts[value] = None
            elif kind in (EntryKind.SCRIPT, EntryKind.DATA):
                hidden.append(value.hex())
        for point, coin in self._table.coins():
            if coin.script:
                scripts[coin.script] = None
            else:
                hidden.append(str(OutPoint.parse(point)))
        if hidden:
            shown = ", ".join(hidden[:5]) + (f" and {len(hidden) - 5} more" if len(hidden) > 5 else "")
            raise InexpressibleError(f"compact filters cannot find: {shown}", tuple(hidden))
        return list(scripts)

    def match_tx(self, raw: bytes | Serializable, *, block_hash: bytes | None = None, height: int | None = None) -> list[Match]:
        """What in one transaction concerns the list; its outputs that do are learned. Raises FormatError."""
        return self.accept(self._table.scan_tx(to_bytes(raw)), block_hash=block_hash, height=height)

    def match_block(self, raw: bytes | Serializable, *, height: int | None = None) -> list[Match]:
        """What in one whole block concerns the list; its outputs that do are learned. Raises FormatError."""
        block = to_bytes(raw)
        hits = self._table.scan_block(block)
        return self.accept(hits, block_hash=sha256d(block[:HEADER_SIZE]), height=height)

    def accept(self, hits: Iterable[Hit], *, block_hash: bytes | None = None, height: int | None = None) -> list[Match]:
        """Matches of the table's hits, whose outpoints are learned."""
        found = list(hits)
        self._table.learn(found)
        return self.matches(found, block_hash=block_hash, height=height)

    def matches(self, hits: Iterable[Hit], *, block_hash: bytes | None = None, height: int | None = None) -> list[Match]:
        """Matches of the table's hits; nothing is learned."""
        return [self._match(hit, block_hash, height) for hit in hits]

    def _match(self, hit: Hit, block_hash: bytes | None, height: int | None) -> Match:
        return Match(
            kind=MatchKind.INPUT if hit.spend else MatchKind.OUTPUT,
            txid=hit.txid,
            index=hit.n,
            outpoint=OutPoint.parse(hit.outpoint),
            value=None if hit.value == NO_VALUE else hit.value,
            script_pubkey=hit.script,
            address=script_to_address(hit.script, self.network) if hit.script else None,
            label=self._labels.get(hit.entry),
            block_hash=block_hash,
            height=height,
        )


def pubkey_scripts(key: bytes) -> list[bytes]:
    """P2PK, P2PKH, P2WPKH and P2SH-P2WPKH scripts of a public key."""
    key_hash = hash160(key)
    witness = b"\x00\x14" + key_hash
    return [
        bytes((len(key),)) + key + b"\xac",
        b"\x76\xa9\x14" + key_hash + b"\x88\xac",
        witness,
        b"\xa9\x14" + hash160(witness) + b"\x87",
    ]
