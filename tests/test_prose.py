"""scripts/dev/prose: the lint finds the sentences that a reader has to guess at, and leaves plain ones alone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts" / "dev" / "prose"))
from patterns import hits, name_hits
from texts import Kind, texts

RIDDLES = [
    "What spends from a transaction counts no more, because that is kept as a rival of one that came `later`.",
    "Ours that spend what this one spends, were sent before, and are not wanted any more.",
    "What nobody has asked for is not given to anybody after this one, whose place it would take.",
    "groups on whose word a transaction is kept before all others: who invents payments is taken to have fewer; ours",
    "What it deals with before a crash is given once more: at least once, never not at all.",
    "By the block that is not there: what goes back to it.",
    "Whatever needs another extra says so.",
    "Those that are public are in their rooms.",
    "What is unconfirmed is not money: it stands in `pending_in`.",
    "It is offered until a peer announces it, nor is it kept.",
    "Of what has no number, the latest 100 of a kind are held for those who lag.",
    "Blocks that none has are named; those that two machines have are scanned once.",
    "A private transaction is told to nobody when the block that stood against it leaves the chain.",
    "Who invents payments keeps no others out, whether he speaks for one network or for three.",
    "What spends from what is replaced, and nobody has asked for, gives way to what was broadcast later too",
    "The client holds so many blocks in memory.",
    "The table is made anew upon every start.",
]
PLAIN = [
    "Mark the descendants of `txid` as replaced: `txid` conflicts with `later`, which was seen after it.",
    "Own transactions that `txid` replaced.",
    "Cancel broadcasts that no peer requested and that conflict with `tx`, directly or through an ancestor.",
    "A transaction announced by this many network groups is never evicted.",
    "Delivery is at least once: after a crash, events since the last bookmark are delivered again.",
    "If a feature needs another package, the error names the extra to install.",
    "What does a peer learn?",
    "The page says what to do and where to read on.",
    "By default the client keeps as many blocks as fit into 8 MB.",
]


@pytest.mark.parametrize("text", RIDDLES)
def test_riddle_is_found(text: str) -> None:
    assert list(hits(text))


@pytest.mark.parametrize("text", PLAIN)
def test_plain_sentence_passes(text: str) -> None:
    assert not list(hits(text))


def test_long_sentences_and_paragraphs_are_found() -> None:
    sentence = "The peer " + "sends " * 29 + "it."
    assert [kind for kind, _ in hits(sentence)] == ["sentence of more than 30 words"]
    paragraph = "The peer sends it. " * 16
    assert not list(hits(paragraph))
    assert [kind for kind, _ in hits(paragraph, is_docstring=True)] == ["paragraph of more than 60 words"]


def test_long_test_name_is_found() -> None:
    assert list(name_hits("test_one_two_three_four_five_six_seven_eight_nine_ten_eleven"))
    assert not list(name_hits("test_replaced_payment_leaves_pending_balance"))


def test_python_texts_are_docstrings_comments_and_messages(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        '''"""A module."""
# A comment
# on two lines.
@public
class Shown:
    """A class.

        an indented example, which is no prose

    Args:
        first: A parameter.
    """

    field: int = 1
    """A field."""

    def _hidden(self) -> None:
        """A private method."""
        raise ValueError(f"the value {self.field} is too large")
''',
        encoding="utf-8",
    )
    found = [(text.kind, " ".join(text.words.split()), text.is_public) for text in texts(path)]
    assert sorted(found) == sorted(
        [
            (Kind.DOCSTRING, "A module.", False),
            (Kind.COMMENT, "A comment on two lines.", False),
            (Kind.DOCSTRING, "A class. A parameter.", True),
            (Kind.DOCSTRING, "A field.", True),
            (Kind.DOCSTRING, "A private method.", False),
            (Kind.MESSAGE, "the value X is too large", False),
        ]
    )


def test_long_public_docstring_is_found(tmp_path: Path) -> None:
    lines = "\n".join(f"    Line {n}." for n in range(13))
    path = tmp_path / "module.py"
    path.write_text(f'@public\ndef shown():\n    """First.\n\n{lines}\n    """\n', encoding="utf-8")
    assert Kind.LONG in {text.kind for text in texts(path)}


def test_markdown_texts_leave_code_and_tables_out(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    wide = "word " * 21
    path.write_text(
        f"# Title\n\nFirst\nline.\n\n```sh\nno prose\n```\n\n| a | table |\n\n- item\n- {wide}\n", encoding="utf-8"
    )
    found = [(text.kind, text.words) for text in texts(path)]
    assert found == [
        (Kind.PAGE, "First\nline."),
        (Kind.LINE, f"- {wide}"),
        (Kind.PAGE, "item"),
        (Kind.PAGE, wide.rstrip() + " "),
    ]
