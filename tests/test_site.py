"""The archive of the site: every file once, in one folder, and the same bytes for the same site."""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
FILES = {"index.html": "<p>one", "reference/api/light.html": "<p>two", "_static/site.css": "p{}", ".nojekyll": ""}


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_archive", ROOT / "scripts/dev/packaging/site.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


pack = load().pack


def site(folder: Path, names: list[str]) -> Path:
    for name in [*names, ".doctrees/index.doctree", ".buildinfo"]:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(FILES.get(name, "left out"))
    return folder


def test_an_archive_has_every_page_in_one_folder(tmp_path: Path) -> None:
    pack(site(tmp_path / "html", list(FILES)), tmp_path / "spvfilter-9.9.9-docs.zip")
    with zipfile.ZipFile(tmp_path / "spvfilter-9.9.9-docs.zip") as archive:
        found = {name: archive.read(name).decode() for name in archive.namelist()}
        modes = {entry.external_attr >> 16 for entry in archive.infolist()}
    assert found == {f"spvfilter-9.9.9-docs/{name}": text for name, text in FILES.items()}
    assert modes == {0o100644}


@pytest.mark.parametrize(("epoch", "year"), [(None, 1980), ("0", 1980), ("1700000000", 2023)])
def test_equal_sites_give_equal_archives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, epoch: str | None, year: int
) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    if epoch is not None:
        monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
    for number, names in enumerate((list(FILES), list(reversed(FILES)))):
        (tmp_path / str(number)).mkdir()
        pack(site(tmp_path / str(number) / "html", names), tmp_path / str(number) / "docs.zip")
    first, second = ((tmp_path / str(number) / "docs.zip").read_bytes() for number in (0, 1))
    assert first == second
    with zipfile.ZipFile(tmp_path / "0" / "docs.zip") as archive:
        assert {entry.date_time[0] for entry in archive.infolist()} == {year}


def test_a_folder_without_a_site_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no site in"):
        pack(tmp_path, tmp_path / "docs.zip")
    assert not (tmp_path / "docs.zip").exists()
