"""Random descriptors of public keys, and keychains without a library that derives. No assertions."""

from __future__ import annotations

import random
from hashlib import sha256
from typing import Any

from spvfilter.watch.descriptor.keyexpression import wally as library


class RandomDescriptors:
    """Descriptors of every kind with random keys: random seeds, origins and paths."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def key(self, *, is_main: bool, path: str | None = None) -> str:
        """An extended public key, perhaps with its origin, and a path of its own or the one given."""
        wally = library()
        version = wally.BIP32_VER_MAIN_PRIVATE if is_main else wally.BIP32_VER_TEST_PRIVATE
        key = wally.bip32_key_from_seed(self.rng.randbytes(32), version, 0)
        steps = [self.rng.choice((44, 49, 84, 86)) + (1 << 31), self.rng.randrange(3) + (1 << 31)][
            : self.rng.randrange(3)
        ]
        origin = ""
        if steps:
            fingerprint = bytes(wally.bip32_key_get_fingerprint(key)).hex()
            mark = self.rng.choice(("h", "'"))
            origin = f"[{fingerprint}/{'/'.join(f'{step - (1 << 31)}{mark}' for step in steps)}]"
            key = wally.bip32_key_from_parent_path(key, steps, wally.BIP32_FLAG_KEY_PRIVATE)
        public = wally.bip32_key_to_base58(key, wally.BIP32_FLAG_KEY_PUBLIC)
        plain = "".join(
            f"/{self.rng.randrange(1 << self.rng.choice((1, 8, 31)))}" for _ in range(self.rng.randrange(3))
        )
        return f"{origin}{public}{plain}{path or ''}"

    def text(self, kind: str, *, is_main: bool) -> str:
        """A ranged descriptor of a kind, half of them with two paths."""
        path = self.rng.choice(("/*", "/<0;1>/*"))

        def key() -> str:
            return self.key(is_main=is_main, path=path)

        match kind:
            case "sh(wpkh)":
                return f"sh(wpkh({key()}))"
            case "wsh(sortedmulti)":
                count = self.rng.randrange(1, 7)
                return f"wsh(sortedmulti({self.rng.randint(1, count)},{','.join(key() for _ in range(count))}))"
            case "miniscript":
                return f"wsh({self.miniscript(key)})"
            case "tree":
                return f"tr({key()},{self.tree(key, 0)})"
            case _:
                return f"{kind}({key()})"

    def miniscript(self, key: Any) -> str:
        """A policy as wallets have them."""
        rng = self.rng
        after, blocks, digest = rng.randrange(1, 500_000_000), rng.randrange(1, 65_535), rng.randbytes(32).hex()
        return rng.choice(
            (
                f"and_v(v:pk({key()}),older({blocks}))",
                f"and_v(v:pk({key()}),after({after}))",
                f"or_d(pk({key()}),and_v(v:pkh({key()}),older({blocks})))",
                f"andor(pk({key()}),older({blocks}),pk({key()}))",
                f"thresh(2,pk({key()}),s:pk({key()}),sln:older({blocks}))",
                f"and_v(v:pk({key()}),sha256({digest}))",
                f"or_i(and_v(v:pkh({key()}),older({blocks})),pk({key()}))",
            )
        )

    def tree(self, key: Any, depth: int) -> str:
        """A tree of taproot scripts."""
        if depth < 3 and self.rng.random() < 0.5:
            return f"{{{self.tree(key, depth + 1)},{self.tree(key, depth + 1)}}}"
        kind = self.rng.randrange(3)
        if kind == 0:
            return f"pk({key()})"
        if kind == 1:
            count = self.rng.randrange(1, self.rng.choice((4, 4, 4, 20)))
            multi = f"multi_a({self.rng.randint(1, count)},{','.join(key() for _ in range(count))})"
            blocks = self.rng.randrange(1, 65_535)
            return self.rng.choice(
                (multi, f"and_v(v:{multi},older({blocks}))", f"or_d({multi},and_v(v:pkh({key()}),older({blocks})))")
            )
        return self.miniscript(key)


def script_at(index: int) -> bytes:
    """A P2WPKH script without a key, as if a wallet derived its scripts itself."""
    return b"\x00\x14" + sha256(b"keychain" + index.to_bytes(4)).digest()[:20]
