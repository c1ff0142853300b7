"""The exception hierarchy: every class survives pickling with its attributes, and is caught by its base classes."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest

from spvfilter import errors
from support.project.values import ERRORS, of_class

CLASSES = [
    cls
    for _, cls in inspect.getmembers(errors, inspect.isclass)
    if issubclass(cls, (errors.SpvFilterError, errors.SpvFilterWarning)) and cls.__module__ == errors.__name__
]


@pytest.mark.parametrize("cls", CLASSES)
def test_every_error_survives_pickling_with_its_attributes(cls: type[Exception]) -> None:
    error = of_class(cls)
    error.add_note("while scanning")
    for twin in [
        copy.copy(error),
        *(pickle.loads(pickle.dumps(error, protocol)) for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)),
    ]:
        assert type(twin) is cls
        assert (str(twin), twin.args, vars(twin)) == (str(error), error.args, vars(error))
    if cls.__name__ in ERRORS:  # every argument but the message is an attribute
        assert set(inspect.signature(cls).parameters) - {"message"} <= set(vars(error))


def test_a_format_error_says_where_and_what() -> None:
    error = errors.FormatError("truncated", offset=5, field="outpoint")
    assert (str(error), error.message, error.offset, error.field) == (
        "outpoint at byte 5: truncated",
        "truncated",
        5,
        "outpoint",
    )


def test_errors_are_caught_by_their_base_and_by_pythons() -> None:
    for cls in CLASSES:
        assert issubclass(cls, errors.SpvFilterWarning if cls.__name__.endswith("Warning") else errors.SpvFilterError)
    for cls in (
        errors.FormatError,
        errors.ParameterError,
        errors.AddressError,
        errors.WrongNetworkError,
        errors.WatchFileError,
    ):
        assert issubclass(cls, ValueError)
    assert issubclass(errors.ProofError, errors.PeerError)
    assert issubclass(errors.SpvFilterWarning, UserWarning)
