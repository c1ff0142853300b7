"""Secrets among the arguments, such as a private key or a seed phrase: no message on standard error repeats one."""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterable, Sequence

from spvfilter.errors import ParameterError

_KEY = re.compile(
    r"(?<![^\W_])[5KLc9][^\W_]{47,54}(?![^\W_])"
    r"|(?<![^\W_])[a-zA-Z]prv[^\W_]{20,}"
    r"|(?<![^\W_])6P[^\W_]{54,58}(?![^\W_])"
    r"|(?<![^\W_])[tT]?[sS][pP](?:scan|SCAN|spend|SPEND)1[^\W_]{20,}"
    r"|(?<![^\W_])S[^\W_]{21}(?:[^\W_]{4}|[^\W_]{8})?(?![^\W_])"
    r"|(?<![0-9a-fA-F])[0-9a-fA-F]{32,128}(?![0-9a-fA-F]|\.\w)"
    r"|[\u3400-\u9fff]{12,24}"
)
"""A private key in Wallet Import Format, an extended, an encrypted (BIP-38) or a mini private key, a key or seed in
hex, or a Chinese seed phrase without blanks. It may also be a private key of silent payments (BIP-392). Characters may
be wrong or missing. Hex digits before the suffix of a file name are not a key.
"""
_SILENT = re.compile(r"^\s*sp\((?!\))|(?<![0-9A-Za-z])t?sp(?:scan|spend)1[0-9A-Za-z]{20}", re.IGNORECASE)
"""An sp() descriptor, which contains a private scan key, or a private key of silent payments."""
_LETTER = r"(?:[^\W\d_]|[\u0300-\u036f\u3099\u309a])"
"""A letter, or an accent that is a separate character, as in BIP-39 seed phrases."""
_RUN = re.compile(f"{_LETTER}+")
_LONE_WORD = re.compile(rf"(?:[^\w\s]|[0-9]+[.):])*({_LETTER}{{1,20}})[^\w\s]*")
"""A word with punctuation around it, or with a number such as `1.` before it."""
_NUMBER = re.compile(r"[0-9]+[^\w\s]*")
"""The number of a word, as a separate argument."""
_HYPHENATED = re.compile(rf"[^\w\s]*{_LETTER}+(?:[-_.+/]{_LETTER}+){{11,23}}")
"""A seed phrase in one piece, such as zebra-yellow-…"""
_CREDENTIALS = re.compile(r"//([^/@\s:]*:([^/@\s]+))@")
"""USER:PASSWORD and PASSWORD in a URL."""
_LEAST_PASSWORD = 4  # Characters. Hiding a shorter password would also hide parts of other words.
_LEAST_WORDS = 8  # Words that look like a seed phrase (our choice: the shortest phrase has 12).
_LEAST_HIDDEN = 8  # Characters. A shortened key of at least this length is hidden.


def refuse_scan_keys(argv: Iterable[str]) -> None:
    """Raise ParameterError if an argument contains sp(…) or a key of silent payments. No message repeats it."""
    if any(_SILENT.search(argument) for argument in argv):
        raise ParameterError(
            "an argument contains a silent payment key, and programs such as ps show arguments: write sp(…) to a"
            " file that only you can read, and give it with --watch"
        )


class Secrets:
    """The strings among a command's arguments that may be secret."""

    def __init__(self, argv: Sequence[str]) -> None:
        given = [item.partition("=")[2] or item if item.startswith("-") else item for item in argv]
        # Path.exists raises an error if the string is long
        values = {each: None for each in (*given, *argv) if not os.path.exists(each)}  # noqa: PTH110
        self._keys = sorted({key for value in values for key in _KEY.findall(value)}, key=len, reverse=True)
        self._phrases = [value for value in values if len(_words(value)) >= _LEAST_WORDS]
        urls = [found for value in argv for found in _CREDENTIALS.findall(value)]
        self._credentials = [text for found in urls for text in found if len(text) >= _LEAST_PASSWORD]
        is_phrase = _longest_run(given, values) >= _LEAST_WORDS
        self._words = [word for value in given for word in _words(value)] if is_phrase else []

    def hide(self, message: str) -> str:
        """Return the message without secrets, or a different message if this one repeats a word of a seed phrase."""
        for secret in (*self._phrases, *self._credentials):
            for text in (secret, repr(secret)[1:-1]):
                message = message.replace(text, "(not shown)")
        for key in self._keys:
            message = re.sub(rf"{re.escape(key[:_LEAST_HIDDEN])}[\w…]*", "(not shown)", message)
        if self._words and _repeats(message, self._words):
            return (
                f"{len(self._words)} words look like a seed phrase, which no command takes. The error message repeats"
                " one of them, so it is not shown"
            )
        return message


def _words(value: str) -> list[str]:
    """Return the words in an argument that may belong to a seed phrase, in any language."""
    if _HYPHENATED.fullmatch(value):
        return _RUN.findall(value)
    return [found[1] for found in map(_LONE_WORD.fullmatch, value.split()) if found]


def _longest_run(given: Iterable[str], missing: Container[str]) -> int:
    """Return the largest number of words that no option or other argument separates.

    A word that is the name of a file, as `test` may be, is not counted but does not end the run.
    """
    longest = run = 0
    for value in given:
        words = _words(value)
        if value.startswith("-") or not (words or _NUMBER.fullmatch(value)):
            run = 0
        if value in missing:
            run += len(words)
        longest = max(longest, run)
    return longest


def _repeats(message: str, words: Iterable[str]) -> bool:
    """Return True if the message contains one of the words. Line breaks in it may be escaped."""
    choices = "|".join(map(re.escape, words))
    return re.search(rf"(?<![^\W\d_])(?:{choices})(?!{_LETTER})", re.sub(r"\\[nrt]", " ", message)) is not None
