"""`spvfilter labels`: exchange the labels in a wallet's database with other wallets (BIP-329)."""

from __future__ import annotations

import argparse
import sys

from spvfilter.cli.arguments import Parser, standard_input
from spvfilter.cli.nodes import in_use
from spvfilter.cli.term.matches import bitcoin
from spvfilter.cli.term.page import complain
from spvfilter.errors import FormatError, ParameterError, StoreLockedError
from spvfilter.store.store import Store
from spvfilter.wallet.reader import WalletStore
from spvfilter.watch.labels import read_labels, write_labels


def configure(parser: Parser) -> None:
    parser.description = (
        "Exchange labels of transactions, addresses, keys, inputs and outputs with other wallets as JSON Lines"
        " (BIP-329). An output whose `spendable` is false is frozen."
    )
    taking = parser.add_action(
        "import",
        "store the labels in a file",
        "Store the labels from a file in the wallet's database. Malformed lines are skipped with a warning. No client"
        " may use the database at the same time.",
    )
    giving = parser.add_action(
        "export",
        "write all labels to a file",
        "Write all labels of the wallet to a file, replacing any existing one. `watch` may be running at the same"
        " time.",
    )
    for action, what, run in ((taking, "input", _import), (giving, "output", _export)):
        action.add_argument("file", metavar="FILE", help=f"the file of labels, or - for standard {what}")
        action.add_argument("--db", metavar="FILE", required=True, help="the wallet's database")
        action.set_defaults(act=run)


def run(args: argparse.Namespace) -> int:
    args.act(args)
    return 0


def _import(args: argparse.Namespace) -> None:
    try:
        labels = read_labels(standard_input() if args.file == "-" else args.file)
    except FormatError as error:
        name = "standard input" if args.file == "-" else args.file
        raise ParameterError(f"{name}: {error.message}") from None
    with WalletStore.open(args.db) as wallet:
        network = wallet.network
    try:
        with Store.open(args.db, network) as store:
            imported = store.import_labels(labels)
            spendable = store.views.balance().spendable
    except StoreLockedError as error:
        raise in_use(error, args.db, "stop it, then import the labels") from None
    changes = [_counted(len(labels), "label", "imported")]
    for outputs, what in ((imported.frozen, "frozen"), (imported.unfrozen, "unfrozen")):
        if outputs:
            changes.append(_counted(len(outputs), "output", what))
    now = f". The spendable balance is {bitcoin(spendable)} BTC" if len(changes) > 1 else ""
    complain(f"{', '.join(changes)}{now}")


def _counted(number: int, noun: str, what: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'} {what}"


def _export(args: argparse.Namespace) -> None:
    with WalletStore.open(args.db) as wallet:
        labels = wallet.labels()
    if args.file != "-":
        write_labels(args.file, labels)
        return
    for label in labels:
        sys.stdout.buffer.write(bytes(label) + b"\n")
    sys.stdout.flush()
