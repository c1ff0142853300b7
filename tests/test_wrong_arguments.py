"""Wrong kinds of arguments in all public functions, constructors and methods: the error names the argument."""

from __future__ import annotations

import asyncio
import inspect
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from enum import EnumMeta
from operator import methodcaller
from pathlib import Path
from types import FunctionType, MethodDescriptorType
from typing import Any

import pytest

from spvfilter._public import naming
from spvfilter.bloom import BloomFilter
from spvfilter.bloom.exchange import SplitBlockFilter, TypedBlockFilter
from spvfilter.chain import HeaderChain
from spvfilter.errors import DescriptorWarning, ParameterError, SpvFilterError
from spvfilter.filters import GcsQuery
from spvfilter.kernel import backend
from spvfilter.light import LightClient
from spvfilter.network import REGTEST
from spvfilter.node import Regtest
from spvfilter.primitives import Header, OutPoint, TxOut
from spvfilter.scan import Matcher
from spvfilter.signing import build_tx
from spvfilter.store import Store
from spvfilter.transaction import TxIn
from spvfilter.wallet import WalletStore
from spvfilter.watch import Keychain, WatchList
from support.project.publicnames import own
from support.project.raising import plain
from support.project.values import VALUES
from support.wallets.walletfiles import TPUB

WRONG: list[Any] = [object(), "text", 5, -1, 0.5, None, b"bytes", {"a": 1}, [object()], ["x"], (1, "x"), len]
Call = Callable[..., object]
CALLS_BACK = {"rpc.Patience.ask"}  # the errors of the caller's function leave it
REFERENCE = backend.reference()
SPENT = OutPoint(bytes(32), 0)
GENERATOR = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
GIVEN = {"address.Bech32Encoding", "wire.messages.Flaw"}  # enumerations that no program makes from values


def doors() -> Iterator[tuple[str, Call]]:
    """Public functions, constructors and class methods that take arguments."""
    for room, name, value in own():
        if isinstance(value, FunctionType):
            yield f"{room}.{name}", value
        elif inspect.isclass(value) and not issubclass(value, BaseException):
            is_protocol = getattr(value, "_is_protocol", False)
            if not is_protocol and (
                isinstance(plain(sourced(value).__init__), FunctionType) or issubclass(value, tuple)
            ):
                yield f"{room}.{name}", value
            for member, found in inherited(value):
                if isinstance(found, (classmethod, staticmethod)):
                    yield f"{room}.{name}.{member}", getattr(value, member)


def sourced(door: Any) -> Any:
    """The door itself, or for a class that the kernel compiles, the reference's class, because that has a signature."""
    if inspect.isclass(door) and not isinstance(plain(door.__init__), FunctionType):
        return next((REFERENCE[base.__name__] for base in door.__mro__ if base.__name__ in REFERENCE), door)
    return door


def inherited(cls: type) -> Iterator[tuple[str, object]]:
    """The public members of a class and of its bases in the package."""
    for name in dir(cls):
        home = next((base for base in cls.__mro__ if name in vars(base)), object)
        if not name.startswith("_") and home.__module__.startswith("spvfilter"):
            yield name, vars(home)[name]


def samples() -> Iterator[object]:
    """An object of each public class that can be made without a network and without a database."""
    for values in VALUES.values():
        yield from (each for each in values if not isinstance(each, (BaseException, type)))
    watch = WatchList.from_addresses(["bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080"], REGTEST)
    yield from (watch, Matcher(watch), LightClient(watch, peers=["127.0.0.1:1"]), Regtest(), HeaderChain(REGTEST))
    yield Keychain("keys", lambda index: (b"\x51" + index.to_bytes(4, "big"),))
    yield from (
        BloomFilter(10, 0.1, encode="utf-8"),
        SplitBlockFilter(10, 0.1),
        TypedBlockFilter(10, 0.1, keys="date"),
        GcsQuery([b"a"]),
    )


def methods(cls: type) -> Iterator[tuple[str, Call]]:
    """The public methods of a class that take arguments, compiled ones too, as functions."""
    for name, found in inherited(cls):
        if isinstance(found, MethodDescriptorType) or (
            isinstance(found, FunctionType) and not found.__code__.co_flags & GENERATOR
        ):
            yield name, found


PUBLIC = {value: f"{room}.{name}" for room, name, value in own() if inspect.isclass(value)}
SAMPLES = {type(each): each for each in samples() if type(each) in PUBLIC}
METHODS = {f"{PUBLIC[cls]}.{name}": (cls, name) for cls in (*SAMPLES, WalletStore) for name, _ in methods(cls)}
METHODS = {name: found for name, found in METHODS.items() if name not in CALLS_BACK}
DOORS = {name: door for name, door in doors() if name not in GIVEN}


def called_with(door: Call, wrong: object) -> tuple[list[str], object]:
    """The names of the parameters, and a call with `wrong` for each argument that is needed, and one of *args."""
    if isinstance(door, EnumMeta):  # its signature says `value` in Python 3.11 only
        return ["value"], lambda: door(wrong)
    parameters = inspect.signature(sourced(door)).parameters
    needed = [each for each in parameters.values() if each.default is each.empty]
    given = [wrong for each in needed if each.kind not in (each.KEYWORD_ONLY, each.VAR_KEYWORD)]
    named = {each.name: wrong for each in needed if each.kind is each.KEYWORD_ONLY}
    return [*parameters], lambda: door(*given, **named)


@pytest.mark.parametrize("name", DOORS)
def test_a_wrong_kind_of_argument_is_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # some of them make a file
    for wrong in WRONG:
        check_named(name, DOORS[name], wrong, methodcaller("close"))


@pytest.mark.parametrize("name", METHODS)
def test_a_method_names_a_wrong_kind_of_argument(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cls, method = METHODS[name]
    with ExitStack() as stack:
        if cls is WalletStore:
            Store.open("wallet.db", REGTEST).close()
            sample: object = stack.enter_context(WalletStore.open("wallet.db"))
        else:
            sample = SAMPLES[cls]
        for wrong in WRONG:
            check_named(name, getattr(sample, method), wrong, asyncio.run)


def check_named(name: str, door: Call, wrong: object, run: Call) -> None:
    """Call a function or method with wrong arguments, and check the error. `run` takes the coroutine of a call."""
    names, call = called_with(door, wrong)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = call()  # type: ignore[operator]
            if inspect.iscoroutine(found):
                run(found)
        except (SpvFilterError, OSError):
            return
        except KeyError as error:
            assert error.args == (wrong,), f"{wrong!r}"  # of the right kind, but not there
        except IndexError:
            assert isinstance(wrong, int), f"{wrong!r}"
        except TypeError as error:
            assert any(re.search(rf"\b{each}\b", str(error)) for each in names), f"{wrong!r}: {error}"


def test_naming_leaves_other_errors_as_they_are() -> None:
    @naming
    def call(numbers: list[int], then: Callable[[int], int], *, name: str = "") -> int:
        return sum(map(then, numbers)) + len(name)

    def fails(number: int) -> int:
        raise LookupError(number)

    assert call([1], abs, name="x") == 2
    with pytest.raises(LookupError, match="1"):
        call([1], fails)
    with pytest.raises(TypeError, match=r"missing 1 required positional argument: 'then'"):
        call([1])  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^numbers\[1\]: expected a value that fits list\[int\], not str: ") as seen:
        call([1, "2"], abs)  # type: ignore[list-item]
    assert isinstance(seen.value.__cause__, TypeError)
    with pytest.raises(TypeError, match=r"^then: expected Callable\[\[int\], int\], not int: "):
        call([1], 5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^name: expected str, not float: "):
        call([1], abs, name=0.5)  # type: ignore[arg-type]


def test_naming_names_an_item_of_several_arguments() -> None:
    @naming
    def total(*numbers: int) -> int:
        return sum(numbers)

    assert total(1, 2) == 3
    with pytest.raises(TypeError, match=r"^numbers\[1\]: expected a value that fits int, not str: "):
        total(1, "2")  # type: ignore[arg-type]


def test_naming_of_a_coroutine_waits_for_its_error() -> None:
    @naming
    async def call(number: int) -> int:
        return await asyncio.sleep(0, number + 1)

    assert inspect.iscoroutinefunction(call)
    assert asyncio.run(call(1)) == 2
    with pytest.raises(TypeError, match=r"^number: expected int, not str: "):
        asyncio.run(call("1"))  # type: ignore[arg-type]


@pytest.mark.descriptors
def test_warnings_name_the_line_outside_of_the_package() -> None:
    with pytest.warns(DescriptorWarning) as caught:
        WatchList(REGTEST).add_descriptor(f"wpkh({TPUB}/0)")
    assert [each.filename for each in caught] == [__file__]


@pytest.mark.parametrize(("value", "error"), [(0.5, TypeError), (-1, SpvFilterError), ("5", TypeError)])
def test_a_wrong_value_of_an_output_is_named(value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="value"):
        TxOut(value, b"\x51")


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("txid", lambda: OutPoint("ab" * 16, 0)),  # type: ignore[arg-type]
        ("index", lambda: OutPoint(bytes(32), 0.5)),  # type: ignore[arg-type]
        ("previous", lambda: Header(1, "ab" * 16, bytes(32), 0, 0, 0)),  # type: ignore[arg-type]
        ("version", lambda: Header(0.5, bytes(32), bytes(32), 0, 0, 0)),  # type: ignore[arg-type]
        ("nonce", lambda: Header(1, bytes(32), bytes(32), 0, 0, 0.5)),  # type: ignore[arg-type]
        ("outpoint", lambda: TxIn(f"{'ab' * 32}:0")),  # type: ignore[arg-type]
        ("script_sig", lambda: TxIn(SPENT, "51")),  # type: ignore[arg-type]
        ("witness", lambda: TxIn(SPENT, witness="51")),  # type: ignore[arg-type]
        ("witness", lambda: TxIn(SPENT, witness=("51",))),  # type: ignore[arg-type]
        ("sequence", lambda: TxIn(SPENT, sequence=0.5)),  # type: ignore[arg-type]
        ("spent", lambda: TxIn(SPENT, spent=5)),  # type: ignore[arg-type]
        ("lock_time", lambda: build_tx([], [], lock_time="5")),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_part_of_a_transaction_is_named(name: str, make: Callable[[], object]) -> None:
    with pytest.raises(TypeError, match=rf"^{name}: expected .*, not (str|float|int|tuple)\b"):
        make()


@pytest.mark.parametrize("number", [-1, 1 << 32])
def test_a_part_of_a_transaction_out_of_range_is_named(number: int) -> None:
    with pytest.raises(ParameterError, match="sequence must be from 0 to"):
        TxIn(SPENT, sequence=number)
    with pytest.raises(ParameterError, match="lock_time must be from 0 to"):
        build_tx([], [], lock_time=number)
    with pytest.raises(ParameterError, match=r"version must be from -2\^31 to"):
        build_tx([], [], version=number - (1 << 31) if number < 0 else number)
