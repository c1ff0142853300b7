"""WatchList: the addresses, scripts, keys, data and outpoints that a wallet wants, with exact matching of transactions
and blocks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial

from spvfilter._public import public
from spvfilter.address import address_to_script, script_to_address
from spvfilter.errors import ParameterError, WatchListInUseError
from spvfilter.hashes import sha256d
from spvfilter.kernel import NO_ENTRY, NO_VALUE, EntryKind, Hit, WatchTable, is_pubkey
from spvfilter.network import MAINNET, Network
from spvfilter.primitives import OutPoint, Serializable, to_bytes
from spvfilter.protocol import HEADER_SIZE, MAX_ELEMENT_SIZE
from spvfilter.transaction import Transaction
from spvfilter.watch import textfile
from spvfilter.watch.arguments import checked_label, pubkey_scripts, single_script
from spvfilter.watch.descriptor.descriptor import parse_descriptor
from spvfilter.watch.elements import bloom_elements, gcs_elements
from spvfilter.watch.keychain import LOOKAHEAD, Keychain
from spvfilter.watch.match import Completeness, Match, MatchKind
from spvfilter.watch.pickling import State, restored, state_of
from spvfilter.watch.windows import Windows

_INPUT, _OUTPUT = MatchKind.INPUT, MatchKind.OUTPUT
_NOWHERE = -1  # instead of a position


def _address_and_label(item: object, at: int) -> tuple[str, str | None]:
    """Check a pair (address, label); `at` is its number in the argument `addresses`. Raises TypeError."""
    if not isinstance(item, (tuple, list)):
        found = type(item).__name__
    elif len(item) != 2:
        found = f"a {type(item).__name__} of {len(item)}"
    elif not isinstance(item[0], str):
        found = f"a pair that starts with {type(item[0]).__name__}"
    else:
        return item[0], item[1]
    raise TypeError(f"addresses[{at}]: expected an address or a pair (address, label), not {found}")


@public
class WatchList:
    """Addresses, scripts, public keys, data elements and outpoints, each with an optional label.

    | entry | what matches it exactly | BIP-37 | BIP-158 |
    |---|---|---|---|
    | address, scriptPubKey | outputs with this script; their spends | by the longest push (refused if none) | yes |
    | public key | P2PK, P2PKH, P2WPKH, P2SH-P2WPKH, bare multisig outputs; their spends | yes | all but multisig |
    | data element | any push of it, in outputs (and their spends) and in scriptSigs | yes | no |
    | outpoint | its spend | yes | if its script is known |
    | descriptor, keychain | as scriptPubKeys, those in its window | yes | yes |

    When an output matches, the list learns its outpoint, so that the spend matches too. Outpoints are never forgotten:
    after a reorganisation they may be spent again. An output or input yields one match, by the first of: outpoint,
    script, multisig key, data. BIP-37 finds a spend by outpoint only: see `bloom_elements`.

    Watching a public key puts the key *and* its hashes into a BIP-37 filter, which tells a peer that they belong
    together; watch addresses instead if that matters. A list is not safe to change from several threads at once. While
    a LightClient runs with it, nothing can be added to it: WatchListInUseError.

    Raises ParameterError for an unknown network. A label has no control characters, line ends or surrogates, else
    ParameterError.
    """

    def __init__(self, network: Network | str = MAINNET) -> None:
        self.network = Network.named(network) if isinstance(network, str) else network
        self._table = WatchTable()
        self._labels: dict[int, str] = {}
        self._windows = Windows(self._table)
        self._holders = 0  # running clients

    @classmethod
    def from_addresses(
        cls, addresses: Iterable[str | tuple[str, str | None]], network: Network | str = MAINNET
    ) -> WatchList:
        """A list of addresses or of (address, label) pairs. Raises AddressError for the first invalid one."""
        if isinstance(addresses, str):
            raise TypeError("addresses: expected an iterable of addresses, not one string")
        if isinstance(addresses, (bytes, bytearray, memoryview)) or not isinstance(addresses, Iterable):
            raise TypeError(f"addresses: expected an iterable of addresses, not {type(addresses).__name__}")
        watch = cls(network)
        add, kind, network = watch._table.add, EntryKind.SCRIPT, watch.network
        for at, item in enumerate(addresses):
            address, label = (item, None) if isinstance(item, str) else _address_and_label(item, at)
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
        textfile.load(watch, path)
        return watch

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all entries and outpoints, including learned ones, to a file of mode 0600 that atomically replaces
        `path`.
        """
        textfile.write(self, path)

    def add_address(self, address: str, label: str | None = None) -> None:
        """Watch an address of the list's network.

        Raises WatchListInUseError, AddressError, WrongNetworkError, ParameterError for an invalid label.
        """
        self._check_free()
        self.add_script(address_to_script(address, self.network), label)

    def add_script(self, script_pubkey: bytes, label: str | None = None) -> None:
        """Watch a scriptPubKey. Raises WatchListInUseError, ParameterError for an empty one."""
        self._check_free()
        script = to_bytes(script_pubkey)
        if not script:
            raise ParameterError(
                "an empty scriptPubKey cannot be watched: it would match every output with an empty script"
            )
        self._label(self._table.add(EntryKind.SCRIPT, script), label)

    def add_pubkey(self, pubkey: bytes, label: str | None = None) -> None:
        """Watch a public key in every script that a wallet derives from it; the table of the class lists them.

        P2TR is not among them, because its key is tweaked: watch the address. Raises WatchListInUseError,
        ParameterError unless the key has 33 bytes starting with 02 or 03, or 65 bytes starting with 04, 06 or 07.
        """
        self._check_free()
        key = to_bytes(pubkey)
        if not is_pubkey(key):
            raise ParameterError(
                f"not a public key: {len(key)} bytes, expected 33 starting 02 or 03, or 65 starting 04, 06 or 07"
            )
        for script in pubkey_scripts(key):
            self.add_script(script, label)
        self._label(self._table.add(EntryKind.MULTISIG_KEY, key), label)

    def add_data(self, data: bytes, label: str | None = None) -> None:
        """Watch for any push of exactly these bytes.

        Raises WatchListInUseError, ParameterError unless there are 1 to 520.
        """
        self._check_free()
        element = to_bytes(data)
        if not 1 <= len(element) <= MAX_ELEMENT_SIZE:
            raise ParameterError(f"a data element has 1 to {MAX_ELEMENT_SIZE} bytes, not {len(element)}")
        self._label(self._table.add(EntryKind.DATA, element), label)

    def add_outpoint(
        self,
        outpoint: OutPoint | str,
        label: str | None = None,
        *,
        value: int | None = None,
        script_pubkey: bytes | None = None,
    ) -> None:
        """Watch for the spend of an outpoint, given as OutPoint or as `TXID:INDEX` (txid in display order); `value` is
        in satoshi.

        If the list watches `script_pubkey`, or has already learned the outpoint, the outpoint belongs to that entry and
        shares its label, unless `label` is given. Raises WatchListInUseError, ParameterError for an invalid outpoint,
        value or label.
        """
        self._check_free()
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
        """Watch an output descriptor (BIP-380 ff.; extra `descriptors`); its keychains, two for a multipath such as
        `<0;1>`.

        Extended public keys whose prefix names a script type (ypub, zpub, upub, vpub) stand for their receiving and
        change addresses. One that is watched already keeps its uses. Private keys are refused, and no error repeats
        them. Raises DescriptorError for what cannot be watched, WrongNetworkError for keys of another network,
        WatchListInUseError, ParameterError.
        """
        self._check_free()
        found = [
            Keychain(each.text, each.scripts, label=label, lookahead=lookahead, size=each.size, descriptor=each.text)
            for each in parse_descriptor(text, self.network)
        ]
        return [self._add_keychain(keychain) for keychain in found]

    def add_keychain(
        self, name: str, script_at: Callable[[int], bytes], label: str | None = None, *, lookahead: int = LOOKAHEAD
    ) -> Keychain:
        """Watch the scripts that a wallet derives by itself:

        `script_at(index)` is the scriptPubKey of an index from 0, always the same.

        A list that is loaded from a file does not know the function: add the keychain again, and it has the uses that
        the file tells. Raises KeychainError if `script_at` fails or gives what is no scriptPubKey, WatchListInUseError,
        ParameterError for a name that is taken.
        """
        self._check_free()
        if self._windows.get(name) is not None:
            raise ParameterError(f"the watch list has a keychain {name[:80]!r} already")
        return self._add_keychain(Keychain(name, partial(single_script, script_at), label=label, lookahead=lookahead))

    def _add_keychain(self, keychain: Keychain, end: int = 0) -> Keychain:
        """Watch a keychain, at least up to index `end`.

        One that is watched already takes a new label and a larger lookahead.
        """
        keychain.label = checked_label(keychain.label)
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
        """Watch a descriptor with the window of a saved list.

        Raises WatchListInUseError, DescriptorError, ParameterError.
        """
        self._check_free()
        for each in parse_descriptor(text, self.network):
            keychain = Keychain(
                each.text, each.scripts, label=label, lookahead=lookahead, size=each.size, descriptor=each.text
            )
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

        Raises ParameterError for an unknown keychain, one whose indexes are all used, and one whose scripts have no
        address.
        """
        return self._windows.next_address(keychain, self.network)

    def is_used(self, address: str) -> bool:
        """Whether an output that pays this address was found. Raises AddressError, WrongNetworkError."""
        script = address_to_script(address, self.network)
        place = self._windows.at(self._table.find(EntryKind.SCRIPT, script))
        return (place is not None and place[1] in place[0].used) or any(
            coin.script == script for _, coin in self._table.coins()
        )

    def advance(self, hits: Iterable[Hit] | None = None) -> list[bytes]:
        """Note the use of keychains' scripts by hits, by default by the outpoints that the list knows, and let the
        windows move.

        Returns the scripts that are watched now and were not before: blocks that were searched without them are to be
        searched again. `accept` does the same. While a LightClient runs with the list no window moves: where one must,
        WatchListInUseError, with the uses noted. Raises KeychainError.
        """
        if self._holders:
            if self._windows.note(hits):
                raise WatchListInUseError(
                    "a running client uses this watch list, and a window of it must move: match with a copy of the list"
                )
            return []
        return self._windows.take_coins() if hits is None else self._windows.use(hits)

    @property
    def windows(self) -> Windows:
        """The windows of the keychains."""
        return self._windows

    def widen(self, margin: int | None = None, settled: Collection[str] = ()) -> list[bytes]:
        """Watch further scripts of every keychain, `margin` beyond its window, by default its lookahead; those that
        were not watched.

        As long as no use moves a window beyond them, nothing needs to be searched again: keychains whose names are
        `settled` gain them only if they must move. Raises WatchListInUseError, KeychainError.
        """
        self._check_free()
        return self._windows.widen(margin, settled)

    def forget_outpoints(self, outpoints: Iterable[bytes]) -> None:
        """Stop watching learned outpoints (36 bytes each); those that are entries stay.

        It takes as long as a copy of the list.

        Raises ParameterError for an outpoint that does not have 36 bytes.
        """
        self._table = self._table.without(outpoints)
        self._windows.move_to(self._table)

    def add_address_lines(self, chunk: bytes, at: int) -> tuple[int, int]:
        """Add the addresses in the lines of a file, from byte `at` of `chunk` up to the first line that the kernel's
        fast path leaves.

        Returns the numbers of bytes and lines taken. Raises WatchListInUseError, ParameterError for an invalid label.
        """
        self._check_free()
        network = self.network
        taken, lines, labels = self._table.add_address_lines(
            chunk, at, network.p2pkh_version, network.p2sh_version, network.hrp
        )
        for entry, label in labels:
            self._label(entry, label.decode())
        return taken, lines

    def _label(self, entry: int, label: str | None) -> None:
        if label := checked_label(label):
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

    def __reduce__(self) -> tuple[object, ...]:  # without the clients that use it; a keychain's function by its name
        return WatchList._restored, (self.network, state_of(self._table, self._labels, self._windows))

    @classmethod
    def _restored(cls, network: Network, state: State) -> WatchList:
        made = cls(network)
        made._table, made._labels, made._windows = restored(network, state)
        return made

    @property
    def table(self) -> WatchTable:
        """The kernel's table of entries and outpoints, which scans search for."""
        return self._table

    def entries(self) -> Iterator[tuple[EntryKind, bytes, str | None]]:
        """Every entry as (kind, bytes, label), in the order they were added."""
        return ((kind, value, self.label(number)) for number, (kind, value) in enumerate(self._table.entries()))

    def add_entry(self, kind: EntryKind, value: bytes, label: str | None = None) -> int:
        """Watch one entry as `entries` lists it, and return its number in the table.

        The scripts of a public key are separate entries.

        Raises WatchListInUseError, ParameterError for an invalid label.
        """
        self._check_free()
        number = self._table.add(kind, value)
        self._label(number, label)
        return number

    def relabel(self, number: int, label: str | None) -> None:
        """Give the entry with a number in the table another label, or none.

        Raises ParameterError for an invalid label, IndexError.
        """
        self._table.entry(number)
        checked = checked_label(label)
        self._labels.pop(number, None)
        self._label(number, checked)

    def without_entries(self, numbers: Collection[int]) -> WatchList:
        """An independent list without some entries, given by number, and the outpoints learned through them alone.

        Of a keychain all indexes in its window count as watched: its scripts should stay.
        """
        left = WatchList(self.network)
        kept: dict[int, int] = {}
        for number, (kind, value) in enumerate(self._table.entries()):
            if number not in numbers:
                kept[number] = left._table.add(kind, value)
        left._labels = {kept[number]: label for number, label in self._labels.items() if number in kept}
        for outpoint, coin in self._table.coins():
            entry = kept.get(coin.entry, NO_ENTRY)
            if entry == NO_ENTRY and coin.script is not None:
                entry = left._table.match_script(coin.script)
            if entry != NO_ENTRY:
                left._table.set_coin(outpoint, entry, coin.value, coin.script)
        left._windows = self._windows.without(left._table, kept)
        return left

    def replace_with(self, other: WatchList) -> None:
        """Have the entries, labels and outpoints of what `without_entries` gave, which is given up; keychains stay the
        same objects.
        """
        self._table, self._labels = other._table, other._labels
        self._windows.become(other._windows)

    def take_uses(self, other: WatchList) -> None:
        """Know the uses that a copy's keychains have, with windows that reach as far. Raises KeychainError."""
        self._windows.take_uses(other.keychains)

    def hold(self) -> None:
        """A light client works with the list: until `release`, `add_address` and the like raise."""
        self._holders += 1

    def release(self) -> None:
        """A light client has ended."""
        self._holders -= 1

    def _check_free(self) -> None:
        if self._holders:
            raise WatchListInUseError(
                "a running client uses this watch list and would not search for the entry: call the client's own add_…;"
                " add keychains before it is entered"
            )

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
        """The watched scriptPubKeys, including those of public keys; bare multisig scripts of a key cannot be
        listed.
        """
        return (value for kind, value in self._table.entries() if kind == EntryKind.SCRIPT)

    def outpoints(self) -> Iterator[OutPoint]:
        """Every watched outpoint, including learned ones."""
        return (OutPoint.parse(point) for point, _ in self._table.coins())

    def bloom_elements(self) -> list[bytes]:
        """The elements that a BIP-37 filter needs to find everything in this list: pushes and 36-byte outpoints,
        without duplicates.

        A script is represented by its longest push (key, hash or witness program). Spends are found by outpoint: all
        known outpoints are included, and with update flag ALL the peer adds future ones (BIP-37 § Filter matching
        algorithm). Raises InexpressibleError, which lists the scripts without pushes.
        """
        return bloom_elements(self._table)

    def gcs_elements(self) -> list[bytes]:
        """The scriptPubKeys to query a BIP-158 filter for, including those of known outpoints, without duplicates.

        They find everything in this list except bare multisig outputs of its public keys. Raises InexpressibleError,
        which lists the entries that compact filters cannot find: data elements, outpoints of unknown script, scripts
        that start with OP_RETURN.
        """
        return gcs_elements(self._table)

    def match_tx(
        self,
        raw: bytes | Serializable,
        *,
        block_hash: bytes | None = None,
        height: int | None = None,
        time: int | None = None,
    ) -> list[Match]:
        """The matches in one transaction; matching outputs are learned.

        `time` is that of its block, seconds since 1970.

        Raises FormatError for a malformed transaction, WatchListInUseError.
        """
        tx = to_bytes(raw)
        hits = self._complete(lambda: self._table.scan_tx(tx))
        is_coinbase = bool(hits) and Transaction.parse(tx).is_coinbase
        return self.accept(hits, block_hash=block_hash, height=height, time=time, is_coinbase=is_coinbase)

    def match_block(self, raw: bytes | Serializable, *, height: int | None = None) -> list[Match]:
        """The matches in one block; matching outputs are learned.

        Raises FormatError for a malformed block, WatchListInUseError.
        """
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
        """As `matches`, and learn the outpoints of outputs, and let windows move.

        Raises WatchListInUseError, KeychainError.
        """
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

        `time` is that of the block, seconds since 1970. `is_coinbase` tells whether they are of a coinbase; if it is
        not said, those at position 0 of a block are.
        """
        coinbase = 0 if (is_coinbase if is_coinbase is not None else block_hash is not None) else _NOWHERE
        network, label_of, parse = self.network, self.label, OutPoint.parse
        place_of = self._windows.place
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
