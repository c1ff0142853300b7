"""Keys and descriptors for tests, the scripts that they give, and the refusals, which repeat no secret."""

from __future__ import annotations

import pickle
import traceback

import pytest

from spvfilter.errors import ParameterError
from spvfilter.network import MAINNET, Network
from spvfilter.watch.descriptor import parse_descriptor

XPUB = "xpub6BosfCnifzxcFwrSzQiqu2DBVTshkCXacvNsWGYJVVhhawA7d4R5WSWGFNbi8Aw6ZRc1brxMyWMzG3DSSSSoekkudhUd9yLb6qx39T9nMdj"
ZPUB = "zpub6rFR7y4Q2AijBEqTUquhVz398htDFrtymD9xYYfG1m4wAcvPhXNfE3EfH1r1ADqtfSdVCToUG868RvUUkgDKf31mGDtKsAYz2oz2AGutZYs"
ZPUB_AS_XPUB = (
    "xpub6CatWdiZiodmUeTDp8LT5or8nmbKNcuyvz7WyksVFkKB4RHwCD3XyuvPEbvqAQY3rAPshWcMLoP2fMFMKHPJ4ZeZXYVUhLv1VMrjPC7PW6V"
)
TPUB = "tpubD6NzVbkrYhZ4WaWSyoBvQwbpLkojyoTZPRsgXELWz3Popb3qkjcJyJUGLnL4qHHoQvao8ESaAstxYSnhyswJ76uZPStJRJCTKvosUCJZL5B"
KEY = "03a34b99f22c790c4e36b2b3c2c35a36db06226e41c692fc82b8b56ac1c540c5bd"
# BIP-32
XPRV = "xprv9s21ZrQH143K3QTDL4LXw2F7HEK3wJUD2nW2nRk4stbPy6cq3jPPqjiChkVvvNKmPGJxWUtg6LnF5kejMRNNU3TGtRBeJgk33yuGBxrMPHi"
WIF = "L4rK1yDtCWekvXuE6oXD9jCYfFNV2cWRpVuPLBcCU2z8TrisoyY1"  # BIP-381
ADDRESS = "bc1qcr8te4kr609gcawutmrza0j4xv80jy8z306fyu"
NUMS = "50929b74c1a04954b78b4b6035e97a5e078a5a0f28ec96d547bfee9ace803ac0"  # BIP-341
HYBRID = (
    "0679be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798"
    "483ada7726a3c4655da4fbfc0e1108a8fd17b448a68554199c47d08ffb10d4b8"
)
MUSIG_FIRST = (
    "xpub6ERApfZwUNrhLCkDtcHTcxd75RbzS1ed54G1LkBUHQVHQKqhMkhgbmJbZRkrgZw4koxb5JaHWkY4ALHY2grBGRjaDMzQLcgJvLJuZZvRcEL"
)
MUSIG_SECOND = (
    "xpub68NZiKmJWnxxS6aaHmn81bvJeTESw724CRDs6HbuccFQN9Ku14VQrADWgqbhhTHBaohPX4CjNLf9fq9MYo6oDaPPLPxSb7gwQN3ih19Zm4Y"
)
MUSIG = f"musig({MUSIG_FIRST},{MUSIG_SECOND})"
POINT = "f9308a019258c31049344f85f89d5229b531c845836f99b08601f113bce036f9"


def scripts(text: str, network: Network = MAINNET, count: int = 3) -> list[str]:
    """The first scripts of a descriptor with one path, as the vectors list them."""
    (found,) = parse_descriptor(text, network)
    return [script.hex() for index in range(min(found.size, count)) for script in found.scripts(index)]


def refusal(text: str, network: Network = MAINNET) -> str:
    with pytest.raises(ParameterError) as caught:
        parse_descriptor(text, network)
    return str(caught.value)


def assert_silent_text(shown: str, secret: str) -> None:
    """A secret is not repeated, not even eight of its characters. The public key XPUB may be."""
    public = shown.replace(XPUB, "")
    assert not [secret[at : at + 8] for at in range(len(secret) - 7) if secret[at : at + 8] in public], shown


def assert_silent(error: BaseException, text: str) -> None:
    seen: BaseException | None = error
    while seen is not None:
        assert_silent_text(f"{seen} {seen!r} {seen.args!r} {pickle.loads(pickle.dumps(seen))!r}", text)
        shown = "".join(traceback.format_exception_only(seen))
        assert_silent_text(shown, text)
        seen = seen.__cause__ or seen.__context__
