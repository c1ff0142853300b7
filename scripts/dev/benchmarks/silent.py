"""Silent payments: the time of a candidate with two outputs, compared with the two calls of libsecp256k1 alone."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from measure import Row, best_of, times_of

from spvfilter.kernel import SilentCandidate, silent_candidate
from spvfilter.silent.scanner import SilentScanner
from spvfilter.silent.search import search_tx

sys.path.append(str(Path(__file__).parents[3] / "tests"))

_TXS = 400
_LABELS = 2_000
_THREADS = 2
Candidates = list[tuple[bytes, list[bytes | None]]]
"""Transactions, each with the scripts that it spends."""


def _alone(found: list[SilentCandidate], scan_key: bytes, spend_pubkey: bytes) -> None:
    """Parse the keys of candidates, sum them, and search the outputs, by calls of the library alone."""
    from btclib_secp256k1 import context, ffi, lib

    ctx: Any = context.ctx
    spend = ffi.new("secp256k1_pubkey *")
    assert lib.secp256k1_ec_pubkey_parse(ctx, spend, spend_pubkey, 33)
    for each in found:
        key, summary = ffi.new("secp256k1_pubkey *"), ffi.new("secp256k1_silentpayments_prevouts_summary *")
        assert lib.secp256k1_ec_pubkey_parse(ctx, key, each.keys, 33)
        outputs = [ffi.new("secp256k1_xonly_pubkey *") for _ in each.outputs]
        for output, (_, raw) in zip(outputs, each.outputs, strict=True):
            assert lib.secp256k1_xonly_pubkey_parse(ctx, output, raw)
        args = ctx, summary, each.outpoint, ffi.NULL, 0, [key], 1
        assert lib.secp256k1_silentpayments_recipient_prevouts_summary_create(*args)
        room = ffi.new("secp256k1_silentpayments_found_output[]", len(outputs))
        pointers, count = [room + n for n in range(len(outputs))], ffi.new("uint32_t *")
        assert lib.secp256k1_silentpayments_recipient_scan_outputs(
            ctx, pointers, count, outputs, len(outputs), scan_key, summary, spend, ffi.NULL, ffi.NULL
        )


def _search(txs: Candidates, scanners: list[SilentScanner]) -> None:
    for raw, spent in txs:
        assert not search_tx(raw, spent, scanners).payments


def _in_threads(pool: ThreadPoolExecutor, txs: Candidates, scanners: list[SilentScanner]) -> None:
    parts = [txs[number::_THREADS] for number in range(_THREADS)]
    list(pool.map(lambda part: _search(part, scanners), parts))


def silent(_: Path, rounds: int) -> list[Row]:
    """Measure candidates with two outputs that pay somebody else."""
    from support.blocks.silentpayments import Wallet, payment

    wallet, other = Wallet(), Wallet(scan=5)
    made = [payment([other.address(), other.address()], salt=number) for number in range(_TXS)]
    txs: Candidates = [(raw, [each.script_pubkey for each in spent]) for raw, spent in made]
    found = [each for raw, spent in txs if (each := silent_candidate(raw, 0, spent)[1]) is not None]
    one = [SilentScanner(wallet.scan_key, wallet.spend_pubkey, labels=())]
    labelled = [SilentScanner(wallet.scan_key, wallet.spend_pubkey, labels=range(_LABELS))]
    two = [*one, SilentScanner((9).to_bytes(32, "big"), wallet.spend_pubkey, labels=())]
    alone, ours, both, many = best_of(
        rounds,
        partial(_alone, found, wallet.scan_key, wallet.spend_pubkey),
        partial(_search, txs, one),
        partial(_search, txs, two),
        partial(_search, txs, labelled),
    )
    with ThreadPoolExecutor(_THREADS) as pool:
        single, threads = times_of(rounds, partial(_search, txs, one), partial(_in_threads, pool, txs, one))
    each_us = 1e3 / _TXS
    return [
        Row("a candidate (µs)", ours * each_us, alone * each_us, "libsecp256k1's two calls, with parsed keys", 1.3),
        Row("a further scan key (µs)", (both - ours) * each_us, ours * each_us, "the first scan key", 0.9),
        Row(f"a candidate with {_LABELS:,} labels (µs)", many * each_us, ours * each_us, "without labels", 1.5),
        Row("two threads", threads.clock, single.clock, "one thread", round(1 / 1.8, 2)),
    ]
