"""The table of commands, and the help that `spvfilter --help` prints."""

from __future__ import annotations

COMMANDS = {
    "filterload": "filterload",
    "inspect": "inspect.command",
    "scan": "scan.command",
    "export": "export",
    "match": "match.command",
    "watch": "watch.command",
    "watchlist": "watchlist",
    "wallet": "wallet",
    "labels": "labels",
    "broadcast": "broadcast",
    "electrum": "electrum",
    "descriptor": "descriptor",
    "privacy": "privacy.command",
    "cfilter": "cfilter.command",
    "bloom": "bloom.command",
    "node": "node",
    "demo": "demo.command",
    "completion": "completion",
    "help": "help",
}
"""The module of each command, relative to spvfilter.cli."""
SUMMARIES = {
    "filterload": "make a BIP-37 filter of addresses, keys, data and outpoints",
    "inspect": "show what a filterload payload, a transaction or a block contains",
    "scan": "find a wallet's payments in blocks",
    "export": "write blocks, transactions, inputs and outputs as Parquet",
    "match": "find a wallet's payments in transactions",
    "watch": "follow a wallet live through full nodes",
    "watchlist": "compile a long watch list, so that it loads instantly",
    "wallet": "show a wallet's balance, coins and history from its database",
    "labels": "exchange labels with other wallets (BIP-329): import, export",
    "broadcast": "send a transaction to full nodes",
    "electrum": "let Electrum, Sparrow and other wallets use this wallet's database",
    "descriptor": "show the checksum, type and addresses of a descriptor",
    "privacy": "show what a wallet's BIP-37 filter tells a peer",
    "cfilter": "compact filters in files: build, match, info, import, export",
    "bloom": "generic Bloom filters of lines: create, add, check, dedupe, merge",
    "node": "run a regtest full node to try a wallet against",
    "demo": "show filters, matches and a reorganization on a small chain",
    "completion": "print a script that completes commands in a shell",
    "help": "show the help of a command",
}
"""The purpose of each command, in one line."""
_EXIT_CODES = {
    0: "done, even if nothing was found",
    1: "done, but some input could not be used, or no node accepted a transaction",
    2: "an error",
    130: "interrupted by Ctrl-C",
    141: "the reader of standard output is gone (a closed pipe)",
    143: "terminated by SIGTERM",
}
_CODES = "\n".join(f"  {code:<3}  {meaning}" for code, meaning in _EXIT_CODES.items())
_LINES = "\n".join(f"  {name:<10}  {summary}" for name, summary in SUMMARIES.items())
HELP = f"""\
usage: spvfilter COMMAND [ARGUMENT ...]
       spvfilter help COMMAND, or spvfilter COMMAND --help
       spvfilter -V, or spvfilter --version

Find a wallet's Bitcoin transactions, live from full nodes or in block files.

{_LINES}

Rows are printed as a table on a terminal and as JSON lines elsewhere; use
--format to choose.

Exit codes:
{_CODES}
"""
