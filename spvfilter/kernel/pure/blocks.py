"""Blocks and transactions: walking, txids, block checks, the BIP-37 relevance test.

This is the readable reference; the C twin returns exactly the same results. Offsets count from the start of the buffer.
A scan returns only after it has read the whole block, so that it never reports hits of a malformed block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from spvfilter.errors import FormatError, ParameterError
from spvfilter.hashes import sha256d
from spvfilter.kernel.pure.arguments import hashes_of, offset, snapshot, whole
from spvfilter.kernel.pure.bits import BitCore
from spvfilter.kernel.values import UPDATE_ALL, UPDATE_P2PUBKEY_ONLY, Family, TxMatch, TxSpan
from spvfilter.primitives import read_compact_size, script_pushes
from spvfilter.protocol import COMMITMENT_PREFIX, HASH_SIZE, HEADER_SIZE, MAX_MONEY, OUTPOINT_SIZE

MIN_INPUT_SIZE = 41  # Bytes of the smallest input: outpoint 36, script length 1, sequence 4.
MIN_OUTPUT_SIZE = 9  # Bytes of the smallest output: value 8, script length 1.
MIN_TX_SIZE = 10  # Bytes of the smallest transaction: version 4, two empty counts, lock time 4.
_OP_1NEGATE, _OP_1, _OP_16, _OP_CHECKSIG, _OP_CHECKMULTISIG = 0x4F, 0x51, 0x60, 0xAC, 0xAE


def walk_tx(raw: bytes, at: int = 0) -> TxSpan:
    """Parse the transaction that starts at byte `at`, following Core's UnserializeTransaction (witness allowed).

    Raises FormatError for a truncated transaction, a CompactSize that is not canonical, an unknown segwit flag, a
    superfluous witness, or a count or length that the remaining bytes cannot hold. Raises ParameterError for a negative
    offset.
    """
    raw, at = snapshot(raw), offset(at)
    size = len(raw)
    if at + 4 > size:
        raise FormatError(f"truncated: expected 4 bytes, {size - at} left", offset=at, field="version")
    cursor = at + 4
    inputs, cursor = _walk_inputs(raw, cursor)
    flag = 0
    if not inputs:
        flag_at = cursor
        if flag_at >= size:
            raise FormatError("truncated: no byte left", offset=flag_at, field="segwit flag")
        flag = raw[flag_at]
        cursor += 1
        if flag & ~1:
            raise FormatError(f"unknown segwit flag {flag:#04x}", offset=flag_at, field="segwit flag")
        if flag:
            inputs, cursor = _walk_inputs(raw, cursor)
    # Without inputs and with flag 0, that byte was the empty output count: Core parses the transaction, although
    # consensus rejects it.
    outputs: list[tuple[int, int, int]] = []
    if inputs or flag:
        outputs, cursor = _walk_outputs(raw, cursor)
    witness = 0
    if flag:
        witness = cursor
        cursor = _walk_witness(raw, cursor, len(inputs))
    if cursor + 4 > size:
        raise FormatError(f"truncated: expected 4 bytes, {size - cursor} left", offset=cursor, field="lock time")
    return TxSpan(at, cursor + 4, inputs, outputs, witness)


def _read_count(raw: bytes, at: int, field: str, least: int) -> tuple[int, int]:
    """Read a count of items of at least `least` bytes each.

    Raises FormatError if the rest of the buffer is too short for them.
    """
    count, cursor = read_compact_size(raw, at, field)
    if count * least > len(raw) - cursor:
        message = f"truncated: {count} items of at least {least} bytes each, but only {len(raw) - cursor} bytes left"
        raise FormatError(message, offset=at, field=field)
    return count, cursor


def _walk_inputs(raw: bytes, at: int) -> tuple[list[tuple[int, int, int]], int]:
    count, cursor = _read_count(raw, at, "input count", MIN_INPUT_SIZE)
    size = len(raw)
    inputs = []
    for _ in range(count):
        outpoint = cursor
        if outpoint + 36 > size:
            raise FormatError(
                f"truncated: expected 36 bytes, {size - outpoint} left", offset=outpoint, field="outpoint"
            )
        length, script = read_compact_size(raw, outpoint + 36, "scriptSig length")
        cursor = script + length + 4
        if cursor > size:
            _refuse_script(size, script, length, "scriptSig", "sequence", 4)
        inputs.append((outpoint, script, script + length))
    return inputs, cursor


def _walk_outputs(raw: bytes, at: int) -> tuple[list[tuple[int, int, int]], int]:
    count, cursor = _read_count(raw, at, "output count", MIN_OUTPUT_SIZE)
    size = len(raw)
    outputs = []
    for _ in range(count):
        value = cursor
        if value + 8 > size:
            raise FormatError(f"truncated: expected 8 bytes, {size - value} left", offset=value, field="value")
        length, script = read_compact_size(raw, value + 8, "scriptPubKey length")
        cursor = script + length
        if cursor > size:
            _refuse_script(size, script, length, "scriptPubKey", "", 0)
        outputs.append((value, script, cursor))
    return outputs, cursor


def _refuse_script(size: int, at: int, length: int, field: str, tail: str, tail_length: int) -> None:
    if at + length > size:
        raise FormatError(f"truncated: expected {length} bytes, {size - at} left", offset=at, field=field)
    at += length
    raise FormatError(f"truncated: expected {tail_length} bytes, {size - at} left", offset=at, field=tail)


def _walk_witness(raw: bytes, at: int, stacks: int) -> int:
    size = len(raw)
    cursor, items = at, 0
    for _ in range(stacks):
        count, cursor = _read_count(raw, cursor, "witness item count", 1)
        items += count
        for _ in range(count):
            length, item = read_compact_size(raw, cursor, "witness item length")
            cursor = item + length
            if cursor > size:
                raise FormatError(
                    f"truncated: expected {length} bytes, {size - item} left", offset=item, field="witness item"
                )
    if not items:
        raise FormatError("superfluous witness record: every stack is empty", offset=at, field="witness")
    return cursor


def parse_tx(raw: bytes, /) -> TxSpan:
    """Parse the transaction that fills `raw`.

    Raises FormatError in the same cases as walk_tx, and if there are trailing bytes.
    """
    raw = snapshot(raw)
    tx = walk_tx(raw)
    if left := len(raw) - tx.end:
        raise FormatError(f"{left} trailing byte{'' if left == 1 else 's'}", offset=tx.end, field="transaction")
    return tx


def spent_outpoints(raw: bytes, /) -> list[bytes]:
    """Return the outpoints, 36 bytes each, that a transaction spends.

    Raises FormatError in the same cases as parse_tx.
    """
    raw = snapshot(raw)
    return [raw[at : at + OUTPOINT_SIZE] for at, _, _ in parse_tx(raw).inputs]


def walk_block(raw: bytes, /) -> Iterator[TxSpan]:
    """Yield the transactions of the block that fills `raw`, in order.

    The iterator raises FormatError for a short header, a block without transactions, a transaction that walk_tx
    refuses, and trailing bytes. Iterate to the end before you trust any transaction that it yields.
    """
    return _walk(snapshot(raw))


def _walk(raw: bytes) -> Iterator[TxSpan]:
    if len(raw) < HEADER_SIZE:
        raise FormatError(f"truncated: expected {HEADER_SIZE} bytes, {len(raw)} left", offset=0, field="header")
    count, cursor = _read_count(raw, HEADER_SIZE, "transaction count", MIN_TX_SIZE)
    if not count:
        raise FormatError("a block must contain at least its coinbase", offset=HEADER_SIZE, field="transaction count")
    for _ in range(count):
        tx = walk_tx(raw, cursor)
        cursor = tx.end
        yield tx
    if left := len(raw) - cursor:
        raise FormatError(f"{left} trailing byte{'' if left == 1 else 's'}", offset=cursor, field="block")


def strip_witness(raw: bytes, tx: TxSpan) -> bytes:
    """Return the bytes of a transaction without marker, flag and witness (BIP-144).

    The txid is the hash of these bytes.

    Raises ParameterError if the span does not belong to a transaction in `raw`.
    """
    raw = _spanned(raw, tx)
    if not tx.witness:
        return raw[tx.start : tx.end]
    return raw[tx.start : tx.start + 4] + raw[tx.start + 6 : tx.witness] + raw[tx.end - 4 : tx.end]


def txid(raw: bytes, tx: TxSpan) -> bytes:
    """Return the sha256d of the stripped transaction, 32 bytes in wire order.

    Raises ParameterError in the same cases as strip_witness.
    """
    return sha256d(strip_witness(raw, tx))


def wtxid(raw: bytes, tx: TxSpan) -> bytes:
    """Return the sha256d of the transaction with its witness (BIP-141).

    Raises ParameterError in the same cases as strip_witness.
    """
    return sha256d(_spanned(raw, tx)[tx.start : tx.end])


def _spanned(raw: bytes, tx: TxSpan) -> bytes:
    """Return the bytes of `raw`, after checking that the span's three offsets lie in it, in order.

    Raises TypeError or ParameterError if they do not.
    """
    raw = snapshot(raw)
    if not isinstance(tx, TxSpan) or len(tx) != len(TxSpan._fields):
        raise TypeError(f"expected a TxSpan, not {type(tx).__name__}")
    start, end, witness = offset(tx.start), offset(tx.end), offset(tx.witness)
    if not start + MIN_TX_SIZE <= end <= len(raw) or (witness and not start + 6 <= witness <= end - 4):
        raise ParameterError("the span does not belong to a transaction in these bytes")
    return raw


def merkle_root(leaves: Iterable[bytes], /) -> tuple[bytes, bool]:
    """Return the merkle root of hashes, and True if two equal neighbors make it ambiguous (CVE-2012-2459).

    A level with an odd number of hashes repeats its last hash, which does not count as ambiguous (Core
    consensus/merkle.cpp). Raises ParameterError if there are no hashes, or if a hash is not 32 bytes long.
    """
    level, mutated = hashes_of(leaves, "leaves"), False
    if not level:
        raise ParameterError("a merkle root needs at least one hash")
    while len(level) > 1:
        mutated = mutated or any(level[i] == level[i + 1] for i in range(0, len(level) - 1, 2))
        if len(level) & 1:
            level.append(level[-1])
        level = [sha256d(level[i] + level[i + 1]) for i in range(0, len(level), 2)]
    return level[0], mutated


def merkle_branches(leaves: bytes, positions: Iterable[int], /) -> list[bytes]:
    """Return the merkle branch of each given leaf: the hashes that its path is paired with, deepest first.

    A branch is 32 bytes long for each level below the root. A level with an odd number of hashes repeats its last hash.

    Args:
        leaves: All leaves of the tree, concatenated, as `block_txids` returns them.
        positions: Positions of the leaves, from 0, whose branches are returned in the same order.

    Raises:
        ParameterError: The length of `leaves` is not a multiple of 32, or a position has no leaf.
    """
    leaves = snapshot(leaves)
    if len(leaves) % HASH_SIZE:
        raise ParameterError(f"leaves must be a multiple of 32 bytes long, not {len(leaves)}")
    level = [leaves[at : at + HASH_SIZE] for at in range(0, len(leaves), HASH_SIZE)]
    places = [
        whole(position, 0, len(level) - 1, "a position must be the position of a leaf") for position in list(positions)
    ]
    branches: list[list[bytes]] = [[] for _ in places]
    while len(level) > 1:
        level += level[-1:] if len(level) % 2 else ()
        for branch, place in zip(branches, places, strict=True):
            branch.append(level[place ^ 1])
        places = [place >> 1 for place in places]
        level = [sha256d(level[at] + level[at + 1]) for at in range(0, len(level), 2)]
    return [b"".join(branch) for branch in branches]


def block_txids(raw: bytes, /) -> bytes:
    """Return the concatenated ids of a block's transactions, 32 bytes each in wire order.

    Raises FormatError in the same cases as `walk_block`.
    """
    raw = snapshot(raw)
    return b"".join([txid(raw, tx) for tx in walk_block(raw)])


def block_txs(raw: bytes, positions: Iterable[int], /) -> list[bytes]:
    """Return the bytes of a block's transactions at the given positions, in the order of `positions`.

    Raises:
        FormatError: walk_block refuses the block.
        ParameterError: The block has no transaction at one of the positions.
    """
    raw = snapshot(raw)
    txs = list(walk_block(raw))
    expected = "a position must be that of a transaction"
    places = [whole(position, 0, len(txs) - 1, expected) for position in list(positions)]
    return [raw[txs[place].start : txs[place].end] for place in places]


def check_block(raw: bytes, /) -> None:
    """Check that a block's header commits to its transactions, and that the witness commitment matches their witnesses.

    A block without any witness needs no commitment: before the activation of segwit, outputs that look like a
    commitment have no meaning.

    Raises:
        FormatError: walk_block refuses the block. `field` is "merkle root" for a wrong root or duplicated transactions
            (CVE-2012-2459). It is "witness commitment" if the commitment is missing, wrong or without a nonce (Core
            CheckWitnessMalleation).
    """
    raw = snapshot(raw)
    txs = list(walk_block(raw))
    root, mutated = merkle_root([txid(raw, tx) for tx in txs])
    if mutated:
        raise FormatError("duplicated transactions (CVE-2012-2459)", offset=36, field="merkle root")
    if root != raw[36:68]:
        raise FormatError("does not match the transactions", offset=36, field="merkle root")
    if any(tx.witness for tx in txs):
        _check_witness_commitment(raw, txs)


def check_amounts(raw: bytes, /) -> None:
    """Check the amounts of a block: each output and the sum of each transaction are from 0 to 21 million coins.

    Neither a txid nor a header proves this rule (Core CheckTransaction): on a chain with little work, a peer can mine a
    block with any amounts.

    Raises FormatError in the same cases as `walk_block`. For wrong amounts its `field` is "output values".
    """
    raw = snapshot(raw)
    check_amounts_of(raw, walk_block(raw))


def check_amounts_of(raw: bytes, txs: Iterable[TxSpan]) -> None:
    """Check the amounts of a block's parsed transactions. Raises FormatError in the same cases as `check_amounts`."""
    for tx in txs:
        values = [int.from_bytes(raw[at : at + 8], "little") for at, _, _ in tx.outputs]  # above 2^63 if negative
        if any(value > MAX_MONEY for value in values) or sum(values) > MAX_MONEY:
            raise FormatError(f"must be from 0 to {MAX_MONEY} satoshi", offset=tx.start, field="output values")


def _check_witness_commitment(raw: bytes, txs: list[TxSpan]) -> None:
    coinbase = txs[0]
    scripts = [raw[start:end] for _, start, end in coinbase.outputs]
    commitments = [script[6:38] for script in scripts if len(script) >= 38 and script.startswith(COMMITMENT_PREFIX)]
    if not commitments:
        raise FormatError(
            "the block has witnesses but no commitment", offset=coinbase.start, field="witness commitment"
        )
    nonce = raw[coinbase.witness : coinbase.end - 4] if coinbase.witness else b""
    if len(coinbase.inputs) != 1 or len(nonce) != 34 or nonce[:2] != b"\x01\x20":
        raise FormatError(
            "the coinbase has no 32-byte witness nonce", offset=coinbase.start, field="witness commitment"
        )
    root, _ = merkle_root([bytes(32)] + [wtxid(raw, tx) for tx in txs[1:]])
    if sha256d(root + nonce[2:]) != commitments[-1]:
        raise FormatError("does not match the witnesses", offset=coinbase.start, field="witness commitment")


def bip37_scan_block(raw: bytes, bits: bytes, hash_funcs: int, tweak: int, flags: int) -> tuple[list[TxMatch], bytes]:
    """Return the transactions of a block that a node's filter matches, in order, and the filter's bits after the block.

    Each transaction is tested against the filter as updated by the transactions before it (Core CMerkleBlock).

    Args:
        raw: The block.
        bits: Bits of the filter. They are not changed.
        hash_funcs: Number of hash functions.
        tweak: Tweak of the filter.
        flags: Update flags of the filter (BIP-37 nFlags).

    Raises:
        FormatError: The block is malformed, as in walk_block.
        ParameterError: A number is out of range.
    """
    raw, field = snapshot(raw), bytearray(snapshot(bits))
    core, flags = _core(field, hash_funcs, tweak), _flags(flags)
    matches = []
    for position, tx in enumerate(walk_block(raw)):
        tx_hash = txid(raw, tx)
        if _is_relevant(raw, tx, tx_hash, core, flags):
            matches.append(TxMatch(position, tx_hash, tx.start, tx.end))
    return matches, bytes(field)


def bip37_scan_tx(raw: bytes, bits: bytes, hash_funcs: int, tweak: int, flags: int) -> tuple[bool, bytes]:
    """Return whether a node's filter matches a transaction, and the filter's bits afterwards.

    Args:
        raw: The transaction.
        bits: Bits of the filter. They are not changed.
        hash_funcs: Number of hash functions.
        tweak: Tweak of the filter.
        flags: Update flags of the filter (BIP-37 nFlags).

    Raises:
        FormatError: The transaction is malformed, as in parse_tx.
        ParameterError: A number is out of range.
    """
    raw, field = snapshot(raw), bytearray(snapshot(bits))
    core, flags = _core(field, hash_funcs, tweak), _flags(flags)
    tx = parse_tx(raw)
    return _is_relevant(raw, tx, txid(raw, tx), core, flags), bytes(field)


def _core(field: bytearray, hash_funcs: int, tweak: int) -> BitCore:
    hash_funcs = whole(hash_funcs, 0, 50, "hash_funcs must be from 0 to 50")
    tweak = whole(tweak, 0, 0xFFFFFFFF, "tweak must be from 0 to 2^32 - 1")
    return BitCore(8 * len(field), hash_funcs, Family.BIP37, tweak.to_bytes(16, "little"), field)


def _flags(flags: int) -> int:
    return whole(flags, 0, 255, "flags must be from 0 to 255")


def _is_relevant(raw: bytes, tx: TxSpan, tx_hash: bytes, core: BitCore, flags: int) -> bool:
    """Test a transaction as Core's CBloomFilter::IsRelevantAndUpdate (bloom.cpp) does.

    It tests the txid, then the outputs, which may update the filter, then the inputs, which do not.
    """
    if not core.bits:
        return True
    found = tx_hash in core
    for index, (_, start, end) in enumerate(tx.outputs):
        script = raw[start:end]
        if any(push in core for push in script_pushes(script)):
            found = True
            if flags == UPDATE_ALL or (flags == UPDATE_P2PUBKEY_ONLY and (is_p2pk(script) or multisig_keys(script))):
                core.add(tx_hash + index.to_bytes(4, "little"))
    if found:
        return True
    return any(
        raw[outpoint : outpoint + 36] in core or any(push in core for push in script_pushes(raw[start:end]))
        for outpoint, start, end in tx.inputs
    )


def is_pubkey(data: bytes, /) -> bool:
    """Return True if `data` has the shape of a public key (Core CPubKey::ValidSize).

    A public key is 33 bytes long and begins with 02 or 03, or is 65 bytes long and begins with 04, 06 or 07. Its point
    need not be on the curve.
    """
    data = snapshot(data)
    return bool(data) and len(data) == {2: 33, 3: 33, 4: 65, 6: 65, 7: 65}.get(data[0])


def is_p2pk(script: bytes, /) -> bool:
    """Return True if a script is pay-to-public-key (Core Solver, MatchPayToPubkey).

    It is one direct push of a key, then OP_CHECKSIG.
    """
    script = snapshot(script)
    return (
        len(script) in (35, 67)
        and script[0] == len(script) - 2
        and script[-1] == _OP_CHECKSIG
        and is_pubkey(script[1:-1])
    )


def null_data(script: bytes) -> bytes:
    """Return the first push of an OP_RETURN output, directly after OP_RETURN, or b"" for any other script.

    OP_1 to OP_16 push the byte of their number, and OP_1NEGATE pushes 81, the number -1 in a script.
    """
    if len(script) < 2 or script[0] != 0x6A:
        return b""
    if (pushed := _pushed_number(script[1])) is not None:
        return pushed
    return next(script_pushes(script), b"") if 0 < script[1] <= 0x4E else b""


def _pushed_number(opcode: int) -> bytes | None:
    """Return the byte that OP_1NEGATE and OP_1 to OP_16 push, or None for another opcode."""
    if opcode == _OP_1NEGATE:
        return b"\x81"
    return bytes((opcode - _OP_1 + 1,)) if _OP_1 <= opcode <= _OP_16 else None


def null_pushes(script: bytes) -> Iterator[bytes]:
    """Yield the pushes of a script that consists of OP_RETURN and pushes. A number is one byte, as in `null_data`."""
    at = 1
    while at < len(script):
        opcode = script[at]
        width = {0x4C: 1, 0x4D: 2, 0x4E: 4}.get(opcode, 0)
        start = at + 1 + width
        length = int.from_bytes(script[at + 1 : start], "little") if width else opcode if opcode <= 0x4B else 0
        yield _pushed_number(opcode) or script[start : start + length]
        at = start + length


def multisig_keys(script: bytes, /) -> list[bytes]:
    """Return the keys of a bare multisig script, or [] for any other script.

    A bare multisig script is OP_m, n pushes of keys, OP_n and OP_CHECKMULTISIG, with 1 ≤ m ≤ n ≤ 16 (Core Solver,
    MatchMultisig).
    """
    script = snapshot(script)
    if (
        len(script) < 3
        or script[-1] != _OP_CHECKMULTISIG
        or not (_OP_1 <= script[0] <= _OP_16 and _OP_1 <= script[-2] <= _OP_16)
    ):
        return []
    required, total = script[0] - _OP_1 + 1, script[-2] - _OP_1 + 1
    keys = []
    at, end = 1, len(script) - 2
    while at < end:
        opcode = script[at]
        width = {0x4C: 1, 0x4D: 2, 0x4E: 4}.get(opcode, 0)
        if not width and opcode > 0x4B:
            return []
        start = at + 1 + width
        at = start + (int.from_bytes(script[at + 1 : start], "little") if width else opcode)
        key = script[start:at]
        if at > end or not is_pubkey(key):
            return []
        keys.append(key)
    return keys if len(keys) == total and required <= total else []
