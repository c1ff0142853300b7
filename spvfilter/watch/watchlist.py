"""WatchList: the addresses, scripts, keys, data and outpoints that a wallet wants, with exact matching of transactions and blocks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
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
from spvfilter.transaction import Transaction
from spvfilter.watch import textfile
from spvfilter.watch.descriptor.descriptor import parse_descriptor
from spvfilter.watch.keychain import LOOKAHEAD, Keychain
from spvfilter.watch.match import Completeness, Match, MatchKind
from spvfilter.watch.windows import Windows

_OP_RETURN = 0x6A
_INPUT, _OUTPUT = MatchKind.INPUT, MatchKind.OUTPUT
_NOWHERE = -1  # instead of a position


@public
class WatchList:
    """Addresses, scripts, public keys, data elements and outpoints, each with an optional label.

    | entry | what matches it exactly | BIP-37 | BIP-158 |
    |---|---|---|---|
    | address, scriptPubKey | outputs with this script; their spends | by the script's longest push; refused if there is none | yes |
    | public key | P2PK, P2PKH, P2WPKH, P2SH-P2WPKH and bare multisig outputs with it; their spends | yes | all but multisig |
    | data element | any push of it, in outputs (and their spends) and in scriptSigs | yes | no |
    | outpoint | its spend | yes | if its script is known |
    | descriptor, keychain | as scriptPubKeys, those in its window | yes | yes |

    When an output matches, the list learns its outpoint, so that the spend matches too. Outpoints are never forgotten: after a
    reorganisation they may be spent again. An output or input yields one match, by the first of: outpoint, script, multisig key, data.
    BIP-37 finds a spend by outpoint only: see `bloom_elements`.

    Watching a public key puts the key *and* its hashes into a BIP-37 filter, which tells a peer that they belong together; watch
    addresses instead if that matters. A list is not safe to change from several threads at once.

    Raises ParameterError for an unknown network. A label has no control characters, line ends or surrogates, else ParameterError.
    """

    def __init__(self, network: Network | str = MAINNET) -> None:
        self.network = Network.named(network) if isinstance(network, str) else network
        self._table = WatchTable()
        self._labels: dict[int, str] = {}
        self._windows = Windows(self._table)

    @classmethod
    def from_addresses(cls, addresses: Iterable[str | tuple[str, str | None]], network: Network | str = MAINNET) -> WatchList:
        """A list of addresses or of (address, label) pairs. Raises AddressError for the first invalid one."""
        if isinstance(addresses, str):
            raise TypeError("expected an iterable of addresses, not one string")
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
        """Read a list from a text file with one entry per line (spvfilter.watch.textfile describes the format).

        Raises WatchFileError, which lists every invalid line with its number and cause, and OSError.
        """
        watch = cls(network)
        with Path(path).open("rb") as file:
            textfile.read_into(watch, file, str(Path(path)))
        return watch

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all entries and outpoints, including learned ones, to a file of mode 0600 that atomically replaces `path`."""
        textfile.write(self, Path(path))

    def add_address(self, address: str, label: str | None = None) -> None:
        """Watch an address of the list's network. Raises AddressError, WrongNetworkError, ParameterError for an invalid label."""
        self.add_script(address_to_script(address, self.network), label)

    def add_script(self, script_pubkey: bytes, label: str | None = None) -> None:
        """Watch a scriptPubKey. Raises ParameterError for an empty one."""
        script = to_bytes(script_pubkey)
        if not script:
            raise ParameterError("an empty scriptPubKey cannot be watched: it would match every output with an empty script")
        self._label(self._table.add(EntryKind.SCRIPT, script), label)

    def add_pubkey(self, pubkey: bytes, label: str | None = None) -> None:
        """Watch a public key in every script that a wallet derives from it; the table of the class lists them.

        P2TR is not among them, because its key is tweaked: watch the address. Raises ParameterError unless the key has 33 bytes
        starting with 02 or 03, or 65 bytes starting with 04, 06 or 07.
        """
        key = to_bytes(pubkey)
        if not is_pubkey(key):
            raise ParameterError(f"not a public key: {len(key)} bytes, expected 33 starting 02 or 03, or 65 starting 04, 06 or 07")
        for script in pubkey_scripts(key):
            self.add_script(script, label)
        self._label(self._table.add(EntryKind.MULTISIG_KEY, key), label)

    def add_data(self, data: bytes, label: str | None = None) -> None:
        """Watch for any push of exactly these bytes. Raises ParameterError unless there are 1 to 520."""
        element = to_bytes(data)
        if not 1 <= len(element) <= MAX_ELEMENT_SIZE:
            raise ParameterError(f"a data element has 1 to {MAX_ELEMENT_SIZE} bytes, not {len(element)}")
        self._label(self._table.add(EntryKind.DATA, element), label)

    def add_outpoint(
        self, outpoint: OutPoint | str, label: str | None = None, *, value: int | None = None, script_pubkey: bytes | None = None
    ) -> None:
        """Watch for the spend of an outpoint, given as OutPoint or as `TXID:INDEX` (txid in display order); `value` is in satoshi.

        If the list watches `script_pubkey`, or has already learned the outpoint, the outpoint belongs to that entry and shares its
        label, unless `label` is given. Raises ParameterError for an invalid outpoint, value or label.
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
        if script_pubkey:
            self._windows.use_script(script_pubkey)

    def add_descriptor(self, text: str, label: str | None = None, *, lookahead: int = LOOKAHEAD) -> list[Keychain]:
        """Watch an output descriptor (BIP-380 ff.; extra `descriptors`); its keychains, two for a multipath such as `<0;1>`.

        Extended public keys whose prefix names a script type (ypub, zpub, upub, vpub) stand for their receiving and change addresses.
        One that is watched already keeps its uses. Private keys are refused, and no error repeats them. Raises DescriptorError for
        what cannot be watched, WrongNetworkError for keys of another network, ParameterError.
        """
        found = [
            Keychain(each.text, each.scripts, label=label, lookahead=lookahead, size=each.size, descriptor=each.text)
            for each in parse_descriptor(text, self.network)
        ]
        return [self._add_keychain(keychain) for keychain in found]

    def add_keychain(
        self, name: str, script_at: Callable[[int], bytes], label: str | None = None, *, lookahead: int = LOOKAHEAD
    ) -> Keychain:
        """Watch the scripts that a wallet derives by itself: `script_at(index)` is the scriptPubKey of an index from 0, always the same.

        A list that is loaded from a file does not know the function: add the keychain again, and it has the uses that the file tells.
        Raises KeychainError if `script_at` fails or gives what is no scriptPubKey, ParameterError for a name that is taken.
        """
        if self._windows.get(name) is not None:
            raise ParameterError(f"the watch list has a keychain {name[:80]!r} already")
        return self._add_keychain(Keychain(name, lambda index: (_script_of(script_at(index)),), label=label, lookahead=lookahead))

    def _add_keychain(self, keychain: Keychain, end: int = 0) -> Keychain:
        """Watch a keychain, at least up to index `end`. One that is watched already takes a new label and a larger lookahead."""
        keychain.label = _checked_label(keychain.label)
        keychain.reach(end)
        known = self._windows.get(keychain.name)
        if known is None:
            self._windows.add(keychain)
            return keychain
        known.label = keychain.label or known.label
        known.lookahead = max(keychain.lookahead, known.lookahead)
        known.reach(end)
        self._windows.grow()
        return known

    def add_saved_keychain(self, text: str, label: str | None, end: int, lookahead: int) -> None:
        """Watch a descriptor with the window that it had when the list was saved. Raises DescriptorError, ParameterError."""
        for each in parse_descriptor(text, self.network):
            keychain = Keychain(each.text, each.scripts, label=label, lookahead=lookahead, size=each.size, descriptor=each.text)
            self._add_keychain(keychain, end)

    def keychain_of(self, entry: int) -> tuple[Keychain, int] | None:
        """The keychain of the entry with this number in the table, and the index there."""
        return self._windows.at(entry)

    @property
    def keychains(self) -> tuple[Keychain, ...]:
        """The keychains, in the order they were added."""
        return tuple(self._windows)

    def next_address(self, keychain: str | None = None) -> str:
        """The address of the lowest index that was never used, of the keychain with this name, by default the first.

        Raises ParameterError for an unknown keychain, one whose indexes are all used, and one whose scripts have no address.
        """
        chain = next(iter(self._windows), None) if keychain is None else self._windows.get(keychain)
        if chain is None:
            raise ParameterError("the watch list has no keychain" + ("" if keychain is None else f" {keychain[:80]!r}"))
        index = chain.next_index
        if index is None:
            raise ParameterError(f"every address of keychain {chain.name[:80]!r} was used")
        for script in chain.scripts(index):
            if address := script_to_address(script, self.network):
                return address
        raise ParameterError(f"the scripts of keychain {chain.name[:80]!r} have no address")

    def is_used(self, address: str) -> bool:
        """Whether an output that pays this address was found. Raises AddressError, WrongNetworkError."""
        script = address_to_script(address, self.network)
        place = self._windows.at(self._table.find(EntryKind.SCRIPT, script))
        return (place is not None and place[1] in place[0].used) or any(coin.script == script for _, coin in self._table.coins())

    def advance(self, hits: Iterable[Hit] | None = None) -> list[bytes]:
        """Note the use of keychains' scripts by hits, by default by the outpoints that the list knows, and let the windows move.

        Returns the scripts that are watched now and were not before: blocks that were searched without them are to be searched again.
        `accept` does the same. Raises KeychainError.
        """
        return self._windows.take_coins() if hits is None else self._windows.use(hits)

    def note_use(self, keychain: str, index: int) -> bool:
        """Note that an index of the keychain with this name was used; whether its window must move. `advance` moves it, not this.

        Raises ParameterError for an unknown keychain, and an index outside of its window.
        """
        chain = self._windows.get(keychain)
        if chain is None:
            raise ParameterError(f"the watch list has no keychain {keychain[:80]!r}")
        return chain.use(index)

    def widen(self, margin: int | None = None) -> list[bytes]:
        """Watch further scripts of every keychain, `margin` beyond its window, by default its lookahead; those that were not watched.

        As long as no use moves a window beyond them, nothing needs to be searched again. Raises KeychainError.
        """
        return self._windows.widen(margin)

    def forget_outpoints(self, outpoints: Iterable[bytes]) -> None:
        """Stop watching learned outpoints (36 bytes each); those that are entries stay. It takes as long as a copy of the list.

        Raises ParameterError for an outpoint that does not have 36 bytes.
        """
        self._table = self._table.without(outpoints)
        self._windows.move_to(self._table)

    def add_address_lines(self, chunk: bytes, at: int) -> tuple[int, int]:
        """Add the addresses in the lines of a file, from byte `at` of `chunk` up to the first line that the kernel's fast path leaves.

        Returns the numbers of bytes and lines taken. Raises ParameterError for an invalid label.
        """
        network = self.network
        taken, lines, labels = self._table.add_address_lines(chunk, at, network.p2pkh_version, network.p2sh_version, network.hrp)
        for entry, label in labels:
            self._label(entry, label.decode())
        return taken, lines

    def _label(self, entry: int, label: str | None) -> None:
        if label := _checked_label(label):
            self._labels[entry] = label

    def __len__(self) -> int:
        """The number of entries; learned outpoints are not counted."""
        return len(self._table)

    def __contains__(self, script_pubkey: bytes) -> bool:
        """Whether an output with this scriptPubKey would match."""
        return self._table.match_script(script_pubkey) != NO_ENTRY

    def __eq__(self, other: object) -> bool:
        """Whether network, entries, labels and outpoints are equal, in any order."""
        if not isinstance(other, WatchList):
            return NotImplemented
        return self.network == other.network and self._contents() == other._contents()

    __hash__ = None  # type: ignore[assignment]  # a WatchList changes

    def _contents(self) -> tuple[object, object, object]:
        named = {self._table.entry(entry): label for entry, label in self._labels.items()}
        entries = {entry: named.get(entry) for entry in self._table.entries()}
        coins = {point: (coin.value, coin.script, self._labels.get(coin.entry)) for point, coin in self._table.coins()}
        return entries, coins, self._windows.state()

    def __repr__(self) -> str:
        return f"<WatchList {self.network} {len(self)} entries, {sum(1 for _ in self._table.coins())} outpoints>"

    def copy(self) -> WatchList:
        """An independent list with the same entries, labels and outpoints."""
        twin = WatchList(self.network)
        twin._table = self._table.copy()
        twin._labels = self._labels.copy()
        twin._windows = self._windows.copy(twin._table)
        return twin

    @property
    def table(self) -> WatchTable:
        """The kernel's table of entries and outpoints, which scans search for."""
        return self._table

    def entries(self) -> Iterator[tuple[EntryKind, bytes, str | None]]:
        """Every entry as (kind, bytes, label), in the order they were added."""
        return ((kind, value, self.label(number)) for number, (kind, value) in enumerate(self._table.entries()))

    def add_entry(self, kind: EntryKind, value: bytes, label: str | None = None) -> int:
        """Watch one entry as `entries` lists it, and return its number in the table. The scripts of a public key are separate entries.

        Raises ParameterError for an invalid label.
        """
        number = self._table.add(kind, value)
        self._label(number, label)
        return number

    def label(self, entry: int) -> str | None:
        """The label of the entry with this number in the table, else that of its keychain."""
        label = self._labels.get(entry)
        if label is None and (place := self._windows.at(entry)):
            label = place[0].label
        return label

    def own_label(self, entry: int) -> str | None:
        """The label of the entry with this number in the table, without that of its keychain."""
        return self._labels.get(entry)

    def script_pubkeys(self) -> Iterator[bytes]:
        """The watched scriptPubKeys, including those of public keys; bare multisig scripts of a key cannot be listed."""
        return (value for kind, value in self._table.entries() if kind == EntryKind.SCRIPT)

    def outpoints(self) -> Iterator[OutPoint]:
        """Every watched outpoint, including learned ones."""
        return (OutPoint.parse(point) for point, _ in self._table.coins())

    def bloom_elements(self) -> list[bytes]:
        """The elements that a BIP-37 filter needs to find everything in this list: pushes and 36-byte outpoints, without duplicates.

        A script is represented by its longest push (key, hash or witness program). Spends are found by outpoint: all known outpoints
        are included, and with update flag ALL the peer adds future ones (BIP-37 § Filter matching algorithm).
        Raises InexpressibleError, which lists the scripts without pushes.
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
        """The scriptPubKeys to query a BIP-158 filter for, including those of known outpoints, without duplicates.

        They find everything in this list except bare multisig outputs of its public keys. Raises InexpressibleError, which lists the
        entries that compact filters cannot find: data elements, outpoints of unknown script, scripts that start with OP_RETURN.
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

    def match_tx(
        self, raw: bytes | Serializable, *, block_hash: bytes | None = None, height: int | None = None, time: int | None = None
    ) -> list[Match]:
        """The matches in one transaction; matching outputs are learned. `time` is that of its block, seconds since 1970.

        Raises FormatError for a malformed transaction.
        """
        tx = to_bytes(raw)
        hits = self._complete(lambda: self._table.scan_tx(tx))
        is_coinbase = bool(hits) and Transaction.parse(tx).is_coinbase
        return self.accept(hits, block_hash=block_hash, height=height, time=time, is_coinbase=is_coinbase)

    def match_block(self, raw: bytes | Serializable, *, height: int | None = None) -> list[Match]:
        """The matches in one block; matching outputs are learned. Raises FormatError for a malformed block."""
        block = to_bytes(raw)
        hits = self._complete(lambda: self._table.scan_block(block))
        time = int.from_bytes(block[68:72], "little")
        return self.accept(hits, block_hash=sha256d(block[:HEADER_SIZE]), height=height, time=time)

    def _complete(self, scan: Callable[[], list[Hit]]) -> list[Hit]:
        """The hits of a scan that is repeated until it moves no window."""
        hits = scan()
        while self.advance(hits):
            hits = scan()
        return hits

    def accept(
        self,
        hits: Iterable[Hit],
        *,
        block_hash: bytes | None = None,
        height: int | None = None,
        time: int | None = None,
        is_coinbase: bool | None = None,
    ) -> list[Match]:
        """Turn the table's hits into matches, as `matches` does, learn the outpoints of their outputs, and let keychains' windows move."""
        found = list(hits)
        self._table.learn(found)
        self.advance(found)
        return self.matches(found, block_hash=block_hash, height=height, time=time, is_coinbase=is_coinbase)

    def matches(
        self,
        hits: Iterable[Hit],
        *,
        block_hash: bytes | None = None,
        height: int | None = None,
        time: int | None = None,
        completeness: Completeness | None = None,
        is_coinbase: bool | None = None,
    ) -> list[Match]:
        """Turn the table's hits into matches without learning from them.

        `time` is that of the block, seconds since 1970. `is_coinbase` tells whether they are of a coinbase; if it is not said, those at
        position 0 of a block are.
        """
        coinbase = 0 if (is_coinbase if is_coinbase is not None else block_hash is not None) else _NOWHERE
        network, label_of, parse = self.network, self.label, OutPoint.parse
        place_of = self._place if self.keychains else _no_place
        return [
            Match(
                _INPUT if spend else _OUTPUT,
                txid,
                index,
                parse(outpoint),
                None if value == NO_VALUE else value,
                script,
                script_to_address(script, network) if script else None,
                label_of(entry),
                block_hash,
                height,
                time,
                position == coinbase,
                completeness,
                *place_of(entry, script),
                None if fee == NO_VALUE else fee,
            )
            for spend, position, txid, index, outpoint, value, script, entry, fee in hits
        ]

    def _place(self, entry: int, script: bytes | None) -> tuple[str | None, int | None]:
        """The name of the keychain that a script belongs to, and its index there."""
        keychain, index = self._windows.of(entry, script) or (None, None)
        return keychain.name if keychain else None, index


def _no_place(entry: int, script: bytes | None) -> tuple[None, None]:
    """Of no keychain."""
    return None, None


def _checked_label(label: str | None) -> str | None:
    """A label without blanks around it, None for an empty one. Raises ParameterError for one that no line could hold."""
    label = label.strip() if label else None
    if label and not label.isprintable() and any(category(char) in ("Cc", "Cs", "Zl", "Zp") for char in label):  # UTF-8 has no surrogates
        raise ParameterError(f"a label cannot contain control characters, line ends or surrogates: {label[:80]!r}")
    return label or None


def _script_of(script: object) -> bytes:
    """What the `script_at` of a keychain gave, as bytes; what is none is left for Keychain to refuse."""
    return bytes(script) if isinstance(script, (bytes, bytearray, memoryview)) else script  # type: ignore[return-value]  # any object


def pubkey_scripts(key: bytes) -> list[bytes]:
    """The P2PK, P2PKH, P2WPKH and P2SH-P2WPKH scripts of a public key."""
    key_hash = hash160(key)
    witness = b"\x00\x14" + key_hash
    return [
        bytes((len(key),)) + key + b"\xac",
        b"\x76\xa9\x14" + key_hash + b"\x88\xac",
        witness,
        b"\xa9\x14" + hash160(witness) + b"\x87",
    ]
