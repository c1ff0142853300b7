"""scripts/dev/packaging/changelog.py cuts the section of a release once, and prints it as the notes."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from spvfilter import __version__

ROOT = Path(__file__).parents[1]


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("changelog", ROOT / "scripts/dev/packaging/changelog.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


cut = load().cut
KINDS = ("Breaking changes", "Highlights", "Added", "Changed", "Fixed", "Removed")
THEMES = (
    "Wallet and live client",
    "Accounts, addresses and labels",
    "Peers and privacy",
    "Watch lists and descriptors",
    "Scan and match",
    "Export",
    "Filters",
    "Electrum",
    "Command line",
    "Node and wire protocol",
    "Package",
)
TEXT = "# Changelog\n\n## Unreleased\n\n- New.\n  More of it.\n\n## 0.1.0 (2024-01-01)\n\n- Old.\n"


def test_unreleased_entries_move_to_the_release() -> None:
    made = cut(TEXT, "0.2.0", "2024-02-03")
    assert made.text == TEXT.replace("## Unreleased\n", "## Unreleased\n\n## 0.2.0 (2024-02-03)\n")
    assert made.notes == "- New.\n  More of it.\n"


def test_a_release_is_cut_only_once() -> None:
    once = cut(TEXT, "0.2.0", "2024-02-03")
    assert cut(once.text, "0.2.0", "2025-05-05") == once
    assert cut(TEXT, "0.1.0", "2025-05-05") == (TEXT, "- Old.\n")


@pytest.mark.parametrize(
    ("text", "version", "date", "message"),
    [
        (TEXT, "0.2", "2024-02-03", "a version is like"),
        (TEXT, "v0.2.0", "2024-02-03", "a version is like"),
        (TEXT, "0.2.0", "03.02.2024", "isoformat"),
        (TEXT, "0.2.0", "2024-02-30", "day is out of range|day.*month"),
        ("# Changelog\n", "0.2.0", "2024-02-03", "neither a section 0.2.0 nor"),
        (
            "# Changelog\n\n## Unreleased\n\n## 0.1.0\n\n- Old.\n",
            "0.2.0",
            "2024-02-03",
            "the changelog has no entries for 0.2.0",
        ),
        (TEXT + "## Unreleased\n", "0.2.0", "2024-02-03", "two sections"),
    ],
)
def test_a_bad_version_date_or_changelog_is_refused(text: str, version: str, date: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cut(text, version, date)


def test_the_changelog_has_a_section_for_the_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    release, _, development = __version__.partition(".dev")
    if development:  # its changes are under Unreleased, where there may be none yet
        assert text.count("\n## Unreleased\n") == 1
        assert f"\n## {release} " not in text
    else:
        made = cut(text, __version__, "2030-01-01")
        assert made.text == text
        assert "\n### " in f"\n{made.notes}"


def parts(text: str, mark: str) -> tuple[str, dict[str, str]]:
    """The text before the first heading, and the text of each section by its heading."""
    before, *sections = f"\n{text}".split(f"\n{mark} ")
    named = [section.partition("\n") for section in sections]
    assert len({name for name, _, _ in named}) == len(named), named
    return before.strip(), {name: body for name, _, body in named}


def entries(text: str) -> list[str]:
    """The bullets of a text without other content."""
    assert re.fullmatch(r"- \S.*(\n(- \S|  \S).*)*", text.strip()), text
    return re.split(r"\n- ", f"\n{text.strip()}")[1:]


def test_every_entry_is_one_short_bullet_under_a_known_heading() -> None:
    """Kinds and themes have one order in each version. An entry has at most 25 words, and occurs once in a version."""
    _, versions = parts((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), "##")
    assert next(iter(versions)) == "Unreleased"
    for version in versions.values():
        _, kinds = parts(version, "###")
        assert list(kinds) == [kind for kind in KINDS if kind in kinds]
        found = []
        for kind in kinds.values():
            flat, themes = parts(kind, "####")
            assert list(themes) == [theme for theme in THEMES if theme in themes]
            assert not (flat and themes), f"bullets outside the themes: {flat}"
            found += [entry for body in (themes.values() if themes else [flat]) for entry in entries(body)]
        assert not [entry for entry in found if len(entry.split()) > 25]
        assert sorted(found) == sorted(set(found))


def test_highlights_lead_to_their_pages() -> None:
    _, versions = parts((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), "##")
    for version in versions.values():
        _, kinds = parts(version, "###")
        for entry in entries(kinds["Highlights"]) if "Highlights" in kinds else ():
            pages = re.findall(r"\]\(([^)#]+)", entry)
            assert pages, entry
            assert all((ROOT / page).is_file() for page in pages), entry


def test_documents_name_the_version() -> None:
    assert re.findall(r"spvfilter --version +# spvfilter (\S+) ", (ROOT / "README.md").read_text(encoding="utf-8")) == [
        __version__
    ]
