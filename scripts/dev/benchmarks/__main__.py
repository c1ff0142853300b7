"""Benchmarks: each prints rows `name, ours, reference, ratio`, best of N, ours and the reference interleaved in one
run.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import accounts
import blocks
import clients
import compact
import dense
import exports
import fuse
import generic
import growth
import headers
import ledger
import loop
import mainnet
import parts
import peers
import picture
import pipeline
import proofs
import recovery
import report
import sessions
import sync
import txs
from measure import Row, print_table

import bcoin
import silent
from spvfilter import __version__
from spvfilter.kernel import BACKEND

SUITES = {
    "scan": blocks.scan,
    "bip37": blocks.bip37,
    "lag": blocks.lag,
    "txs": txs.txs,
    "threads": pipeline.threads,
    "files": pipeline.files,
    "pipeline": pipeline.pipeline,
    "parts": parts.parts,
    "dense": dense.dense,
    "workers": parts.workers,
    "export": exports.exports,
    "addresses": pipeline.addresses,
    "start": pipeline.start,
    "generic": generic.generic,
    "scalable": generic.scalable,
    "static": fuse.static,
    "rates": generic.rates,
    "headers": headers.headers,
    "mainnet": mainnet.mainnet,
    "proofs": proofs.proofs,
    "silent": silent.silent,
    "gcs": compact.gcs,
    "ledger": ledger.ledger,
    "loop": loop.loop,
    "accounts": accounts.accounts,
    "clients": clients.clients,
    "electrum": sessions.electrum,
    "sync": sync.sync,
    "peers": peers.peers,
    "recovery": recovery.recovery,
    "bcoin": bcoin.bcoin,
    "growth": growth.growth,
}
ON_BLOCKS = {
    "scan",
    "bip37",
    "lag",
    "txs",
    "threads",
    "files",
    "pipeline",
    "parts",
    "dense",
    "workers",
    "export",
    "growth",
}
BOTH = ("scan", "bip37", "txs", "generic", "headers", "proofs", "gcs")  # measured with the pure kernel as well


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("suite", nargs="*", metavar="SUITE", help=f"{', '.join(SUITES)}; default: all")
    parser.add_argument(
        "--rounds", type=int, default=5, help="interleaved rounds, the best of which counts (default 5)"
    )
    parser.add_argument(
        "--backend", choices=("both", "native", "pure"), default="both", help="kernels to measure (default both)"
    )
    parser.add_argument(
        "--report", metavar="FILE.md", type=Path, help="also write a page of the rows, and its picture next to it"
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the rows to FILE, after each suite")
    parser.add_argument(
        "--rows", metavar="FILE", type=Path, nargs="+", help="make the report of what --json wrote, measuring nothing"
    )
    parser.add_argument(
        "--note",
        metavar="TEXT",
        default="",
        help="a sentence of the report about the circumstances, such as other load",
    )
    arguments = parser.parse_args()
    chosen = arguments.suite or list(SUITES)
    if arguments.rows:
        if not arguments.report or arguments.suite:
            parser.error("--rows goes with --report, without suites")
        write_report(
            arguments.report, report.joined([json.loads(path.read_bytes()) for path in arguments.rows]), arguments.note
        )
        return 0
    if unknown := set(chosen) - SUITES.keys():
        parser.error(f"unknown suite {', '.join(sorted(unknown))}: {', '.join(SUITES)}")
    folder = Path(os.environ.get("SPVFILTER_VECTORS", ".")) / "03_blocks"
    if ON_BLOCKS & set(chosen) and not folder.is_dir():
        print("set SPVFILTER_VECTORS to the folder of vectors: its real blocks are measured", file=sys.stderr)
        return 2
    run = report.Run(machine(), today(), __version__, {})
    print(run.machine)
    for name in chosen if arguments.backend != "pure" or BACKEND == "pure" else ():
        run.tables[name] = SUITES[name](folder, arguments.rounds)
        print_table(f"{name}, {BACKEND} kernel", run.tables[name])
        keep(run, arguments.json)
    rows = [row for made in run.tables.values() for row in made]
    if BACKEND == "native" and arguments.backend != "native" and (again := [name for name in chosen if name in BOTH]):
        run.tables[report.PURE] = pure(again)
        rows += run.tables[report.PURE]
        keep(run, arguments.json)
    if arguments.report:
        write_report(arguments.report, run, arguments.note)
    missed = [row.name for row in rows if row.goal is not None and row.ratio > row.goal]
    print(
        f"\n{sum(row.goal is not None for row in rows)} goals, {len(missed)}"
        f" missed{': ' if missed else ''}{'; '.join(missed)}"
    )
    return 0


def keep(run: report.Run, path: Path | None) -> None:
    if path is not None:
        path.write_text(json.dumps(run.to_json(), indent=1), encoding="utf-8")


def write_report(path: Path, run: report.Run, note: str) -> None:
    """Write the page. If it has the rows of README's table, also draw its picture and print that table."""
    made, drawn = report.page(run, note), path.with_suffix(".png")
    with suppress(KeyError):  # some suites were not measured
        table = report.headlines(made)
        made = report.page(run, note, drawn.name)
        picture.draw(made, drawn)
        print(f"\nREADME's table of speed:\n\n{table}")
    path.write_text(made, encoding="utf-8")


def today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def pure(suites: list[str]) -> list[Row]:
    """The rows of these suites with the reference kernel, measured in a separate process."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [sys.executable, str(Path(__file__).parent), *suites, "--rounds", "1", "--json", file.name]
        subprocess.run(command, check=True, env=os.environ | {"SPVFILTER_BACKEND": "pure"})
        return [
            row for made in report.joined([json.loads(Path(file.name).read_bytes())]).tables.values() for row in made
        ]


def machine() -> str:
    """The processor, its flags that matter here, and the version of Python."""
    model, flags = platform.processor() or platform.machine(), ""
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = dict(line.split(":", 1) for line in info.read_text().splitlines() if ":" in line)
        fields = {key.strip(): value.strip() for key, value in lines.items()}
        model = fields.get("model name", model)
        flags = " ".join(flag for flag in ("sha_ni", "avx2", "avx512f") if flag in fields.get("flags", "").split())
    return f"{model} [{flags or 'no sha_ni, no avx2'}], Python {platform.python_version()}"


if __name__ == "__main__":
    raise SystemExit(main())
