"""Derivation in several processes gives the same windows as in one, whatever happens to the processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from spvfilter.errors import KeychainError
from spvfilter.network import REGTEST
from spvfilter.watch import derivers
from spvfilter.watch.keychain import GAP_LIMIT, Budget
from spvfilter.watch.watchlist import WatchList
from support.wallets.keychains import script_at

pytestmark = pytest.mark.descriptors

KEY = "tpubDC5FSnBiZDMmhiuCmWAYsLwgLYrrT9rAqvTySfuCCrgsWz8wxMXUS9Tb9iVMvcRbvFcAHGkMD5Kx8koh4GquNGNTfohfk7pgjhaPCdXpoba"


class Started(list[subprocess.Popen[bytes]]):
    """The processes that were started."""


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    """Derivers that pay from 50 keys on, on a machine with three cores."""
    found, real = Started(), subprocess.Popen

    def popen(*args: object, **options: object) -> subprocess.Popen[bytes]:
        found.append(real(*args, **options))  # type: ignore[call-overload]
        return found[-1]

    monkeypatch.setattr(derivers, "MIN_KEYS", 50)
    monkeypatch.setattr(derivers, "usable_cores", lambda: 3)
    monkeypatch.setattr(subprocess, "Popen", popen)
    return found


def wallet() -> WatchList:
    """Keychains of one and of several scripts at each index, a long one, and one without a descriptor."""
    watch = WatchList(REGTEST)
    watch.add_descriptor(f"combo({KEY}/7/*)", lookahead=GAP_LIMIT)
    watch.add_descriptor(f"wsh(sortedmulti(1,{KEY}/<0;1>/*,{KEY}/<2;3>/*))", "joint", lookahead=GAP_LIMIT)
    watch.add_keychain("mine", script_at, lookahead=GAP_LIMIT)
    watch.add_descriptor(f"wpkh({KEY}/0/*)", lookahead=45)
    return watch


def windows_of(watch: WatchList) -> list[tuple[str, int]]:
    return [(each.name, each.end) for each in watch.keychains]


def widened(monkeypatch: pytest.MonkeyPatch) -> WatchList:
    """The wallet with wider windows, derived in this process."""
    with monkeypatch.context() as here:
        here.setattr(derivers, "MIN_KEYS", 1 << 62)
        watch = wallet()
        watch.widen()
    return watch


@pytest.mark.slow
def test_processes_derive_the_same_windows(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, watch = widened(monkeypatch), wallet()
    assert not started  # each keychain alone has fewer keys
    new = watch.widen()
    assert len(started) == 3
    assert all(each.returncode is not None for each in started)
    assert watch == expected
    assert windows_of(watch) == windows_of(expected)
    assert list(watch.entries()) == list(expected.entries())
    assert new == list(watch.script_pubkeys())[-len(new) :]


@pytest.mark.slow
def test_client_steps_use_processes(started: Started) -> None:
    watch = wallet()
    for keychain in watch.keychains:
        watch.windows.reveal(keychain, keychain.end - 1)
    ahead = watch.windows.ahead()
    assert len(started) == 3
    assert not watch.windows.move(ahead)
    assert all(each.scripts(each.end - 1) == ahead[each.name][-1] for each in watch.keychains)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "program",
    [
        "raise SystemExit(1)",
        "print('{')",
        "print('[]')",
        "print('[[[]]]')",
        "import os; os.abort()",
        # the first process to be read fails, and the others would never end
        "import sys, time; 'combo' in sys.stdin.read() or time.sleep(1e6)",
    ],
)
def test_failed_process_is_replaced_by_this_one(
    program: str, started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, watch = widened(monkeypatch), wallet()
    monkeypatch.setattr(derivers, "PROGRAM", program)
    watch.widen()
    assert 1 <= len(started) <= 3  # a process that fails at once ends the start of others
    assert all(each.returncode is not None for each in started)
    assert watch == expected


def test_missing_program_is_replaced_by_this_process(
    started: Started, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    expected, watch = widened(monkeypatch), wallet()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    watch.widen()
    assert not started
    assert watch == expected


@pytest.mark.parametrize(
    ("where", "name", "value"),
    [
        (derivers, "usable_cores", lambda: 1),
        (derivers, "MIN_KEYS", 10_000),
        (sys, "executable", "/usr/bin/wallet"),
        (sys, "executable", None),
    ],
)
def test_no_process_starts_if_it_does_not_pay(
    where: object, name: str, value: object, started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, watch = widened(monkeypatch), wallet()
    monkeypatch.setattr(where, name, value)
    watch.widen()
    assert not started
    assert watch == expected


def test_budget_is_charged_before_keys_are_derived(started: Started) -> None:
    watch = wallet()
    with watch.windows.limited_by(Budget(10_000)):
        watch.windows.widen(100)
    assert not started


@pytest.mark.slow
def test_wrong_script_of_a_process_is_refused(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    watch, derive = wallet(), derivers.derive
    name = watch.keychains[-1].name
    before = windows_of(watch)

    def wrong(*args: object) -> dict[str, derivers.Window]:
        found = derive(*args)  # type: ignore[arg-type]
        found[name][0] = (b"\x51",)
        return found

    monkeypatch.setattr(derivers, "derive", wrong)
    with pytest.raises(KeychainError, match=r"index 45 gave two different scripts"):
        watch.widen()
    assert started
    assert windows_of(watch)[-1] == before[-1]


def test_program_without_a_main_guard_runs_once(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "print('begins')\n"
        "from spvfilter import WatchList\n"
        "from spvfilter.watch import derivers\n"
        "derivers.MIN_KEYS, derivers.usable_cores = 50, lambda: 2\n"
        "watch = WatchList('regtest')\n"
        f"watch.add_descriptor('wpkh({KEY}/0/*)', lookahead=60)\n"
        "print(len(watch))\n"
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["begins", "60"]
