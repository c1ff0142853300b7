"""Read the fields of P2P messages within limits, check and encode them, and print a peer's bytes safely."""

from __future__ import annotations

from collections.abc import Sequence

from spvfilter.errors import FormatError, ParameterError
from spvfilter.primitives import Reader, compact_size
from spvfilter.protocol import HASH_SIZE

_WIDTHS = {0xFD: 2, 0xFE: 4, 0xFF: 8}  # bytes of the number after the first byte of a CompactSize


class PayloadReader(Reader):
    """A cursor that reads the fields of a message's payload in order.

    It refuses a count that exceeds its limit or the remaining bytes, before memory for the items is allocated.
    """

    __slots__ = ()

    def count(self, field: str, most: int, least: int) -> int:
        """Read and return a CompactSize that gives the number of items that follow.

        Raises FormatError if there are more than `most` items, or if the rest of the payload is too short for that many
        items of `least` bytes.
        """
        at = self.at
        count = self.compact_size(field)
        if count > most:
            raise FormatError(f"must be at most {most}, not {count}", offset=at, field=field)
        if count * least > len(self.raw) - self.at:
            message = (
                f"truncated: {count} items of at least {least} bytes each, but only {len(self.raw) - self.at} bytes "
                "left"
            )
            raise FormatError(message, offset=at, field=field)
        return count

    def var_bytes(self, field: str, most: int) -> bytes:
        """Read a CompactSize length of at most `most`, then return that many bytes.

        Raises FormatError if the length is larger, or if the payload ends too early.
        """
        return self.take(self.count(f"{field} length", most, 0), field)

    def hash(self, field: str) -> bytes:
        """Read and return a 32-byte hash. Raises FormatError if the payload ends too early."""
        return self.take(HASH_SIZE, field)

    def hashes(self, field: str, most: int) -> tuple[bytes, ...]:
        """Read a CompactSize count of at most `most`, then return that many 32-byte hashes.

        Raises FormatError if the count is larger, or if the payload ends too early.
        """
        raw, start = self.raw, self.at
        size = HASH_SIZE * self.count(f"{field} count", most, HASH_SIZE)
        start = self.at
        self.at: int = start + size
        return tuple([raw[at : at + HASH_SIZE] for at in range(start, start + size, HASH_SIZE)])

    def sint(self, size: int, field: str) -> int:
        """Read a signed little-endian number of `size` bytes. Raises FormatError if the payload is too short."""
        return int.from_bytes(self.take(size, field), "little", signed=True)

    def number(self, field: str) -> int:
        """Read and return a CompactSize that is a number, not a length: any u64.

        Raises FormatError if the number is not in its shortest form, or if the payload ends too early.
        """
        at = self.at
        first = self.uint(1, field)
        if first < 0xFD:
            return first
        width = _WIDTHS[first]
        value = self.uint(width, field)
        if len(compact_size(value)) != 1 + width:
            raise FormatError(f"non-canonical CompactSize for {value}", offset=at, field=field)
        return value


def check_uint(value: int, size: int, field: str) -> None:
    """Raise ParameterError, naming the `field`, unless `value` fits into an unsigned number of `size` bytes."""
    if not 0 <= value < 1 << 8 * size:
        raise ParameterError(f"{field} must be from 0 to 2^{8 * size} - 1, not {value}")


def check_int(value: int, size: int, field: str) -> None:
    """Raise ParameterError, naming the `field`, unless `value` fits into a signed number of `size` bytes."""
    if not -(1 << 8 * size - 1) <= value < 1 << 8 * size - 1:
        raise ParameterError(f"{field} must be from -2^{8 * size - 1} to 2^{8 * size - 1} - 1, not {value}")


def check_size(data: bytes, size: int, field: str) -> None:
    """Raise ParameterError, naming the `field`, unless `data` is `size` bytes long."""
    if len(data) != size:
        raise ParameterError(f"{field} must be {size} bytes long, not {len(data)}")


def check_each(pieces: Sequence[bytes], size: int, field: str) -> None:
    """Raise ParameterError, naming the `field`, unless each of `pieces` is `size` bytes long."""
    if others := set(map(len, pieces)) - {size}:
        raise ParameterError(f"{field}: each must be {size} bytes long, not {min(others)}")


def check_most(items: Sequence[object], most: int, field: str) -> None:
    """Raise ParameterError, naming the `field`, if `items` contains more than `most` items or bytes."""
    if len(items) > most:
        raise ParameterError(f"{field}: the length must be at most {most}, not {len(items)}")


def check_hashes(hashes: tuple[bytes, ...], most: int, field: str) -> None:
    """Raise ParameterError if there are more than `most` hashes, or if a hash is not 32 bytes long."""
    check_most(hashes, most, field)
    check_each(hashes, HASH_SIZE, field)


def var_bytes(data: bytes) -> bytes:
    """Return the bytes `data`, preceded by their length as a CompactSize."""
    return compact_size(len(data)) + data


def var_hashes(hashes: tuple[bytes, ...]) -> bytes:
    """Return the concatenated hashes, preceded by their number as a CompactSize."""
    return compact_size(len(hashes)) + b"".join(hashes)


def printable(raw: bytes) -> str:
    r"""Return a peer's bytes as printable ASCII that is safe for a log or a terminal. Other bytes become \xNN."""
    return "".join(chr(byte) if 32 <= byte < 127 and byte != 92 else f"\\x{byte:02x}" for byte in raw)
