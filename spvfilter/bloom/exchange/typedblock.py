"""TypedBlockFilter: the filter of a Parquet column of floats, decimals, dates, times or timestamps.

Parquet stores such keys as numbers of 32 or 64 bits, and a filter hashes the stored bytes:

- The bytes of a float are plain and little endian.
- A date is the number of days since 1970.
- A time is the number of milliseconds, microseconds or nanoseconds since midnight, a timestamp since 1970.
- A decimal is an integer, or an integer in big-endian bytes.

Source: parquet-format, LogicalTypes.md and BloomFilter.md.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from numbers import Real
from typing import TYPE_CHECKING, Literal, NamedTuple, Self, cast, get_args

from spvfilter._public import public
from spvfilter.bloom.exchange.splitblock import ParquetType, SplitBlockFilter
from spvfilter.errors import KeyRangeError, MismatchError, ParameterError
from spvfilter.kernel import columns
from spvfilter.kernel.columns import Keys, Nulls, Padding

if TYPE_CHECKING:
    from typing_extensions import Buffer


TypedKeys = Literal[  # Type of the keys, with the unit in which the file stores them.
    "float", "double", "date", "time-ms", "time-us", "time-ns", "timestamp-ms", "timestamp-us", "timestamp-ns"
]
_PHYSICAL: dict[str, ParquetType] = dict.fromkeys(get_args(TypedKeys), "int64")
_PHYSICAL |= dict.fromkeys(("float", "date", "time-ms"), "int32")
_FLOATS = {"float": (struct.Struct("<f"), struct.Struct("<i")), "double": (struct.Struct("<d"), struct.Struct("<q"))}
_NANOSECONDS = {"ms": 1_000_000, "us": 1_000, "ns": 1}
_MAX_DIGITS = 1_000  # Digits of a decimal (our choice): Arrow has at most 76.
_MAX_BYTES = 512  # Bytes of a decimal (our choice): enough for 1,000 digits.
_EPOCH = datetime(1970, 1, 1)  # stored times have no time zone
_MICROSECOND = timedelta(microseconds=1)


@public
class ParquetDecimal(NamedTuple):
    """Keys of TypedBlockFilter that are Decimal objects."""

    scale: int
    """Digits after the decimal point, 0 or more."""
    stored: Literal["int32", "int64"] | int | None = "int64"
    """Type of the column: an integer, the size of its fixed bytes, or None for bytes of any size."""


@public
class TypedBlockFilter(SplitBlockFilter):
    """A filter of a Parquet file whose keys are floats, decimals, dates, times or timestamps.

    Keys of "float" and "double" are hashed as they are: the format has no rule for -0.0 and NaN, and readers treat them
    differently. Other keys are objects from `decimal` and `datetime`, or stored values. A timestamp with a time zone is
    converted to UTC.

    Batches are iterables, or columns of pyarrow, polars and pandas. They take about 1 µs per key.

    Args:
        capacity: Number of keys.
        fp_rate: Highest false-positive rate at `capacity` keys, between 0 and 1.
        keys: Type of the keys, with the unit of the column; ParquetDecimal for decimals.

    Raises:
        ParameterError: An argument is outside its domain, or the keys need more than 128 MiB.
    """

    __slots__ = ("_kind",)

    def __init__(self, capacity: int, fp_rate: float, *, keys: TypedKeys | ParquetDecimal) -> None:
        super().__init__(capacity, fp_rate, keys=cast(ParquetType, keys))

    @classmethod
    def from_bytes(cls, raw: Buffer, *, keys: TypedKeys | ParquetDecimal) -> Self:  # type: ignore[override]
        """Parse a filter of a Parquet file; see `SplitBlockFilter.from_bytes`. Raises FormatError or ParameterError."""
        return super().from_bytes(raw, keys=cast(ParquetType, keys))

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, keys: TypedKeys | ParquetDecimal) -> Self:  # type: ignore[override]
        """Read a filter that `save` wrote. Raises the same errors as `SplitBlockFilter.open`."""
        return super().open(path, keys=cast(ParquetType, keys))

    def _set_up(self, blocks: Buffer, keys: ParquetType) -> None:
        kind: object = keys
        if isinstance(kind, ParquetDecimal):
            physical = _physical(kind)
        elif isinstance(kind, str) and kind in _PHYSICAL:
            physical = _PHYSICAL[kind]
        else:
            raise ParameterError(f"keys must be {', '.join(_PHYSICAL)} or a ParquetDecimal, not {keys!r}")
        self._kind: str | ParquetDecimal = kind
        super()._set_up(blocks, physical)

    @property
    def keys(self) -> ParquetType:
        """Type of the keys."""
        return cast(ParquetType, self._kind)

    def __eq__(self, other: object) -> bool:
        """Return True if both filters have the same type of keys and the same bits."""
        return super().__eq__(other) and isinstance(other, TypedBlockFilter) and self._kind == other._kind

    __hash__ = None

    def _same_shape(self, other: object, /) -> None:
        if isinstance(other, TypedBlockFilter) and self._kind != other._kind:
            raise MismatchError(f"the filters have different types of keys: {self._kind} and {other._kind}")
        super()._same_shape(other)  # type: ignore[arg-type]

    def add(self, key: object, /) -> bool:
        """Add a key. Return True if it was new. Raises TypeError, KeyRangeError or ReadOnlyError."""
        return super().add(stored(key, self._kind))

    def __contains__(self, key: object) -> bool:
        return super().__contains__(stored(key, self._kind))

    def __ior__(self, other: Self) -> Self:  # type: ignore[misc, override]
        self._same_shape(other)
        return super().__ior__(other)

    def update(self, *keys: Keys, nulls: Nulls = "raise", padding: Padding | None = None) -> int:
        """Add batches of keys, and return how many keys were new. Raises TypeError, KeyRangeError or ReadOnlyError.

        `nulls` says what to do with None among the keys: "raise" raises an error, "skip" leaves them out.
        """
        return super().update(*(self._stored(batch) for batch in keys), nulls=nulls, padding=padding)

    def contains_many(self, keys: Keys, /, *, nulls: Nulls = "raise", padding: Padding | None = None) -> bytes:  # type: ignore[override]
        """Test a batch of keys, and return one byte for each: 1 if it is contained, else 0.

        For a column of pyarrow or polars the result is a mask of its library. Raises TypeError or KeyRangeError.
        """
        found = super().contains_many(self._stored(keys), nulls=nulls, padding=padding)
        if hasattr(keys, "to_pylist") or hasattr(keys, "to_arrow"):  # pyarrow or polars
            batch = columns.batch_of(keys, True)
            return found if batch is None else batch.answer(found)  # type: ignore[return-value]
        return found

    def _stored(self, keys: object) -> Iterator[int | bytes | None]:
        """Yield the stored value of each key of a batch. None stays None."""
        if getattr(getattr(keys, "dtype", None), "kind", "") in ("m", "M") and not hasattr(keys, "to_list"):
            raise TypeError("NumPy's dates have no fixed unit: pass a column of pyarrow, polars or pandas")
        if isinstance(keys, (str, bytes, bytearray)):
            raise TypeError(f"expected a batch of keys, not one {type(keys).__name__}")
        for name in ("to_pylist", "to_list", "tolist"):
            if hasattr(keys, name):
                keys = getattr(keys, name)()
                break
        batch = cast(Iterable[object], keys)
        kind = self._kind
        missing = columns.is_missing
        return (None if missing(key) and not isinstance(key, float) else stored(key, kind) for key in batch)


def _physical(keys: ParquetDecimal) -> ParquetType:
    """Return the type of a column of decimals. Raises ParameterError if no column can have this type."""
    scale, form = keys
    if not isinstance(scale, int) or not 0 <= scale <= _MAX_DIGITS:
        raise ParameterError(f"scale must be 0 to {_MAX_DIGITS}, not {scale!r}")
    if form in ("int32", "int64"):
        return cast(ParquetType, form)
    if form is not None and (not isinstance(form, int) or not 1 <= form <= _MAX_BYTES):
        raise ParameterError(f"stored must be 'int32', 'int64', 1 to {_MAX_BYTES} bytes or None, not {form!r}")
    return "bytes"


def _stored_decimal(key: object, kind: ParquetDecimal) -> int | bytes:
    """Return the number or the bytes that Parquet stores for a decimal. Raises TypeError or KeyRangeError."""
    scale, form = kind
    if isinstance(key, bytes if form is None or isinstance(form, int) else int) and not isinstance(key, bool):
        return key
    if not isinstance(key, Decimal):
        raise TypeError(
            f"the key must be a Decimal or its stored value, not {type(key).__name__}: the filter's keys are decimals"
        )
    if not key.is_finite():
        raise KeyRangeError("the decimal is not finite")
    sign, digits, exponent = key.as_tuple()
    assert isinstance(exponent, int)
    if not any(digits):
        digits, exponent = (0,), 0
    if max(len(digits), len(digits) + exponent) > _MAX_DIGITS:
        raise KeyRangeError(f"the decimal must have at most {_MAX_DIGITS} digits")
    shift = scale + exponent
    whole = int("".join(map(str, digits)))
    amount, rest = (whole * 10**shift, 0) if shift >= 0 else divmod(whole, 10 ** min(-shift, len(digits)))
    if rest:
        raise KeyRangeError(f"the decimal has more than {scale} digits after the point, the scale of the column")
    number: int = -amount if sign else amount
    if isinstance(form, str):
        return number
    size = ((number + (number < 0)).bit_length() + 8) // 8 if form is None else form
    try:
        return number.to_bytes(size, "big", signed=True)
    except OverflowError:
        raise KeyRangeError(f"the decimal does not fit into the {size} bytes of the column") from None


def stored(key: object, kind: str | ParquetDecimal) -> int | bytes:
    """Return the number or the bytes that Parquet stores for a key. Raises TypeError or KeyRangeError."""
    if isinstance(kind, ParquetDecimal):
        return _stored_decimal(key, kind)
    if kind in _FLOATS:
        if isinstance(key, int) or not isinstance(key, Real):
            raise TypeError(f"the key must be a float, not {type(key).__name__}: the filter's keys are of type {kind}")
        plain, number = _FLOATS[kind]
        try:
            return cast(int, number.unpack(plain.pack(float(key)))[0])
        except OverflowError:
            raise KeyRangeError(f"the number is outside the range of {kind}") from None
    if isinstance(key, int) and not isinstance(key, bool):
        return key
    kind, _, unit = kind.partition("-")
    match kind, key:
        case "date", date() if not isinstance(key, datetime):
            return (key - _EPOCH.date()).days
        case "time", time():
            passed = datetime.combine(_EPOCH, key.replace(tzinfo=None)) - _EPOCH
        case "timestamp", datetime():
            passed = (key if key.tzinfo is None else key.astimezone(UTC).replace(tzinfo=None)) - _EPOCH
        case _:
            raise TypeError(
                f"the key must be a {kind} from datetime or an int, not {type(key).__name__}: the keys are {kind}s"
            )
    whole, rest = divmod(passed // _MICROSECOND * 1000 + getattr(key, "nanosecond", 0), _NANOSECONDS[unit])
    if rest:
        raise KeyRangeError(f"the {kind} is finer than the unit of the column, {unit}")
    return whole
