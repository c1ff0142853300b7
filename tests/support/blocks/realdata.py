"""Real blocks from the vectors' folder, read once. No assertions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from spvfilter.network import Network
from support.vectors import vector_path, vectors_root


@dataclass(frozen=True)
class RealBlock:
    """A block of 03_blocks; `facts` is its entry in index.json, or {} inside a file of consecutive blocks."""

    name: str
    network: Network
    height: int
    hash: str  # display order; "" where index.json does not say it
    raw: bytes
    facts: dict[str, object]

    def __repr__(self) -> str:
        return self.name


@cache
def single_blocks() -> list[RealBlock]:
    """The blocks that have their own file."""
    return [
        RealBlock(
            f"{entry['network']}-{entry['height']}",
            Network.named(entry["network"]),
            entry["height"],
            entry["hash"],
            vector_path(f"03_blocks/{entry['file']}").read_bytes(),
            entry,
        )
        for entry in _index()
        if "height" in entry
    ]


@cache
def runs() -> list[tuple[dict[str, Any], list[RealBlock]]]:
    """Each file of consecutive blocks: its entry in index.json and its blocks."""
    return [(entry, _framed(entry)) for entry in _index() if "first_height" in entry]


@cache
def all_blocks() -> list[RealBlock]:
    return single_blocks() + [block for _, blocks in runs() for block in blocks]


def _index() -> list[dict[str, Any]]:
    index: list[dict[str, Any]] = json.loads(vector_path("03_blocks/index.json").read_text(encoding="utf-8"))
    return index


def _framed(entry: dict[str, object]) -> list[RealBlock]:
    raw = vector_path(f"03_blocks/{entry['file']}").read_bytes()
    network = Network.named(str(entry["network"]))
    blocks: list[RealBlock] = []
    at = 0
    while at < len(raw):
        assert raw[at : at + 4] == network.magic
        end = at + 8 + int.from_bytes(raw[at + 4 : at + 8], "little")
        height = int(entry["first_height"]) + len(blocks)  # type: ignore[call-overload]
        blocks.append(RealBlock(f"{network}-{height}", network, height, "", raw[at + 8 : end], {}))
        at = end
    return blocks


def real_block_cases(most: int | None = None) -> pytest.MarkDecorator:
    """Parametrise `block` over the blocks with a file of their own, of `most` bytes at most."""
    cases = [pytest.param(None, id="missing", marks=pytest.mark.vectors)]
    if vectors_root() is not None:
        chosen = [block for block in single_blocks() if most is None or len(block.raw) <= most]
        cases = [pytest.param(block, id=block.name, marks=pytest.mark.vectors) for block in chosen]
    return pytest.mark.parametrize("block", cases)
