"""Hand-made producers of Arrow's C data interface, honest and hostile. They count how often they are released."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from spvfilter.kernel.pure.arrow import Array, Schema, Stream

_PYTHON = ctypes.pythonapi
_CAPSULE = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", _PYTHON)
)
RELEASE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
FILL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
TELL = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
KEPT: list[Any] = []  # memory of producers, kept until the tests end as C would do


class Producer:
    """An array of one type, and its schema. `changes` apply to the array's struct, `schema_changes` to the schema's."""

    def __init__(
        self,
        format: bytes | None,
        length: int,
        buffers: Sequence[bytes | None],
        *,
        dictionary: Producer | None = None,
        children: Sequence[Producer] = (),
        schema_changes: dict[str, Any] | None = None,
        **changes: Any,
    ) -> None:
        self.released = self.schemas_released = 0
        self.dictionary = dictionary
        self.children = children
        self.memory = [None if raw is None else ctypes.create_string_buffer(raw, max(len(raw), 1)) for raw in buffers]
        addresses = (ctypes.c_void_p * max(len(buffers), 1))(
            *(None if raw is None else ctypes.addressof(raw) for raw in self.memory)
        )
        self._released, self._schema_released = RELEASE(self._release), RELEASE(self._release_schema)
        self.array = Array(
            length=length, null_count=0, n_buffers=len(buffers), buffers=addresses, n_children=len(children)
        )
        self.schema = Schema(format=format, name=b"", flags=2, n_children=len(children))
        if children:
            self.array.children = (ctypes.POINTER(Array) * len(children))(
                *(ctypes.pointer(child.array) for child in children)
            )
            self.schema.children = (ctypes.POINTER(Schema) * len(children))(
                *(ctypes.pointer(child.schema) for child in children)
            )
        if dictionary is not None:
            self.array.dictionary = ctypes.pointer(dictionary.array)
            self.schema.dictionary = ctypes.pointer(dictionary.schema)
        self.array.release = ctypes.cast(self._released, ctypes.c_void_p).value
        self.schema.release = ctypes.cast(self._schema_released, ctypes.c_void_p).value
        for name, value in changes.items():
            setattr(self.array, name, value)
        for name, value in (schema_changes or {}).items():
            setattr(self.schema, name, value)
        KEPT.append((self, addresses))

    def _release(self, array: int) -> None:
        self.released += 1
        Array.from_address(array).release = None

    def _release_schema(self, schema: int) -> None:
        self.schemas_released += 1
        Schema.from_address(schema).release = None

    def __arrow_c_array__(self, requested_schema: object = None, /) -> tuple[object, object]:
        return capsule(self.schema, b"arrow_schema"), capsule(self.array, b"arrow_array")


class Streamed:
    """A stream of producers of one type. It ends with an error of a code and a message, or after the last producer."""

    def __init__(
        self,
        schema: Producer,
        arrays: Sequence[Producer],
        code: int = 0,
        message: bytes | None = None,
        at: str = "next",
    ) -> None:
        self.released = 0
        self.arrays = iter(arrays)
        self.message = None if message is None else ctypes.create_string_buffer(message)

        def get_schema(_: int, to: int) -> int:
            if at == "schema" and code:
                return code
            ctypes.memmove(to, ctypes.addressof(schema.schema), ctypes.sizeof(Schema))
            return 0

        def get_next(_: int, to: int) -> int:
            for producer in self.arrays:
                ctypes.memmove(to, ctypes.addressof(producer.array), ctypes.sizeof(Array))
                return 0
            ctypes.memset(to, 0, ctypes.sizeof(Array))
            return code

        def get_last_error(_: int) -> int | None:
            return None if self.message is None else ctypes.addressof(self.message)

        def release(stream: int) -> None:
            self.released += 1
            Stream.from_address(stream).release = None

        functions: list[Callable[..., Any]] = [FILL(get_schema), FILL(get_next), TELL(get_last_error), RELEASE(release)]
        self.stream = Stream(*(ctypes.cast(function, ctypes.c_void_p).value for function in functions))  # type: ignore[arg-type]
        KEPT.append((self, functions, schema))

    def __arrow_c_stream__(self, requested_schema: object = None, /) -> object:
        return capsule(self.stream, b"arrow_array_stream")


def capsule(struct: ctypes.Structure, name: bytes) -> object:
    """A capsule that refers to a struct and releases nothing."""
    kept = ctypes.create_string_buffer(name)
    KEPT.append((struct, kept))
    return _CAPSULE(ctypes.addressof(struct), ctypes.cast(kept, ctypes.c_char_p), None)


def integers(*numbers: int, width: int = 4) -> bytes:
    """Signed integers LE."""
    return b"".join(number.to_bytes(width, "little", signed=True) for number in numbers)


def view(text: bytes, block: int = 0, at: int = 0, size: int | None = None) -> bytes:
    """The 16 bytes of a view. If the size is above 12, `text` is its prefix."""
    size = len(text) if size is None else size
    return integers(size) + (text.ljust(12, b"\0") if size <= 12 else text[:4] + integers(block, at))
