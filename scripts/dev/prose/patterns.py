"""Patterns of sentences that a reader has to guess at. CONTRIBUTING.md has the rules behind them."""

from __future__ import annotations

import re
from collections.abc import Iterator

LONGEST_SENTENCE = 30  # words; 20 is the aim
LONGEST_PARAGRAPH = 60  # words of a docstring's paragraph
LONGEST_NAME = 10  # words of a test's name

_START = r"(?:^|[;:(–—] |, (?:and|but|or|nor|so|yet) )"  # of a sentence or of a clause
_VERB = r"(?!to\b|to$)[a-z']+"
_SENTENCE = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(`\[]?[A-Z])")

PATTERNS = {
    "headless clause": re.compile(
        rf"{_START}(?:what|who|whoever|whatever|whichever) {_VERB}"
        rf"|\b(?:of|by|from|with|than|unless|after|before|at|on|to|in|for|as) (?:what|who|whoever|whatever) {_VERB}",
        re.IGNORECASE,
    ),
    "sentence begins with a pronoun or a preposition": re.compile(
        r"^(?:Those|So|Whose|Whom|Theirs|Ours|Such|Others|One (?:that|who|which|of|is|has|was)"
        r"|Of (?!course)|By (?!default)|Where (?!to\b)|That of)\b"
    ),
    "pronoun with a relative clause": re.compile(
        r"\b(?:one|ones|those|others|another|nobody|somebody|anybody|ours|theirs|the former|the latter),? "
        r"(?:that|who|whom|which|whose)\b",
        re.IGNORECASE,
    ),
    "fronted clause": re.compile(
        rf"{_START}(?:of|by|among|against|with|from|to|for|in|on|between) "
        r"(?:that|those|such|what|who|whom|whose|these|this) "
        r"(?:that|who|which|is|are|was|were|has|have|had|it|they|he|we|a|the)\b",
        re.IGNORECASE,
    ),
    "“so many” without “as”": re.compile(r"\bso (?:many|much|long|few)\b(?!.*\bas\b)", re.IGNORECASE),
    "“no more … that”": re.compile(r"\b(?:no|any) more\b[^,;]* (?:that|which|what|who)\b", re.IGNORECASE),
    "pronoun that ends a sentence": re.compile(r"[;,] (?:ours|theirs|others|each)\.?$", re.IGNORECASE),
    "archaic word": re.compile(
        r"\b(?:anew|thereof|therein|thereby|thereupon|whereof|wherein|whereupon|whence|thence|hence|whoever|whosoever|upon"
        r"|whatever it be|be it|lest|aught|naught|hitherto|henceforth)\b",
        re.IGNORECASE,
    ),
    "inversion": re.compile(
        r"\b(?:nor|so|neither) (?:is|are|was|were|do|does|did|has|have|had|can|may|will|would)\b", re.IGNORECASE
    ),
    "word that the glossary replaces": re.compile(
        r"\b(?:stand(?:s|ing)? (?:by|against|back|aside)|stood (?:by|against)|g[ai]ve[sn]? way|giving way"
        r"|on (?:the|its|his|their|one's|whose|nobody's) word\b|let(?:s|ting)? go|condemned|strangers?|rivals?"
        r"|spen(?:ds?|ding|t) the same|made room|makes? room|displace[sd]?|invented)\b",
        re.IGNORECASE,
    ),
}


def hits(text: str, *, is_docstring: bool = False) -> Iterator[tuple[str, str]]:
    """Kind and sentence of each hit in a text. A blank line separates its paragraphs."""
    for paragraph in re.split(r"\n\s*\n", text):
        prose = " ".join(paragraph.split())
        if is_docstring and len(prose.split()) > LONGEST_PARAGRAPH:
            yield f"paragraph of more than {LONGEST_PARAGRAPH} words", prose
        for sentence in _SENTENCE.split(prose):
            if len(sentence.split()) > LONGEST_SENTENCE:
                yield f"sentence of more than {LONGEST_SENTENCE} words", sentence
            if not sentence.endswith("?"):
                yield from ((kind, sentence) for kind, pattern in PATTERNS.items() if pattern.search(sentence))


def name_hits(name: str) -> Iterator[tuple[str, str]]:
    """Kind and name of each hit in the name of a test function."""
    words = name.removeprefix("test_").split("_")
    if len(words) > LONGEST_NAME:
        yield f"test name of more than {LONGEST_NAME} words", name
    yield from ((kind, name) for kind, pattern in PATTERNS.items() if pattern.search(" ".join(words)))
