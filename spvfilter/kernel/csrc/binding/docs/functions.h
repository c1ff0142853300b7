/* Signatures and docstrings of the compiled functions: scripts/dev/docstrings makes them of kernel/pure/. Do not edit. */
#ifndef SPV_BINDING_DOCS_FUNCTIONS_H
#define SPV_BINDING_DOCS_FUNCTIONS_H

#define SPV_DOC_bip37_scan_block \
    "bip37_scan_block($module, raw, bits, hash_funcs, tweak, flags)\n" \
    "--\n" \
    "\n" \
    "Return the transactions of a block that a node's filter matches, in order, and the filter's bits after the block.\n" \
    "\n" \
    "Each transaction is tested against the filter as updated by the transactions before it (Core CMerkleBlock).\n" \
    "\n" \
    "Args:\n" \
    "    raw: The block.\n" \
    "    bits: Bits of the filter. They are not changed.\n" \
    "    hash_funcs: Number of hash functions.\n" \
    "    tweak: Tweak of the filter.\n" \
    "    flags: Update flags of the filter (BIP-37 nFlags).\n" \
    "\n" \
    "Raises:\n" \
    "    FormatError: The block is malformed, as in walk_block.\n" \
    "    ParameterError: A number is out of range."
#define SPV_DOC_bip37_scan_tx \
    "bip37_scan_tx($module, raw, bits, hash_funcs, tweak, flags)\n" \
    "--\n" \
    "\n" \
    "Return whether a node's filter matches a transaction, and the filter's bits afterwards.\n" \
    "\n" \
    "Args:\n" \
    "    raw: The transaction.\n" \
    "    bits: Bits of the filter. They are not changed.\n" \
    "    hash_funcs: Number of hash functions.\n" \
    "    tweak: Tweak of the filter.\n" \
    "    flags: Update flags of the filter (BIP-37 nFlags).\n" \
    "\n" \
    "Raises:\n" \
    "    FormatError: The transaction is malformed, as in parse_tx.\n" \
    "    ParameterError: A number is out of range."
#define SPV_DOC_block_txids \
    "block_txids($module, raw, /)\n" \
    "--\n" \
    "\n" \
    "Return the concatenated ids of a block's transactions, 32 bytes each in wire order.\n" \
    "\n" \
    "Raises FormatError in the same cases as `walk_block`."
#define SPV_DOC_block_txs \
    "block_txs($module, raw, positions, /)\n" \
    "--\n" \
    "\n" \
    "Return the bytes of a block's transactions at the given positions, in the order of `positions`.\n" \
    "\n" \
    "Raises:\n" \
    "    FormatError: walk_block refuses the block.\n" \
    "    ParameterError: The block has no transaction at one of the positions."
#define SPV_DOC_check_amounts \
    "check_amounts($module, raw, /)\n" \
    "--\n" \
    "\n" \
    "Check the amounts of a block: each output and the sum of each transaction are from 0 to 21 million coins.\n" \
    "\n" \
    "Neither a txid nor a header proves this rule (Core CheckTransaction): on a chain with little work, a peer can mine a\n" \
    "block with any amounts.\n" \
    "\n" \
    "Raises FormatError in the same cases as `walk_block`. For wrong amounts its `field` is \"output values\"."
#define SPV_DOC_check_block \
    "check_block($module, raw, /)\n" \
    "--\n" \
    "\n" \
    "Check that a block's header commits to its transactions, and that the witness commitment matches their witnesses.\n" \
    "\n" \
    "A block without any witness needs no commitment: before the activation of segwit, outputs that look like a\n" \
    "commitment have no meaning.\n" \
    "\n" \
    "Raises:\n" \
    "    FormatError: walk_block refuses the block. `field` is \"merkle root\" for a wrong root or duplicated transactions\n" \
    "        (CVE-2012-2459). It is \"witness commitment\" if the commitment is missing, wrong or without a nonce (Core\n" \
    "        CheckWitnessMalleation)."
#define SPV_DOC_is_p2pk \
    "is_p2pk($module, script, /)\n" \
    "--\n" \
    "\n" \
    "Return True if a script is pay-to-public-key (Core Solver, MatchPayToPubkey).\n" \
    "\n" \
    "It is one direct push of a key, then OP_CHECKSIG."
#define SPV_DOC_is_pubkey \
    "is_pubkey($module, data, /)\n" \
    "--\n" \
    "\n" \
    "Return True if `data` has the shape of a public key (Core CPubKey::ValidSize).\n" \
    "\n" \
    "A public key is 33 bytes long and begins with 02 or 03, or is 65 bytes long and begins with 04, 06 or 07. Its point\n" \
    "need not be on the curve."
#define SPV_DOC_merkle_branches \
    "merkle_branches($module, leaves, positions, /)\n" \
    "--\n" \
    "\n" \
    "Return the merkle branch of each given leaf: the hashes that its path is paired with, deepest first.\n" \
    "\n" \
    "A branch is 32 bytes long for each level below the root. A level with an odd number of hashes repeats its last hash.\n" \
    "\n" \
    "Args:\n" \
    "    leaves: All leaves of the tree, concatenated, as `block_txids` returns them.\n" \
    "    positions: Positions of the leaves, from 0, whose branches are returned in the same order.\n" \
    "\n" \
    "Raises:\n" \
    "    ParameterError: The length of `leaves` is not a multiple of 32, or a position has no leaf."
#define SPV_DOC_merkle_root \
    "merkle_root($module, leaves, /)\n" \
    "--\n" \
    "\n" \
    "Return the merkle root of hashes, and True if two equal neighbors make it ambiguous (CVE-2012-2459).\n" \
    "\n" \
    "A level with an odd number of hashes repeats its last hash, which does not count as ambiguous (Core\n" \
    "consensus/merkle.cpp). Raises ParameterError if there are no hashes, or if a hash is not 32 bytes long."
#define SPV_DOC_multisig_keys \
    "multisig_keys($module, script, /)\n" \
    "--\n" \
    "\n" \
    "Return the keys of a bare multisig script, or [] for any other script.\n" \
    "\n" \
    "A bare multisig script is OP_m, n pushes of keys, OP_n and OP_CHECKMULTISIG, with 1 ≤ m ≤ n ≤ 16 (Core Solver,\n" \
    "MatchMultisig)."
#define SPV_DOC_parse_tx \
    "parse_tx($module, raw, /)\n" \
    "--\n" \
    "\n" \
    "Parse the transaction that fills `raw`.\n" \
    "\n" \
    "Raises FormatError in the same cases as walk_tx, and if there are trailing bytes."
#define SPV_DOC_spent_outpoints \
    "spent_outpoints($module, raw, /)\n" \
    "--\n" \
    "\n" \
    "Return the outpoints, 36 bytes each, that a transaction spends.\n" \
    "\n" \
    "Raises FormatError in the same cases as parse_tx."
#define SPV_DOC_strip_witness \
    "strip_witness($module, raw, tx)\n" \
    "--\n" \
    "\n" \
    "Return the bytes of a transaction without marker, flag and witness (BIP-144).\n" \
    "\n" \
    "The txid is the hash of these bytes.\n" \
    "\n" \
    "Raises ParameterError if the span does not belong to a transaction in `raw`."
#define SPV_DOC_txid \
    "txid($module, raw, tx)\n" \
    "--\n" \
    "\n" \
    "Return the sha256d of the stripped transaction, 32 bytes in wire order.\n" \
    "\n" \
    "Raises ParameterError in the same cases as strip_witness."
#define SPV_DOC_walk_block \
    "walk_block($module, raw, /)\n" \
    "--\n" \
    "\n" \
    "Yield the transactions of the block that fills `raw`, in order.\n" \
    "\n" \
    "The iterator raises FormatError for a short header, a block without transactions, a transaction that walk_tx\n" \
    "refuses, and trailing bytes. Iterate to the end before you trust any transaction that it yields."
#define SPV_DOC_walk_tx \
    "walk_tx($module, raw, at=0)\n" \
    "--\n" \
    "\n" \
    "Parse the transaction that starts at byte `at`, following Core's UnserializeTransaction (witness allowed).\n" \
    "\n" \
    "Raises FormatError for a truncated transaction, a CompactSize that is not canonical, an unknown segwit flag, a\n" \
    "superfluous witness, or a count or length that the remaining bytes cannot hold. Raises ParameterError for a negative\n" \
    "offset."
#define SPV_DOC_wtxid \
    "wtxid($module, raw, tx)\n" \
    "--\n" \
    "\n" \
    "Return the sha256d of the transaction with its witness (BIP-141).\n" \
    "\n" \
    "Raises ParameterError in the same cases as strip_witness."
#define SPV_DOC_decode_address \
    "decode_address($module, text, p2pkh_version, p2sh_version, hrp, /)\n" \
    "--\n" \
    "\n" \
    "Return the scriptPubKey of a valid address, or None to leave the address to spvfilter.address.\n" \
    "\n" \
    "The reference always returns None. The compiled twin decodes most valid addresses, and returns None for all others.\n" \
    "\n" \
    "Args:\n" \
    "    text: The address.\n" \
    "    p2pkh_version: Version byte of the network's P2PKH addresses.\n" \
    "    p2sh_version: Version byte of the network's P2SH addresses.\n" \
    "    hrp: Human-readable part of the network's bech32 addresses.\n" \
    "\n" \
    "Raises:\n" \
    "    ParameterError: A version byte is not between 0 and 255.\n" \
    "    TypeError: An argument has the wrong type."
#define SPV_DOC_encode_address \
    "encode_address($module, script, p2pkh_version, p2sh_version, hrp, /)\n" \
    "--\n" \
    "\n" \
    "Return the address of a P2PKH, P2SH or witness scriptPubKey, or None for any other script.\n" \
    "\n" \
    "Args:\n" \
    "    script: The scriptPubKey.\n" \
    "    p2pkh_version: Version byte of the network's P2PKH addresses.\n" \
    "    p2sh_version: Version byte of the network's P2SH addresses.\n" \
    "    hrp: Human-readable part of the network's bech32 addresses. If it is empty, the network has no segwit addresses.\n" \
    "\n" \
    "Raises:\n" \
    "    ParameterError: A version byte is not between 0 and 255, or a witness program has no bech32 string with this\n" \
    "        human-readable part.\n" \
    "    TypeError: An argument has the wrong type."
#define SPV_DOC_child_keys \
    "child_keys($module, parent, tweaks, /)\n" \
    "--\n" \
    "\n" \
    "For each tweak, return the compressed public key (33 bytes) of the parent key plus the tweak times the generator.\n" \
    "\n" \
    "A key is 33 zero bytes if its tweak is too large for a private key, or if the sum is the point at infinity.\n" \
    "\n" \
    "Args:\n" \
    "    parent: A compressed public key.\n" \
    "    tweaks: The tweaks, 32 bytes each: the left halves of BIP-32.\n" \
    "\n" \
    "Raises:\n" \
    "    ParameterError: The parent is not a compressed public key, or the last tweak is truncated."
#define SPV_DOC_read_at \
    "read_at($module, descriptor, offset, size, key, /)\n" \
    "--\n" \
    "\n" \
    "Read up to `size` bytes of an open file and XOR them with `key`. Fewer are read at the end of the file.\n" \
    "\n" \
    "Args:\n" \
    "    descriptor: File descriptor of the open file.\n" \
    "    offset: Offset of the first byte in the file.\n" \
    "    size: Number of bytes, at most MAX_BLOCK_SIZE.\n" \
    "    key: 8-byte key that is repeated from the start of the file, or empty bytes.\n" \
    "\n" \
    "Raises:\n" \
    "    ParameterError: The key has the wrong size, a number is negative, or the size is too large.\n" \
    "    OSError: The file cannot be read."
#define SPV_DOC_joined_frames \
    "joined_frames($module, stream, magic, /)\n" \
    "--\n" \
    "\n" \
    "Like `sound_frames`, but return successive cfilter messages with basic filters as one item.\n" \
    "\n" \
    "The item is a pair: a list with the block hash and the filter of each message, and the total size of these messages\n" \
    "in bytes.\n" \
    "\n" \
    "A cfilter message is an item of its own if its filter type differs or its payload is malformed (BIP-157 § cfilter).\n" \
    "\n" \
    "Raises ParameterError unless the magic is 4 bytes long."
#define SPV_DOC_sound_frames \
    "sound_frames($module, stream, magic, /)\n" \
    "--\n" \
    "\n" \
    "Return the valid messages at the start of a stream, and the number of bytes that they take.\n" \
    "\n" \
    "Reading stops before the first message that is incomplete or invalid. A message is invalid if it has\n" \
    "\n" \
    "- a different magic,\n" \
    "- a payload of more than 4,000,000 bytes,\n" \
    "- a command other than 1 to 12 printable ASCII characters padded with NULs,\n" \
    "- a wrong checksum (the first 4 bytes of sha256d(payload)).\n" \
    "\n" \
    "Returns:\n" \
    "    The command and the payload of each message, and the number of bytes of these messages with their envelopes.\n" \
    "\n" \
    "Raises:\n" \
    "    ParameterError: The magic is not 4 bytes long."
#define SPV_DOC_fuse_build \
    "fuse_build($module, hashes, fingerprint_bits, seed, segment_length, segments, buffer)\n" \
    "--\n" \
    "\n" \
    "Build the table of a binary fuse filter in `buffer`. Return False if the seed fails; then try the next one.\n" \
    "\n" \
    "Args:\n" \
    "    hashes: Distinct 64-bit hashes of the keys, 8 bytes each, little endian.\n" \
    "    fingerprint_bits: Bits of a fingerprint: 8, 16 or 32.\n" \
    "    seed: Number of the seed, a u32.\n" \
    "    segment_length: Number of cells in a segment, a power of two up to 2^18.\n" \
    "    segments: Number of segments in which a key's first cell can be; the table has two more.\n" \
    "    buffer: Writable memory for the table, fingerprint_bits / 8 bytes for each cell. If the seed fails, its contents\n" \
    "        are undefined.\n" \
    "\n" \
    "Raises:\n" \
    "    TypeError: `hashes` is not bytes-like, or a number is not an int.\n" \
    "    BufferError: `buffer` is read-only or not contiguous.\n" \
    "    ParameterError: A number is out of range, or the size of `hashes` or `buffer` is wrong."
#define SPV_DOC_fuse_merge \
    "fuse_merge($module, hashes, /)\n" \
    "--\n" \
    "\n" \
    "Return the distinct hashes among `hashes`, 8 bytes each, in no particular order.\n" \
    "\n" \
    "Raises TypeError if the object is not bytes-like, and ParameterError if its size is not a multiple of 8."
#define SPV_DOC_gcs_build \
    "gcs_build($module, items, key, p, m)\n" \
    "--\n" \
    "\n" \
    "Build the Golomb-coded set of the distinct `items`.\n" \
    "\n" \
    "Args:\n" \
    "    items: The items, as bytes.\n" \
    "    key: 16-byte SipHash key.\n" \
    "    p: P, the number of bits in a remainder, from 1 to 32.\n" \
    "    m: M, the inverse of the false-positive rate, from 1 to 2^32 - 1.\n" \
    "\n" \
    "Raises:\n" \
    "    ParameterError: An argument is out of range, the key has the wrong length, or there are more than 2^25 items."
#define SPV_DOC_gcs_check \
    "gcs_check($module, data, p)\n" \
    "--\n" \
    "\n" \
    "Decode a whole set and return N, the number of its values.\n" \
    "\n" \
    "Padding bits are ignored (Core GCSFilter).\n" \
    "\n" \
    "Raises:\n" \
    "    FormatError: N is not canonical, above 2^25, or more than the bytes can hold; the bits end within an element; or\n" \
    "        there are trailing bytes.\n" \
    "    ParameterError: P is not between 1 and 32."
#define SPV_DOC_chain_filter_headers \
    "chain_filter_headers($module, hashes, previous, /)\n" \
    "--\n" \
    "\n" \
    "Return the filter headers, 32 bytes each, of successive blocks.\n" \
    "\n" \
    "A filter header is the double SHA-256 of the filter hash and the previous filter header (BIP-157 § Filter Headers).\n" \
    "\n" \
    "Args:\n" \
    "    hashes: Filter hashes of the blocks, 32 bytes each.\n" \
    "    previous: The filter header before the first block.\n" \
    "\n" \
    "Raises:\n" \
    "    ParameterError: An argument has the wrong length."
#define SPV_DOC_filter_hashes \
    "filter_hashes($module, filters, /)\n" \
    "--\n" \
    "\n" \
    "Return the filter hashes, 32 bytes each, of compact filters.\n" \
    "\n" \
    "A filter hash is the double SHA-256 of the filter (BIP-157 § Filter Headers)."
#define SPV_DOC_find_header \
    "find_header($module, indexes, block_hash, /)\n" \
    "--\n" \
    "\n" \
    "Return where a header with this hash may be, as pairs: the position of an index, and the header's number in it.\n" \
    "\n" \
    "An index is listed if it contains the first four bytes of the hash. Raises ParameterError if the hash has the wrong\n" \
    "length, or if the bytes are not an index."
#define SPV_DOC_header_bits \
    "header_bits($module, headers, /)\n" \
    "--\n" \
    "\n" \
    "Return the compact bits of headers, 80 bytes each, as runs: the bits, and how many successive headers have them.\n" \
    "\n" \
    "Raises FormatError if the last header is truncated."
#define SPV_DOC_header_hashes \
    "header_hashes($module, headers, /)\n" \
    "--\n" \
    "\n" \
    "Return the block hashes, 32 bytes each, of headers of 80 bytes each.\n" \
    "\n" \
    "Raises FormatError if the last header is truncated."
#define SPV_DOC_index_headers \
    "index_headers($module, headers, last, /)\n" \
    "--\n" \
    "\n" \
    "Return an index of successive headers, for looking them up by hash.\n" \
    "\n" \
    "The index consists of the first four bytes of each hash, in ascending order, and then the numbers of the headers in\n" \
    "the same order, u16 little endian. Headers for which these bytes are equal are in the order of their numbers.\n" \
    "\n" \
    "Args:\n" \
    "    headers: 1 to 65,536 headers, 80 bytes each.\n" \
    "    last: Hash of the last header.\n" \
    "\n" \
    "Raises:\n" \
    "    FormatError: The last header is truncated.\n" \
    "    ParameterError: There are no headers or too many, or the hash has the wrong length."
#define SPV_DOC_join_indexes \
    "join_indexes($module, indexes, /)\n" \
    "--\n" \
    "\n" \
    "Merge several indexes into one. The headers of each index are numbered after those of the index before it.\n" \
    "\n" \
    "Raises ParameterError if there are no headers or more than 65,536, or if the bytes are not an index."
#define SPV_DOC_judge_headers \
    "judge_headers($module, headers, hashes, times, usual, late, late_by, least_version, latest, /)\n" \
    "--\n" \
    "\n" \
    "Return how many headers at the start obey the rules, and how many of these are late.\n" \
    "\n" \
    "A header is late if its time is more than `late_by` seconds after the header before it. The rules are:\n" \
    "\n" \
    "- The bits equal those in `usual`, or those in `late` for a late header.\n" \
    "- The block hash is at most the target in `usual` or `late`.\n" \
    "- The time is above the median of the eleven times before it, and at most `latest`.\n" \
    "- The version is at least `least_version`.\n" \
    "\n" \
    "Links between the headers are not checked.\n" \
    "\n" \
    "Args:\n" \
    "    headers: The headers, 80 bytes each.\n" \
    "    hashes: Their block hashes, 32 bytes each.\n" \
    "    times: Times of 1 to 11 headers before them, u32 little endian, oldest first.\n" \
    "    usual: Bits (u32 little endian) and target (32 bytes little endian) of headers that are not late.\n" \
    "    late: Bits and target of late headers.\n" \
    "    late_by: Seconds after the previous header beyond which a header is late.\n" \
    "    least_version: Lowest version that is allowed.\n" \
    "    latest: Latest time that is allowed (Unix time).\n" \
    "\n" \
    "Raises:\n" \
    "    FormatError: The last header is truncated.\n" \
    "    ParameterError: An argument has the wrong size, or is a number that no header can have."
#define SPV_DOC_linked_headers \
    "linked_headers($module, headers, hashes, /)\n" \
    "--\n" \
    "\n" \
    "Return how many headers at the start follow each other without a break.\n" \
    "\n" \
    "Args:\n" \
    "    headers: The headers, 80 bytes each.\n" \
    "    hashes: Their block hashes, 32 bytes each.\n" \
    "\n" \
    "Raises:\n" \
    "    FormatError: The last header is truncated.\n" \
    "    ParameterError: The number of hashes is not the number of headers."
#define SPV_DOC_extract_matches \
    "extract_matches($module, root, total, hashes, flags, /)\n" \
    "--\n" \
    "\n" \
    "Verify a partial merkle tree as Core's CPartialMerkleTree::ExtractMatches does.\n" \
    "\n" \
    "Args:\n" \
    "    root: Merkle root of the block's header.\n" \
    "    total: Number of transactions in the block.\n" \
    "    hashes: Hashes of the tree, 32 bytes each.\n" \
    "    flags: Flag bits of the tree.\n" \
    "\n" \
    "Returns:\n" \
    "    The matched transactions in block order, and True if an inner node also parses as a transaction.\n" \
    "\n" \
    "Raises:\n" \
    "    ProofError: The tree is invalid. Its `cause` is the first Flaw, depth first and left before right.\n" \
    "    ParameterError: A hash is not 32 bytes long."
#define SPV_DOC_parse_merkleblock \
    "parse_merkleblock($module, raw, /)\n" \
    "--\n" \
    "\n" \
    "Return the number of transactions, the hashes and the flag bytes of a merkleblock payload.\n" \
    "\n" \
    "The first 80 bytes of the payload are the header. Raises FormatError if the payload is truncated, contains trailing\n" \
    "bytes, or contains more hashes or flag bytes than any block needs."
#define SPV_DOC_column_lines \
    "column_lines($module, form, names, layouts, columns, /)\n" \
    "--\n" \
    "\n" \
    "Return the rows of columns as lines of CSV without a header (0), or as JSON lines (1).\n" \
    "\n" \
    "Bytes and hashes are in hex. Booleans are true or false. A row without a value has an empty cell, or null. A CSV\n" \
    "cell is quoted only if necessary.\n" \
    "\n" \
    "Args:\n" \
    "    form: 0 for CSV, 1 for JSON lines.\n" \
    "    names: The names of the columns, which appear in JSON lines.\n" \
    "    layouts: The layout of each column, as in blocktables.Layout, but not FLOAT64.\n" \
    "    columns: The columns, as `block_columns` returns them. Text is UTF-8.\n" \
    "\n" \
    "Raises:\n" \
    "    ParameterError: The arguments differ in their number of columns, a layout cannot be written, or a column does\n" \
    "        not match its number of rows.\n" \
    "    TypeError: An argument has the wrong type."
#define SPV_DOC_hit_columns \
    "hit_columns($module, blocks, start, rows, is_binary, label_places, label_texts, p2pkh_version, p2sh_version, hrp, /)\n" \
    "--\n" \
    "\n" \
    "Return the packed hits of some blocks as columns, in the same order as in `hit_lines`.\n" \
    "\n" \
    "A column is (number of rows, validity, offsets, data), as in Arrow's columnar format. For each row, `coinbase` takes\n" \
    "one bit, the height 32 bits, and every other number 64 bits. The time is in milliseconds. Empty or unknown text is\n" \
    "null.\n" \
    "\n" \
    "Args:\n" \
    "    blocks: Tuples (hash, height, time, packed) with the arguments of `hit_lines`.\n" \
    "    start: Number of hits to skip.\n" \
    "    rows: Largest number of rows.\n" \
    "    is_binary: True if hashes are 32 bytes in display order; False if they are hex text.\n" \
    "    label_places: Offsets of the labels, as for `hit_lines`.\n" \
    "    label_texts: The labels in UTF-8, as for `hit_lines`.\n" \
    "    p2pkh_version: Version byte of the network's P2PKH addresses.\n" \
    "    p2sh_version: Version byte of the network's P2SH addresses.\n" \
    "    hrp: Human-readable part of the network's bech32 addresses.\n" \
    "\n" \
    "Raises:\n" \
    "    FormatError: The bytes are not packed hits, or the label of a hit is outside `label_texts`.\n" \
    "    ParameterError: An argument is out of range, or an address cannot be encoded.\n" \
    "    TypeError: An argument has the wrong type.\n" \
    "    OverflowError: A column has more than 2,147,483,647 bytes."
#define SPV_DOC_add_hit_sums \
    "add_hit_sums($module, packed, sums, /)\n" \
    "--\n" \
    "\n" \
    "Add packed hits to the sums of their entries.\n" \
    "\n" \
    "Each entry has four unsigned 64-bit numbers, in the byte order of the machine: the fields matches, received, spent\n" \
    "and unknown of `hit_sums`. No other thread may change the sums during the call.\n" \
    "\n" \
    "Args:\n" \
    "    packed: The packed hits.\n" \
    "    sums: A writable buffer with the numbers of all entries.\n" \
    "\n" \
    "Returns:\n" \
    "    The index of each satoshi sum that reached 2**64 and wrapped around, once for each time that it did.\n" \
    "\n" \
    "Raises:\n" \
    "    FormatError: The bytes are not packed hits. The sums are unchanged.\n" \
    "    IndexError: A hit belongs to an entry that has no sums. The sums are unchanged.\n" \
    "    ParameterError: The size of the buffer is not a multiple of 32 bytes.\n" \
    "    TypeError: An argument has the wrong type.\n" \
    "    BufferError: The buffer is not writable."
#define SPV_DOC_count_hits \
    "count_hits($module, packed, /)\n" \
    "--\n" \
    "\n" \
    "Return the number of packed hits. Raises FormatError if the bytes are not packed hits."
#define SPV_DOC_hit_lines \
    "hit_lines($module, packed, form, label_places, label_texts, block_hash, height, time, p2pkh_version, p2sh_version, hrp)\n" \
    "--\n" \
    "\n" \
    "Return the packed hits of a block as lines of CSV or JSON. Each line ends with a newline.\n" \
    "\n" \
    "The columns are kind (output or input), block_hash, height, time, txid, index, outpoint_txid, outpoint_index, value,\n" \
    "script_pubkey, address, label, coinbase (true if the position is 0) and fee. In CSV, time_utc follows the time: the\n" \
    "same time as text. Hashes are in hex as block explorers show them. An unknown value is an empty cell or null.\n" \
    "\n" \
    "Args:\n" \
    "    packed: The packed hits.\n" \
    "    form: 0 for CSV, 1 for JSON objects.\n" \
    "    label_places: For each entry with a label, its number and the offset of its label in `label_texts`, both as u32\n" \
    "        in the byte order of the machine. The numbers ascend.\n" \
    "    label_texts: Labels as the lines show them: a CSV cell with its quotes, or a JSON string with its quotes. The\n" \
    "        size of each label, as a u32 like the offsets, precedes it.\n" \
    "    block_hash: Hash of the block, 32 bytes in wire order.\n" \
    "    height: Height of the block, or None if it is not known.\n" \
    "    time: Time of the block (Unix time).\n" \
    "    p2pkh_version: Version byte of the network's P2PKH addresses.\n" \
    "    p2sh_version: Version byte of the network's P2SH addresses.\n" \
    "    hrp: Human-readable part of the network's bech32 addresses.\n" \
    "\n" \
    "Raises:\n" \
    "    FormatError: The bytes are not packed hits, or the label of a hit is outside `label_texts`.\n" \
    "    ParameterError: An argument is out of range, or an address cannot be encoded.\n" \
    "    TypeError: An argument has the wrong type."
#define SPV_DOC_hit_sums \
    "hit_sums($module, packed, /)\n" \
    "--\n" \
    "\n" \
    "Return the sums over the hits of each entry, in the order of the entries.\n" \
    "\n" \
    "Returns:\n" \
    "    Tuples (entry, matches, received, spent, unknown): the number of hits, the satoshi of the outputs, the satoshi\n" \
    "    of the spends, and the number of hits without a value.\n" \
    "\n" \
    "Raises:\n" \
    "    FormatError: The bytes are not packed hits, or a sum exceeds 64 bits."
#define SPV_DOC_is_ascending \
    "is_ascending($module, numbers, /)\n" \
    "--\n" \
    "\n" \
    "Return True if each number is larger than the number before it.\n" \
    "\n" \
    "Args:\n" \
    "    numbers: The numbers, as u32 in the byte order of the machine.\n" \
    "\n" \
    "Raises:\n" \
    "    ParameterError: The size is not a multiple of 4 bytes."
#define SPV_DOC_pack_hits \
    "pack_hits($module, hits, /)\n" \
    "--\n" \
    "\n" \
    "Pack hits. Raises TypeError or ParameterError for a value that no scan returns."
#define SPV_DOC_unpack_hits \
    "unpack_hits($module, packed, /)\n" \
    "--\n" \
    "\n" \
    "Unpack hits. Raises FormatError if the bytes are not packed hits."
#define SPV_DOC_row_mark \
    "row_mark($module, table, row, /)\n" \
    "--\n" \
    "\n" \
    "Return a 63-bit checksum of a table's name and a row of str, bytes, int and None.\n" \
    "\n" \
    "It reveals any change to the row. It is half of a BLAKE2b hash of the kind, the size and the value of each column.\n" \
    "\n" \
    "Raises:\n" \
    "    TypeError: The name is not a str, or the row is not iterable."
#define SPV_DOC_script_addresses \
    "script_addresses($module, offsets, scripts, p2pkh_version, p2sh_version, hrp, /)\n" \
    "--\n" \
    "\n" \
    "Return the addresses of a column of scripts as a column of text. A script without an address is null.\n" \
    "\n" \
    "A column is (number of rows, validity, offsets, data), as in Arrow's columnar format.\n" \
    "\n" \
    "Args:\n" \
    "    offsets: Offsets of the scripts as int32, one more than there are rows.\n" \
    "    scripts: The concatenated scripts.\n" \
    "    p2pkh_version: Version byte of the network's P2PKH addresses.\n" \
    "    p2sh_version: Version byte of the network's P2SH addresses.\n" \
    "    hrp: Human-readable part of the network's bech32 addresses.\n" \
    "\n" \
    "Raises:\n" \
    "    ParameterError: The offsets do not match the scripts, a version is out of range, or an address cannot be\n" \
    "        encoded.\n" \
    "    OverflowError: The column has more than 2,147,483,647 bytes."
#define SPV_DOC_silent_candidate \
    "silent_candidate($module, raw, at, spent, /)\n" \
    "--\n" \
    "\n" \
    "Read the transaction that starts at byte `at`, and return its end and its candidate.\n" \
    "\n" \
    "`spent` contains the scriptPubKeys that the inputs spend, in order, with None for each unknown script. If it is\n" \
    "itself None, no script is known.\n" \
    "\n" \
    "The candidate is None if the transaction cannot pay a silent payment address (BIP-352 § Scanning silent payment\n" \
    "eligible transactions). It may have no taproot output or no eligible input, or it may spend an output whose witness\n" \
    "version is above 1.\n" \
    "\n" \
    "Raises FormatError in the same cases as walk_tx, and if `spent` does not contain an item for each input."
#define SPV_DOC_block_columns \
    "block_columns($module, blocks, records, heights, columns, p2pkh_version, p2sh_version, hrp, hits, /)\n" \
    "--\n" \
    "\n" \
    "Return columns of the tables of some blocks: blocks, transactions, inputs, outputs and items.\n" \
    "\n" \
    "A column is (number of rows, validity, offsets, data), as in Arrow's columnar format. Validity is None if every row\n" \
    "has a value. Offsets are None if all values have the same size.\n" \
    "\n" \
    "Args:\n" \
    "    blocks: The blocks.\n" \
    "    records: The undo record of each block, or None for a block without one.\n" \
    "    heights: The height of each block, or NO_HEIGHT.\n" \
    "    columns: Names of columns such as \"outputs.value\". A name may end with \":hex\" if the values are bytes.\n" \
    "    p2pkh_version: Version byte of the network's P2PKH addresses.\n" \
    "    p2sh_version: Version byte of the network's P2SH addresses.\n" \
    "    hrp: Human-readable part of the network's bech32 addresses.\n" \
    "    hits: The packed hits of each block, to include only transactions with hits; None for all transactions.\n" \
    "\n" \
    "Raises:\n" \
    "    FormatError: A block is malformed, as in walk_block, or pays an amount out of range; or hits are malformed or\n" \
    "        belong to another block.\n" \
    "    UndoError: An undo record does not belong to its block.\n" \
    "    ParameterError: The numbers of items differ, a column does not exist, or a height or a network is out of range.\n" \
    "    OverflowError: A column has more than 2,147,483,647 bytes."
#define SPV_DOC_thrift_end \
    "thrift_end($module, raw, at, kind, /)\n" \
    "--\n" \
    "\n" \
    "Return the offset after a value of the given type that begins at an offset.\n" \
    "\n" \
    "Returns -1 if the value is malformed or truncated, or nested more than 16 deep.\n" \
    "\n" \
    "Raises:\n" \
    "    TypeError: An argument has the wrong type.\n" \
    "    ParameterError: The offset is negative, or the type is not between 0 and 15."
#define SPV_DOC_spent_coins \
    "spent_coins($module, undo, /)\n" \
    "--\n" \
    "\n" \
    "Return the coins in an undo record. The record must not include its checksum.\n" \
    "\n" \
    "The result contains a list for each transaction except the coinbase, with the coins of its inputs in order. Raises\n" \
    "UndoError if the record is truncated or has trailing bytes, if a number, count or amount is out of range, or if a\n" \
    "key is not on the curve."

#endif
