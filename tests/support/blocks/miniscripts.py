"""Random descriptors with random miniscript: valid, or broken in one place. No assertions."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from support.wallets.keychains import RandomDescriptors

TIMES = (1, 144, 65_535, 1 << 22 | 1, 1 << 22 | 65_535, 499_999_999, 500_000_000, (1 << 31) - 1)
NAMES = (
    "pk",
    "pkh",
    "pk_k",
    "pk_h",
    "and_v",
    "and_b",
    "or_b",
    "or_c",
    "or_d",
    "or_i",
    "andor",
    "thresh",
    "multi",
    "tr",
)
HEX = "79be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798"  # the generator of secp256k1
HEX_Y = "483ada7726a3c4655da4fbfc0e1108a8fd17b448a68554199c47d08ffb10d4b8"
BROKEN_KEYS = (
    "",
    HEX,
    f"02{HEX}",
    f"04{HEX}{HEX_Y}",
    f"06{HEX}{HEX_Y}",
    f"05{HEX}",
    f"02{HEX[:-2]}",
    f"0x02{HEX}",
    "02" + "0" * 64,
)
BROKEN_ORIGINS = (
    "[]",
    "[d34db33]",
    "[0xd34db33f/1]",
    "[d34db33f/m/1]",
    "[d34db33f/]",
    "[d34db33f/*]",
    "[d34db33f",
    "d34db33f]",
    "[x34db33f]",
)
BROKEN_PATHS = (
    "/",
    "/0h/*",
    "/0'",
    "/2147483648/*",
    "/*/0",
    "/**",
    "/-1/*",
    "/<0>/*",
    "/<0;0>/*",
    "/<0;1/*",
    "/a/*",
    "/ 0/*",
)


class RandomMiniscripts:
    """Descriptors that contain random miniscript. About half of them break a rule of BIP-379."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self._keys = RandomDescriptors(rng)
        self._used: list[str] = []
        self._is_tapscript = False

    def text(self, *, is_broken: bool | None = None) -> str:
        """A descriptor for mainnet with one path, and without checksum. By default 30 % are broken in one place."""
        rng = self.rng
        self._used = []
        self._is_tapscript = rng.random() < 0.5
        if self._is_tapscript:
            text = f"tr({self.key()},{self.tree(rng.choice((0, 0, 1, 2)))})"
        elif rng.random() < 0.15:
            text = self.plain()
        else:
            text = rng.choice(("wsh({})", "wsh({})", "sh(wsh({}))")).format(self.base(rng.choice((1, 2, 2, 3, 4))))
        return self.broken(text) if (rng.random() < 0.3 if is_broken is None else is_broken) else text

    def plain(self) -> str:
        """A descriptor without miniscript."""
        kind = self.rng.choice(
            (
                "pk({})",
                "pkh({})",
                "wpkh({})",
                "sh(wpkh({}))",
                "sh(pk({}))",
                "sh(pkh({}))",
                "wsh(pk({}))",
                "multi",
                "sortedmulti",
            )
        )
        if "{}" in kind:
            return kind.format(self.key())
        wrap, most = self.rng.choice((("{}", 4), ("sh({})", 16), ("wsh({})", 21), ("sh(wsh({}))", 21)))
        count = self.rng.randint(1, most)
        return wrap.format(f"{kind}({self.rng.randint(1, count)},{','.join(self.key() for _ in range(count))})")

    def key(self) -> str:
        if self._used and self.rng.random() < 0.02:
            return self.rng.choice(self._used)
        self._used.append(self._keys.key(is_main=True, path="/*"))
        return self._used[-1]

    def tree(self, depth: int) -> str:
        if depth:
            return f"{{{self.tree(depth - 1)},{self.tree(depth - 1)}}}"
        return self.base(self.rng.choice((0, 1, 2, 3)))

    def one_of(self, *makers: Callable[[], str]) -> str:
        return self.rng.choice(makers)()

    def base(self, depth: int) -> str:
        """An expression that may have type B."""
        rng = self.rng
        leaves = (
            *[lambda: f"pk({self.key()})"] * 4,
            lambda: f"pkh({self.key()})",
            lambda: f"{rng.choice(('older', 'after'))}({rng.choice(TIMES)})",
            lambda: f"{rng.choice(('sha256', 'hash256'))}({rng.randbytes(32).hex()})",
            lambda: f"{rng.choice(('ripemd160', 'hash160'))}({rng.randbytes(20).hex()})",
            self.multi,
            lambda: rng.choice("01"),
            lambda: wrapped("c", self.key_script(0)),
        )
        if depth <= 0:
            return self.one_of(*leaves)
        b, w, v, less = self.base, self.wrapped, self.verify, depth - 1
        branches = (
            lambda: f"and_v({v(less)},{b(less)})",
            lambda: f"and_b({b(less)},{w(less)})",
            lambda: f"or_b({b(less)},{w(less)})",
            lambda: f"or_d({b(less)},{b(less)})",
            lambda: f"or_i({b(less)},{b(less)})",
            lambda: f"andor({b(less)},{b(less)},{b(less)})",
            lambda: f"and_n({b(less)},{b(less)})",
            lambda: self.thresh(less),
            lambda: wrapped(rng.choice("jnlu"), b(less)),
            lambda: wrapped(rng.choice("dt"), v(less)),
            lambda: wrapped("c", self.key_script(less)),
        )
        return self.one_of(*leaves, *branches, *branches)

    def thresh(self, depth: int) -> str:
        count = self.rng.randint(1, 4)
        parts = [self.base(depth), *(self.wrapped(depth) for _ in range(count - 1))]
        return f"thresh({self.rng.randint(1, count)},{','.join(parts)})"

    def multi(self) -> str:
        count = self.rng.choice((1, 2, 3, 3, 16, 20))
        name = "multi_a" if self._is_tapscript else "multi"
        return f"{name}({self.rng.randint(1, count)},{','.join(self.key() for _ in range(count))})"

    def verify(self, depth: int) -> str:
        """An expression that may have type V."""
        b, v, less = self.base, self.verify, depth - 1
        if depth <= 0:
            return wrapped("v", b(0))
        return self.one_of(
            *[lambda: wrapped("v", b(less))] * 4,
            lambda: f"and_v({v(less)},{v(less)})",
            lambda: f"or_c({b(less)},{v(less)})",
            lambda: f"or_i({v(less)},{v(less)})",
            lambda: f"andor({b(less)},{v(less)},{v(less)})",
        )

    def key_script(self, depth: int) -> str:
        """An expression that may have type K."""
        k, less = self.key_script, depth - 1
        if depth <= 0:
            return f"{self.rng.choice(('pk_k', 'pk_h'))}({self.key()})"
        return self.one_of(
            *[lambda: k(0)] * 4,
            lambda: f"and_v({self.verify(less)},{k(less)})",
            lambda: f"or_i({k(less)},{k(less)})",
            lambda: f"andor({self.base(less)},{k(less)},{k(less)})",
        )

    def wrapped(self, depth: int) -> str:
        """An expression that may have type W."""
        return wrapped(self.rng.choice("aass"), self.base(depth))

    def broken(self, text: str) -> str:
        """The descriptor with one change: of a name, a number, a bracket, a wrapper or a part of a key."""
        rng = self.rng
        pattern, replacements = rng.choice(
            (
                (r"[a-z0-9_]+(?=\()", NAMES),
                (r"(?<=[a-z_]\()\d+(?=[,)])", ("0", "1", "2", "21", "1000", "2147483648", "x", "")),
                (r"[asctdvjnlu]+:", ("", "v:", "s:", "a:", "x:", ":", "vv:")),
                (r"[(),{}]", ("", "(", ")", ",", "{", "}", "()", ",,")),
                (r"(?:\[[^\]]*\])?[xt]pub[0-9A-Za-z/]*\*", BROKEN_KEYS),
                (r"\[[^\]]*\]", BROKEN_ORIGINS),
                (r"(?<=[0-9A-Za-z])/[0-9/]*\*", BROKEN_PATHS),
            )
        )
        places = list(re.finditer(pattern, text))
        if not places:
            return text
        place = rng.choice(places)
        return text[: place.start()] + rng.choice(replacements) + text[place.end() :]


def wrapped(letter: str, expression: str) -> str:
    """An expression with one more wrapper."""
    return f"{letter}{'' if ':' in expression.partition('(')[0] else ':'}{expression}"
