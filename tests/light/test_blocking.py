"""SyncLightClient: the methods of LightClient without asyncio. Waits end after a timeout or a signal; it also tests
exits and forks.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, assert_type

import pytest

from spvfilter.errors import NotRunningError, ParameterError, StoreError, StoreLockedError
from spvfilter.light import Event, EventIterator, EventStream, LightClient, Phase, Progress, Synced, SyncLightClient
from spvfilter.light.thread import TURN_S
from spvfilter.light.workers import THREAD_NAME
from spvfilter.network import REGTEST
from spvfilter.node.server import Node
from spvfilter.primitives import TxOut
from spvfilter.store.store import Store
from spvfilter.store.views import Balance
from spvfilter.wallet.events import BlockDisconnected, MatchFound
from spvfilter.watch.watchlist import WatchList
from support.client.engineparts import keep_events_in
from support.client.regtests import mined

SCRIPT = b"\x00\x14" + bytes(20)
OWN = {"call", "timeout"}  # names that LightClient does not need
SOON_S = 0.2  # time in which a signal is seen
MARGIN_S = 5.0  # allowance for a machine under load


class Served:
    """A regtest node in its own thread."""

    def __init__(self) -> None:
        self.regtest = mined(101)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="node")
        self._thread.start()
        self._node = self.run(self._made)
        self.place = f"{self._node.host}:{self._node.port}"

    async def _made(self) -> Node:
        return await Node(self.regtest).__aenter__()

    def run(self, function: Callable[[], Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(function(), self._loop).result(60)

    def pay(self, value: int) -> None:
        async def pay() -> None:
            self.regtest.pay(TxOut(value, SCRIPT))

        self.run(pay)

    def mine(self) -> None:
        async def mine() -> None:
            self.regtest.mine()

        self.run(mine)

    def close(self) -> None:
        self.run(lambda: self._node.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    made = Served()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    left = [thread for thread in set(threading.enumerate()) - before if thread.name != "node"]
    for thread in left:
        thread.join(10)  # after two interrupts, the thread of the client ends by itself
    assert not [thread for thread in left if thread.is_alive()]


def wallet() -> WatchList:
    watch = WatchList(REGTEST)
    watch.add_script(SCRIPT, "savings")
    return watch


def client_of(served: Served, **options: Any) -> SyncLightClient:
    return SyncLightClient(wallet(), peers=[served.place], **options)


@contextmanager
def interrupted_after(seconds: float, number: int = 1) -> Iterator[list[float]]:
    """Press Ctrl-C after a time. Yields the list of times when it was pressed."""
    pressed: list[float] = []

    def press() -> None:
        pressed.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    timers = [threading.Timer(seconds + 0.3 * each, press) for each in range(number)]
    for timer in timers:
        timer.start()
    try:
        yield pressed
    finally:
        for timer in timers:
            timer.cancel()
            timer.join()


def until_synced(client: SyncLightClient) -> None:
    with client.timeout(60):
        assert next(event for event in client.events() if isinstance(event, Synced))


# Public names


def public(cls: type) -> dict[str, Any]:
    return {name: inspect.getattr_static(cls, name) for name in dir(cls) if not name.startswith("_")}


def test_both_clients_have_the_same_public_names() -> None:
    assert public(SyncLightClient).keys() - OWN == public(LightClient).keys()
    assert not public(LightClient).keys() & OWN
    client, own = LightClient(wallet(), peers=["127.0.0.1:1"]), SyncLightClient(wallet(), peers=["127.0.0.1:1"])
    assert {name for name in vars(client) if name[0] != "_"} == {name for name in vars(own) if name[0] != "_"}


@pytest.mark.parametrize("name", ["__init__", *public(LightClient)])
def test_both_clients_have_the_same_signatures_and_docstrings(name: str) -> None:
    theirs, ours = (inspect.getattr_static(cls, name) for cls in (LightClient, SyncLightClient))
    assert theirs.__doc__ == ours.__doc__
    if isinstance(theirs, property):
        assert ours.fget is theirs.fget
        return
    assert (ours.__name__, ours.__module__.rpartition(".")[0]) == (name, theirs.__module__.rpartition(".")[0])
    assert ours.__qualname__ == f"SyncLightClient.{name}"
    theirs, ours = inspect.signature(theirs), inspect.signature(ours)
    assert ours.parameters == theirs.parameters
    if theirs.return_annotation == "EventStream":
        assert ours.return_annotation == "EventIterator"
    else:
        assert ours.return_annotation == theirs.return_annotation


def test_calls_return_the_annotated_types(served: Served) -> None:
    with client_of(served) as client:
        assert isinstance(assert_type(client.balance(), Balance), Balance)
        assert isinstance(assert_type(client.events(), EventIterator[Event]), EventIterator)
        assert isinstance(assert_type(client.tip_height, int), int)
        assert assert_type(client.call(lambda light: light.events()), EventStream)


# Use


def test_a_wallet_is_followed_without_asyncio(served: Served, tmp_path: Path) -> None:
    with client_of(served, store=tmp_path / "w.db") as client:
        until_synced(client)
        events = client.events()
        served.pay(50_000)
        with client.timeout(60):
            found = next(event for event in events if isinstance(event, MatchFound))
        assert (found.match.value, found.match.label) == (50_000, "savings")
        assert client.balance().pending_in == 50_000
        assert [entry.net for entry in client.history(label="savings", limit=5)] == [50_000]
        assert (
            client.tip_height
            == client.chain.height
            == client.call(lambda light: light.tip_height)
            == served.regtest.height
        )
        client.add_script(b"\x00\x14" + b"\x07" * 20, "more", from_height=90)
        assert client.fee_floor() is None
        with pytest.raises(ParameterError, match="limit"):
            client.coins(limit=0)
        with (
            pytest.raises(StoreLockedError, match="another client of this process"),
            client_of(served, store=tmp_path / "w.db"),
        ):
            pytest.fail("it is open already")
    assert next(events, None) is None or list(events) is not None  # waiting events may come before the end
    served.mine()
    with Store.open(tmp_path / "w.db", REGTEST) as store:  # the database was closed
        assert store.tip >= 101


def test_an_event_after_a_timeout_reaches_the_next_call(served: Served) -> None:
    with client_of(served) as client:
        until_synced(client)
        events = client.events()
        with pytest.raises(TimeoutError), client.timeout(0.05):
            for _ in events:
                pass
        with pytest.raises(TimeoutError), client.timeout(60), client.timeout(0):
            next(events)
        served.pay(7)
        with client.timeout(60):
            assert next(event for event in events if isinstance(event, MatchFound)).match.value == 7
        with pytest.raises(ParameterError, match="nan"), client.timeout(float("nan")):
            pass


def test_short_waits_neither_lose_nor_repeat_an_event(served: Served) -> None:
    with client_of(served) as client:
        until_synced(client)
        served.mine()
        until_synced(client)
        for number in range(30):
            served.pay(1_000 + number)
        found: list[int] = []
        events, end = client.events(), time.monotonic() + 60
        while len(found) < 30 and time.monotonic() < end:
            try:
                with client.timeout(0.0003 * (len(found) % 7)):
                    event = next(events)
            except TimeoutError:
                continue
            if isinstance(event, MatchFound) and (event.match.value or 0) >= 1_000:
                found.append(event.match.value or 0)
        assert sorted(found) == [1_000 + number for number in range(30)]
    served.mine()


def test_several_threads_share_the_events_and_call_concurrently(served: Served) -> None:
    served.mine()
    with client_of(served) as client:
        until_synced(client)
        taken: list[int] = []
        balances: list[Balance] = []
        events = client.events()

        def take() -> None:
            for event in events:
                if isinstance(event, MatchFound) and (event.match.value or 0) > 100_000:
                    taken.append(event.match.value or 0)
                balances.append(client.balance())

        def quietly() -> None:
            with suppress(NotRunningError):  # the client was left between an event and the balance
                take()

        threads = [threading.Thread(target=quietly) for _ in range(4)]
        for thread in threads:
            thread.start()
        for number in range(20):
            served.pay(100_001 + number)
        end = time.monotonic() + 60
        while len(taken) < 20 and time.monotonic() < end:
            client.balance()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert sorted(taken) == [100_001 + number for number in range(20)]
    assert balances


def test_a_kept_event_goes_to_one_thread(served: Served) -> None:
    class Contested(deque[Event]):
        """Another thread takes the event just after this thread has seen it."""

        def __len__(self) -> int:
            length = super().__len__()
            self.clear()
            return length

    with client_of(served) as client:
        until_synced(client)
        events = client.events()
        keep_events_in(events, Contested([Progress(Phase.BLOCKS, 1, 2)]))
        served.mine()
        with client.timeout(60):
            for _ in range(2):
                assert next(events) is not None


# Exit and errors


def test_calls_outside_the_with_block_raise(served: Served) -> None:
    client = client_of(served)
    for _ in range(2):
        for call in (
            lambda: client.tip_height,
            client.balance,
            client.events,
            lambda: client.call(lambda light: light.tip_height),
        ):
            with pytest.raises(NotRunningError):
                call()
        with client:
            until_synced(client)
            with pytest.raises(NotRunningError, match="already running"):
                client.__enter__()
            assert client.tip_height == served.regtest.height
        client.__exit__(None, None, None)  # a second exit has no effect


def test_errors_at_entry_are_raised_and_leave_nothing_open(served: Served, tmp_path: Path) -> None:
    client = client_of(served, store=tmp_path / "no" / "such" / "folder" / "w.db")
    for _ in range(2):
        with pytest.raises(StoreError), client:
            pytest.fail("it has no database")
    with pytest.raises(ParameterError, match="fp_rate"):
        client_of(served, fp_rate=2)
    with pytest.raises(TypeError):
        SyncLightClient()  # type: ignore[call-arg]  # a program may do this
    with pytest.raises(RuntimeError, match="mine"), client_of(served):
        raise RuntimeError("mine")


def test_wrong_arguments_raise_instead_of_blocking(served: Served) -> None:
    with client_of(served) as client, client.timeout(2):
        for call in (client.history, client.events):
            with pytest.raises(TypeError, match="unexpected keyword argument"):
                call(since_ever=True)  # type: ignore[call-arg]  # a program may do this
        with pytest.raises(TypeError, match="missing"):
            client.add_address()  # type: ignore[call-arg]
        assert client.tip_height >= 0


def test_an_exit_ends_the_waits_of_other_threads(served: Served) -> None:
    client = client_of(served)
    with client:
        until_synced(client)
        ended: list[object] = []
        entered = threading.Event()

        def wait() -> None:
            entered.set()
            ended.append([event for event in client.events() if isinstance(event, BlockDisconnected)])

        def call() -> None:
            try:
                client.call(lambda light: entered.wait(1))
                client.wait_confirmed(bytes(32))
            except NotRunningError as error:
                ended.append(error)

        threads = [threading.Thread(target=wait), threading.Thread(target=call)]
        for thread in threads:
            thread.start()
        entered.wait()
    for thread in threads:
        thread.join(60)
    assert sorted(map(str, ended)) == ["[]", "the client is closed: its `with` block has ended"]


# Signals


@pytest.mark.parametrize("wait", ["events", "call"])
def test_ctrl_c_ends_any_wait_and_leaves_nothing_open(served: Served, wait: str, tmp_path: Path) -> None:
    seen: list[float] = []
    with pytest.raises(KeyboardInterrupt), ExitStack() as stack:
        client = stack.enter_context(client_of(served, store=tmp_path / "w.db"))
        until_synced(client)
        pressed = stack.enter_context(interrupted_after(0.5))
        stack.callback(lambda: seen.append(time.monotonic()))
        if wait == "events":
            for _ in client.events():
                pass
        client.wait_confirmed(bytes(32))
    assert seen[0] - pressed[0] < SOON_S + MARGIN_S
    assert TURN_S < SOON_S
    Store.open(tmp_path / "w.db", REGTEST).close()


def test_ctrl_c_at_entry_leaves_nothing_open(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, go_on = Store.open, threading.Event()

    def slow(*args: Any, **options: Any) -> Store:
        go_on.wait(60)
        return opened(*args, **options)

    monkeypatch.setattr("spvfilter.light.running.Store.open", slow)
    threading.Timer(1.0, go_on.set).start()
    with interrupted_after(0.3), pytest.raises(KeyboardInterrupt), client_of(served, store=tmp_path / "w.db"):
        pytest.fail("it was interrupted")
    opened(tmp_path / "w.db", REGTEST).close()


PROGRAM = """
import os, signal, sys, threading, time
from spvfilter import REGTEST, SyncLightClient, WatchList, Synced
watch = WatchList(REGTEST)
watch.add_script(bytes.fromhex({script!r}))
client = SyncLightClient(watch, peers=[{peer!r}], store={store!r})
def synced():
    with client.timeout(60):
        next(event for event in client.events() if isinstance(event, Synced))
{body}
"""


def program(served: Served, tmp_path: Path, body: str) -> subprocess.CompletedProcess[str]:
    text = PROGRAM.format(script=SCRIPT.hex(), peer=served.place, store=str(tmp_path / "w.db"), body=body)
    allowed = "ignore:unclosed database:ResourceWarning"  # since 3.13, Python reports a client that was not left
    return subprocess.run(
        [sys.executable, "-W", "error", "-W", allowed, "-c", text], capture_output=True, text=True, timeout=120
    )


@pytest.mark.slow
def test_a_program_that_never_leaves_its_client_ends(served: Served, tmp_path: Path) -> None:
    ran = program(served, tmp_path, "client.__enter__(); synced(); print(client.tip_height)")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, f"{served.regtest.height}\n", "")
    Store.open(tmp_path / "w.db", REGTEST).close()


FORK = """
with client:
    synced()
    child = os.fork()
    if not child:
        try:
            client.balance()
        except Exception as error:
            print(type(error).__name__, error, flush=True)
        client.__exit__(None, None, None)
        print("left", flush=True)
        sys.exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    print(client.balance().confirmed >= 0)
print(threading.active_count())
"""


@pytest.mark.parametrize("is_refused", [False, True])
def test_no_thread_is_left_after_the_exit(served: Served, monkeypatch: pytest.MonkeyPatch, *, is_refused: bool) -> None:
    run = threading.Thread.run

    def slowly(thread: threading.Thread) -> None:
        run(thread)
        if thread.name.startswith(THREAD_NAME):
            time.sleep(0.2)

    monkeypatch.setattr(threading.Thread, "run", slowly)
    before = set(threading.enumerate())
    client = SyncLightClient(WatchList(REGTEST), peers=[served.place]) if is_refused else client_of(served)
    with suppress(ParameterError), client:
        assert not is_refused
    assert set(threading.enumerate()) == before


@pytest.mark.slow
def test_a_forked_child_neither_hangs_nor_harms_the_client(served: Served, tmp_path: Path) -> None:
    ran = program(served, tmp_path, FORK)
    said = "NotRunningError the client is running in another process: a forked child needs its own client\nleft\n"
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, f"{said}True\n1\n", "")
