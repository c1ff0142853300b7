"""Behaviour that all commands share: help, version, errors in one line, broken pipes, interrupts, closed streams."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from spvfilter import __version__
from spvfilter.cli import COMMANDS
from spvfilter.cli.arguments import Parser
from spvfilter.cli.commands import SUMMARIES
from spvfilter.cli.help import parser_of
from spvfilter.errors import ParameterError, remedy
from spvfilter.kernel import BACKEND
from spvfilter.network import NETWORKS
from support.commands.processes import (
    WITH_SIGINT,
    WITH_UNNOTICED_SIGINT,
    WITHOUT_RICH,
    command,
    environment,
    on_terminal,
    process,
)

WIF = "KwDiBf89QgGbjEhKnhXJuH7LrciVrZi3qYjgd9M7rFU73sVHnoWn"  # of the private key 1
SEED = "abandon " * 11 + "about"
ACTIONS = {
    "bloom": (
        "create",
        "add",
        "remove",
        "check",
        "dedupe",
        "info",
        "merge",
        "dump",
        "load",
        "import",
        "export",
        "size",
    ),
    "cfilter": ("build", "match", "info", "import", "export"),
    "watchlist": ("build", "verify"),
    "wallet": ("balance", "coins", "history", "tx", "address", "reveal", "keychains", "accounts"),
}


def test_help_imports_neither_asyncio_nor_rich_nor_bitcoin() -> None:
    code = (
        "import sys; from spvfilter.cli import main; code = main(['--help']); "
        "sys.exit(code or any(name in sys.modules for name in ('asyncio', 'rich', 'bitcoin', 'argparse')))"
    )
    ran = process(code=code)
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert all(name in ran.stdout for name in (b"filterload", b"inspect", b"scan", b"demo"))


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["filterload", "inspect"])
def test_commands_that_await_nothing_do_not_import_asyncio(name: str) -> None:
    code = (
        f"import sys; from spvfilter.cli import main; code = main(['{name}', '--help']); sys.exit(code or 'asyncio' in"
        " sys.modules)"
    )
    assert process(code=code).returncode == 0


@pytest.mark.few(23)
@pytest.mark.parametrize(
    "name", [*COMMANDS, *(f"{name} {action}" for name, actions in ACTIONS.items() for action in actions)]
)
def test_every_command_and_action_has_help_that_fits_80_columns(
    run: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    ran = run(*name.split(), "--help")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"usage: spvfilter {name} ")
    assert max(map(len, ran.out.splitlines())) <= 80


@pytest.mark.parametrize(("name", "actions"), ACTIONS.items())
def test_a_command_lists_its_actions(run: Any, name: str, actions: tuple[str, ...]) -> None:
    listed = run(name, "--help").out.partition("  ACTION\n")[2]
    assert tuple(line.split()[0] for line in listed.splitlines() if line[4:5].isalpha()) == actions


def test_the_version_names_the_kernel(run: Any) -> None:
    ran = run("--version")
    assert ran == run("-V")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[0] == f"spvfilter {__version__} (kernel: {BACKEND})"


def test_it_runs_as_a_module() -> None:
    ran = process("--version")
    assert ran.returncode == 0
    assert ran.stdout.startswith(f"spvfilter {__version__} (kernel: {BACKEND})\n".encode())


def test_a_usage_error_is_one_line_and_exit_code_2(refused: Any) -> None:
    refused("""
        frobnicate
        demo --nonsense
        watch --conect 127.0.0.1
        watch --net regtest
        watch --con 127.0.0.1
        watch --re
        desc 'wpkh(02)'
        wacth
        balance
        info
        watch --mempool false
        watch --network testnet
        demo extra
        scan x --network mars
        watch --network regtets
        watch --mempool-groups 3
        scan x --format json
        wallet ballance
        wallet --db w.db balance
        --network regtest watch
        --versoin
        help wacth
        help wallet ballance
        help demo balance
        filterload --tweak
        bloom --force create x
        bloom create x --nonsense
        bloom create --nonsense x y
    """)


@pytest.mark.parametrize(
    "argv",
    [
        [WIF],
        ["inspect", WIF],
        ["inspect", SEED],
        ["inspect", *SEED.split()],
        ["filterload", WIF],
        ["filterload", SEED],
        ["filterload", "--data", WIF],
        ["filterload", "--outpoint", WIF],
        ["filterload", "--outpoint", "11" * 32],
        ["demo", WIF],
        ["demo", f"--key={WIF}"],
        ["scan", "x", "--address", WIF],
        ["scan", "x", "--address", SEED],
        ["bloom", WIF],
        ["cfilter", WIF],
        ["cfilter", SEED],
        SEED.split(),
        ["help", *SEED.split()],
        ["wallet", *SEED.split()],
        ["scan", *SEED.split(), "--address", "1BoatSLRHtKNngkdXEeobR76b53LETtpyT"],
        ["filterload", *SEED.split()],
        ["filterload", f"wpkh({WIF})"],
        ["wallet", "balance", "--db", WIF],
    ],
)
def test_secrets_are_never_repeated(run: Any, argv: list[str]) -> None:
    ran = run(*argv)
    assert ran.code == 2
    assert not any(secret in ran.out + ran.err for secret in (WIF, WIF[:12], "abandon", "about", "1111"))


WORDS = "zebra yellow wagon vacuum umbrella tackle sadness raccoon quantum padlock oblige nasty".split()  # noqa: SIM905


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "path",
    [
        (name, *action)
        for name in COMMANDS
        for action in [(), *((each,) for each in parser_of(name).actions())]
        if name != "demo"
    ],
    ids=" ".join,
)
def test_no_position_of_the_command_line_repeats_a_secret(
    run: Any, path: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", None)
    parser_once = cache(parser_of)  # making a parser takes longer than parsing
    monkeypatch.setattr("spvfilter.cli.help.parser_of", parser_once)
    parser = parser_once(path[0])
    if len(path) > 1:
        parser = parser.actions()[path[1]]
    options = [names[-1] for names in (action.option_strings for action in parser._actions) if names]
    for secret in ([WIF], WORDS, [" ".join(WORDS)]):
        first, *rest = secret
        for argv in (
            secret,
            *([option, *secret] for option in options),
            *([f"{each}={first}", *rest] for each in options),
        ):
            if "--help" in argv:
                continue
            ran = run(*path, *argv)
            assert ran.code == 2, argv
            assert all(line.startswith("spvfilter: ") for line in ran.err.splitlines()), argv
            assert not re.search(rf"{WIF[:10]}|\b({'|'.join(WORDS)})\b", ran.err), argv


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["-key"], "ambiguous option"),
        (["--flag=abandon"], "argument --flag: ignored explicit argument"),
        (["--number", "abandon"], "argument --number: invalid int value"),
        (["--choice", "abandon"], "argument --choice: invalid choice: choose from one, two"),
        (["--choice", "onee"], "argument --choice: invalid choice: did you mean one?"),
        ([f"--{WIF}"], "unknown option"),
        ([f"-{WIF}"], "unknown option"),
        (["--secret=abandon"], "unknown option --secret"),
        (["abandon", "abandon"], "2 arguments too many"),
    ],
)
def test_errors_of_the_parser_leave_arguments_out(argv: list[str], said: str) -> None:
    parser = Parser(prog="spvfilter try")
    parser.add_argument("-keyA")
    parser.add_argument("-keyB")
    parser.add_argument("--flag", action="store_true")
    parser.add_argument("--number", type=int)
    parser.add_argument("--choice", choices=["one", "two"])
    with pytest.raises(ParameterError) as raised:
        parser.parse(argv)
    assert str(raised.value) == f"{said} (see 'spvfilter try --help')"


def test_a_long_number_that_is_wrong_is_not_repeated_either(run: Any) -> None:
    assert "5" * 21 not in run("scan", "x", "--jobs", "5" * 21).err


def test_help_lists_commands_and_exit_codes(run: Any, transcript_of: Any) -> None:
    (told,) = transcript_of(0, "help")
    commands = [line.split()[0] for line in told.out.splitlines() if line[:2] == "  " and line[2].islower()]
    codes = [int(line.split()[0]) for line in told.out.splitlines() if line[2:3].isdigit()]
    assert (commands, codes) == (list(COMMANDS), [0, 1, 2, 130, 141, 143])
    assert max(map(len, told.out.splitlines())) <= 80
    assert run() == run("--help") == run("-h") == told


@pytest.mark.parametrize("words", [["scan"], ["wallet"], ["wallet", "balance"], ["cfilter", "import"], ["help"]])
def test_help_of_a_command_is_that_of_its_option(run: Any, words: list[str]) -> None:
    assert run("help", *words) == run(*words, "--help")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "tcsh", "powershell"])
def test_completion_knows_commands_actions_options_and_choices(run: Any, shell: str) -> None:
    ran = run("completion", shell)
    assert (ran.code, ran.err) == (0, "")
    options = ["--keep-filters", "jsonl", *(network.name for network in NETWORKS)]
    for word in ("broadcast", "keychains", *(options if shell != "tcsh" else ())):  # shtab knows only commands there
        assert re.search(rf"(?<!\w){word}(?!\w)", ran.out)
    if shell == "zsh":
        assert f"    node:'{SUMMARIES['node']}'\n" in ran.out


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("spvfilter wa", {"watch", "watchlist", "wallet"}),
        ("spvfilter wallet b", {"balance"}),
        ("spvfilter help wa", {"watch", "watchlist", "wallet"}),
        ("spvfilter watch --network reg", {"regtest"}),
        ("spvfilter scan --fo", {"--follow", "--format"}),
    ],
)
def test_bash_completes_what_is_typed(run: Any, tmp_path: Path, typed: str, expected: set[str]) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("needs bash")
    (tmp_path / "completion").write_text(run("completion", "bash").out)
    words = typed.split()
    script = (
        f"source {tmp_path}/completion; COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; COMP_LINE='{typed}'; "
        f"COMP_POINT={len(typed)}; _shtab_spvfilter spvfilter {words[-1]} {words[-2]}; "
        "printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    done = subprocess.run([bash, "-c", script], capture_output=True, text=True, check=True)
    assert {word.strip() for word in done.stdout.splitlines()} == expected


def test_old_shtab_that_lacks_a_shell_is_named(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shtab.SUPPORTED_SHELLS", ["bash"])
    ran = run("completion", "fish")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.endswith("does not know fish; run `python -m pip install --upgrade shtab`\n")


def test_completion_without_shtab_names_the_extra(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert run("completion", "bash") == (2, "", f"spvfilter: completion needs shtab; {remedy('cli')}\n")


def test_an_error_with_control_characters_is_escaped(run: Any, tmp_path: Path) -> None:
    ran = run("scan", "x", "--watch", tmp_path / "a\x1b[2J\u202e\nb")
    assert ran.code == 2
    assert ran.err.endswith("a\\x1b[2J\\u202e\\nb: No such file or directory\n")


def test_a_pipe_that_breaks_ends_it_quietly() -> None:
    child = subprocess.Popen(command("demo"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
    assert child.stdout is not None
    child.stdout.close()  # before anything was written
    assert child.stderr is not None
    assert child.stderr.read() == b""
    child.stderr.close()
    assert child.wait(timeout=60) == 141


@pytest.mark.slow
def test_a_full_disk_is_an_error() -> None:
    ran = process("demo", shell="> /dev/full")
    assert ran.returncode == 2
    assert ran.stderr == b"spvfilter: cannot read or write: No space left on device\n"


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("argv", "shell", "said"),
    [
        (["demo"], ">&-", b"spvfilter: standard output is closed\n"),
        (["inspect"], "<&-", b"spvfilter: standard input is closed\n"),
        (
            ["scan", "-", "--address", "12cbQLTFMXRnSzktFkuoG3eHoMeFtpTu3S"],
            "<&-",
            b"spvfilter: standard input is closed\n",
        ),
        (["filterload"], "2>&-", b""),
    ],
)
def test_a_closed_stream_is_no_traceback(argv: list[str], shell: str, said: bytes) -> None:
    ran = process(*argv, shell=shell)
    assert (ran.returncode, ran.stdout, ran.stderr) == (2, b"", said)


@pytest.mark.few(1)
@pytest.mark.parametrize("code", [WITH_SIGINT, WITH_UNNOTICED_SIGINT])
def test_an_interrupt_while_reading_ends_it_at_once(code: str) -> None:
    assert _interrupted("print('ready', flush=True) or read(*given)", code) == (130, b"spvfilter: interrupted\n")


def test_an_interrupt_in_a_destructor_ends_it() -> None:
    dropped = "type('Dropped', (), {'__del__': lambda self: os.kill(os.getpid(), signal.SIGINT)})() and None"
    assert _interrupted(f"({dropped}, print('ready', flush=True), read(*given))[-1]", sends=False) == (
        130,
        b"spvfilter: interrupted\n",
    )


def test_another_error_in_a_destructor_is_reported() -> None:
    failed = "type('Failed', (), {'__del__': lambda self: 1 / 0})() and None"
    code, err = _interrupted(f"({failed}, print('ready', flush=True), read(*given))[-1]")
    assert (code, b"ZeroDivisionError" in err, err.endswith(b"\nspvfilter: interrupted\n")) == (130, True, True)


def _interrupted(reading: str, code: str = WITH_SIGINT, *, sends: bool = True) -> tuple[int, bytes]:
    """Exit code and standard error of an interrupted `inspect`.

    `reading` is an expression that prints "ready" and then waits for standard input.
    """
    wrap = (
        "import os, spvfilter.cli.arguments as module; read = module._bounded; module._bounded = lambda *given:"
        f" {reading}"
    )
    with subprocess.Popen(
        command("inspect", code=code.replace("sys.exit", f"{wrap}; sys.exit")),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert child.stdout.readline() == b"ready\n"
        if sends:
            child.send_signal(signal.SIGINT)
        return child.wait(timeout=60), child.stderr.read()


EMBEDDED = """
import os, signal, sys, threading
from spvfilter.cli import main

def run():
    codes.append(main(["--version"]))

codes, hook, (reading, writing) = [], sys.unraisablehook, os.pipe()
os.set_blocking(writing, False)
signal.set_wakeup_fd(writing)
run()
thread = threading.Thread(target=run)
thread.start()
thread.join()
assert signal.set_wakeup_fd(-1) == writing
run()
assert signal.set_wakeup_fd(-1) == -1
assert (signal.getsignal(signal.SIGURG), sys.unraisablehook, threading.active_count()) == (signal.SIG_DFL, hook, 1)
assert codes == [0, 0, 0]
"""


def test_embedding_program_keeps_its_signals_and_threads() -> None:
    ran = process(code=EMBEDDED)
    assert (ran.returncode, ran.stderr) == (0, b"")


FORKING = """
import os, signal, sys
from spvfilter.cli.interrupts import never_lost

with never_lost():
    child = os.fork()
    if not child:
        signal.pause()
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
print("ended")
"""


def test_living_forked_child_does_not_block_the_end() -> None:
    ran = process(code=FORKING)
    assert (ran.returncode, ran.stdout) == (0, b"ended\n")


LEAVING = """
import os, sys, time
from spvfilter.cli.interrupts import never_lost

with never_lost():
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        time.sleep(0.2)
print("left")
"""


def test_forked_child_interrupts_no_process() -> None:
    ran = process(code=LEAVING)
    assert (ran.returncode, ran.stdout) == (0, b"left\nleft\n")


@pytest.mark.slow
def test_a_label_is_written_as_utf_8_in_any_locale(block_file: Path, watch_file: Path) -> None:
    watch_file.write_text(watch_file.read_text().replace("P2TR", "Spar\u2011Büchse"), encoding="utf-8")
    ascii_only = environment(PYTHONIOENCODING="ascii")
    argv = command("scan", block_file, "--watch", watch_file, "--network", "regtest", "--format", "table")
    child = subprocess.run(argv, capture_output=True, env=ascii_only, timeout=60)
    assert child.returncode == 0
    assert "Spar\u2011Büchse\n".encode() in child.stdout


@pytest.mark.slow
def test_a_terminal_without_rich_is_plain() -> None:
    code, screen = on_terminal("demo", code=WITHOUT_RICH)
    assert code == 0
    assert "\x1b" not in screen
    assert max(map(len, screen.splitlines())) <= 80


def test_a_terminal_with_rich_has_colours_and_80_columns() -> None:
    code, screen = on_terminal("demo")
    assert code == 0
    assert "\x1b[32m" in screen
