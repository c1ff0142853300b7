"""Builds the compiled kernel where a C compiler is, and goes on without it where none is. What the package is says pyproject.toml."""

from __future__ import annotations

import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

KERNEL = "spvfilter.kernel.native"
CSRC = Path("spvfilter/kernel/csrc")
STABLE_ABI = not sysconfig.get_config_var("Py_GIL_DISABLED")  # binding.h decides by the same macro


class BuildKernel(build_ext):
    """Compiles the kernel, or leaves no trace of it: what is then built is the pure package, and says so."""

    def run(self) -> None:
        inplace = self.inplace
        try:
            super().run()
        except Exception as error:
            self.warn(f"no compiled kernel: {error}")
            for self.inplace in (False, inplace):  # the build folder's and, in an editable install, the one beside the sources
                Path(self.get_ext_fullpath(KERNEL)).unlink(missing_ok=True)
            self.extensions = self.distribution.ext_modules = []


class Wheel(bdist_wheel):
    """A wheel that is named after it was built: native with the kernel in it, py3-none-any without."""

    def run(self) -> None:
        self.run_command("build")
        self.root_is_pure = not self.distribution.has_ext_modules()
        super().run()


setup(
    cmdclass={"build_ext": BuildKernel, "bdist_wheel": Wheel},
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if STABLE_ABI else {},
    ext_modules=[
        Extension(
            KERNEL,
            sources=sorted(map(str, CSRC.rglob("*.c"))),
            depends=["setup.py", *sorted(map(str, CSRC.rglob("*.h")))],
            extra_compile_args=["-std=c11", "-O3", "-pthread", "-fvisibility=hidden"],
            extra_link_args=["-pthread"],
            py_limited_api=STABLE_ABI,
        )
    ],
)
