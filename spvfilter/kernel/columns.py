"""Batches of keys that are not lists or plain buffers: arrays and columns of NumPy, pandas, polars, Arrow and DuckDB.

This module imports none of these libraries: if an object of one of them exists, its library has been imported. Both
kernels call `batch_of`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

from spvfilter._public import deferred
from spvfilter.errors import ParameterError

if TYPE_CHECKING:
    import numpy
    from typing_extensions import Buffer

    from spvfilter.kernel import masks

    NumpyArray: TypeAlias = numpy.ndarray[Any, Any]
else:
    masks = deferred("spvfilter.kernel.masks")  # it needs NumPy

# Kinds of pieces. csrc/binding/cores/batch.c has the same numbers.
KEYS = 0  # A list of keys.
BUFFER = 1  # A buffer of rows of bytes, or of integers that are taken as their bytes (see BitCore.update).
VALUES = 2  # A buffer whose items are keys of the type that `add` takes.
ARRAY = 3  # The result of __arrow_c_array__: a tuple of two capsules.
STREAM = 4  # The result of __arrow_c_stream__: a capsule.

_AT_ONCE = 1 << 14  # Number of objects that are converted to a list in one step (our choice).
_BUFFERED = "biufcSU?V"  # Kinds of NumPy's types that have buffers. The kernel decides which of them can be keys.


class ArrowArray(Protocol):
    """An array of Arrow's C data interface."""

    def __arrow_c_array__(self, requested_schema: object = None, /) -> tuple[object, object]:
        """Return the schema and the array as two capsules."""
        ...


class ArrowStream(Protocol):
    """A stream of arrays of Arrow's C data interface."""

    def __arrow_c_stream__(self, requested_schema: object = None, /) -> object:
        """Return the stream as a capsule."""
        ...


class HasArray(Protocol):
    """An array, a column or a series of NumPy, pandas, polars or pyarrow."""

    def __array__(self) -> object:
        """Return the keys as a NumPy array."""
        ...


class Mask(Protocol):
    """A boolean array of the library that the keys came from."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[object]: ...
    def __getitem__(self, at: int, /) -> object: ...


Nulls = Literal["raise", "skip"]  # Handling of nulls in a batch: an error, or skipped.
Padding = Literal["keep", "strip"]  # Handling of the zeros at the end of NumPy's byte strings (S).
Column: TypeAlias = "HasArray | ArrowArray | ArrowStream"
Keys: TypeAlias = "Iterable[object] | Buffer | Column"


class BatchPieces(NamedTuple):
    """The pieces of a batch."""

    pieces: Iterable[tuple[int, object]]
    """The kind and the contents of each piece."""
    answer: Callable[[bytes], object]
    """Function that turns one byte for each key into a mask of the library that the keys came from."""


def skips(nulls: object) -> bool:
    """Return True if nulls are skipped. Raises ParameterError unless `nulls` is "raise" or "skip"."""
    if isinstance(nulls, str) and nulls in ("raise", "skip"):
        return nulls == "skip"
    raise ParameterError(f"nulls must be 'raise' or 'skip', not {nulls!r}")


def keeps(padding: object) -> bool | None:
    """Return True if byte strings keep the zeros at their end, False if they lose them, or None if `padding` is None.

    Raises ParameterError unless `padding` is "keep", "strip" or None.
    """
    if padding is None or (isinstance(padding, str) and padding in ("keep", "strip")):
        return None if padding is None else padding == "keep"
    raise ParameterError(f"padding must be 'keep' or 'strip', not {padding!r}")


def is_missing(key: object) -> bool:
    """Return True if an object stands for a missing key: None, or NaN, which tables use for a missing string."""
    return key is None or (type(key) is float and key != key)


def batch_of(keys: Any, skip: bool) -> BatchPieces | None:
    """Return the pieces of a batch, or None for a plain buffer or iterable.

    Raises TypeError for a table with several columns, for an array that cannot contain keys and, unless `skip` is True,
    for nulls that the kernel would not see.
    """
    rooms = _packages_of(keys)
    if "numpy" in rooms and isinstance(keys, sys.modules["numpy"].ndarray):
        return _of_numpy(keys, skip)
    if "pandas" in rooms and isinstance(keys, _of_pandas_types(pandas := sys.modules["pandas"])):
        return _of_pandas(pandas, keys, skip)
    kind = type(keys)
    if hasattr(kind, "__arrow_c_array__"):
        capsules = keys.__arrow_c_array__()
        if not isinstance(capsules, tuple) or len(capsules) != 2:
            raise TypeError(f"__arrow_c_array__ must return two capsules, not {capsules!r}")
        return BatchPieces([(ARRAY, capsules)], _answer_for(keys))
    if hasattr(kind, "__arrow_c_stream__"):
        return BatchPieces([(STREAM, keys.__arrow_c_stream__())], _answer_for(keys))
    return None


def _packages_of(keys: object) -> set[str]:
    """Return the packages that define an object's classes.

    They are fully imported, because a package that another thread is still importing has no objects yet.
    """
    return {str(base.__module__).partition(".")[0] for base in type(keys).__mro__}


def _of_pandas_types(pandas: Any) -> tuple[type, ...]:
    return pandas.DataFrame, pandas.Series, pandas.Index, pandas.api.extensions.ExtensionArray


def _answer_for(keys: Any) -> Callable[[bytes], object]:
    """Return the function that makes the mask for an object of Arrow's C data interface."""
    rooms = _packages_of(keys)
    if "polars" in rooms and isinstance(keys, ((polars := sys.modules["polars"]).Series, polars.DataFrame)):
        return partial(_polars_mask, polars)
    if "pyarrow" in rooms:
        return partial(_pyarrow_mask, sys.modules["pyarrow"])
    return bytes


def _polars_mask(polars: Any, mask: bytes) -> object:
    numpy = sys.modules.get("numpy")
    return polars.Series(
        list(map(bool, mask)) if numpy is None else numpy.frombuffer(mask, numpy.bool_), dtype=polars.Boolean
    )


def _pyarrow_mask(pyarrow: Any, mask: bytes) -> object:
    return pyarrow.Array.from_buffers(pyarrow.uint8(), len(mask), [None, pyarrow.py_buffer(mask)]).cast(pyarrow.bool_())


def _of_numpy(keys: Any, skip: bool) -> BatchPieces:
    masked = sys.modules.get("numpy.ma")
    if masked is not None and isinstance(keys, masked.MaskedArray):
        missing = masked.getmaskarray(keys)
        if missing.ndim != 1 and missing.any():
            raise TypeError(f"a masked array of keys must have one dimension, not {missing.ndim}")
        return _without(missing, masked.getdata(keys), masked.getdata, skip, BUFFER)
    return BatchPieces(_pieces_of(keys, BUFFER), masks.BoolMask.of)


def _pieces_of(array: Any, kind: int) -> Iterable[tuple[int, object]]:
    """Return the pieces of a NumPy array."""
    if array.dtype.kind in ("O", "T"):  # NumPy has no buffer for objects and for strings of variable length
        if array.ndim != 1:
            raise TypeError(f"an array of keys must have one dimension, not {array.ndim}")
        return _lists(array)
    if array.dtype.kind not in _BUFFERED:
        raise TypeError(f"an array of keys must contain text, byte strings or integers, not {array.dtype}")
    return [(kind, array)]


def _lists(array: Any) -> Iterator[tuple[int, object]]:
    for at in range(0, len(array), _AT_ONCE):
        yield KEYS, array[at : at + _AT_ONCE].tolist()


def _of_pandas(pandas: Any, keys: Any, skip: bool) -> BatchPieces:
    if isinstance(keys, pandas.DataFrame):
        if keys.shape[1] != 1:
            raise TypeError(f"keys: expected one column, got {keys.shape[1]}: choose one of them")
        keys = keys.iloc[:, 0]
    import numpy  # pandas has imported it already

    values = keys if isinstance(keys, pandas.api.extensions.ExtensionArray) else keys.array
    if _is_arrow(pandas, values.dtype):
        return BatchPieces([(STREAM, _chunks(values).__arrow_c_stream__())], masks.BoolMask.of)
    return _without(numpy.asarray(values.isna()), values, lambda present: present.to_numpy(), skip, VALUES)


def _is_arrow(pandas: Any, dtype: Any) -> bool:
    """Return True if pandas stores a column in Arrow's memory."""
    arrow: ModuleType | None = getattr(pandas, "ArrowDtype", None)
    return (arrow is not None and isinstance(dtype, arrow)) or (  # type: ignore[arg-type]  # ArrowDtype is a class
        isinstance(dtype, pandas.StringDtype) and dtype.storage == "pyarrow"
    )


def _chunks(values: Any) -> Any:
    """Return a pandas column that is stored in Arrow's memory as a pyarrow ChunkedArray."""
    array = values.__arrow_array__()
    return array if hasattr(array, "__arrow_c_stream__") else sys.modules["pyarrow"].chunked_array([array])


def _without(missing: Any, values: Any, as_array: Callable[[Any], Any], skip: bool, kind: int) -> BatchPieces:
    """Return the batch of a column without its missing keys.

    Args:
        missing: Mask of the missing keys.
        values: The column.
        as_array: Converts the column to a NumPy array.
        skip: True to skip missing keys, False to raise TypeError for the first one.
        kind: Kind of the pieces.
    """
    answer = masks.BoolMask.of
    if not missing.any():
        return BatchPieces(_pieces_of(as_array(values), kind), answer)
    if not skip:
        raise TypeError(f"key {int(missing.argmax())} is null, which is not a key: nulls='skip' leaves nulls out")

    def answer_all(mask: bytes) -> object:
        spread = answer(bytes(len(missing)))
        spread[~missing] = answer(mask)
        return spread

    return BatchPieces(_pieces_of(as_array(values[~missing]), kind), answer_all)
