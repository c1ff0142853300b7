"""Consensus rules of block headers, checked against a summary of the chain whose size is constant."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, replace

from spvfilter._public import public
from spvfilter.chain.difficulty import PERIOD, SPACING, decode_bits, retarget, target, work
from spvfilter.errors import (
    CheckpointError,
    DifficultyError,
    DiscontinuousHeadersError,
    FutureHeaderError,
    MedianTimeError,
    ProofOfWorkError,
    TargetError,
    TimewarpError,
    VersionError,
)
from spvfilter.kernel import judge_headers, linked_headers
from spvfilter.network import Network
from spvfilter.primitives import hash_to_hex
from spvfilter.protocol import HEADER_SIZE, MAX_FUTURE_BLOCK_TIME, MAX_TIMEWARP

MEDIAN_SPAN = 11  # headers whose median time the next header must exceed; Core chain.h nMedianTimeSpan

_FIELDS = struct.Struct("<i64xII4x")  # of a header: version, time, bits


@public
@dataclass(slots=True)
class Tip:
    """The facts about a chain that decide which next header is valid. Their size does not depend on its length.

    All headers of a difficulty period have the bits of the period's first header, except late headers on test networks.
    A header that is more than 20 minutes later than the previous one has the network's easiest bits. Core searches
    backwards for the last header that is not late (GetNextWorkRequired) and finds the same bits.
    """

    network: Network
    """The network whose rules apply."""
    height: int
    """Height of the chain's last header."""
    hash: bytes
    """Block hash of the chain's last header, 32 bytes in wire order."""
    work: int
    """Expected number of hashes needed to mine the chain up to and including the last header."""
    bits: int
    """Compact bits of the chain's last header."""
    period_bits: int
    """Compact bits of the first header of the current difficulty period."""
    period_time: int
    """Time of the first header of the current difficulty period (Unix time)."""
    times: list[int]
    """Times of the chain's last 11 headers (Unix time), oldest first; fewer near the genesis block."""

    @property
    def hash_hex(self) -> str:
        """The field `hash` in hex, as block explorers show it."""
        return hash_to_hex(self.hash)

    @property
    def median_time(self) -> int:
        """Median of the last 11 headers' times. The next header's time must be above it (Core GetMedianTimePast)."""
        return median(self.times)

    def copy(self) -> Tip:
        """Return a copy that can be advanced independently."""
        return replace(self, times=list(self.times))

    def next_bits(self, time: int) -> int:
        """Return the compact bits that the next header must have if it has this time (Core GetNextWorkRequired)."""
        network, last = self.network, self.times[-1]
        if (self.height + 1) % PERIOD:
            late = network.min_difficulty_blocks and time > last + 2 * SPACING
            return network.pow_limit_bits if late else self.period_bits
        if not network.retargets:
            return self.bits
        return retarget(self.period_bits if network.bip94 else self.bits, last - self.period_time, network.pow_limit)

    def advance(self, headers: bytes, hashes: bytes, now: int, *, index: int = 0) -> None:
        """Validate headers that follow the tip and each other. The last header becomes the tip.

        After an error the tip is in an undefined state and must not be used.

        Args:
            headers: Headers, 80 bytes each.
            hashes: Block hashes of the headers, 32 bytes each.
            now: The current Unix time.
            index: Position of the first header in its message, for errors.

        Raises:
            InvalidHeaderError: A header violates a rule. The subclass says which rule was violated first, in Core's
                order.
            FutureHeaderError: A header's time is more than two hours ahead of `now`.
        """
        at, count = 0, len(headers) // HEADER_SIZE
        while at < count:
            end = min(count, at + max(1, self._next_landmark() - self.height - 1))
            run = headers[HEADER_SIZE * at : HEADER_SIZE * end], hashes[32 * at : 32 * end]
            if end - at > 1:
                self._advance_between_landmarks(*run, now, index + at)
            else:
                self._advance_one(*run, now, index + at)
            at = end

    def _next_landmark(self) -> int:
        """Return the first height above the tip at which the rules change."""
        network, height = self.network, self.height + 1
        fixed = (
            network.bip34_height,
            network.bip66_height,
            network.bip65_height,
            *(known for known, _ in network.checkpoints),
        )
        return min([height + -height % PERIOD, *(at for at in fixed if at >= height)])

    def _advance_one(self, header: bytes, block_hash: bytes, now: int, index: int) -> None:
        """Validate one header, at a height where the rules change."""
        (version, time, bits) = _FIELDS.unpack(header)
        self._judge(block_hash, version, time, bits, now, index)
        self.height, self.hash, self.bits = self.height + 1, block_hash, bits
        self.work += work(bits)
        if not self.height % PERIOD:
            self.period_bits, self.period_time = bits, time
        self.times = [*self.times[1 - MEDIAN_SPAN :], time]

    def _advance_between_landmarks(self, headers: bytes, hashes: bytes, now: int, index: int) -> None:
        """Validate many headers in one call.

        Between landmarks, a header has the bits of its period. A late header has the easiest bits of the network.
        """
        network, usual, easy, count = (
            self.network,
            self.period_bits,
            self.network.pow_limit_bits,
            len(headers) // HEADER_SIZE,
        )
        times = b"".join([time.to_bytes(4, "little") for time in self.times])
        late_by = 2 * SPACING if network.min_difficulty_blocks else 1 << 32  # 2^32 seconds: no header is that late
        latest = min(max(now + MAX_FUTURE_BLOCK_TIME, -1), 1 << 32)
        least = self._least_version(self.height + 1)
        good, late = judge_headers(
            headers, hashes, times, _difficulty(usual), _difficulty(easy), late_by, least, latest
        )
        recent = range(max(0, good - MEDIAN_SPAN), good)
        self.height += good
        self.times = [*self.times, *(int.from_bytes(headers[80 * at + 68 : 80 * at + 72], "little") for at in recent)][
            -MEDIAN_SPAN:
        ]
        if good < count:
            version, time, bits = _FIELDS.unpack_from(headers, HEADER_SIZE * good)
            self._judge(hashes[32 * good : 32 * good + 32], version, time, bits, now, index + good)
            raise AssertionError(f"header {self.height + 1} was found invalid, but violates no rule")
        self.hash, self.bits = hashes[-32:], int.from_bytes(headers[-8:-4], "little")
        self.work += late * work(easy) + (count - late) * work(usual)

    def _least_version(self, height: int) -> int:
        """Return the lowest version that a header at this height may have (BIP-34, BIP-66, BIP-65)."""
        network = self.network
        by_height = ((network.bip65_height, 4), (network.bip66_height, 3), (network.bip34_height, 2))
        return next((version for since, version in by_height if height >= since), -(1 << 31))

    def _judge(self, block_hash: bytes, version: int, time: int, bits: int, now: int, index: int) -> None:
        """Check all rules for the next header in Core's order (Core CheckBlockHeader, ContextualCheckBlockHeader)."""
        network, height = self.network, self.height + 1
        check_proof(block_hash, bits, network, index)
        expected = self.next_bits(time)
        if bits != expected:
            raise DifficultyError(f"header {height} has bits {bits:08x}, not {expected:08x}", index=index)
        known = dict(network.checkpoints).get(height, block_hash)
        if block_hash != known:
            raise CheckpointError(
                f"header {height} is {hash_to_hex(block_hash)}, but the checkpoint is {hash_to_hex(known)}", index=index
            )
        if time <= self.median_time:
            raise MedianTimeError(
                f"header {height} has time {time}, not above the median {self.median_time}", index=index
            )
        if network.bip94 and not height % PERIOD and time < self.times[-1] - MAX_TIMEWARP:
            back = self.times[-1] - time
            raise TimewarpError(
                f"header {height} starts a period {back} seconds before the end of the previous one", index=index
            )
        if time > now + MAX_FUTURE_BLOCK_TIME:
            raise FutureHeaderError(f"header {height} is {time - now} seconds ahead of our clock", index=index)
        least = self._least_version(height)
        if version < least:
            raise VersionError(f"header {height} has version {version}, below {least}", index=index)


def _difficulty(bits: int) -> bytes:
    """Return compact bits and their target in the kernel's form: 4 and 32 bytes, little endian."""
    return bits.to_bytes(4, "little") + target(bits).to_bytes(32, "little")


def median(times: Iterable[int]) -> int:
    """Return the median of some times. For an even number of times, it is the later of the two middle ones.

    This is the rule of Core's GetMedianTimePast.
    """
    ordered = sorted(times)
    return ordered[len(ordered) // 2]


def check_proof(block_hash: bytes, bits: int, network: Network, index: int) -> None:
    """Check that a header's hash meets its own bits (Core CheckProofOfWork).

    Raises TargetError if the network does not allow the bits, and ProofOfWorkError if the hash is above the target.
    """
    value, negative, overflow = decode_bits(bits)
    if negative or overflow or not value or value > network.pow_limit:
        cause = (
            "negative" if negative else "overflowing" if overflow else "above the network's limit" if value else "zero"
        )
        raise TargetError(f"bits {bits:08x} do not encode a valid target: {cause}", index=index)
    if int.from_bytes(block_hash, "little") > value:
        raise ProofOfWorkError(f"hash {hash_to_hex(block_hash)} is above the target of bits {bits:08x}", index=index)


def check_links(headers: bytes, hashes: bytes) -> None:
    """Check that headers follow each other. Raises DiscontinuousHeadersError if a header does not."""
    index = linked_headers(headers, hashes)
    if index * HEADER_SIZE < len(headers):
        previous = headers[HEADER_SIZE * index + 4 : HEADER_SIZE * index + 36]
        raise DiscontinuousHeadersError(
            f"header {index} follows {hash_to_hex(previous)}, not the header before it", index=index
        )


def check_proofs(headers: bytes, hashes: bytes, network: Network) -> None:
    """Check that headers follow each other and meet their own bits. They need not follow a known chain."""
    check_links(headers, hashes)
    for index, (_, _, bits) in enumerate(_FIELDS.iter_unpack(headers)):
        check_proof(hashes[32 * index : 32 * index + 32], bits, network, index)
