"""Scripts that are derived together equal those derived one by one, whatever the descriptor."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from spvfilter.errors import KeychainError
from spvfilter.kernel import child_keys
from spvfilter.network import REGTEST
from spvfilter.watch.descriptor import keyexpression
from spvfilter.watch.descriptor.descriptor import LazyDescriptor, parse_descriptor
from spvfilter.watch.watchlist import WatchList

pytestmark = pytest.mark.descriptors

KEY = "tpubDC5FSnBiZDMmhiuCmWAYsLwgLYrrT9rAqvTySfuCCrgsWz8wxMXUS9Tb9iVMvcRbvFcAHGkMD5Kx8koh4GquNGNTfohfk7pgjhaPCdXpoba"
HEX = "02f9308a019258c31049344f85f89d5229b531c845836f99b08601f113bce036f9"
COUNT = 180


@pytest.mark.parametrize(
    "text",
    [
        f"pk({KEY}/*)",
        f"pkh({KEY}/3/*)",
        f"wpkh({KEY}/0/*)",
        f"sh(wpkh({KEY}/0/*))",
        f"combo({KEY}/<2;3>/*)",
        f"sh(wsh(multi(2,{KEY}/0/*,{HEX},{KEY}/1/*)))",
        f"wsh(sortedmulti(1,{KEY}/<0;1>/*,{KEY}/<2;3>/*))",
        f"wsh(and_v(v:pk({KEY}/0/*),older(144)))",
        f"rawtr({KEY}/0/*)",
        f"tr({KEY}/0/*)",
        f"tr({KEY}/0/*,{{pk({KEY}/1/*),multi_a(1,{KEY}/2/*,{HEX[2:]})}})",
        pytest.param(f"tr(musig({KEY}/0,{KEY}/1)/0/*)", marks=pytest.mark.musig),
        pytest.param(f"tr(musig({KEY}/*,{HEX}))", marks=pytest.mark.musig),
    ],
)
def test_window_equals_its_indexes(text: str) -> None:
    indexes = range(1_000_000, 1_000_000 + COUNT)
    for descriptor in parse_descriptor(text, REGTEST):
        alone = [descriptor.scripts(index) for index in indexes]
        assert descriptor.window(indexes) == alone
        assert descriptor.window(indexes[:1]) == alone[:1]
        assert descriptor.window(indexes[:0]) == []


def test_stored_descriptor_derives_together_too() -> None:
    (parsed,) = parse_descriptor(f"wpkh({KEY}/0/*)", REGTEST)
    lazy = LazyDescriptor.find(parsed.text, REGTEST)
    assert lazy is not None
    assert lazy.window(range(5, COUNT)) == parsed.window(range(5, COUNT))


def test_index_without_a_key_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """No such index is known, so a part of the derivation fails in its place."""

    def fail(parent: object, indexes: Sequence[int], flags: int) -> list[bytes]:
        if 77 in indexes:
            raise ValueError("no such child")
        return real(parent, indexes, flags)

    real = keyexpression.children_at
    monkeypatch.setattr(keyexpression, "children_at", fail)
    watch = WatchList(REGTEST)
    with pytest.raises(KeychainError, match=r"DescriptorError while deriving index 77$"):
        watch.add_descriptor(f"wpkh({KEY}/0/*)", lookahead=COUNT)
    watch.add_descriptor(f"wpkh({KEY}/0/*)", lookahead=50)
    assert len(watch) == 50


@pytest.mark.native
def test_wrong_keys_of_the_kernel_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(parent: bytes, tweaks: bytes) -> bytes:
        keys = bytearray(child_keys(parent, tweaks))
        keys[-1] ^= 1
        return bytes(keys)

    (descriptor,) = parse_descriptor(f"wpkh({KEY}/0/*)", REGTEST)
    alone = {script for index in range(COUNT) for script in descriptor.scripts(index)}
    monkeypatch.setattr(keyexpression, "child_keys", wrong)
    watch = WatchList(REGTEST)
    watch.add_descriptor(f"wpkh({KEY}/0/*)", lookahead=COUNT)
    assert {watch.table.entry(number)[1] for number in range(len(watch))} == alone
