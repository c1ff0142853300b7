"""Options for the credentials of a node's RPC (`scan`, `match`)."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from spvfilter._public import deferred
from spvfilter.errors import ParameterError

if TYPE_CHECKING:
    import getpass

    from spvfilter.rpc import credentials
else:  # not needed to show --help
    getpass = deferred("getpass")
    credentials = deferred("spvfilter.rpc.credentials")

PASSWORD = "SPVFILTER_RPC_PASSWORD"  # noqa: S105  the variable's name


def add_credentials(group: argparse._ArgumentGroup) -> None:
    """Add --cookie and --user."""
    group.add_argument(
        "--cookie",
        metavar="FILE",
        help="the .cookie file in the node's data directory; a node that runs with -rest=1 needs none",
    )
    group.add_argument(
        "--user",
        metavar="NAME",
        help=f"RPC user, instead of --cookie; the password comes from the {PASSWORD} variable or the terminal",
    )


def check_credentials(cookie: str | None, user: str | None) -> None:
    """Raise ParameterError if both --cookie and --user are given."""
    if cookie is not None and user is not None:
        raise ParameterError("--cookie and --user cannot be combined: use only one")


def credentials_of(cookie: str | None, user: str | None) -> credentials.Credentials | None:
    """Return the credentials from --cookie or --user, or None if the command has neither option.

    Raises ParameterError if both are given or a password is missing.
    """
    check_credentials(cookie, user)
    if cookie is not None:
        return credentials.CookieFile(cookie)
    if user is None:
        return None
    name, colon, password = user.partition(":")
    if not colon:
        found = os.environ.get(PASSWORD)
        if found is None and not sys.stdin.isatty():
            raise ParameterError(
                f"--user needs a password: set the {PASSWORD} variable, or run on a terminal, which asks for it"
            )
        password = getpass.getpass(f"password of {name}: ") if found is None else found
    return credentials.Password(name, password)
