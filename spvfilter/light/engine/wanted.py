"""The scripts that compact filters are queried for, in the order in which they became wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from spvfilter.errors import InexpressibleError
from spvfilter.filters.verify import spent_script, witnesses
from spvfilter.kernel import GcsQuery
from spvfilter.transaction import Transaction
from spvfilter.wallet.books import Books

MAX_INVENTED = 5_000  # scripts wanted for unconfirmed transactions of others; ours
MAX_LEFT = 1_000  # transactions that are remembered though they are gone, beside as many as there are; ours


class WantedScripts:
    """Scripts of the watch list, of what it has learned, and of unconfirmed transactions of ours.

    They only grow, until `reset`.

    A block with an unconfirmed transaction, or with one in conflict with it, is wanted whoever it pays. Its inputs tell
    which scripts they spend, except for taproot, bare ones, and hashes of scripts that do not end in a signature check.
    This has a price: who invents an unconfirmed payment to an address, with a second output to a script of their own,
    sees from the blocks that we fetch later whether the address is ours. It is bounded: each script that is wanted
    makes more filters match by chance, and a million would match every block.
    """

    def __init__(self, books: Books) -> None:
        self._books = books
        self._scripts: dict[bytes, None] = {}
        self._list: list[bytes] = []
        self._queries: dict[
            int, tuple[int, GcsQuery]
        ] = {}  # by the number of scripts before: up to which number, and the query
        self._pending: set[bytes] = set()  # unconfirmed transactions whose scripts are wanted
        self._entries = -1  # of the watch list whose scripts are wanted
        self._inexpressible: InexpressibleError | None = None  # for entries that compact filters cannot find
        self._invented = 0  # scripts wanted for transactions that we did not broadcast

    def reset(self) -> None:
        """Entries of the watch list were removed: what is wanted is taken anew."""
        self._scripts, self._list, self._queries, self._pending = {}, [], {}, set()
        self._entries, self._inexpressible, self._invented = -1, None, 0

    def __len__(self) -> int:
        return len(self._list)

    def load(self) -> None:
        """Take what the watch list wants, if it has new entries.

        Raises InexpressibleError for what compact filters cannot find.
        """
        if self._inexpressible is not None:
            raise self._inexpressible
        if len(self._books.watch) == self._entries:
            return
        first, self._entries = max(self._entries, 0), len(self._books.watch)
        try:
            scripts = self._books.watch.gcs_elements(first)
        except InexpressibleError as error:
            self._inexpressible = error
            raise
        fresh = dict.fromkeys(script for script in scripts if script not in self._scripts)
        self._scripts |= fresh
        self._list += fresh
        self.add_pending(self._books.unconfirmed.pending)

    def add(self, script: bytes | None) -> None:
        """Want another script."""
        if script and script not in self._scripts:
            self._scripts[script] = None
            self._list.append(script)

    def add_pending(self, txids: Iterable[bytes]) -> None:
        """Want the scripts of unconfirmed transactions.

        Those that are gone are forgotten when they have become many, not their scripts.
        """
        there = self._books.unconfirmed.pending.keys()
        if len(self._pending) > 2 * len(there) + MAX_LEFT:
            self._pending &= there
        for txid in txids:
            pending = self._books.unconfirmed.pending.get(txid)
            if pending is None or txid in self._pending:
                continue
            if not pending.own and self._invented >= MAX_INVENTED:
                continue
            before, scripts = len(self._list), list(_scripts_of(pending.raw))
            if not pending.own and self._invented + len(scripts) > MAX_INVENTED:
                continue
            self._pending.add(txid)
            for script in scripts:
                self.add(script)
            if not pending.own:
                self._invented += len(self._list) - before

    def query(self, start: int) -> Callable[[], GcsQuery]:
        """The query for all scripts but the first `start`.

        It is made when it is called for, once: that takes a second for a million.
        """
        upto = len(self._list)
        known = self._queries.get(start)
        if known is not None and known[0] == upto:
            return lambda: known[1]
        # after a reset the next ones are others, of as many other scripts
        wanted, queries = (self._list[start:upto], self._queries)

        def make() -> GcsQuery:
            made = GcsQuery(wanted)
            queries[start] = upto, made
            for oldest in list(queries)[:-4]:  # other threads may do the same
                queries.pop(oldest, None)
            return made

        return make


def _scripts_of(raw: bytes) -> Iterator[bytes | None]:
    """The scripts that a transaction pays, and those that it spends as far as its inputs tell."""
    span = Transaction.parse(raw).span
    for _, start, end in span.outputs:
        yield raw[start:end]
    for (_, start, end), stack in zip(span.inputs, witnesses(raw, span), strict=True):
        yield spent_script(raw[start:end], stack)
