"""The check of a block's amounts (Core CheckTransaction), against the check of one transaction."""

from __future__ import annotations

from hypothesis import example, given, strategies as st

from spvfilter import kernel
from spvfilter.errors import FormatError
from spvfilter.kernel.backend import reference
from spvfilter.protocol import MAX_MONEY
from spvfilter.store.validity import are_amounts
from support.blocks import build
from support.blocks.build import TxIn, TxOut

CHECKS = (kernel.check_amounts, reference()["check_amounts"])
VALUES = st.lists(
    st.sampled_from([-(2**63), -1, 0, 1, MAX_MONEY - 1, MAX_MONEY, MAX_MONEY + 1, 2**63 - 1]), min_size=1, max_size=4
)


def refusal(check: object, block: bytes) -> tuple[int, str, str] | None:
    assert callable(check)
    try:
        check(block)
    except FormatError as error:
        return error.offset, error.field, str(error)
    return None


@given(st.lists(VALUES, min_size=1, max_size=4))
@example([[MAX_MONEY, 1]])  # only the sum is too high
@example([[0], [2**63 - 1] * 2])  # the sum does not fit into 64 bits with a sign
@example([[0], [-1]])
def test_first_transaction_with_wrong_amounts_is_named(values: list[list[int]]) -> None:
    txs = [build.tx([TxIn(b"\x07" * 32, n)], [TxOut(each, b"\x51") for each in some]) for n, some in enumerate(values)]
    block = build.block(build.GENESIS, txs)
    wrong = [span.start for span in kernel.walk_block(block) if not are_amounts(block, span)]
    for check in CHECKS:
        found = refusal(check, block)
        assert (None if found is None else found[:2]) == ((wrong[0], "output values") if wrong else None)
    assert refusal(CHECKS[0], block) == refusal(CHECKS[1], block)
