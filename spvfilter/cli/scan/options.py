"""The options of `spvfilter scan`, and the checks that they do not contradict each other."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from spvfilter.cli.blockoptions import BlockOptions
from spvfilter.cli.scan.streams import STDIN, is_stream
from spvfilter.errors import ParameterError, SourceError
from spvfilter.scan.outputs import OutputFormat
from spvfilter.scan.remote import is_url
from spvfilter.scan.undomode import UndoMode

_BLOCK_SUFFIXES = (".dat", ".raw", ".blk", ".hex")  # endings of the names of block files in a directory


@dataclass(frozen=True, kw_only=True)
class ScanOptions(BlockOptions):
    """The options of a scan. Each field holds the option of the same name.

    Raises ParameterError if the options contradict each other or the PATHs.
    """

    watch: str | None
    address: list[str]
    labels: int | None
    txid: str | None
    strict: bool
    max_derivations: int
    format: str | None
    output: str | None
    with_transactions: bool
    binary: bool
    publish: str | None
    remove_parts: bool
    totals: str | None
    plot: str | None

    def __post_init__(self) -> None:
        super().__post_init__()
        if STDIN in self.paths and len(self.paths) > 1:
            raise ParameterError("'-' is standard input and cannot be combined with another PATH")
        if self.txid is not None:
            self._check_txid()
        self._check_names()
        if self.out is not None:
            self._check_parts()
        else:
            self._check_direct()
        if self.is_stream:
            self._check_stream()

    @cached_property
    def is_stream(self) -> bool:
        """True if the blocks can be read only once: from standard input, a pipe or compressed files."""
        return not self.is_node and is_stream(self.paths, in_parts=self.out is not None)

    @property
    def without_paths(self) -> str:
        cause = ": --address takes everything up to the next option: put PATH before it" if self.address else ""
        return f"no PATH of blocks given{cause} (see 'spvfilter scan --help')"

    def _check_txid(self) -> None:
        others = {
            "--watch": self.watch,
            "--address": self.address,
            "--out": self.out,
            "--plot": self.plot,
            "--totals": self.totals,
            "--dask": self.dask,
            "--processes": self.processes,
            "--with-transactions": self.with_transactions,
            "--undo require": self.undo == UndoMode.REQUIRE,
        }
        for option, value in others.items():
            if value:
                raise ParameterError(f"--txid only looks for the blocks of transactions: omit {option}")
        if self.follow:
            raise ParameterError(
                "--txid looks at the blocks once: omit --follow, and run the command again later, starting at the last"
                " height (--from-height). Or follow an address that the transaction pays: --address A --follow"
            )
        if self.is_stream:
            raise ParameterError(
                "--txid needs blocks in files or from a node, because a stream reveals the best chain only at its end:"
                " save the blocks in a file, or decompress them"
            )

    def _check_names(self) -> None:
        """Check that each output is a local file, and that no two of them are the same."""
        outputs = {"--out": self.out, "--output": self.output, "--plot": self.plot, "--totals": self.totals}
        for option, name in outputs.items():
            if is_url(name):
                raise ParameterError(
                    f"{option} takes a local path, not a URL: to copy results, use --out DIR --publish URL"
                )
        names = [name for name in (*outputs.values(), self.report) if name not in (None, os.devnull)]
        if len({Path(name).resolve() for name in names if name is not None}) < len(names):
            raise ParameterError(
                "--output, --totals, --plot and --report each need their own file: give them different names"
            )

    def _check_parts(self) -> None:
        """Check the options of a scan with --out."""
        if self.is_node:
            raise ParameterError("--out is for blocks in files: use --output FILE for the blocks of a node")
        if self.is_stream:
            raise ParameterError("--out is for blocks in files, not on standard input")
        if self.output is not None:
            raise ParameterError("--out DIR and --output FILE cannot be combined: use only one")
        if self.totals is not None:
            raise ParameterError("--totals is for a scan without --out: DIR/totals.csv contains them")
        if self.follow and self.remove_parts:
            raise ParameterError("--follow needs the parts that --remove-parts deletes: omit one of them")
        if self.format == "table":
            raise ParameterError(f"with --out, --format must be one of {', '.join(OutputFormat)}")
        if self.binary and self.format != OutputFormat.PARQUET:
            raise ParameterError("--binary is for Parquet: add --format parquet, or omit --binary")
        if self.publish is not None and not is_url(self.publish):
            raise ParameterError("--publish takes a URL such as s3://bucket/found")

    def _check_direct(self) -> None:
        """Check the options of a scan without --out."""
        needs_out = (self.processes, self.dask, self.publish, self.remove_parts, self.with_transactions, self.binary)
        if any(needs_out) or self.format == OutputFormat.PARQUET:
            raise ParameterError(
                "--processes, --dask, --publish, --remove-parts, --with-transactions, --binary and --format parquet"
                " need --out DIR"
            )
        if self.is_node and self.plot is not None:
            raise ParameterError("--plot is for blocks in files, not for those of a node")
        if self.follow and not self.is_node:
            raise ParameterError("--follow needs --out DIR, or the URL of a node as the only PATH")

    def _check_stream(self) -> None:
        """Check the options of a scan of blocks that can be read only once."""
        if self.undo == UndoMode.REQUIRE:
            raise ParameterError("--undo require is for blocks in files, not on standard input or in compressed files")
        if self.plot is not None:
            raise ParameterError("--plot is for blocks in files, not on standard input or in compressed files")
        if self.span.is_limited:
            raise ParameterError(
                "a range of heights or dates is for files, not for standard input or compressed files: decompress them"
            )

    def check_inputs(self) -> None:
        """Raise ParameterError if an output file is also an input, and SourceError if no PATH exists.

        Without this check, the command would truncate the output files before finding that nothing can be scanned.
        """
        paths = [] if self.is_node or self.paths == [STDIN] else self.paths
        inputs = [Path(name) for name in (*paths, self.watch, self.txid) if name not in (None, STDIN)]
        for output in map(Path, filter(None, (self.output, self.totals))):
            for source in inputs if output.exists() else ():
                inside = source.is_dir() and output.resolve().parent == source.resolve()
                if (inside and output.suffix in _BLOCK_SUFFIXES) or (source.exists() and output.samefile(source)):
                    raise ParameterError(f"{output}: this would overwrite an input")
            if paths and not any(is_url(name) or Path(name).exists() for name in paths):
                raise SourceError(f"nothing to scan: {', '.join(paths)}: no such file or directory")
