"""The options of `spvfilter scan http://HOST:PORT`."""

from __future__ import annotations

import argparse

from spvfilter.errors import ParameterError
from spvfilter.rpc.endpoint import Endpoint, is_url

PASSWORD = "SPVFILTER_RPC_PASSWORD"  # noqa: S105  the variable's name
_OPTIONS = ("cookie", "user", "follow", "zmq")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of a scan of a node."""
    of_node = parser.add_argument_group("blocks of a node, with http://HOST:PORT or https://… as the only PATH")
    of_node.add_argument(
        "--cookie", metavar="FILE", help="the .cookie in the node's data directory; not needed if it runs with -rest=1"
    )
    of_node.add_argument(
        "--user",
        metavar="NAME",
        help=f"or its user; the password is the variable {PASSWORD}'s, or is asked for on the terminal",
    )
    of_node.add_argument(
        "--follow",
        action="store_true",
        help="go on with each new block; what a reorganisation takes away is a row, too",
    )
    of_node.add_argument(
        "--zmq",
        metavar="ADDRESS",
        action="append",
        default=[],
        help=(
            "with --follow: where the node publishes rawblock or sequence (-zmqpubsequence=tcp://127.0.0.1:28332);"
            " repeatable. Without it the node is asked every 10 seconds"
        ),
    )


def is_node_url(paths: list[str]) -> bool:
    """Whether the PATHs are a node's URL. Raises ParameterError for a URL among others."""
    # others are of files
    found = [path for path in paths if is_url(path) and path.lower().startswith(("http:", "https:"))]
    if not found:
        return False
    if len(paths) > 1:
        raise ParameterError("the URL of a node is the only PATH of a scan")
    Endpoint.parse(paths[0])
    return True


def check_without_node(args: argparse.Namespace) -> None:
    """Raise ParameterError for options that only the scan of a node has."""
    for name in _OPTIONS:
        if getattr(args, name):
            raise ParameterError(
                f"--{name} is for the blocks of a node: give its URL as PATH, as in http://127.0.0.1:8332"
            )
