"""An extension of Sphinx: links the first use of a term on each page to its line in the glossary."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast

from docutils import nodes
from sphinx.addnodes import pending_xref

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.domains.std import StandardDomain

_GLOSSARY = "reference/glossary"
_PAGES = ("tutorial/", "howto/", "explanation/")
_TERMS = (
    *("birthday", "canonical", "completeness", "decoy", "descriptor", "false-positive rate", "gap limit", "keychain"),
    *("lookahead", "merkle proof", "network group", "outpoint", "reorganization", "rescan", "undo file", "watch list"),
)
"""Terms that a newcomer may not know. The glossary also explains everyday words, such as "match"."""
_USE = re.compile(rf"\b({'|'.join(_TERMS)})s?\b", re.IGNORECASE)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.connect("doctree-read", read)
    return {"parallel_read_safe": True}


def read(app: Sphinx, tree: nodes.document) -> None:
    """Give the lines of the glossary names, and link the terms of other pages to them."""
    page = app.env.docname
    if page == _GLOSSARY:
        _name_lines(cast("StandardDomain", app.env.get_domain("std")), tree)
    elif page.startswith(_PAGES):
        _link(tree, page)


def _name_lines(domain: StandardDomain, tree: nodes.document) -> None:
    """Name the lines of the glossary. Raises ValueError if a term of `_TERMS` has none."""
    lines = {row.children[0].astext().casefold(): row for row in tree.findall(nodes.row)}
    if missing := [term for term in _TERMS if term not in lines]:
        raise ValueError(f"the glossary lacks {', '.join(missing)}")
    for term in _TERMS:
        label = nodes.make_id(f"term-{term}")
        lines[term]["ids"].append(label)
        domain.note_object("term", term, label)


def _link(tree: nodes.document, page: str) -> None:
    """Link the first use of each term in running text."""
    left = set(_TERMS)
    for paragraph in list(tree.findall(nodes.paragraph)):
        for text in list(paragraph.findall(nodes.Text)):
            if isinstance(text.parent, nodes.paragraph):
                text.parent.replace(text, list(_pieces(str(text), left, page)))


def _pieces(text: str, left: set[str], page: str) -> list[nodes.Node]:
    """Split a text at the terms that are left, and take them away from `left`."""
    pieces: list[nodes.Node] = []
    done = 0
    for use in _USE.finditer(text):
        term = use[1].casefold()
        if term not in left:
            continue
        left.remove(term)
        link = pending_xref(
            use[0], nodes.inline(use[0], use[0]), refdomain="std", reftype="term", reftarget=term, refdoc=page
        )
        pieces += [nodes.Text(text[done : use.start()]), link]
        done = use.end()
    return [*pieces, nodes.Text(text[done:])]
