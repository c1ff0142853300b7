"""Packs the built site: site.py FOLDER FILE.zip.

The archive has the site in a folder with the name of the archive, without what Sphinx keeps for its next run. The bytes
depend on the site and on SOURCE_DATE_EPOCH alone.
"""

from __future__ import annotations

import os
import sys
import time
import zipfile
from pathlib import Path

_FIRST = 315_532_800  # 1980-01-01, the earliest time in a zip file
_MODE = 0o100644 << 16  # a file that everybody may read


def pack(site: Path, archive: Path) -> None:
    """Write the archive of a site. Raises ValueError if the folder has no index.html, OSError."""
    if not (site / "index.html").is_file():
        raise ValueError(f"no site in {site}: it has no index.html")
    date = time.gmtime(max(_FIRST, int(os.environ.get("SOURCE_DATE_EPOCH", _FIRST))))[:6]
    files = sorted(path for path in site.rglob("*") if path.is_file())
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as made:
        for path in files:
            name = path.relative_to(site)
            if name.parts[0] in (".doctrees", ".buildinfo"):
                continue
            entry = zipfile.ZipInfo((Path(archive.stem) / name).as_posix(), date)
            entry.compress_type, entry.create_system, entry.external_attr = zipfile.ZIP_DEFLATED, 3, _MODE
            made.writestr(entry, path.read_bytes(), compresslevel=9)


if __name__ == "__main__":
    try:
        pack(Path(sys.argv[1]), Path(sys.argv[2]))
    except (ValueError, OSError) as error:
        sys.exit(f"site: {error}")
