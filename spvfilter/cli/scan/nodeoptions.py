"""The options of `spvfilter scan` and `spvfilter export` for a node's blocks."""

from __future__ import annotations

import argparse

from spvfilter.cli.credentials import add_credentials
from spvfilter.errors import ParameterError
from spvfilter.rpc.endpoint import Endpoint, is_url


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options for a node's blocks."""
    of_node = parser.add_argument_group(
        "blocks of a node", "These options need http://HOST:PORT or https://… as the only PATH."
    )
    add_credentials(of_node)


def is_node_url(paths: list[str]) -> bool:
    """Return True if the only PATH is the URL of a node. Raises ParameterError if there are other PATHs."""
    # other URLs, such as s3://…, are files
    found = [path for path in paths if is_url(path) and path.lower().startswith(("http:", "https:"))]
    if not found:
        return False
    if len(paths) > 1:
        raise ParameterError("the URL of a node must be the only PATH")
    Endpoint.parse(paths[0])
    return True
