"""WatchList: addresses, scripts, keys, data and outpoints to watch, and exact matching of transactions and blocks."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import ClassVar

from spvfilter._public import public
from spvfilter.address import address_to_script
from spvfilter.errors import ParameterError, WatchListInUseError, counted
from spvfilter.hashes import sha256d
from spvfilter.kernel import NO_ENTRY, NO_VALUE, PATTERN_KINDS, EntryKind, Hit, WatchTable, is_pubkey
from spvfilter.network import MAINNET, Network
from spvfilter.primitives import OutPoint, Serializable, TxOut, to_bytes
from spvfilter.protocol import HEADER_SIZE, MAX_ELEMENT_SIZE
from spvfilter.transaction import Transaction, refuse_psbt
from spvfilter.watch import compiled, entry as texts, patterns, silentkeychain, silentsearch, textfile
from spvfilter.watch.accounts import checked_name, normalized
from spvfilter.watch.arguments import check_not_private, checked_label, label_of_line, pubkey_scripts, single_script
from spvfilter.watch.descriptor import keys, silent
from spvfilter.watch.descriptor.descriptor import (
    check_wildcard,
    is_descriptor,
    is_silent_text,
    parse_descriptor,
    warn_of_problems,
)
from spvfilter.watch.index import TxOutIndex, keychain_from
from spvfilter.watch.keychain import LOOKAHEAD, MAX_DERIVATIONS, Budget, Keychain, origins_in
from spvfilter.watch.match import Completeness, Match
from spvfilter.watch.pickling import State, restored, state_of
from spvfilter.watch.windows import Windows, is_silent

_MOST_JOBS = 16  # threads that decode addresses (our choice: one thread adds them to the table)


def _address_and_label(item: object, at: int) -> tuple[str, str | None]:
    """Return the address and the label of a pair. `at` is the pair's number in the argument `addresses`, from 0.

    Raises TypeError if `item` is not a pair that starts with a string.
    """
    if not isinstance(item, (tuple, list)):
        found = type(item).__name__
    elif len(item) != 2:
        found = f"a {type(item).__name__} of {len(item)}"
    elif not isinstance(item[0], str):
        found = f"a pair that starts with {type(item[0]).__name__}"
    else:
        return item[0], item[1]
    raise TypeError(f"addresses[{at}]: expected an address or a pair (address, label), not {found}")


def _processors() -> int:
    """Return the number of threads that decode addresses: one for each processor that this process may use."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(usable, _MOST_JOBS)


@public
class WatchList:
    """Addresses, scripts, public keys, data elements and outpoints to watch, each with an optional label.

    | entry | exact matches | found by BIP-37 | found by BIP-158 |
    |---|---|---|---|
    | address, scriptPubKey | outputs with this script, and their spends | if the script pushes data | yes |
    | public key | P2PK, P2PKH, P2WPKH, P2SH-P2WPKH and bare multisig outputs, their spends | yes | not bare multisig |
    | data element | outputs that push it, and their spends; inputs whose scriptSig pushes it | yes | no |
    | outpoint | its spend | yes | if its script is known |
    | data prefix | OP_RETURN outputs whose first push begins with it | no | no |
    | script type | outputs of this type, and their spends in blocks with undo records | no | no |
    | descriptor, keychain | outputs with the scripts in its window, and their spends | yes | yes |

    If an output matches, the list learns its outpoint, so that the spend matches too. It keeps the outpoint even after
    the spend, which a reorganization may disconnect. An output or input yields at most one match. If several entries
    match, the first in this order counts: outpoint, script, multisig key, data, data prefix, script type.

    If you watch a public key, a BIP-37 filter contains the key and its hashes, and a peer can link them. To avoid that,
    watch the key's addresses.

    Do not change a list in several threads at the same time. While a LightClient is using a list, the `add_…` methods
    raise WatchListInUseError. They raise ParameterError if a label contains surrogates or NUL, or exceeds 10,000
    characters.

    Args:
        network: Network of the entries, or its name.
        require_ranged: True if the list refuses descriptors with extended keys but no wildcard `*`. By default, they
            cause a DescriptorWarning, because only one script is watched.

    Raises:
        ParameterError: The network is unknown.
        TypeError: `network` is neither a Network nor a name.
    """

    def __init__(self, network: Network | str = MAINNET, *, require_ranged: bool = False) -> None:
        self._require_ranged = require_ranged
        self.network: Network = Network.named(network) if isinstance(network, str) else network
        """Network of the entries."""
        if not isinstance(self.network, Network):
            raise TypeError(
                f"network: expected a Network or its name, not {type(network).__name__}: from_addresses takes addresses"
            )
        self.index: TxOutIndex = TxOutIndex(self.network)
        """The index that stores the entries. Programs do not need it."""
        self._holders = 0  # number of running clients that use the list

    @classmethod
    def from_addresses(
        cls,
        addresses: Iterable[str | tuple[str, str | None]] | Mapping[str, str | None],
        network: Network | str = MAINNET,
    ) -> WatchList:
        """Create a watch list of addresses.

        Args:
            addresses: Addresses, pairs (address, label), or a mapping of addresses to labels.
            network: Network of the addresses, or its name.

        Raises:
            AddressError: An address is invalid. The message describes the first invalid address.
            WrongNetworkError: An address belongs to another network.
            ParameterError: A label or the name of the network is invalid.
            TypeError: `addresses` is not an iterable of addresses and pairs.
        """
        if isinstance(addresses, str):
            raise TypeError("addresses: expected an iterable of addresses, not one string")
        if isinstance(addresses, Mapping):
            addresses = addresses.items()
        if isinstance(addresses, (bytes, bytearray, memoryview)) or not isinstance(addresses, Iterable):
            raise TypeError(f"addresses: expected an iterable of addresses, not {type(addresses).__name__}")
        watch = cls(network)
        add, kind, network = watch.index.table.add, EntryKind.SCRIPT, watch.network
        for at, item in enumerate(addresses):
            address, label = (item, None) if isinstance(item, str) else _address_and_label(item, at)
            entry = add(kind, address_to_script(address, network))
            if label:
                watch.index.note_label(entry, label)
        return watch

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        network: Network | str = MAINNET,
        *,
        require_ranged: bool = False,
        max_derivations: int = MAX_DERIVATIONS,
    ) -> WatchList:
        """Read a watch list from a text file with one entry per line, a compiled list, or a wallet's exported file.

        The formats page describes the text file; the page "Watch a file that a wallet exported" describes wallet files.
        Private keys in such a file are never kept. A WalletFileWarning names the parts that were left out.

        Args:
            path: Path of the file.
            network: Network of the entries, or its name.
            require_ranged: True if the list refuses descriptors with extended keys but no wildcard `*`.
            max_derivations: Largest number of keys that the file's descriptors may derive: the sum, over all
                descriptors, of keys × indexes × paths. They are counted before any is derived.

        Raises:
            WatchFileError: Lines are invalid; the error lists the first 1,000 with their numbers and causes. Also
                raised if the file needs more than `max_derivations` key derivations, or if a compiled list is damaged
                or for another network.
            ParameterError: The name of the network is unknown, or `max_derivations` is negative.
            OSError: The file cannot be read.
        """
        watch = cls(network, require_ranged=require_ranged)
        textfile.load(watch, path, max_derivations)
        return watch

    def save(self, path: str | os.PathLike[str], *, secrets: bool = False) -> None:
        """Write all entries and outpoints, even learned ones, to a text file.

        A new file of mode 0600 atomically replaces the file at `path`. By default, the private scan keys of sp()
        descriptors are left out: the file then watches the payments already found, but finds no new ones.

        Args:
            path: Path of the file.
            secrets: True to write the scan keys, and the tweaks that a signer needs to spend the payments. A reader of
                the file learns of all payments, but cannot spend them.
        """
        textfile.write(self, path, secrets=secrets)

    def compile(self, path: str | os.PathLike[str]) -> None:
        """Write a compiled watch list, which `load` maps into memory instead of decoding each entry.

        All processes that load the file share its memory. The file contains all entries, labels, accounts and
        outpoints. A new file of mode 0600 atomically replaces the file at `path`. Never change the file in place.

        Raises:
            ParameterError: The list contains descriptors or keychains, whose windows move. Keep them in a separate
                list.
            OSError: The file cannot be written.
        """
        if len(self.windows):
            raise ParameterError(
                f"the entries of a compiled watch list are fixed, but the windows of"
                f" {counted(len(self.windows), 'keychain')} move: take the descriptors out, and pass them together "
                "with the compiled list"
            )
        compiled.write(path, self.network.name, self.index.table, self.index.own_labels, self.index.owners)

    def take_compiled(self, contents: compiled.Contents) -> None:
        """Load a compiled list into this list, which must be empty.

        Raises:
            ParameterError: The compiled list is for another network, or this list is not empty.
            WatchListInUseError: A running client is using the list.
        """
        self._check_free()
        if contents.network != self.network.name:
            raise ParameterError(
                f"this watch list is for {contents.network[:80]}, not for {self.network}: choose its network"
            )
        if len(self.table) or len(self.windows) or next(self.table.coins(), None) is not None:
            raise ParameterError("a compiled watch list must be loaded before other entries are added")
        index = self.index
        index.table, index.own_labels, index.owners = contents.table, contents.labels, contents.accounts
        index.windows.move_to(index.table)

    def add_address(self, address: str, label: str | None = None) -> None:
        """Watch an address, with an optional label.

        Raises:
            AddressError: The address is invalid.
            WrongNetworkError: The address belongs to another network.
            ParameterError: The label is invalid.
            WatchListInUseError: A running client is using the list.
        """
        self._check_free()
        self.add_script(address_to_script(address, self.network), label)

    def add_script(self, script_pubkey: bytes, label: str | None = None) -> None:
        """Watch a scriptPubKey, with an optional label.

        Raises:
            ParameterError: The script is empty, or the label is invalid.
            WatchListInUseError: A running client is using the list.
        """
        self._check_free()
        script = to_bytes(script_pubkey)
        if not script:
            raise ParameterError(
                "an empty scriptPubKey cannot be watched: it would match every output with an empty script"
            )
        self.index.note_label(self.table.add(EntryKind.SCRIPT, script), label)

    def add_pubkey(self, pubkey: bytes, label: str | None = None) -> None:
        """Watch the scripts of a public key: P2PK, P2PKH, P2WPKH, P2SH-P2WPKH and bare multisig.

        P2TR outputs do not match, because their keys are tweaked: watch the address instead.

        Args:
            pubkey: The public key: 33 bytes that start with 02 or 03, or 65 bytes that start with 04, 06 or 07.
            label: Label of the matches.

        Raises:
            ParameterError: `pubkey` is not a public key, or the label is invalid.
            WatchListInUseError: A running client is using the list.
        """
        self._check_free()
        key = to_bytes(pubkey)
        if not is_pubkey(key):
            raise ParameterError(
                f"this is not a public key: expected 33 bytes that start with 02 or 03, or 65 bytes that start with 04,"
                f" 06 or 07, got {len(key)} bytes"
            )
        for script in pubkey_scripts(key):
            self.add_script(script, label)
        self.index.note_label(self.table.add(EntryKind.MULTISIG_KEY, key), label)

    def add_data(self, data: bytes, label: str | None = None) -> None:
        """Watch a data element: a script matches if it pushes exactly the bytes `data`.

        Args:
            data: The data element, 1 to 520 bytes.
            label: Label of the matches.

        Raises:
            ParameterError: `data` is not 1 to 520 bytes long, or the label is invalid.
            WatchListInUseError: A running client is using the list.
        """
        self._check_free()
        element = to_bytes(data)
        if not 1 <= len(element) <= MAX_ELEMENT_SIZE:
            raise ParameterError(f"a data element must be 1 to {MAX_ELEMENT_SIZE} bytes long, not {len(element)}")
        self.index.note_label(self.table.add(EntryKind.DATA, element), label)

    def add_data_prefix(self, prefix: bytes, label: str | None = None) -> None:
        """In scans of blocks, watch OP_RETURN outputs whose first push begins with `prefix`.

        If several prefixes match, the longest counts. OP_1 to OP_16 directly after OP_RETURN push one byte. Filters
        cannot find such outputs, so a LightClient refuses a list with prefixes.

        Args:
            prefix: The first bytes of the push, 1 to 64 of them.
            label: Label of the matches.

        Raises:
            ParameterError: `prefix` is not 1 to 64 bytes long, or the label is invalid.
            WatchListInUseError: A running client is using the list.
        """
        self._check_free()
        self.index.note_label(self.table.add(EntryKind.DATA_PREFIX, to_bytes(prefix)), label)

    def add_script_type(self, name: str, label: str | None = None) -> None:
        """In scans of blocks, watch outputs with a given type of script, unless another entry matches them.

        Spends of these outputs match only in blocks with undo records. Filters cannot find such outputs, so a
        LightClient refuses a list with script types.

        Args:
            name: p2pk, p2pkh, p2sh, p2ms, p2wpkh, p2wsh, p2tr, p2a, nulldata, witness_unknown or nonstandard.
            label: Label of the matches.

        Raises:
            ParameterError: The name is unknown, or the label is invalid.
            WatchListInUseError: A running client is using the list.
        """
        self._check_free()
        self.index.note_label(self.table.add(EntryKind.SCRIPT_TYPE, bytes((patterns.script_type(name),))), label)

    @property
    def has_patterns(self) -> bool:
        """True if an entry is a data prefix or a script type, which only a scan of blocks finds."""
        return any(self.table.count_of(kind) for kind in PATTERN_KINDS)

    def add_outpoint(
        self,
        outpoint: OutPoint | str,
        label: str | None = None,
        *,
        value: int | None = None,
        script_pubkey: bytes | None = None,
    ) -> None:
        """Watch for the spend of an outpoint.

        If `label` is None and the list already watches `script_pubkey` or has learned the outpoint, the spend gets the
        label of that entry.

        Args:
            outpoint: An OutPoint, or a string `TXID:INDEX` with the txid in display order.
            label: Label of the spend.
            value: Value of the output in satoshi, or None if it is unknown.
            script_pubkey: Script of the output, or None if it is unknown.

        Raises:
            ParameterError: The outpoint, the label or the value is invalid.
            WatchListInUseError: A running client is using the list.
        """
        self._check_free()
        point = OutPoint.from_text(outpoint) if isinstance(outpoint, str) else outpoint
        if value is not None and not 0 <= value < 1 << 63:
            raise ParameterError(f"value must be from 0 to 2^63 - 1 satoshi, not {value}")
        known = self.table.coin(bytes(point))
        entry = known.entry if known else self.table.match_script(script_pubkey) if script_pubkey else NO_ENTRY
        if entry == NO_ENTRY or label is not None:
            entry = self.table.add(EntryKind.OUTPOINT, bytes(point))
            self.index.note_label(entry, label)
        self.table.set_coin(bytes(point), entry, NO_VALUE if value is None else value, script_pubkey or None)
        if script_pubkey:
            self.windows.use_script(script_pubkey)

    def add_descriptor(self, text: str, label: str | None = None, *, lookahead: int = LOOKAHEAD) -> list[Keychain]:
        """Watch an output descriptor (BIP-380 ff.), and return its keychains. This needs the `descriptors` extra.

        A keychain that the list already contains keeps its used indexes. Text that contains private keys is rejected,
        and no error repeats them.

        For silent payments, sp() contains a private scan key, which cannot spend. No repr, match or error shows it. The
        keychain is named after the silent payment address. This needs the `silent` extra.

        Args:
            text: A descriptor, or an extended public key whose prefix names a script type: ypub, zpub, upub or vpub.
                The list watches the receiving and change addresses of such a key.
            label: Label of the keychains.
            lookahead: Number of indexes to watch after the last used index, from 20 to 10,000,000.

        Returns:
            The keychains, one for each path of a multipath such as `<0;1>`.

        Raises:
            DescriptorError: The text is not a valid descriptor, contains a private key, or needs the missing extra.
                Also raised if its keys have no wildcard, but the list was made with `require_ranged`.
            WrongNetworkError: A key or address belongs to another network.
            ParameterError: The label or the lookahead is invalid.
            WatchListInUseError: A running client is using the list.
        """
        self._check_free()
        return [self._add_keychain(each) for each in self.keychains_in(text, label, lookahead=lookahead)]

    def keychains_in(self, text: str, label: str | None = None, *, lookahead: int = LOOKAHEAD) -> list[Keychain]:
        """Return the keychains of an output descriptor without watching them yet.

        See `add_descriptor` for the arguments.

        Raises:
            DescriptorError: The text is not a valid descriptor, contains a private key, or needs the missing extra.
            WrongNetworkError: A key or address belongs to another network.
            ParameterError: The label or the lookahead is invalid.
        """
        if is_silent_text(text):
            return [silentkeychain.SilentKeychain(silent.parse_silent(text, self.network), label=checked_label(label))]
        descriptors = parse_descriptor(text, self.network)
        check_wildcard(descriptors, require_ranged=self._require_ranged)
        return [keychain_from(each, label, lookahead) for each in descriptors]

    def add_sp_label(self, number: int, label: str | None = None, *, keychain: str | None = None) -> str:
        """Start searching for a label of a silent payment address, and return the address with the label.

        Blocks that have already been searched must be searched again. Label 0 is the wallet's change: it is always
        searched for, and its address must never be given out.

        Args:
            number: Number of the label, 0 to 4,294,967,295.
            label: Label of the matches; by default that of the keychain.
            keychain: Name of the keychain, which is its address; by default the first keychain of an sp() descriptor.

        Returns:
            The address with the label. For label 0 it is the address without a label.

        Raises:
            ParameterError: The number or the label is invalid, or the list has no such keychain.
            WatchListInUseError: A running client is using the list.
        """
        self._check_free()
        chain = self._silent_keychain(keychain)
        chain.declare(number, label)
        return chain.address(number or None)

    def search_sp_labels(self, number: int) -> None:
        """Search for all labels up to a number in all sp() descriptors, for example after losing the wallet's data.

        `save` with `secrets=True` stores the number.

        Args:
            number: Number of the last label, 0 to 100,000. Each label costs 25 µs, once.

        Raises:
            ParameterError: The number is out of range, or the list contains no sp() descriptor.
            WatchListInUseError: A running client is using the list.
        """
        self._check_free()
        self._silent_keychain(None)
        for each in self.windows.silent:
            each.search_to(number)

    def _silent_keychain(self, name: str | None) -> silentkeychain.SilentKeychain:
        for each in self.windows.silent:
            if name in (None, each.name):
                return each
        raise ParameterError(
            "the watch list contains no sp() descriptor" + ("" if name is None else f" with the address {name[:40]!r}")
        )

    def add_keychain(
        self, name: str, script_at: Callable[[int], bytes], label: str | None = None, *, lookahead: int = LOOKAHEAD
    ) -> Keychain:
        """Watch the scripts that a function derives, and return their keychain.

        A text file cannot store the function, but it contains the used indexes: add the keychain again after `load`.

        Args:
            name: Name of the keychain, which no other keychain of the list may have.
            script_at: Function that returns the scriptPubKey of an index, from 0. It must always return the same script
                for the same index.
            label: Label of the keychain.
            lookahead: Number of indexes to watch after the last used index, from 20 to 10,000,000.

        Raises:
            KeychainError: `script_at` fails, or does not return a scriptPubKey.
            ParameterError: The list already has a keychain with this name, or an argument is invalid.
            WatchListInUseError: A running client is using the list.
        """
        self._check_free()
        if self.windows.get(name) is not None:
            raise ParameterError(f"the watch list already has a keychain {name[:80]!r}")
        return self._add_keychain(Keychain(name, partial(single_script, script_at), label=label, lookahead=lookahead))

    def watch_keychains(self, keychains: Iterable[Keychain], budget: Budget) -> None:
        """Watch the keychains that `keychains_in` or `saved_keychains_in` returned.

        Args:
            keychains: The keychains.
            budget: The key derivations that are allowed. The budget is charged before keys are derived.

        Raises:
            KeychainError: Scripts cannot be derived.
            ParameterError: A label is invalid, the budget is exhausted, or there are more than 65,000 keychains.
            WatchListInUseError: A running client is using the list.
        """
        self._check_free()
        with self.windows.limited_by(budget):
            for each in keychains:
                self._add_keychain(each)

    def _add_keychain(self, keychain: Keychain) -> Keychain:
        """Watch the scripts of a keychain, and return the keychain.

        If the list already has a keychain with this name, or with another spelling of its descriptor, that keychain is
        updated and returned. A new label replaces its label, and its lookahead can only grow. The spelling with more
        key origins is kept, because signing devices need them.
        """
        keychain.label = checked_label(keychain.label)
        known, account = self.windows.get(keychain.name) or self._same_descriptor(keychain), self.index.owners.current
        if known is None:
            keychain.account = account
            self.windows.add(keychain)
            return keychain
        if is_silent(known) != is_silent(keychain):
            raise ParameterError(f"the watch list already has a different keychain {keychain.name[:80]!r}")
        if account is not None:
            self.index.check_owner(known.account, account)
            self.windows.assign(known, account)
        if is_silent(known) and is_silent(keychain):
            known.take_from(keychain)
        known.label = keychain.label or known.label
        known.lookahead = max(keychain.lookahead, known.lookahead)
        known.reach(keychain.floor)
        if keychain.revealed:
            known.reveal(keychain.revealed - 1)
        if origins_in(keychain.descriptor) > origins_in(known.descriptor):
            self.windows.rename(known.name, keychain.name, keychain.descriptor)
        self.windows.grow()
        return known

    def _same_descriptor(self, keychain: Keychain) -> Keychain | None:
        """Return the keychain whose descriptor is another spelling of `keychain`'s descriptor, or None."""
        known = None if keychain.descriptor is None else self.index.same_keychain(keychain)
        is_same = known is not None and known.descriptor is not None and known.scripts(0) == keychain.scripts(0)
        return known if is_same else None

    def saved_keychains_in(self, text: str, label: str | None, end: int, lookahead: int) -> list[Keychain]:
        """Return the keychains of a descriptor from a saved watch list without watching them yet.

        Args:
            text: The descriptor.
            label: Label of the descriptor's keychains.
            end: End of the keychain's window in the saved list.
            lookahead: Number of indexes to watch after the last used index.

        Raises:
            DescriptorError: The text is not a valid descriptor, or the `descriptors` extra is missing.
            ParameterError: `label`, `end` or `lookahead` is invalid.
        """
        if is_silent_text(text):
            return self.keychains_in(text, label)
        found = []
        for each in parse_descriptor(text, self.network, is_stored=True):
            warn_of_problems(each)
            found.append(keychain_from(each, label, lookahead))
            found[-1].reach(end)
        return found

    def keychain_of(self, entry: int) -> tuple[Keychain, int] | None:
        """Return the keychain and the index of the entry with this number, or None if no keychain contains it."""
        return self.index.keychain_of(entry)

    @property
    def keychains(self) -> tuple[Keychain, ...]:
        """The keychains, in the order in which they were added."""
        return self.index.keychains

    def next_address(self, keychain: str | None = None) -> str:
        """Return a keychain's address at the lowest index that is neither used nor revealed.

        The list only knows payments that it has matched itself. If a client or a database follows the wallet, call
        `LightClient.next_address` or `WalletStore.next_address` instead.

        Args:
            keychain: Name of the keychain; by default the first keychain of the list.

        Raises:
            ParameterError: There is no such keychain, all its watched indexes are used, or its scripts have no address.
        """
        return self.windows.next_address(keychain, self.network)

    def is_used(self, address: str) -> bool:
        """Return True if the list has seen an output that pays this address.

        Raises:
            AddressError: The address is invalid.
            WrongNetworkError: The address belongs to another network.
        """
        script = address_to_script(address, self.network)
        place = self.windows.at(self.table.find(EntryKind.SCRIPT, script))
        return (place is not None and place[1] in place[0].used) or any(
            coin.script == script for _, coin in self.table.coins()
        )

    def advance(self, hits: Iterable[Hit] | None = None) -> list[bytes]:
        """Mark indexes of keychains as used, move the windows, and return the newly watched scripts.

        `accept` calls this method.

        Args:
            hits: Hits of a scan, whose indexes become used. By default, those of all known outpoints become used.

        Returns:
            The newly watched scripts. Blocks that were searched without them must be searched again.

        Raises:
            KeychainError: Scripts cannot be derived.
            WatchListInUseError: A window must move, but a running client is using the list. The indexes are
                marked anyway.
        """
        if self._holders:
            if self.windows.note(hits):
                raise WatchListInUseError(
                    "a keychain's window must move, but a running client is using this watch list: use a copy of the"
                    " list to match"
                )
            return []
        return self.windows.take_coins() if hits is None else self.windows.use(hits)

    @property
    def windows(self) -> Windows:
        """The keychains of the list and their windows."""
        return self.index.windows

    def widen(self, margin: int | None = None, settled: Collection[str] = ()) -> list[bytes]:
        """Extend the windows of all keychains beyond their required ends, and return the newly watched scripts.

        As indexes become used, the windows then move less often, so fewer blocks are searched again.

        Args:
            margin: Number of additional indexes to watch; by default the lookahead of each keychain.
            settled: Names of keychains whose windows should grow only if they must.

        Returns:
            The newly watched scripts.

        Raises:
            KeychainError: Scripts cannot be derived.
            WatchListInUseError: A running client is using the list.
        """
        self._check_free()
        return self.windows.widen(margin, settled)

    def forget_outpoints(self, outpoints: Iterable[bytes]) -> None:
        """Stop watching some learned outpoints. Outpoints that were added as entries stay in the list.

        This takes as long as copying the list.

        Args:
            outpoints: The outpoints to forget, 36 bytes each.

        Raises:
            ParameterError: An outpoint is not 36 bytes long.
        """
        self.index.table = self.table.without(outpoints)
        self.windows.move_to(self.table)

    def add_address_lines(self, chunk: bytes, at: int) -> tuple[int, int]:
        """Watch the addresses on lines of a text file, up to the first line that the kernel's fast path cannot read.

        Args:
            chunk: Bytes of the file.
            at: Offset in `chunk` of the first line to read.

        Returns:
            The number of bytes and the number of lines that were read.

        Raises:
            ParameterError: A label is invalid or may be a private key.
            WatchListInUseError: A running client is using the list.
        """
        self._check_free()
        if self.index.owners.current is not None:
            return 0, 0  # the fast path does not say which entries belong to the account
        network = self.network
        taken, lines, labels = self.table.add_address_lines(
            chunk, at, network.p2pkh_version, network.p2sh_version, network.hrp, _processors()
        )
        for entry, label in labels:
            text = label_of_line(label.decode())
            check_not_private(text)
            self.index.note_label(entry, text)
        return taken, lines

    # Accounts

    def add_account(
        self,
        name: str,
        *sources: str | Keychain | os.PathLike[str],
        label: str | None = None,
        lookahead: int = LOOKAHEAD,
        extend: bool = False,
    ) -> None:
        """Watch an account: a part of the wallet with its own balance and history.

        An entry belongs to one account or none. Sources that the list already watches, but that belong to no account,
        move into this account. If the account already has all sources, nothing changes. With `extend=True` you can add
        addresses to an account, but not descriptors.

        Args:
            name: Name of the account, 1 to 255 printable characters. Names are stored and compared in Unicode NFC.
            sources: One or more addresses, descriptors, extended public keys, Keychain objects, and paths
                (`pathlib.Path`) of files that a wallet exported.
            label: Label of the sources' matches, unless they have labels of their own.
            lookahead: Number of indexes of a descriptor to watch after the last used index, from 20 to 10,000,000.
            extend: True to add sources to an existing account. Otherwise, sources that it does not have are an error.

        Raises:
            ParameterError: An argument is invalid, a source belongs to another account, or the account exists with
                different sources. Spelling a descriptor differently does not make it different.
            AddressError: A source is not an address.
            DescriptorError: A source is not a valid descriptor.
            WatchFileError: A file was not exported by a wallet.
            WatchListInUseError: A running client is using the list.
        """
        self._check_free()
        more = self.of_account(name, sources, self.network, label=label, lookahead=lookahead)
        if self.index.take_account(self.index.plan_account(more.index, extend=extend)):
            self.windows.grow()

    @classmethod
    def of_account(
        cls,
        name: str,
        sources: Iterable[str | Keychain | os.PathLike[str]],
        network: Network,
        *,
        label: str | None = None,
        lookahead: int = LOOKAHEAD,
    ) -> WatchList:
        """Return a watch list with a single account. The arguments are those of `add_account`.

        Raises:
            ParameterError: An argument is invalid.
            AddressError: A source is not an address.
            DescriptorError: A source is not a valid descriptor.
        """
        made = cls(network)
        with made.within_account(checked_name(name)):
            for source in sources:
                if isinstance(source, Keychain):
                    made._add_keychain(source.without_window())
                elif isinstance(source, os.PathLike):
                    textfile.add_wallet_file(made, source)
                elif not isinstance(source, str):
                    raise ParameterError(
                        f"an account's source must be text, a Keychain or a path, not {type(source).__name__}"
                    )
                elif is_descriptor(source) or keys.is_extended_key(source):
                    made.add_descriptor(source, lookahead=lookahead)
                elif os.path.isfile(source):  # noqa: PTH113  pathlib takes long to import
                    raise ParameterError("a source is text that names a file: pass pathlib.Path(name) instead")
                else:
                    texts.add_entry(made, source)
        if made.is_empty:
            raise ParameterError("an account needs a source: an address, a descriptor or a keychain")
        if label := checked_label(label):
            made._label_bare(label)
        return made

    def _label_bare(self, label: str) -> None:
        """Give a label to all keychains and other entries that do not have one."""
        for keychain in self.keychains:
            keychain.label = keychain.label or label
        for number in range(len(self)):
            if self.label(number) is None:
                self.relabel(number, label)

    @contextmanager
    def within_account(self, name: str | None) -> Iterator[None]:
        """Put the entries that are added within a `with` block into an account, or into none if `name` is None.

        Raises:
            ParameterError: The name is invalid.
        """
        before = self.index.owners.current
        self.begin_account(name)
        try:
            yield
        finally:
            self.index.owners.current = before

    def begin_account(self, name: str | None) -> None:
        """Put the entries that are added from now on into an account, or into none if `name` is None.

        Raises:
            ParameterError: The name is invalid.
        """
        if name is not None:
            self.index.owners.names.setdefault(name := checked_name(name))
        self.index.owners.current = name

    def remove_account(self, name: str) -> None:
        """Stop watching an account, and remove its keychains and entries from the list.

        Raises:
            UnknownAccountError: The list has no such account.
            WatchListInUseError: A running client is using the list.
        """
        self._check_free()
        self.index.replace_with(self.index.without_account(normalized(name)))

    def rename_account(self, old: str, new: str) -> None:
        """Rename an account.

        Raises:
            UnknownAccountError: The list has no account `old`.
            ParameterError: The new name is invalid or taken.
            WatchListInUseError: A running client is using the list.
        """
        self._check_free()
        self.index.rename_account(old, new)

    @property
    def accounts(self) -> tuple[str, ...]:
        """Names of the accounts, in the order in which they were added."""
        return self.index.accounts

    def account(self, entry: int) -> str | None:
        """Return the account of the entry with this number in the table, or None if the entry belongs to no account."""
        return self.index.account(entry)

    def __len__(self) -> int:
        """Return the number of entries in the list. Learned outpoints do not count."""
        return len(self.index)

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to watch for: neither entries nor a keychain of an sp() descriptor."""
        return not len(self.table) and not self.windows.silent

    def __contains__(self, script_pubkey: bytes) -> bool:
        """Return True if an output with this scriptPubKey matches an entry of the list."""
        return script_pubkey in self.index

    def __eq__(self, other: object) -> bool:
        """Return True if both lists have the same network, entries, labels, outpoints and keychains, in any order."""
        if not isinstance(other, WatchList):
            return NotImplemented
        named = set(self.accounts) == set(other.accounts)
        return self.network == other.network and named and self._contents() == other._contents()

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # a watch list is mutable

    def _contents(self) -> tuple[object, object, object]:
        table, labels = self.table, self.index.own_labels
        named = {table.entry(entry): label for entry, label in labels.items()}
        owned = {table.entry(entry): account for entry, account in self.index.owners.entries.items()}
        entries = {entry: (named.get(entry), owned.get(entry)) for entry in table.entries()}
        coins = {point: (coin.value, coin.script, labels.get(coin.entry)) for point, coin in table.coins()}
        return entries, coins, self.windows.state()

    def __repr__(self) -> str:
        return f"<WatchList {self.network} {len(self)} entries, {sum(1 for _ in self.table.coins())} outpoints>"

    def copy(self) -> WatchList:
        """Return an independent watch list with the same entries, labels, outpoints and keychains."""
        twin = WatchList(self.network, require_ranged=self._require_ranged)
        twin.index = self.index.copy()
        return twin

    # the pickle lacks the clients that use the list; it names a keychain's function, as pickles do
    def __reduce__(self) -> tuple[object, ...]:
        if self.windows.silent:
            raise TypeError(
                "a watch list with sp() contains a private scan key, so it cannot be pickled: save and load it instead"
            )
        return WatchList._restored, (
            self.network,
            state_of(self.index.table, dict(self.index.own_labels), self.index.windows, self.index.owners),
        )

    @classmethod
    def _restored(cls, network: Network, state: State) -> WatchList:
        made = cls(network)
        index = made.index
        index.table, index.own_labels, index.windows, index.owners = restored(network, state)
        return made

    @property
    def table(self) -> WatchTable:
        """The kernel's table of the list's entries and outpoints. Scans of blocks use it."""
        return self.index.table

    def entries(self) -> Iterator[tuple[EntryKind, bytes, str | None]]:
        """Yield every entry as (kind, bytes, label), in the order in which they were added."""
        return self.index.entries()

    def add_entry(self, kind: EntryKind, value: bytes, label: str | None = None) -> int:
        """Watch one entry, and return its number in the table.

        `kind` and `value` are the first two items that `entries` yields. The scripts of a public key are separate
        entries.

        Returns:
            The number of the entry in the table.

        Raises:
            ParameterError: The label is invalid.
            WatchListInUseError: A running client is using the list.
        """
        self._check_free()
        number = self.table.add(kind, value)
        self.index.note_label(number, label)
        return number

    def relabel(self, number: int, label: str | None) -> None:
        """Replace the label of an entry.

        Args:
            number: Number of the entry in the table.
            label: The new label, or None to remove the old one.

        Raises:
            ParameterError: The label is invalid.
            IndexError: The table has no entry with this number.
        """
        self.index.relabel(number, label)

    def hold(self) -> None:
        """Mark the list as in use by a running client.

        Until the client calls `release`, the `add_…` methods raise WatchListInUseError.
        """
        self._holders += 1

    def release(self) -> None:
        """Mark the list as no longer in use by the client that called `hold`."""
        self._holders -= 1

    def _check_free(self) -> None:
        if self._holders:
            raise WatchListInUseError(
                "a running client is using this watch list and would not search for the entry: call the client's add_… "
                "methods, and add keychains before entering the client"
            )

    def label(self, entry: int) -> str | None:
        """Return the label of the entry with this number in the table, or else the label of its keychain.

        Returns None if there is none.
        """
        return self.index.label(entry)

    @property
    def has_labels(self) -> bool:
        """True if any entry or keychain has a label."""
        return bool(self.index.own_labels) or any(each.label for each in self.keychains)

    def labels(self) -> Mapping[int, str]:
        """Return the result of `label` for each entry that has one, by entry number. Do not change the mapping."""
        if not any(each.label for each in self.keychains):
            return self.index.own_labels
        return {entry: label for entry, label in enumerate(self.index.labels_by_entry()) if label}

    def own_label(self, entry: int) -> str | None:
        """Return the label of the entry with this number in the table, or None if the entry has no label of its own.

        The label of the entry's keychain is ignored.
        """
        return self.index.own_label(entry)

    def script_pubkeys(self) -> Iterator[bytes]:
        """Yield the watched scriptPubKeys, including those of public keys but not bare multisig scripts."""
        return (value for kind, value in self.table.entries() if kind == EntryKind.SCRIPT)

    def outpoints(self) -> Iterator[OutPoint]:
        """Yield every watched outpoint, including learned ones."""
        return (OutPoint.parse(point) for point, _ in self.table.coins())

    def bloom_elements(self) -> list[bytes]:
        """Return the elements of a BIP-37 filter that finds every entry, without duplicates.

        An element is the data of a push or a 36-byte outpoint. The element of a script is its longest push: a key,
        a hash or a witness program.

        BIP-37 finds a spend only by its outpoint, so all known outpoints are elements. If the update flag is ALL, a
        peer inserts new ones itself (BIP-37 § Filter matching algorithm).

        Raises:
            InexpressibleError: Some watched scripts push no data, or the list contains sp() descriptors. The error
                lists the scripts, or the addresses of the descriptors.
        """
        return self.index.bloom_elements()

    def gcs_elements(self, first: int = 0) -> list[bytes]:
        """Return the scriptPubKeys to look up in a BIP-158 filter, without duplicates.

        They include the scripts of known outpoints, and find all outputs and spends that match an entry, except bare
        multisig outputs of public keys.

        Args:
            first: Number, in the table, of the first entry to include, for a caller that already has the scripts of the
                entries before it.

        Raises:
            InexpressibleError: The list contains entries that compact filters cannot find: data elements, outpoints
                whose script is unknown, scripts that start with OP_RETURN, or sp() descriptors. The error lists these
                entries.
        """
        return self.index.gcs_elements(first)

    def match_tx(
        self,
        raw: bytes | Serializable,
        *,
        block_hash: bytes | None = None,
        height: int | None = None,
        time: int | None = None,
        spent: Sequence[TxOut] | None = None,
    ) -> list[Match]:
        """Return the matches in one transaction, and learn the outpoints of matching outputs.

        Silent payments are only certain to be found if you pass `spent`. Without it, a match is reliable, but its
        absence is not.

        Args:
            raw: The transaction, as bytes or an object that serializes to them.
            block_hash: Hash of the transaction's block, 32 bytes in wire order, or None if it is unconfirmed.
            height: Height of the transaction's block, or None if it is unknown.
            time: Time of the transaction's block (Unix time), or None if it is unknown.
            spent: The outputs that the inputs spend, in order, or None if they are unknown.

        Raises:
            FormatError: The transaction is malformed, or `spent` does not contain an output for each input.
            KeychainError: A window must move, but scripts cannot be derived.
            WatchListInUseError: A window must move or a silent payment was found, but a running client is using the
                list.
        """
        tx = to_bytes(raw)
        refuse_psbt(tx)
        scripts = None if spent is None else silentsearch.scripts_of_tx(tx, spent)
        if (search := self.silent_search()) is not None:
            self.add_payments(search.payments(search.tx(tx, scripts)))
        hits = self.table.scan_tx(tx)
        if not hits:  # most transactions of a stream
            return []
        while self.advance(hits):
            hits = self.table.scan_tx(tx)
        is_coinbase = Transaction.parse(tx).is_coinbase
        return self.accept(hits, block_hash=block_hash, height=height, time=time, is_coinbase=is_coinbase)

    def match_block(
        self,
        raw: bytes | Serializable,
        *,
        height: int | None = None,
        spent: bytes | Sequence[Sequence[TxOut]] | None = None,
    ) -> list[Match]:
        """Return the matches in one block, and learn the outpoints of matching outputs.

        Silent payments are only certain to be found if you pass `spent`. Without it, a match is reliable, but its
        absence is not.

        Args:
            raw: The block, as bytes or an object that serializes to them.
            height: Height of the block, or None if it is unknown.
            spent: The outputs that the block spends, or None if they are unknown. They are its undo record with the
                checksum, or a sequence for each transaction after the coinbase, with an output for each input.

        Raises:
            FormatError: The block is malformed, or `spent` does not match it.
            KeychainError: A window must move, but scripts cannot be derived.
            WatchListInUseError: A window must move or a silent payment was found, but a running client is using the
                list.
        """
        block = to_bytes(raw)
        if isinstance(spent, (bytearray, memoryview)):
            spent = bytes(spent)
        scripts = None if spent is None else silentsearch.scripts_of_block(block, spent)
        if (search := self.silent_search()) is not None:
            self.add_payments(search.payments(search.block(block, scripts)))
        record = spent if isinstance(spent, bytes) else None
        hits = self._complete(lambda: self.table.scan_block(block, None, record))
        time = int.from_bytes(block[68:72], "little")
        return self.accept(hits, block_hash=sha256d(block[:HEADER_SIZE]), height=height, time=time)

    def silent_search(self) -> silentsearch.SilentSearch | None:
        """Return a search for the list's silent payments, or None if it contains no sp() descriptor.

        Raises:
            ParameterError: The `silent` extra is not installed.
        """
        keychains = self.windows.silent
        return silentsearch.SilentSearch.of(keychains) if keychains else None

    def add_payments(self, payments: Iterable[silentsearch.Payment]) -> list[bytes]:
        """Watch the scripts of the silent payments that a search found, and return the new scripts.

        Raises:
            WatchListInUseError: A script is new, but a running client is using the list.
        """
        new: list[bytes] = []
        for name, script, found in payments:
            keychain = self.windows.get(name)
            if not is_silent(keychain):
                continue
            if (held := keychain.found.get(script)) is not None:
                if not held.tweak:  # a scan with parts keeps no tweaks
                    keychain.found[script] = found
                continue
            if self._holders:
                raise WatchListInUseError(
                    "a silent payment was found, but a running client is using this watch list: use a copy of the list"
                    " to match"
                )
            if self.index.add_payment(name, script, found) is not None:
                new.append(script)
        return new

    def _complete(self, scan: Callable[[], list[Hit]]) -> list[Hit]:
        """Repeat a scan until its hits move no keychain's window, and return the hits of the last scan."""
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
        """Convert hits of a scan into matches as `matches` does, learn the outpoints of outputs, and move the windows.

        The arguments are the same as for `matches`.

        Raises:
            KeychainError: A window must move, but scripts cannot be derived.
            WatchListInUseError: A window must move, but a running client is using the list.
        """
        found = list(hits)
        self.table.learn(found)
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
        """Convert hits of a scan into matches. The list does not change.

        Args:
            hits: Hits of a scan, all in one block or all in unconfirmed transactions.
            block_hash: Hash of the block, 32 bytes in wire order, or None for unconfirmed transactions.
            height: Height of the block, or None if it is unknown.
            time: Time of the block (Unix time), or None if it is unknown.
            completeness: How certain it is that the search of the block missed no match.
            is_coinbase: True if the transaction at position 0 is a coinbase; by default, True if `block_hash` is given.
        """
        return self.index.matches(
            hits,
            block_hash=block_hash,
            height=height,
            time=time,
            completeness=completeness,
            is_coinbase=is_coinbase,
        )
