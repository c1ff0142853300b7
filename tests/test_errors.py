"""The error tree: every class survives pickling with its attributes, and is found under its base."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest

from spvfilter import errors

ARGUMENTS: dict[str, tuple[tuple[object, ...], dict[str, object]]] = {
    "FormatError": (("truncated",), {"offset": 5, "field": "outpoint"}),
    "WrongNetworkError": (("an address of testnet3", ("testnet3", "signet")), {}),
    "InexpressibleError": (("cannot find", ("51", "6a")), {}),
    "RefusedError": (("txn-mempool-conflict", "spent already"), {}),
    "WatchFileError": (("wallet.txt", tuple((line, "bad") for line in range(1, 30))), {}),
    "EnvelopeError": (("another network",), {"field": "magic"}),
    "MessageError": (("truncated",), {"command": "inv", "offset": 3, "field": "hash"}),
    "BlockFilterError": (("truncated",), {"offset": 3, "field": "count", "block_hash": bytes(32)}),
    "FalseFilterError": ((7, bytes(32)), {}),
    "SessionError": (("own nonce",), {"cause": "self-connection"}),
    "IncompleteScanError": ((("blk0: gone", "blk1: gone"),), {}),
    "LieError": (("transaction 00",), {"cause": "a transaction nobody asked for"}),
    "ProofError": (("the root is another",), {"cause": "wrong merkle root"}),
}
CLASSES = [
    cls
    for _, cls in inspect.getmembers(errors, inspect.isclass)
    if issubclass(cls, (errors.SpvFilterError, errors.SpvFilterWarning)) and cls.__module__ == errors.__name__
]


def made(cls: type[Exception]) -> Exception:
    positional, named = ARGUMENTS.get(cls.__name__, (("what is wrong",), {}))
    return cls(*positional, **named)


@pytest.mark.parametrize("cls", CLASSES)
def test_every_error_survives_pickling_with_its_attributes(cls: type[Exception]) -> None:
    error = made(cls)
    error.add_note("while scanning")
    for twin in [copy.copy(error), *(pickle.loads(pickle.dumps(error, protocol)) for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1))]:
        assert type(twin) is cls
        assert (str(twin), twin.args, vars(twin)) == (str(error), error.args, vars(error))
    if cls.__name__ in ARGUMENTS:  # every argument but the message is an attribute
        assert set(inspect.signature(cls).parameters) - {"message"} <= set(vars(error))


def test_a_format_error_says_where_and_what() -> None:
    error = errors.FormatError("truncated", offset=5, field="outpoint")
    assert (str(error), error.message, error.offset, error.field) == ("outpoint at byte 5: truncated", "truncated", 5, "outpoint")


def test_errors_are_caught_by_their_base_and_by_pythons() -> None:
    for cls in CLASSES:
        assert issubclass(cls, errors.SpvFilterWarning if cls.__name__.endswith("Warning") else errors.SpvFilterError)
    for cls in (errors.FormatError, errors.ParameterError, errors.AddressError, errors.WrongNetworkError, errors.WatchFileError):
        assert issubclass(cls, ValueError)
    assert issubclass(errors.ProofError, errors.PeerError)
    assert issubclass(errors.SpvFilterWarning, UserWarning)
