"""Watch lists, their text files, and their exact matches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spvfilter._public import lazy

if TYPE_CHECKING:
    from spvfilter.watch.accounts import AccountPlan as AccountPlan
    from spvfilter.watch.keychain import Keychain as Keychain
    from spvfilter.watch.labels import (
        Label as Label,
        parse_labels as parse_labels,
        read_labels as read_labels,
        write_labels as write_labels,
    )
    from spvfilter.watch.match import Completeness as Completeness, Match as Match, MatchKind as MatchKind
    from spvfilter.watch.watchlist import WatchList as WatchList
    from spvfilter.watch.windows import Windows as Windows
else:
    __all__, __getattr__, __dir__ = lazy(
        __name__,
        accounts="AccountPlan",
        keychain="Keychain",
        labels="Label parse_labels read_labels write_labels",
        match="Completeness Match MatchKind",
        watchlist="WatchList",
        windows="Windows",
    )
