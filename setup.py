"""Build of the compiled kernel, which is left out if there is no C compiler. The package's metadata is in
pyproject.toml.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import tarfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from gzip import GzipFile
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist
from setuptools.modified import newer_group

KERNEL = "spvfilter.kernel.native"
CSRC = Path("spvfilter/kernel/csrc")
STABLE_ABI = not sysconfig.get_config_var("Py_GIL_DISABLED")  # binding.h decides by the same macro


class BuildKernel(build_ext):
    """Compiles the kernel. If that fails, every trace of it is removed, and the result is a pure package and named
    so.
    """

    def run(self) -> None:
        inplace = self.inplace
        try:
            super().run()
        except Exception as error:
            self.warn(f"no compiled kernel: {error}")
            # the build folder's and, in an editable install, the one beside the sources
            for self.inplace in (False, inplace):
                Path(self.get_ext_fullpath(KERNEL)).unlink(missing_ok=True)
            self.extensions = self.distribution.ext_modules = []

    def build_extensions(self) -> None:
        """Compile on all processors, and only the sources that changed."""
        compile_some = self.compiler.compile

        def compile_all(
            sources: Sequence[str], *, output_dir: str, depends: Sequence[str], **options: Any
        ) -> list[str]:
            def compile_one(source: str) -> str:
                (compiled,) = self.compiler.object_filenames([source], output_dir=output_dir)
                if newer_group([source, *depends], compiled):
                    compile_some([source], output_dir=output_dir, **options)
                return compiled

            with ThreadPoolExecutor(os.cpu_count()) as pool:
                return list(pool.map(compile_one, sources))

        self.compiler.compile = compile_all
        super().build_extensions()


class Wheel(bdist_wheel):
    """A wheel whose name says what was built: native with the kernel in it, py3-none-any without."""

    def run(self) -> None:
        self.run_command("build")
        self.root_is_pure = not self.distribution.has_ext_modules()
        super().run()


class SourceArchive(sdist):
    """A reproducible source archive: its bytes depend only on its files and SOURCE_DATE_EPOCH."""

    def make_archive(
        self,
        base_name: str,
        format: str,
        root_dir: Any = None,
        base_dir: Any = None,
        owner: Any = None,
        group: Any = None,
    ) -> str:
        made = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))

        def anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mode = 0o755 if member.mode & 0o100 else 0o644
            member.mtime = made
            return member

        path = Path(f"{base_name}.tar.gz")
        with (
            path.open("wb") as file,
            GzipFile("", "wb", fileobj=file, mtime=made) as packed,
            tarfile.open(fileobj=packed, mode="w") as archive,
        ):
            archive.add(base_dir, filter=anonymous)  # in the order of names
        return str(path)


def kernel() -> Extension:
    """The compiled kernel."""
    return Extension(
        KERNEL,
        sources=sorted(map(str, CSRC.rglob("*.c"))),
        include_dirs=[str(CSRC)],
        depends=["setup.py", *sorted(map(str, CSRC.rglob("*.h")))],
        extra_compile_args=["-std=c11", "-O3", "-g0", "-pthread", "-fvisibility=hidden"],
        extra_link_args=["-pthread"],
        py_limited_api=STABLE_ABI,
    )


setup(
    cmdclass={"build_ext": BuildKernel, "bdist_wheel": Wheel, "sdist": SourceArchive},
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if STABLE_ABI else {},
    # the kernel calls functions of POSIX that Windows lacks: there the package is pure
    ext_modules=[] if sys.platform == "win32" else [kernel()],
)
