"""BIP-37 filters for a wallet: their matches on a chain, sizes, decoys and warnings."""

from __future__ import annotations

import hmac
import random
import warnings
from collections.abc import Callable, Iterable

import pytest
from bitcoin.core import Hash160

from spvfilter.errors import FpRateWarning, InexpressibleError, LostSpendsWarning, ParameterError
from spvfilter.filters.bip37 import Bip37Filter, UpdateFlags, decoys
from spvfilter.primitives import OutPoint
from spvfilter.watch.watchlist import WatchList
from support.blocks import build
from support.blocks.build import TxIn, TxOut

NONE, ALL, P2PUBKEY_ONLY, _ = UpdateFlags
SECRET = b"a secret of the wallet"
KEY, LONG_KEY = b"\x02" + b"\x01" * 32, b"\x04" + b"\x02" * 64
HASH, PROGRAM = b"\x03" * 20, b"\x04" * 32
STRANGER = build.p2wpkh(b"\x99" * 20)


class Elements(list[bytes]):
    def bloom_elements(self) -> Iterable[bytes]:
        return self


def wallet(count: int) -> Elements:
    rng = random.Random(count)
    return Elements(rng.randbytes(20) for _ in range(count))


def funded_and_spent(script: bytes) -> tuple[bytes, bytes, bytes]:
    """A block that pays the script and spends that output so that only its outpoint shows it; and the two
    transactions.
    """
    funding = build.tx([TxIn(b"\x77" * 32, 0)], [TxOut(1, STRANGER), TxOut(2, script), TxOut(3, STRANGER)])
    spending = build.tx([TxIn(b"\x77" * 32, 1), TxIn(build.txid(funding), 1, witness=(b"sig",))], [TxOut(1, STRANGER)])
    noise = build.tx([TxIn(build.txid(funding), 0)], [TxOut(1, STRANGER)])
    return build.block_of(build.GENESIS, 1, [noise, funding, noise[:-1] + b"\x01", spending]), funding, spending


def watching(*scripts: bytes) -> WatchList:
    watch = WatchList()
    for script in scripts:
        watch.add_script(script)
    return watch


# Matches

SCRIPTS = {
    "P2PK": build.p2pk(KEY),
    "P2PK, uncompressed": build.p2pk(LONG_KEY),
    "P2PKH": build.p2pkh(HASH),
    "P2SH": build.p2sh(HASH),
    "P2WPKH": build.p2wpkh(HASH),
    "P2WSH": build.p2wsh(PROGRAM),
    "P2TR": build.p2tr(PROGRAM),
    "witness version 16": b"\x60" + build.push(b"\x05\x06"),
    "bare multisig": build.multisig(2, [KEY, LONG_KEY, b"\x03" + KEY[1:]]),
    "OP_RETURN": b"\x6a" + build.push(b"data"),
    "timelocked": b"\x03\x01\x02\x03\xb1\x75" + build.p2pkh(HASH),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_found_with_its_spend_on_a_chain(name: str) -> None:
    block, funding, spending = funded_and_spent(SCRIPTS[name])
    watch = watching(SCRIPTS[name])
    (element,) = watch.bloom_elements()
    made = Bip37Filter.for_watchlist(watch, 1e-9, 5, decoy_key=SECRET)
    assert [tx.raw for tx in made.scan_block(block)] == [funding, spending]
    alone = Bip37Filter(100, 1e-9, 6)
    alone.insert(element)
    assert [tx.raw for tx in alone.scan_block(block)] == [funding, spending]
    assert not Bip37Filter(100, 1e-9, 6).scan_block(block)
    # the watch list finds the same
    assert [str(match.kind) for match in watch.match_block(block)] == ["output", "input"]


@pytest.mark.parametrize("key", [KEY, LONG_KEY])
def test_a_key_is_found_in_all_five_forms(key: bytes) -> None:
    key_hash = Hash160(key)
    forms = [
        build.p2pk(key),
        build.p2pkh(key_hash),
        build.p2wpkh(key_hash),
        build.p2sh(Hash160(build.p2wpkh(key_hash))),
    ]
    forms.append(build.multisig(1, [LONG_KEY[:1] + bytes(64), key]))
    watch = WatchList()
    watch.add_pubkey(key)
    helpful = set()
    for script in forms:
        block, funding, spending = funded_and_spent(script)
        assert [tx.raw for tx in Bip37Filter.for_watchlist(watch, 1e-9, 5, decoy_key=SECRET).scan_block(block)] == [
            funding,
            spending,
        ]
        for element in watch.bloom_elements():
            alone = Bip37Filter(100, 1e-9, 6)
            alone.insert(element)
            if alone.scan_block(block):
                helpful.add(element)
    assert helpful == set(watch.bloom_elements())  # every element is needed


def test_data_and_outpoints_are_found() -> None:
    watch = WatchList()
    watch.add_data(b"data")
    watch.add_outpoint(OutPoint(b"\x77" * 32, 1))
    made = Bip37Filter.for_watchlist(watch, 1e-9, 5, decoy_key=SECRET)
    block, funding, spending = funded_and_spent(b"\x6a" + build.push(b"data"))
    assert [tx.raw for tx in made.scan_block(block)] == [funding, spending]
    assert made.matches_tx(build.tx([TxIn(b"\x77" * 32, 1)], []))
    assert made.matches_tx(build.tx([TxIn(b"\x66" * 32, 1, build.push(b"data"))], []))


def test_known_outpoints_match_even_if_the_peer_inserts_none() -> None:
    block, funding, spending = funded_and_spent(build.p2wpkh(HASH))
    watch = watching(build.p2wpkh(HASH))
    watch.match_tx(funding)
    with pytest.warns(LostSpendsWarning):
        made = Bip37Filter.for_watchlist(watch, 1e-9, 5, NONE, decoy_key=SECRET)
    assert [tx.raw for tx in made.scan_block(block)] == [funding, spending]


# Size and tweak


@pytest.mark.parametrize(
    ("count", "capacity"), [(1, 256), (128, 256), (129, 512), (256, 512), (257, 1024), (1_000, 2_048)]
)
def test_room_is_reserved_for_future_outpoints(count: int, capacity: int) -> None:
    made = Bip37Filter.for_watchlist(wallet(count), 1e-3, decoy_key=SECRET)
    assert (made.capacity, made.nominal_fp_rate, made.flags) == (capacity, 1e-3, ALL)
    assert (made.size, made.hash_funcs) == (Bip37Filter(capacity, 1e-3).size, Bip37Filter(capacity, 1e-3).hash_funcs)


def test_the_reserve_shrinks_before_the_cap_costs_the_rate() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = Bip37Filter.for_watchlist(wallet(10_000), 1e-4, decoy_key=SECRET)
    assert 35_990 < made.size <= 36_000
    assert made.capacity == 15_023  # 288,000 bits * ln²2 / -ln p
    assert made.current_fp_rate == pytest.approx(1e-4, rel=0.01)


def test_the_number_of_elements_can_be_given() -> None:
    made = Bip37Filter.for_watchlist(wallet(3), 0.01, 7, elements=10, decoy_key=SECRET)
    assert (made.capacity, made.size, made.hash_funcs, made.tweak) == (10, 11, 5, 7)
    assert Bip37Filter.for_watchlist(wallet(10), 0.01, elements=10).capacity == 10
    with pytest.raises(ParameterError, match="for 10 elements is too small: the watch list contains 11"):
        Bip37Filter.for_watchlist(wallet(11), 0.01, elements=10)


def test_the_tweak_is_random_unless_given() -> None:
    tweaks = {Bip37Filter.for_watchlist(wallet(1), decoy_key=SECRET).tweak for _ in range(20)}
    assert len(tweaks) == 20
    assert max(tweaks) > 1 << 24
    again = [Bip37Filter.for_watchlist(wallet(5), 1e-3, 77, decoy_key=SECRET) for _ in range(2)]
    assert bytes(again[0]) == bytes(again[1])


def test_a_list_without_entries_raises() -> None:
    for empty in (WatchList(), Elements()):
        with pytest.raises(ParameterError, match="empty"):
            Bip37Filter.for_watchlist(empty)
    with pytest.raises(InexpressibleError, match="51"):
        Bip37Filter.for_watchlist(watching(b"\x51"))


@pytest.mark.parametrize(
    ("rate", "tweak", "flags"),
    [(0.0, 1, 1), (1.0, 1, 1), (float("nan"), 1, 1), (0.01, 2**32, 1), (0.01, 1, 3), (0.9, 1, 1)],
)
def test_parameters_out_of_range_raise(rate: float, tweak: int, flags: int) -> None:
    with pytest.raises(ParameterError):
        Bip37Filter.for_watchlist(wallet(1), rate, tweak, flags)


# Decoys


def test_only_secret_and_tweak_decide_the_decoys() -> None:
    made = {
        bytes(Bip37Filter.for_watchlist(wallet(5), 1e-3, tweak, decoy_key=key))
        for tweak in (1, 1, 2)
        for key in (SECRET, bytes(SECRET), SECRET[::-1])
    }
    assert len(made) == 4


@pytest.mark.parametrize("size", [16, 63, 64, 65, 200])
def test_decoys_are_hmacs_with_the_secret(size: int) -> None:
    key = bytes(range(size))
    made = decoys(key, 250, 10)
    assert made == [
        hmac.digest(key, b"spvfilter decoy" + number.to_bytes(4, "little"), "sha256")[:20] for number in range(250, 260)
    ]
    assert decoys(key, 0, 260)[250:] == made


def test_new_outpoints_replace_decoys() -> None:
    watch = watching(build.p2wpkh(HASH))
    before = Bip37Filter.for_watchlist(watch, 1e-3, 5, decoy_key=SECRET)
    sizes, rates = {before.size}, [before.current_fp_rate]
    for number in range(60):
        watch.match_tx(build.tx([TxIn(number.to_bytes(32, "little"), 0)], [TxOut(1, build.p2wpkh(HASH))]))
        made = Bip37Filter.for_watchlist(watch, 1e-3, 5, decoy_key=SECRET)
        sizes.add(made.size)
        rates.append(made.current_fp_rate)
        assert all(element in made for element in watch.bloom_elements())
    assert len(watch.bloom_elements()) == 61
    assert len(sizes) == 1
    assert all(rate == pytest.approx(1e-3, rel=0.05) for rate in rates)
    assert made.set_bits() == pytest.approx(before.set_bits(), abs=before.hash_funcs)
    shared = Bip37Filter.parse(bytes(made)).set_bits() - sum(
        (a & ~b).bit_count() for a, b in zip(bytes(made)[3:-9], bytes(before)[3:-9], strict=True)
    )
    # the same decoys, not new ones: the intersection of two filters does not show the wallet
    assert shared > 0.8 * before.set_bits()


def test_a_wallet_that_fills_its_filter_gets_no_decoys() -> None:
    plain = Bip37Filter.for_watchlist(wallet(300), 1e-3, 5, elements=300)
    decoys = Bip37Filter.for_watchlist(wallet(300), 1e-3, 5, elements=300, decoy_key=SECRET)
    assert decoys.set_bits() - plain.set_bits() < 0.05 * plain.set_bits()


@pytest.mark.parametrize("tweak", range(20))
def test_decoys_fill_the_filter_up_to_the_rate(tweak: int) -> None:
    made = Bip37Filter.for_watchlist(wallet(2), 0.01, tweak, elements=20, decoy_key=SECRET)
    target = 8 * made.size * 0.01 ** (1 / made.hash_funcs)  # bits set
    assert abs(made.set_bits() - target) <= made.hash_funcs / 2  # the last decoy sets at most hash_funcs bits


@pytest.mark.parametrize("size", [0, 15])
def test_a_short_secret_raises(size: int) -> None:
    with pytest.raises(ParameterError, match=f"at least 16 bytes long, not {size}"):
        Bip37Filter.for_watchlist(wallet(1), decoy_key=bytes(size))


# Warnings


def test_a_filter_without_decoys_warns() -> None:
    elements = wallet(3)
    with pytest.warns(FpRateWarning) as caught:
        made = Bip37Filter.for_watchlist(elements, 1e-4, 7)
    plain = Bip37Filter(256, 1e-4, 7, ALL)
    plain.update(elements)
    assert bytes(made) == bytes(plain)
    (message,) = [str(each.message) for each in caught]
    assert f"rate is {made.current_fp_rate:.2g}, not 0.0001" in message
    assert "hides nothing" in message
    assert "pass decoy_key" in message
    assert caught[0].filename == __file__


def test_missing_decoys_warn_only_below_a_tenth_of_rate() -> None:
    full = [Bip37Filter(256, 1e-4, 7) for _ in range(2)]
    for count, made in zip((190, 210), full, strict=True):
        made.update(wallet(count))
    assert full[0].current_fp_rate < 1e-5 < full[1].current_fp_rate
    with pytest.warns(FpRateWarning, match="hides nothing"):
        Bip37Filter.for_watchlist(wallet(190), 1e-4, 7, elements=256)
    quiet(lambda: Bip37Filter.for_watchlist(wallet(210), 1e-4, 7, elements=256))
    quiet(lambda: Bip37Filter.for_watchlist(wallet(1), 1e-4, 7, decoy_key=SECRET))


def quiet(make: Callable[[], Bip37Filter]) -> Bip37Filter:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return make()


def test_the_protocols_cap_warns_when_it_doubles_the_rate() -> None:
    quiet(lambda: Bip37Filter.for_watchlist(wallet(15_000), 1e-4, decoy_key=SECRET))
    quiet(lambda: Bip37Filter.for_watchlist(wallet(16_000), 1e-4))  # above the rate, but less than twice
    with pytest.warns(
        FpRateWarning,
        match="20000 elements in the 36000 bytes and 50 functions that BIP-37 allows: the real rate is 0.00",
    ):
        made = Bip37Filter.for_watchlist(wallet(20_000), 1e-4)
    assert made.current_fp_rate > 2e-4
    with pytest.warns(FpRateWarning, match="20000 elements"):  # the requested room counts as used
        Bip37Filter.for_watchlist(wallet(1), 1e-4, elements=20_000, decoy_key=SECRET)


LOSING = [
    watching(script) for name, script in SCRIPTS.items() if not name.startswith(("P2PK,", "bare")) and name != "P2PK"
]


@pytest.mark.parametrize("watch", LOSING)
def test_flags_that_lose_spends_cause_a_warning(watch: WatchList) -> None:
    for flags, name in ((NONE, "NONE"), (P2PUBKEY_ONLY, "P2PUBKEY_ONLY")):
        with pytest.warns(LostSpendsWarning, match=f"flags {name} .* spends of 1 watched"):
            Bip37Filter.for_watchlist(watch, 1e-9, 5, flags, decoy_key=SECRET)
    quiet(lambda: Bip37Filter.for_watchlist(watch, 1e-9, 5, ALL, decoy_key=SECRET))


@pytest.mark.parametrize("script", [build.p2pk(KEY), build.p2pk(LONG_KEY), build.multisig(1, [KEY, LONG_KEY])])
def test_bare_keys_lose_no_spend_with_p2pubkey_only(script: bytes) -> None:
    watch = watching(script)
    made = quiet(lambda: Bip37Filter.for_watchlist(watch, 1e-9, 5, P2PUBKEY_ONLY, decoy_key=SECRET))
    block, funding, spending = funded_and_spent(script)
    assert [tx.raw for tx in made.scan_block(block)] == [funding, spending]  # no warning was needed
    with pytest.warns(LostSpendsWarning):
        lossy = Bip37Filter.for_watchlist(watch, 1e-9, 5, NONE, decoy_key=SECRET)
    assert [tx.raw for tx in lossy.scan_block(block)] == [funding]  # the warning was right


def test_a_public_key_loses_the_spends_of_its_hashes() -> None:
    watch = WatchList()
    watch.add_pubkey(KEY)
    with pytest.warns(LostSpendsWarning, match="spends of 2 watched"):
        Bip37Filter.for_watchlist(watch, 1e-9, 5, P2PUBKEY_ONLY, decoy_key=SECRET)


def test_outpoints_alone_lose_no_spend() -> None:
    watch = WatchList()
    watch.add_outpoint(OutPoint(b"\x77" * 32, 1))
    for flags in (NONE, P2PUBKEY_ONLY, ALL):
        # bound on purpose
        made = quiet(lambda flags=flags: Bip37Filter.for_watchlist(watch, 1e-9, 5, flags, decoy_key=SECRET))  # type: ignore[misc]
        assert made.matches_tx(build.tx([TxIn(b"\x77" * 32, 1)], []))


def test_the_cap_on_functions_warns_when_it_spoils_the_rate() -> None:
    with pytest.warns(FpRateWarning, match="10 elements in the 36000 bytes and 50 functions"):
        Bip37Filter.for_watchlist(wallet(10), 1e-30, elements=10)


def test_an_inserted_outpoint_can_be_looked_up() -> None:
    made = Bip37Filter(10, 1e-6)
    point = OutPoint(bytes(range(32)), 7)
    assert point not in made
    made.insert(point)
    assert point in made
    assert bytes(point) in made
