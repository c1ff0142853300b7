"""Secrets among the arguments, such as a private key or a seed phrase: no message on standard error repeats one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

_BASE58 = "1-9A-HJ-NP-Za-km-z"
_KEY = re.compile(rf"[5KLc9][{_BASE58}]{{50,51}}|[a-zA-Z]prv[{_BASE58}]{{50,}}")
"""A private key in Wallet Import Format, or an extended private key."""
_WORD = re.compile(r"[^\W\d_]{2,9}")
"""A word that may be one of BIP-39's, in any language: two to nine letters."""
_LEAST_WORDS = 8  # words that look like a seed phrase (our choice: the shortest phrase has 12)
_LEAST_HIDDEN = 8  # a shortened key is hidden from this number of characters on


class Secrets:
    """The texts among a command's arguments that may be secret."""

    def __init__(self, argv: Sequence[str]) -> None:
        parts = [part for word in argv for part in (word, word.partition("=")[2])]
        values = [part for part in parts if not os.path.exists(part)]  # noqa: PTH110  Path raises for a long text
        self._texts = sorted({text for value in values for text in _secret_texts(value)}, key=len, reverse=True)
        words = [value for value in values if _WORD.fullmatch(value)]
        self._words = words if len(words) >= _LEAST_WORDS else []

    def hide(self, message: str) -> str:
        """The message without secrets; another message if this one repeats a word of a seed phrase."""
        for text in self._texts:
            start = re.escape(text[:_LEAST_HIDDEN])
            message = re.sub(rf"{start}[^'\"]*" if " " in text else rf"{start}\w*", "(not shown)", message)
        if any(re.search(rf"\b{word}\b", message) for word in self._words):
            return (
                f"{len(self._words)} arguments look like the words of a seed phrase, which no command takes; the"
                " message is not shown, since it repeats one"
            )
        return message


def _secret_texts(value: str) -> Iterator[str]:
    """The private keys in an argument, or the argument if it looks like a quoted seed phrase."""
    yield from _KEY.findall(value)
    words = value.split()
    if len(words) >= _LEAST_WORDS and all(map(_WORD.fullmatch, words)):
        yield value
