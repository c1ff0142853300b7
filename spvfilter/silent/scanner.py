"""The search for outputs that pay a silent payment address, in one transaction at a time (BIP-352 § Scanning)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple, Self

from spvfilter.errors import ParameterError
from spvfilter.hashes import hash160
from spvfilter.kernel import SilentCandidate
from spvfilter.network import MAINNET, Network
from spvfilter.primitives import compact_size
from spvfilter.silent import curve
from spvfilter.silent.address import SilentAddress

MAX_LABELS = 100_000
"""Largest number of labels of one scan key (our choice). Each costs 65 bytes, and 25 µs when it is added."""
MAX_OUTPUTS = 2_323
"""Largest number of outputs in a transaction that may pay one scan key (BIP-352 K_max)."""
CHANGE_LABEL = 0
"""The label of a wallet's change, which is never given out (BIP-352 § Labels for change)."""


class Inputs(NamedTuple):
    """The parsed inputs and outputs of one transaction, which are the same for all scan keys."""

    summary: curve.Point
    """Sum of the inputs' keys, times the hash of the inputs."""
    outputs: list[curve.Point]
    """The taproot outputs whose key is a point on the curve."""
    indexes: list[int]
    """Index of each of these outputs in the transaction."""


@dataclass(frozen=True, slots=True)
class SilentOutput:
    """An output of a transaction that pays a silent payment address."""

    index: int
    """Index of the output in its transaction, counted from 0."""
    key: bytes
    """x-only key of the output, 32 bytes."""
    tweak: bytes = field(repr=False)
    """Secret, 32 bytes, that gives the output's private key when added to the private spend key.

    It includes the label's tweak."""
    label: int | None
    """Number of the label in the address that was paid; None if the address has no label."""

    @property
    def script_pubkey(self) -> bytes:
        """The output's P2TR script."""
        return b"\x51\x20" + self.key


def read_inputs(candidate: SilentCandidate) -> Inputs | None:
    """Parse the keys of a candidate once, for any number of scanners.

    Returns None if the transaction cannot pay a silent payment address. This is the case if no input's key or no
    output's key is on the curve, or if the sum of the inputs' keys is the point at infinity.

    Raises:
        ParameterError: The `silent` extra is not installed.
    """
    parsed = [
        curve.parse_xonly(candidate.taproot_keys[at : at + 32]) for at in range(0, len(candidate.taproot_keys), 32)
    ]
    parsed += [_output_key(control, script) for control, script in candidate.paths]
    keys = [curve.parse_key(candidate.keys[at : at + 33]) for at in range(0, len(candidate.keys), 33)]
    keys += [_hashed_key(script_sig, key_hash) for script_sig, key_hash in candidate.hashed]
    outputs = [(n, curve.parse_xonly(key)) for n, key in candidate.outputs]
    points = [(n, point) for n, point in outputs if point is not None]
    if not points:
        return None
    summary = curve.summary_of(
        candidate.outpoint,
        [key for key in parsed if key is not None],
        [key for key in keys if key is not None],
    )
    return None if summary is None else Inputs(summary, [point for _, point in points], [n for n, _ in points])


def _hashed_key(script_sig: bytes, key_hash: bytes) -> curve.Point | None:
    """Return the compressed key in a (perhaps malleated) scriptSig whose hash is in the spent P2PKH output."""
    for end in range(len(script_sig), 32, -1):
        key = script_sig[end - 33 : end]
        if key[0] in (2, 3) and hash160(key) == key_hash:
            return curve.parse_key(key)
    return None


def _output_key(control_block: bytes, script: bytes) -> curve.Point | None:
    """Return the output key that a control block and its script commit to (BIP-341 § Script validation rules)."""
    leaf = bytes((control_block[0] & 0xFE,)) + compact_size(len(script)) + script
    node = _tagged(b"TapLeaf", leaf)
    for at in range(33, len(control_block), 32):
        node = _tagged(b"TapBranch", b"".join(sorted((node, control_block[at : at + 32]))))
    internal = control_block[1:33]
    return curve.tweaked_xonly(internal, _tagged(b"TapTweak", internal + node))


class Derived(NamedTuple):
    """A key that a sender derives for an output."""

    label: int | None
    """Number of the address's label, or None if it has no label."""
    tweak: bytes
    """Private key that, added to the private spend key, gives the output's private key; without the label's tweak."""


def _tagged(tag: bytes, data: bytes) -> bytes:
    hashed = sha256(tag).digest()
    return sha256(hashed + hashed + data).digest()


def labelled_address(scan_key: bytes, address: SilentAddress, label: int) -> SilentAddress:
    """Return an address with a label. Raises ParameterError for label 0, the wallet's change."""
    if label == CHANGE_LABEL:
        raise ParameterError("label 0 is the wallet's change: its address is never given out (BIP-352)")
    ours = curve.library().silentpayments
    spend = ours.labeled_spend_pubkey(address.spend_pubkey, ours.label(scan_key, label)[0])
    return SilentAddress(address.scan_pubkey, bytes(spend), address.network)


class SilentScanner:
    """Finds the outputs that pay one silent payment address, with the scan key of its owner.

    The scan key finds payments but cannot spend them. No repr, error or pickle shows it, because a reader would learn
    of all payments.
    """

    def __init__(
        self,
        scan_key: bytes,
        spend_pubkey: bytes,
        *,
        labels: Iterable[int] = (CHANGE_LABEL,),
        network: Network = MAINNET,
        most: int = MAX_LABELS,
    ) -> None:
        """Parse the keys, and compute the labels once.

        Args:
            scan_key: Private scan key, 32 bytes.
            spend_pubkey: Compressed public spend key without a label, 33 bytes.
            labels: Numbers of the labels to look for, 0 to 2^32 - 1, at most 100,000. Label 0 is the wallet's change.
            network: Network of the addresses.
            most: Largest number of labels.

        Raises:
            ParameterError: A key is not valid, a label is out of range, or the `silent` extra is not installed.
        """
        numbers = sorted(set(labels))
        if len(numbers) > most:
            raise ParameterError(f"a scan key can have at most {most:,} labels, not {len(numbers):,}")
        if numbers and not 0 <= numbers[0] <= numbers[-1] < 1 << 32:
            raise ParameterError("a label must be a number from 0 to 4,294,967,295")
        if len(scan_key) != 32 or len(spend_pubkey) != 33:
            raise ParameterError(
                f"expected a 32-byte scan key and a compressed 33-byte spend key, got {len(scan_key)} and"
                f" {len(spend_pubkey)}"
            )
        spend = curve.parse_key(spend_pubkey)
        if spend is None:
            raise ParameterError("the spend key is not a point on the secp256k1 curve")
        self._scan_key = scan_key
        self._spend = spend
        self._labels = curve.LabelTable(scan_key, numbers)
        self._points: list[tuple[int, bytes]] = []  # number and public key of each label, computed when needed
        self._joint: tuple[tuple[SilentScanner, ...], curve.LabelTable] | None = None  # other scanners, and the table
        self.spend_pubkey: bytes = spend_pubkey
        """Compressed public spend key without a label, 33 bytes."""
        self.scan_pubkey: bytes = curve.public_key(scan_key)
        """Compressed public key of the scan key, 33 bytes."""
        self.network: Network = network
        """Network of the addresses."""

    def __repr__(self) -> str:
        return f"<SilentScanner {self.address()} labels={len(self._labels.numbers)}>"

    def __reduce__(self) -> tuple[type[Self], tuple[bytes, ...]]:
        raise TypeError(
            "a SilentScanner contains a private key, so it cannot be pickled: create it again from its keys"
        )

    @property
    def labels(self) -> Sequence[int]:
        """Numbers of the labels that the scanner looks for, ascending."""
        return sorted(self._labels.tweaks)

    def address(self, label: int | None = None) -> SilentAddress:
        """Return the address with a label, or without one if `label` is None.

        Raises:
            ParameterError: The label is 0, which is never given out, or the scanner does not look for it.
        """
        plain = SilentAddress(self.scan_pubkey, self.spend_pubkey, self.network)
        if label is None:
            return plain
        if label != CHANGE_LABEL and label not in self._labels.tweaks:
            raise ParameterError(f"the scanner does not look for label {label}: payments to it would not be found")
        return labelled_address(self._scan_key, plain, label)

    def shared(self, tweak: bytes) -> bytes | None:
        """Return the secret that a sender shares with the owner, given the tweak of the sender's transaction.

        The tweak, 33 bytes, is the sum of the inputs' keys times the hash of the inputs (BIP-352 § Light clients). If
        it is not a point on the curve, the result is None.
        """
        return curve.shared_point(tweak, self._scan_key)

    def keys(self, secret: bytes, number: int) -> Iterator[tuple[bytes, Derived]]:
        """Yield the x-only keys, one for each address, that a sender may derive for output `number`, counted from 0."""
        if not self._points:
            self._points = [(label, curve.public_key(tweak)) for label, tweak in self._labels.tweaks.items()]
        tweak = _tagged(b"BIP0352/SharedSecret", secret + number.to_bytes(4, "big"))
        if (plain := curve.plus_private(self.spend_pubkey, tweak)) is None:
            return
        yield plain[1:], Derived(None, tweak)
        for label, point in self._points:
            if (key := curve.sum_of(plain, point)) is not None:
                yield key[1:], Derived(label, tweak)

    def whole_tweak(self, derived: Derived) -> bytes | None:
        """Return the sum of a derived key's tweak and its label's tweak, or None if it is zero."""
        label, tweak = derived
        return tweak if label is None else curve.private_sum(tweak, self._labels.tweaks[label])

    def find(self, inputs: Inputs) -> list[SilentOutput]:
        """Return the outputs that pay the addresses, by ascending index.

        This takes about 0.1 ms for a transaction that pays none of them, and up to 3 s for one with 2,323 payments.
        """
        return [output for _, output in self.find_with((), inputs)]

    def find_with(self, others: Sequence[SilentScanner], inputs: Inputs) -> list[tuple[int, SilentOutput]]:
        """Return the outputs that pay the addresses of this scanner or of others with the same scan key.

        A sender consecutively numbers the outputs to all addresses with the same scan key, no matter what their spend
        keys are. A search ends at the first number without an output, so scanners with the same scan key must search
        together.

        Args:
            others: The other scanners.
            inputs: The parsed transaction.

        Returns:
            Each output with the number of its scanner: 0 for this one, 1 for the first of the others.
        """
        labels = self._labels if not others else self._joint_labels(tuple(others))
        found = curve.scan(self._scan_key, inputs.summary, self._spend, inputs.outputs, labels)
        if not found:
            return []
        place: dict[bytes, list[int]] = {}
        xonly = curve.library().xonly
        for index, point in zip(inputs.indexes, inputs.outputs, strict=True):
            place.setdefault(bytes(xonly.serialize(point)), []).append(index)
        return sorted(
            (
                (owner, SilentOutput(index, key, tweak, number))
                for key, tweak, label in found
                for owner, number in ((0, None) if label is None else labels.owners[label],)
                for index in place.pop(key, ())
            ),
            key=lambda each: each[1].index,
        )

    def _joint_labels(self, others: tuple[SilentScanner, ...]) -> curve.LabelTable:
        """Return the labels of several scanners as labels of this one. The result is cached for the same scanners."""
        if self._joint is None or self._joint[0] != others:
            self._joint = (
                others,
                self._labels.joined([(each.spend_pubkey, each._labels) for each in others], self.spend_pubkey),
            )
        return self._joint[1]


def find_by_tweak(
    scanners: Sequence[SilentScanner], secret: bytes, keys: Collection[bytes]
) -> Iterator[tuple[int, bytes, int | None, bytes]]:
    """Yield the outputs that pay any of several scanners with the same scan key, given only a transaction's tweak.

    Args:
        scanners: The scanners.
        secret: The result of `SilentScanner.shared` for the tweak.
        keys: The x-only keys of the transaction's taproot outputs.

    Yields:
        The number of the scanner, and the key, label and tweak of the output, as in `SilentOutput`.
    """
    left = set(keys)
    for number in range(MAX_OUTPUTS):
        made = ((at, *each) for at, scanner in enumerate(scanners) for each in scanner.keys(secret, number))
        paid = next((each for each in made if each[1] in left), None)
        if paid is None:
            return
        at, key, derived = paid
        left.remove(key)
        if (whole := scanners[at].whole_tweak(derived)) is not None:
            yield at, key, derived.label, whole
