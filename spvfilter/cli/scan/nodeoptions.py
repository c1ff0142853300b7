"""The options of `spvfilter scan` for the blocks of a node, and for following a chain that grows."""

from __future__ import annotations

import argparse

from spvfilter.cli.arguments import whole
from spvfilter.cli.credentials import add_credentials
from spvfilter.errors import ParameterError
from spvfilter.rpc.endpoint import Endpoint, is_url

EVERY_S = 10  # seconds between two looks for new blocks, unless --every says otherwise

_OPTIONS = ("cookie", "user")
_MOST_SECONDS = 86_400


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of a scan of a node."""
    of_node = parser.add_argument_group(
        "blocks of a node", "These options need http://HOST:PORT or https://… as the only PATH."
    )
    add_credentials(of_node)
    following = parser.add_argument_group(
        "new blocks", "These options need --out DIR for files, or http://HOST:PORT as the only PATH."
    )
    following.add_argument(
        "--follow",
        action="store_true",
        help=(
            "continue with new blocks until Ctrl-C. With --out the files in DIR are written again. For a node, a block"
            " that a reorganization removes is a row of kind disconnected"
        ),
    )
    following.add_argument(
        "--every",
        metavar="S",
        type=whole(1, _MOST_SECONDS),
        help=f"with --follow: seconds between two looks for new blocks; default {EVERY_S}",
    )
    following.add_argument(
        "--zmq",
        metavar="ADDRESS",
        action="append",
        default=[],
        help=(
            "with --follow: look at once when the node announces a block at this address, rawblock or sequence, as in"
            " -zmqpubsequence=tcp://127.0.0.1:28332; repeatable"
        ),
    )


def check_follow(args: argparse.Namespace, *, is_node: bool) -> None:
    """Raise ParameterError if the options for new blocks do not fit the others."""
    if not args.follow:
        if args.zmq:
            raise ParameterError("--zmq announces new blocks: it needs --follow")
        if args.every is not None:
            raise ParameterError("--every is the time between two looks for new blocks: it needs --follow")
        return
    if not is_node and args.out is None:
        raise ParameterError("--follow needs --out DIR, or the URL of a node as the only PATH")
    if args.to_height is not None or args.to_date is not None:
        raise ParameterError("--follow runs until it is interrupted: leave --to-height and --to-date out")
    if args.remove_parts:
        raise ParameterError("--follow needs the parts that --remove-parts deletes: leave one of them out")


def is_node_url(paths: list[str]) -> bool:
    """Return True if the only PATH is the URL of a node. Raises ParameterError if there are other PATHs beside it."""
    # other URLs, such as s3://…, are files
    found = [path for path in paths if is_url(path) and path.lower().startswith(("http:", "https:"))]
    if not found:
        return False
    if len(paths) > 1:
        raise ParameterError("the URL of a node must be the only PATH of a scan")
    Endpoint.parse(paths[0])
    return True


def check_without_node(args: argparse.Namespace) -> None:
    """Raise ParameterError for options that need the URL of a node."""
    for name in _OPTIONS:
        if getattr(args, name):
            raise ParameterError(
                f"--{name} is for the blocks of a node: give its URL as the only PATH, such as http://127.0.0.1:8332"
            )
