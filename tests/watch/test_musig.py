"""Descriptors with musig() (BIP-390) give the published scripts. Invalid ones are refused."""

from __future__ import annotations

import sys

import pytest

from spvfilter.errors import remedy
from spvfilter.network import MAINNET
from spvfilter.watch.descriptor import keyexpression, parse_descriptor
from support.wallets.descriptortexts import MUSIG, MUSIG_FIRST, MUSIG_SECOND, POINT, refusal, scripts

pytestmark = pytest.mark.descriptors

MUSIG_HEX = (
    "musig(02f9308a019258c31049344f85f89d5229b531c845836f99b08601f113bce036f9,"
    "03dff1d77f2a671c5f36183726db2341be58feae1da2deced843240f7b502ba659,"
    "023590a94e768f8e1815c2f24b4d80a8e3149316c3518ce7b7ad338368d038ca66)"
)


@pytest.mark.musig
@pytest.mark.parametrize(
    ("text", "expected"),
    [  # BIP-390
        (f"tr({MUSIG_HEX})", ["512079e6c3e628c9bfbce91de6b7fb28e2aec7713d377cf260ab599dcbc40e542312"]),
        (
            f"rawtr({MUSIG}/0/*)",
            [
                "51209508c08832f3bb9d5e8baf8cb5cfa3669902e2f2da19acea63ff47b93faa9bfc",
                "51205ca1102663025a83dd9b5dbc214762c5a6309af00d48167d2d6483808525a298",
                "51207dbed1b89c338df6a1ae137f133a19cae6e03d481196ee6f1a5c7d1aeb56b166",
            ],
        ),
        (
            f"tr({MUSIG}/0/*,pk({POINT}))",
            [
                "51201d377b637b5c73f670f5c8a96a2c0bb0d1a682a1fca6aba91fe673501a189782",
                "51208950c83b117a6c208d5205ffefcf75b187b32512eb7f0d8577db8d9102833036",
                "5120a49a477c61df73691b77fcd563a80a15ea67bb9c75470310ce5c0f25918db60d",
            ],
        ),
        (
            f"tr({POINT},pk({MUSIG}/0/*))",
            [
                "512068983d461174afc90c26f3b2821d8a9ced9534586a756763b68371a404635cc8",
                "5120368e2d864115181bdc8bb5dc8684be8d0760d5c33315570d71a21afce4afd43e",
                "512097a1e6270b33ad85744677418bae5f59ea9136027223bc6e282c47c167b471d5",
            ],
        ),
    ],
)
def test_musig_gives_its_published_scripts(text: str, expected: list[str]) -> None:
    assert scripts(text) == expected


@pytest.mark.musig
def test_keys_of_musig_may_be_in_any_order() -> None:
    keys = [f"{MUSIG_FIRST}/<0;1>/*", f"[deadbeef]{MUSIG_SECOND}/7/*"]
    one, other = (parse_descriptor(f"tr(musig({','.join(each)}))", MAINNET) for each in (keys, keys[::-1]))
    assert [each.scripts(5) for each in one] == [each.scripts(5) for each in other]
    assert len({each.scripts(index) for each in one for index in range(3)}) == 6
    after = parse_descriptor(f"tr(musig({MUSIG_FIRST},{MUSIG_SECOND})/<0;1>/*)", MAINNET)
    assert [each.scripts(0)[0].hex() for each in after[:1]] == scripts(f"tr({MUSIG}/0/*)", count=1)


@pytest.mark.musig
@pytest.mark.parametrize(
    ("text", "cause"),
    [  # BIP-390, and multipaths on both sides
        (f"pk({MUSIG_HEX})", ", only in tr() and rawtr() (BIP-390)"),
        (f"pkh({MUSIG_HEX})", ", only in tr() and rawtr() (BIP-390)"),
        (f"wpkh({MUSIG_HEX})", ", only in tr() and rawtr() (BIP-390)"),
        (f"combo({MUSIG_HEX})", ", only in tr() and rawtr() (BIP-390)"),
        (f"sh(wpkh({MUSIG_HEX}))", ", only in tr() and rawtr() (BIP-390)"),
        (f"sh(wsh(pk({MUSIG_HEX})))", ", only in tr() and rawtr() (BIP-390)"),
        (f"wsh({MUSIG_HEX})", "BIP-390 allows it only as a key of tr() and rawtr()"),
        (f"sh({MUSIG_HEX})", "musig() is not allowed in sh(): expected one of"),
        (f"tr({MUSIG_HEX}/0/0)", "a musig() with a path must contain only extended keys, not a public key in hex"),
        (f"tr(musig({MUSIG_FIRST}/*,{MUSIG_SECOND})/0/*)", "a wildcard is not allowed within a musig() with a path"),
        (f"tr({MUSIG}/0h/*)", "a hardened step after musig(…)"),
        (f"tr({MUSIG}/0/*h)", "a hardened step after musig(…)"),
        (
            f"tr(musig({MUSIG_FIRST}/<0;1>,{MUSIG_SECOND})/<0;1>/*)",
            "a multipath is not allowed within a musig() that has one",
        ),
        (f"tr(musig({MUSIG},{MUSIG_FIRST}))", "musig() cannot be nested in musig()"),
        (f"tr({MUSIG}x)", "text after musig(…)"),
        (f"tr(musig({POINT},{MUSIG_FIRST}))", "x-only key of 64 hex digits is not allowed in musig()"),
    ],
)
def test_invalid_musig_is_refused_with_its_cause(text: str, cause: str) -> None:
    assert cause in refusal(text)


def test_without_its_package_a_musig_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "btclib_secp256k1.musig", None)
    keyexpression.aggregation.cache_clear()
    assert remedy("musig") in refusal(f"tr({MUSIG}/0/*)")
    keyexpression.aggregation.cache_clear()
