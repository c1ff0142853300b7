"""The search with tweaks finds what the search with spent outputs finds, in any block."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from spvfilter.errors import FormatError
from spvfilter.kernel import walk_block
from spvfilter.silent.scanner import SilentScanner
from spvfilter.silent.search import search_block, search_tx
from spvfilter.silent.tweaks import first_scripts, search_block_by_tweaks
from support.blocks import build
from support.blocks.silentpayments import ORDER, Wallet, payment, public, tweak_of
from support.vectors import effort

pytest.importorskip("btclib_secp256k1")

MINE, SECOND, OTHER = Wallet(), Wallet(scan=13, spend=17), Wallet(scan=5)
SAME = Wallet(spend=19)  # the scan key of MINE
SCANNERS = [
    SilentScanner(MINE.scan_key, MINE.spend_pubkey, labels=(0, 1, 2)),
    SilentScanner(SECOND.scan_key, SECOND.spend_pubkey, labels=()),
    SilentScanner(SAME.scan_key, SAME.spend_pubkey, labels=(0, 3)),
]
ADDRESSES = st.sampled_from(
    [
        *(MINE.address(label) for label in (None, 0, 1, 9)),
        *(SAME.address(label) for label in (None, 0, 3)),
        SECOND.address(),
        OTHER.address(),
    ]
)
PAYMENTS = st.lists(st.tuples(st.lists(ADDRESSES, min_size=1, max_size=4), st.booleans()), min_size=1, max_size=4)


@given(PAYMENTS, st.randoms(use_true_random=False))
def test_tweaks_find_what_spent_outputs_find(payments: list[tuple[list[object], bool]], random: object) -> None:
    txs, scripts, tweaks = [], [], []
    for salt, (addresses, is_taproot) in enumerate(payments):
        raw, spent = payment(addresses, salt=salt, kind="p2tr" if is_taproot else "p2wpkh", inputs=1 + salt % 2)  # type: ignore[arg-type]
        txs.append(raw)
        scripts.append([each.script_pubkey for each in spent])
        tweaks.append(tweak_of(raw, scripts[-1]) or b"")
    random.shuffle(tweaks)  # type: ignore[attr-defined]
    (block,) = build.chain_of([txs], bytes(32), 1)
    expected = search_block(block, scripts, SCANNERS)
    found = search_block_by_tweaks(block, [*tweaks, *tweaks, MINE.scan_pubkey], SCANNERS)
    assert sorted(found, key=repr) == sorted(expected.payments, key=repr)
    assert {each.output.tweak for each in found} == {each.output.tweak for each in expected.payments}
    paid = {each.output.script_pubkey for each in expected.payments}
    firsts = set(first_scripts(tweaks, SCANNERS))
    outputs = [{block[start:end] for _, start, end in span.outputs} & paid for span in walk_block(block)]
    assert all(firsts & each for each in outputs if each)
    assert firsts & paid or not paid


def test_many_outputs_to_one_address_are_found() -> None:
    count = effort(30, 60, 400)
    raw, spent = payment([MINE.address()] * count, value=1_000)
    (block,) = build.chain_of([[raw]], bytes(32), 1)
    tweak = tweak_of(raw, [each.script_pubkey for each in spent])
    assert tweak is not None
    found = search_block_by_tweaks(block, [tweak], SCANNERS)
    assert [each.output.index for each in sorted(found, key=lambda each: each.output.index)] == list(range(count))


@pytest.mark.parametrize("tweak", [bytes(33), b"\2" + b"\xff" * 32, b"\5" + MINE.scan_pubkey[1:]])
def test_a_tweak_off_the_curve_is_refused(tweak: bytes) -> None:
    raw, _ = payment([MINE.address()])
    (block,) = build.chain_of([[raw]], bytes(32), 1)
    for search in (lambda: first_scripts([tweak], SCANNERS), lambda: search_block_by_tweaks(block, [tweak], SCANNERS)):
        with pytest.raises(FormatError, match="not a point on the secp256k1 curve"):
            search()


@given(st.permutations([(MINE, None), (SAME, None), (MINE, 1), (SAME, 3), (SAME, 0), (SAME, None)]))
def test_wallets_of_one_scan_key_are_searched_together(order: list[tuple[Wallet, int | None]]) -> None:
    raw, spent = payment([wallet.address(label) for wallet, label in order])
    found = {
        each.output.index: each for each in search_tx(raw, [each.script_pubkey for each in spent], SCANNERS).payments
    }
    assert [(found[n].scanner, found[n].output.label) for n in range(len(order))] == [
        (0 if wallet is MINE else 2, label) for wallet, label in order
    ]
    for number, (wallet, _) in enumerate(order):
        tweak = int.from_bytes(found[number].output.tweak, "big")
        private = (int.from_bytes(wallet.spend_key, "big") + tweak) % ORDER
        assert public(private)[1:] == found[number].output.key
