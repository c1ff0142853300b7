"""Random damage to watch lists, wallet files and URIs, and the rules that every outcome must obey."""

from __future__ import annotations

import io
import json
import random
import re
import sys
import time
import warnings
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field

from spvfilter.errors import SpvFilterError, SpvFilterWarning
from spvfilter.watch import textfile
from spvfilter.watch.watchlist import WatchList
from support.wallets.walletfiles import (
    ADDRESS,
    FILES,
    KEY,
    PHRASE,
    SECOND,
    SINGLE,
    TPUB,
    WIF,
    XPRV,
    checked,
    electrum,
    text_of,
)

SLOW_S = 1.0
"""Processor time that one input may take (issue 38)."""
_KEYS = re.compile(rf"(?<![0-9A-Za-z])(?:{XPRV}|{WIF})(?![0-9A-Za-z])")  # not glued to another word by the damage
_URI = f"bitcoin:{ADDRESS}?label=caf%C3%A9,x&amount=1&bc={SECOND}&tb=tb1qw508d6qejxtdg4y5r3zarvary0c5xw7kxpjzsx"
_LIST = (
    f"# a list\n{ADDRESS},rent\n{_URI}\nscript:51\npubkey:02{'ab' * 32}\ndata:00ff\noutpoint:{'ab' * 32}:1:5:51\n"
    f"keychain:5:20:{checked(f'{SINGLE}/0/*)')},cold\n{SECOND}\nwpkh({KEY}/**)\n"
)
_TOKENS: list[str] = [
    *"{}[]()<>\",;:|\t\n\r\0#@*/\\'=&?%-+.",
    *("\ufeff", "\u2028", "\ud7ff", "é", "💰", "null", "true", "1e999", "NaN", "-1", "0", "18446744073709551616"),
    *("9" * 400, "/**", "<0;1>", "<0;1;2>/*", "/0/*", "@0", "@9999", "#qqqqqqqq", "%00", "%ff", "%", "req-x=1", "bc="),
    *("BSMS 1.0\n", "Policy: 2 of 2\n", "address,label\n", '{"desc":', '{"type":"addr","ref":', "[[[[[[[[", '"":{"":'),
    *(KEY, TPUB, XPRV, WIF, PHRASE, ADDRESS, "wpkh(", "tr(", "musig(", "sortedmulti(2,", "keychain:9999999:20:"),
]
_VALUES: list[object] = [
    None,
    True,
    0,
    -1,
    1e300,
    "",
    "x",
    [],
    {},
    [[]],
    {"": {}},
    KEY,
    XPRV,
    WIF,
    ADDRESS,
    [KEY],
    2**64,
]


def seeds() -> list[str]:
    """Return the texts that are damaged: one of every kind, and one with private keys."""
    private = {**electrum(), "keystore": {**electrum()["keystore"], "xprv": XPRV, "seed": PHRASE}}
    return [*(text_of(make()) for make in FILES.values()), text_of(private), _LIST, _URI, f"{ADDRESS}\n"]


class Damage:
    """A source of damaged texts. The same number gives the same texts."""

    def __init__(self, number: int) -> None:
        self._random = random.Random(number)
        self._seeds = seeds()

    def texts(self) -> Iterator[bytes]:
        """Yield damaged texts without end."""
        while True:
            text = self._random.choice(self._seeds)
            if text[:1] in "{[" and self._random.random() < 0.5:
                text = self._changed_json(text)
            for _ in range(self._random.choice((0, 1, 1, 2, 3, 8))):
                text = self._changed(text)
            data = text.encode("utf-8", "surrogatepass")
            if self._random.random() < 0.1:
                data = self._changed_bytes(data)
            yield data

    def _changed(self, text: str) -> str:
        choice = self._random
        at, size = choice.randrange(len(text) + 1), choice.choice((1, 1, 2, 5, 20, 200))
        match choice.randrange(6):
            case 0:
                return text[:at] + text[at + size :]
            case 1:
                return text[:at] + choice.choice(_TOKENS) + text[at:]
            case 2:
                return text[:at] + choice.choice(_TOKENS) + text[at + size :]
            case 3:
                return text[:at] + text[at : at + size] * choice.choice((2, 3, 50)) + text[at + size :]
            case 4:
                other = choice.choice(self._seeds)
                begin = choice.randrange(len(other) + 1)
                return text[:at] + other[begin : begin + size * 5] + text[at:]
            case _:
                return (
                    text[:at] + chr(choice.choice((choice.randrange(128), choice.randrange(0xD800)))) + text[at + 1 :]
                )

    def _changed_json(self, text: str) -> str:
        """Replace, remove or move values of a JSON text."""
        try:
            data = json.loads(text)
        except ValueError:  # lines of JSON
            return text
        for _ in range(self._random.choice((1, 2, 4))):
            self._change_value(data)
        return json.dumps(data)

    def _change_value(self, data: object) -> None:
        while isinstance(data, (dict, list)) and data:
            keys = list(data) if isinstance(data, dict) else list(range(len(data)))
            key = self._random.choice(keys)
            inner = data[key]
            if isinstance(inner, (dict, list)) and inner and self._random.random() < 0.7:
                data = inner
                continue
            if self._random.random() < 0.3:
                del data[key]
            else:
                data[key] = deepcopy(self._random.choice(_VALUES))
            return

    def _changed_bytes(self, data: bytes) -> bytes:
        changed = bytearray(data)
        for _ in range(self._random.choice((1, 4))):
            at = self._random.randrange(len(changed) + 1)
            changed[at : at + self._random.randrange(2)] = self._random.randbytes(1)
        return bytes(changed)


@dataclass
class Outcome:
    """Counts and broken rules of a run of damaged texts."""

    read: int = 0
    """Number of texts that became a watch list."""
    refused: int = 0
    """Number of texts with an error of this package."""
    slowest_s: float = 0.0
    """Most processor time of one text."""
    faults: list[tuple[str, bytes]] = field(default_factory=list)
    """Broken rules, each with its text."""


def run(count: int, number: int = 0) -> Outcome:
    """Read damaged texts, and check every outcome: only errors of this package, soon, and without a private key."""
    outcome = Outcome()
    damage = Damage(number).texts()
    for at in range(count):
        data = next(damage)
        # keys are derived for a few texts only, since that takes most of the time
        _read(data, 5_000 if at % 500 == 0 else 0, outcome)
    return outcome


def _read(data: bytes, max_derivations: int, outcome: Outcome) -> None:
    watch = WatchList()
    told = ""
    began = time.thread_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SpvFilterWarning)
        try:
            textfile.read_into(watch, io.BytesIO(data), "list", max_derivations)
            outcome.read += 1
        except SpvFilterError as error:
            told = str(error)
            outcome.refused += 1
        except Exception as error:  # any other error is a fault
            outcome.faults.append((f"{type(error).__name__}: {error}", data))
    spent = time.thread_time() - began
    outcome.slowest_s = max(outcome.slowest_s, spent)
    if spent > SLOW_S:
        outcome.faults.append((f"{spent:.1f} s", data))
    told = "\n".join([told, *(str(each.message) for each in caught)])
    kept = "\n".join(label for _, _, label in watch.entries() if label)
    if _KEYS.search(f"{told}\n{kept}") or PHRASE[:40] in told:
        outcome.faults.append(("a message or a label with a private key", data))


def main() -> None:
    """Run as many damaged texts as the first argument says, and print counts and broken rules."""
    count, number = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    found = run(count, number)
    print(
        f"{found.read:,} read, {found.refused:,} refused, slowest {found.slowest_s:.2f} s, {len(found.faults)} faults"
    )
    for message, data in found.faults[:20]:
        print(message, data[:2_000])


if __name__ == "__main__":
    main()
