"""`bloom size`: tables, JSON and the picture."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from spvfilter.bloom import BloomFilter
from spvfilter.errors import remedy
from support.commands.processes import on_terminal

PNG = b"\x89PNG\r\n\x1a\n"
SHAPE = ("--capacity", 10_000_000, "--fp-rate", 0.001)


def test_json_has_everything(run: Any) -> None:
    ran = run("bloom", "size", *SHAPE, "--hash-funcs", 3)
    assert (ran.code, ran.err, ran.out.count("\n")) == (0, "", 1)
    told = json.loads(ran.out)
    assert [told[name] for name in ("capacity", "fp_rate", "hash_funcs", "bits")] == [10**7, 0.001, 3, 284_736_672]
    assert told["taylor"]["bits"] == 285_714_286
    assert told["taylor"]["fp_rate_at_capacity"] < told["fp_rate_at_capacity"] <= 0.001
    assert (told["best"]["hash_funcs"], told["best"]["bits"]) == (10, 143_776_416)
    assert told["optimal_bits_per_key"] == pytest.approx(14.37759)
    assert [load["keys"] for load in told["loads"]] == [5_000_000, 10_000_000, 20_000_000]
    assert [round(load["fp_rate_exact"], 6) for load in told["loads"]] == [0.000135, 0.001, 0.006859]
    assert told["counting"]["bytes"] == 4 * told["bytes"]
    assert told["counting"]["loads"][1]["counter_overflow"] == pytest.approx(1.52e-27, rel=0.01)
    assert [(of["keys"], of["slices"]) for of in told["scalable"]] == [
        (5_000_000, 1),
        (10_000_000, 1),
        (20_000_000, 2),
        (100_000_000, 4),
        (1_000_000_000, 7),
    ]
    assert max(of["fp_rate"] for of in told["scalable"]) < 0.001


def test_the_size_equals_that_of_the_created_file(run: Any, tmp_path: Path) -> None:
    shape = ("--capacity", 1_234, "--fp-rate", 0.003)
    told = json.loads(run("bloom", "size", *shape).out)
    assert run("bloom", "create", tmp_path / "f", *shape).code == 0
    made = BloomFilter.open(tmp_path / "f")
    assert (made.bits, made.hash_funcs, len(made.body)) == (told["bits"], told["hash_funcs"], told["bytes"])


@pytest.mark.parametrize(
    ("argv", "capacity", "bits", "hash_funcs"),
    [
        (["--capacity", 1000, "--bits", 9586], 1000, 9586, 7),
        (["--capacity", 1000, "--bits", 9586, "--hash-funcs", 3], 1000, 9586, 3),
        (["--fp-rate", 0.01, "--bits", 9600], 1000, 9600, 7),
        (["--fp-rate", 0.01, "--bits", 9600, "--hash-funcs", 3], 776, 9600, 3),
    ],
)
def test_two_values_determine_the_third(
    run: Any, argv: list[object], capacity: int, bits: int, hash_funcs: int
) -> None:
    told = json.loads(run("bloom", "size", *argv).out)
    assert (told["capacity"], told["bits"], told["hash_funcs"]) == (capacity, bits, hash_funcs)


def test_impossible_values_are_left_out(run: Any) -> None:
    told = json.loads(run("bloom", "size", "--capacity", 10**6, "--bits", 10).out)
    assert (told["taylor"], told["best"], told["scalable"], told["optimal_bits_per_key"]) == (None, None, [], None)
    told = json.loads(run("bloom", "size", "--capacity", 1, "--fp-rate", 1e-300).out)
    assert told["hash_funcs"] == 996
    assert told["fp_rate_exact_at_capacity"] is None


def test_tables_show_the_values_of_json(transcript_of: Any) -> None:
    transcript_of(
        0,
        """
        bloom size --capacity 10000000 --fp-rate 0.001 --hash-funcs 3 --format table
        bloom size --capacity 10 --bits 99 --format table
        bloom size --capacity 1000000 --bits 10 --format table
        """,
    )


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "code", ["", "import sys; sys.modules['rich'] = None; from spvfilter.cli import main; sys.exit(main())"]
)
@pytest.mark.parametrize("capacity", [1, 10_000_000, 1 << 48])
def test_tables_fit_a_terminal(capacity: int, code: str) -> None:
    ended, shown = on_terminal("bloom", "size", "--capacity", capacity, "--fp-rate", 0.0001, code=code)
    assert ended == 0
    if not code or capacity < 1 << 48:  # without rich, cells are not wrapped
        assert max(len(re.sub(r"\x1b\[[\d;]*m", "", line)) for line in shown.splitlines()) <= 80
    assert f"{100 * capacity:,}" in shown


def test_a_picture_needs_only_matplotlib(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    ran = run("bloom", "size", *SHAPE, "--plot", tmp_path / "size.png")
    assert (ran.code, ran.out, ran.err) == (
        2,
        "",
        f"spvfilter: --plot needs matplotlib; {remedy('plot')}\n",
    )
    assert run("bloom", "size", *SHAPE).code == 0


@pytest.mark.few(1)
@pytest.mark.plot
@pytest.mark.parametrize(
    "argv",
    [
        SHAPE,
        ("--capacity", 1, "--fp-rate", 1e-9, "--hash-funcs", 3),
        ("--capacity", 1 << 48, "--fp-rate", 1e-200),
        ("--fp-rate", 0.99, "--bits", 8),
    ],
)
def test_a_picture_of_any_size_can_be_replaced(run: Any, tmp_path: Path, argv: tuple[object, ...]) -> None:
    path = tmp_path / "size.PNG"
    path.write_bytes(PNG + b"another one")
    ran = run("bloom", "size", *argv, "--plot", path)
    assert (ran.code, ran.err) == (0, "")
    raw = path.read_bytes()
    assert raw.startswith(PNG)
    assert (int.from_bytes(raw[16:20]), int.from_bytes(raw[20:24])) == (1200, 560)
    assert [each.name for each in tmp_path.iterdir()] == ["size.PNG"]


@pytest.mark.slow
@pytest.mark.plot
def test_the_picture_shows_the_computed_rates_and_sizes(
    monkeypatch: pytest.MonkeyPatch, run: Any, tmp_path: Path
) -> None:
    from matplotlib.figure import Figure

    drawn: list[Figure] = []
    save = Figure.savefig

    def saved(figure: Figure, *args: Any, **kwargs: Any) -> None:
        drawn.append(figure)
        save(figure, *args, **kwargs)

    monkeypatch.setattr(Figure, "savefig", saved)
    assert run("bloom", "size", *SHAPE, "--plot", tmp_path / "f.png").code == 0
    rates, sizes = drawn[0].axes
    said = [
        text.get_text() for legend in (rates.get_legend(), sizes.get_legend()) if legend for text in legend.get_texts()
    ]
    assert said == [
        "k = 1: 0.067 when full",
        "k = 3: 0.0067 when full",
        "k = 10: 0.001 when full, the least",
        "k = 20: 0.0033 when full",
        "p = 0.001",
        "minimum, k = −log₂ p = 9.97: 14.38 bits per key",
        "k = 7 to 15 take at most 5 % more",
        "k = 3: 28.47 bits per key, 1.98 times the minimum",
        "too large to draw: k = 1: 999.5, k = 2: 62.24",
    ]
    points: Any = sizes.lines[0].get_xydata()
    curve = {float(x): float(y) for x, y in points}
    assert min(curve, key=curve.__getitem__) == 10
    assert curve[3] == pytest.approx(28.4736, rel=1e-4)


def test_bad_input_is_one_line_and_changes_no_file(refused: Any, tmp_path: Path) -> None:
    Path("lines.png").write_bytes(b"alpha\n")
    Path("folder.png").mkdir()
    refused("""
        bloom size
        bloom size --capacity 5
        bloom size --hash-funcs 5 --bits 10
        bloom size --capacity 5 --fp-rate 0.1 --bits 10
        bloom size --fp-rate 1e-09 --bits 3
        bloom size --capacity 5 --bits 0
        bloom size --capacity 5 --fp-rate 1
        bloom size --capacity 5 --fp-rate 0.1 --hash-funcs 1076
        bloom size --capacity 5 --fp-rate 0.1 --format xml
        bloom size --capacity 5 --fp-rate 0.1 --plot size.svg
        bloom size --capacity 5 --fp-rate 0.1 --plot lines.png
        bloom size --capacity 5 --fp-rate 0.1 --plot folder.png
        bloom size --capacity 5 --fp-rate 0.1 --plot nowhere/new.png
        bloom size --capacity 1000000 --bits 10 --plot new.png
        bloom size --capacity 5 --fp-rate 0.1 lines.txt
        bloom size --capacity 5 --fp-rate 0.1 --redis redis://localhost
    """)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder.png", "lines.png"]
    assert Path("lines.png").read_bytes() == b"alpha\n"
