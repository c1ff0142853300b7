"""SilentKeychain: the keychain of an sp() descriptor, whose scripts are found in transactions, not derived."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import ClassVar, NamedTuple, Self

from spvfilter.errors import KeychainError, ParameterError
from spvfilter.silent.scanner import CHANGE_LABEL, MAX_LABELS, SilentScanner, labelled_address
from spvfilter.watch.arguments import checked_label
from spvfilter.watch.descriptor.silent import SilentDescriptor
from spvfilter.watch.keychain import Keychain

MAX_LABEL = (1 << 32) - 1
"""Largest number of a label (BIP-352 § Labels: 32 bits)."""


class Found(NamedTuple):
    """An output script that pays a silent payment address."""

    label: int | None
    """Number of the label of the address that was paid, or None if that address has no label."""
    tweak: bytes
    """The 32-byte secret that, added to the private spend key, gives the output's private key.

    It is empty if a scan into files found the payment, because such files contain no secrets."""

    def __repr__(self) -> str:
        return f"Found(label={self.label})"


def anchor_of(descriptor: SilentDescriptor) -> bytes:
    """Return the script that represents a descriptor's keychain."""
    keys = descriptor.scan_key + descriptor.spend_pubkey
    return b"\0\x20" + sha256(b"spvfilter silent payments" + keys).digest()


class SilentKeychain(Keychain):
    """The payments to the addresses of one scan key.

    Its scripts are not derived from indexes. Instead, the scripts of the payments that are found become entries of the
    watch list that belong to this keychain. They form a set, so the order in which blocks are searched does not matter.

    In a client's list, one more entry, the `anchor`, represents the keychain: a block that was searched for the anchor
    was searched for payments. The anchor then has index 0, and found scripts have index 1. Elsewhere the window is
    empty.
    """

    finds_scripts: ClassVar[bool] = True

    def __init__(self, descriptor: SilentDescriptor, *, label: str | None = None) -> None:
        super().__init__(str(descriptor.address), self._none, label=label, descriptor=descriptor.text, keys=0)
        self.silent: SilentDescriptor = descriptor
        """The descriptor with the scan key."""
        self.found: dict[bytes, Found] = {}
        """The payments that have been found, by script."""
        self.labels: dict[int, str | None] = {}
        """The text of each declared label, or None, by the label's number."""
        self.depth: int = 0
        """Labels up to this number are searched for even if they are neither declared nor revealed."""
        self.is_anchored: bool = False
        """True if the anchor is an entry of the list."""
        self._ready: set[int] = set()  # labels that are searched for because they may be revealed at any moment
        self._counted: tuple[tuple[int, ...], int] = (0, 0, 0, 0), 1  # `size_of_labels`, and the labels to search for
        self._made: tuple[SilentScanner, tuple[int, ...]] | None = None  # with its `size_of_labels`

    def _none(self, index: int) -> tuple[bytes, ...]:
        if index == 0:
            return (self.anchor,)
        raise KeychainError("the outputs of a silent payment address are found in transactions, not derived")

    @property
    def anchor(self) -> bytes:
        """A script that represents the keychain.

        No sender can pay it, because computing it takes the private scan key.
        """
        return anchor_of(self.silent)

    @property
    def end(self) -> int:
        return 1 + bool(self.found) if self.is_anchored else 0

    def restore(self, count: int, last: tuple[bytes, ...]) -> None:
        self.is_anchored = self.is_anchored or count > 0

    @property
    def required(self) -> int:
        return 0

    def missing(self, margin: int = 0, most: int = 0) -> range:
        return range(0)

    def derivations(self, margin: int = 0) -> int:
        return 0

    @property
    def next_index(self) -> int | None:
        return None

    @property
    def index_to_reveal(self) -> int | None:
        """The number of the label to reveal next, from 1. Labels that are declared or paid are skipped."""
        taken = {*self.labels, *(each.label for each in self.found.values())}
        number = max(1, self.revealed)
        while number in taken:
            number += 1
        return number if number <= MAX_LABELS else None

    def see(self, index: int) -> None:
        """Do nothing: an address may be paid any number of times."""

    def use(self, index: int) -> bool:
        return False

    def searches(self, label: int) -> bool:
        """Return True if payments to a label are searched for."""
        below = max(self.depth + 1, self.revealed)
        return 0 <= label < below or label in self.labels or label in self._ready or label == CHANGE_LABEL

    def numbers(self) -> set[int]:
        """Return the numbers of all labels to search for."""
        return {CHANGE_LABEL, *range(1, max(self.depth + 1, self.revealed)), *self.labels, *self._ready}

    @property
    def count(self) -> int:
        """The number of labels to search for, including that of the change."""
        size, count = self._counted
        if size != (present := self.size_of_labels):
            count = self._count_to(self.depth)
            self._counted = present, count
        return count

    def _count_to(self, depth: int) -> int:
        below = max(depth + 1, self.revealed)
        return below + sum(1 for number in self.labels.keys() | self._ready if number >= below)

    def check_labels(self) -> None:
        """Raise ParameterError if there are more than 100,000 labels to search for."""
        self._check_count(self.count)

    def _check_count(self, count: int) -> None:
        if count > MAX_LABELS + 1:  # the change also has a label
            raise ParameterError(
                f"a scan key can have at most {MAX_LABELS:,} labels, but {count - 1:,} labels of {self.name[:20]}…"
                " would be declared, revealed or searched for"
            )

    @property
    def scanner(self) -> SilentScanner:
        """The scanner with all labels. Making one takes 25 µs for each label, whenever the labels have changed.

        Raises:
            ParameterError: There are more than 100,000 labels, or the `silent` extra is not installed.
        """
        return self.scanner_for_thread()()

    def scanner_for_thread(self) -> Callable[[], SilentScanner]:
        """Return a function that returns the scanner for the current labels. Another thread may call that function."""
        size = self.size_of_labels
        if self._made is not None and self._made[1] == size:
            made = self._made[0]
            return lambda: made
        numbers, silent = self.numbers(), self.silent

        def make() -> SilentScanner:
            most = MAX_LABELS + 1  # the change also has a label
            key, spend = silent.scan_key, silent.spend_pubkey
            scanner = SilentScanner(key, spend, labels=numbers, network=silent.network, most=most)
            self._made = scanner, size
            return scanner

        return make

    @property
    def size_of_labels(self) -> tuple[int, ...]:
        """Numbers that change exactly when labels are added to the search. Labels are never removed from it."""
        return self.depth, self.revealed, len(self.labels), len(self._ready)

    def address(self, label: int | None = None) -> str:
        """Return the address, with a label if one is given.

        Raises:
            ParameterError: The label is 0, or no payments to it would be found.
        """
        if label is None:
            return self.name
        if label != CHANGE_LABEL and not self.searches(label):
            raise ParameterError(f"the keychain does not search for label {label}: payments to it would not be found")
        return str(labelled_address(self.silent.scan_key, self.silent.address, label))

    def to_reveal(self) -> tuple[int, str]:
        """Return the number of the label to reveal next, and its address. Payments to it are found from now on.

        Raises:
            ParameterError: All labels are revealed, or there are too many.
        """
        if (number := self.index_to_reveal) is None:
            raise ParameterError(f"all {MAX_LABELS:,} labels of {self.name[:20]}… are already revealed or declared")
        if not self.searches(number):
            self._check_count(self.count + 1)
            self._ready.add(number)
        return number, self.address(number)

    def declare(self, number: int, text: str | None = None) -> None:
        """Search for a label from now on, and set its text.

        Raises:
            ParameterError: The number or the text is out of range, or there are more than 100,000 labels.
        """
        if not 0 <= number <= MAX_LABEL:
            raise ParameterError(f"the number of a label must be from 0 to {MAX_LABEL:,}, not {number}")
        label, count = checked_label(text), self.count + (not self.searches(number))
        self._check_count(count)
        self.labels[number] = label or self.labels.get(number)
        self._counted = self.size_of_labels, count

    def search_to(self, number: int) -> None:
        """Search for all labels up to a number.

        Raises:
            ParameterError: The number is not between 0 and 100,000, or there are more than 100,000 labels.
        """
        if not 0 <= number <= MAX_LABELS:
            raise ParameterError(f"labels can be searched for up to number {MAX_LABELS:,}, not {number}")
        depth = max(self.depth, number)
        self._check_count(self._count_to(depth))
        self.depth = depth

    def text_of(self, label: int | None) -> str | None:
        """Return the text of a declared label, or None if there is none."""
        return None if label is None else self.labels.get(label)

    def take_from(self, other: SilentKeychain) -> None:
        """Take over the labels of another keychain with the same name, but not the payments that it found."""
        for number, text in other.labels.items():
            self.labels[number] = text or self.labels.get(number)
        self.depth, self._ready = max(self.depth, other.depth), self._ready | other._ready

    def state(self) -> tuple[object, ...]:
        return *super().state(), frozenset(self.found.items()), frozenset(self.labels.items()), self.depth

    def without_window(self) -> Self:
        made = type(self)(self.silent, label=self.label)
        made.account, made._revealed = self.account, self._revealed
        made.take_from(self)
        return made

    def copy(self) -> Self:
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin.found, twin.labels, twin._ready = self.found.copy(), self.labels.copy(), self._ready.copy()
        return twin

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("an sp() keychain contains a private scan key, so it cannot be pickled")
