"""Checks the contents of an sdist and of wheels: git ls-files | contents.py SDIST WHEEL….

The sdist must have all tracked files. The wheels must have the package of the sdist.
"""

from __future__ import annotations

import re
import sys
import tarfile
import zipfile
from pathlib import Path

# Files of an sdist that git does not track.
GENERATED = re.compile(r"PKG-INFO|setup\.cfg|spvfilter\.egg-info/.*")
CSRC = "spvfilter/kernel/csrc/"
KERNEL = re.compile(r"spvfilter/kernel/native\.(abi3|cpython-3\d+t-[\w-]+)\.so")
METADATA = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE", "top_level.txt"}


def check(held: set[str], expected: set[str], where: str) -> None:
    """Exit with an error unless both sets of names are equal."""
    if held != expected:
        sys.exit(f"{where} has {shown(held - expected)} too much, and lacks {shown(expected - held)}")


def shown(names: set[str]) -> str:
    first = sorted(names)[:10]
    return ", ".join(first) + f" and {len(names) - len(first)} more" * (len(names) > len(first)) or "nothing"


def read_sdist(path: Path) -> tuple[set[str], bytes]:
    """Read the names of an sdist, without its folder, and its metadata."""
    folder = path.name.removesuffix(".tar.gz")
    with tarfile.open(path) as archive:
        metadata = archive.extractfile(f"{folder}/PKG-INFO")
        assert metadata is not None
        return {member.name.removeprefix(f"{folder}/") for member in archive if not member.isdir()}, metadata.read()


def check_wheel(path: Path, package: set[str], metadata: bytes) -> None:
    """Exit with an error unless a wheel has the files of `package`, this metadata, and one kernel if it is native."""
    distribution, version, *_, platform = path.stem.split("-")
    about = f"{distribution}-{version}.dist-info/"
    with zipfile.ZipFile(path) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
        kernels = {name for name in names if KERNEL.fullmatch(name)}
        check(names, package | kernels | {about + name for name in METADATA}, path.name)
        if len(kernels) != (platform != "any"):
            sys.exit(f"{path.name} has {len(kernels)} compiled kernels: {sorted(kernels)}")
        if archive.read(f"{about}METADATA") != metadata:
            sys.exit(f"{path.name} and the sdist differ in their metadata")


def main(sdist: Path, *wheels: Path) -> None:
    tracked = {name for name in sys.stdin.read().splitlines() if not name.startswith(".")}
    names, metadata = read_sdist(sdist)
    names = {name for name in names if not GENERATED.fullmatch(name)}
    check(names, tracked, sdist.name)
    for wheel in wheels:
        check_wheel(
            wheel, {name for name in names if name.startswith("spvfilter/") and not name.startswith(CSRC)}, metadata
        )


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
