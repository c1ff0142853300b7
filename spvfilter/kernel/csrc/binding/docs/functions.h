/* Signatures and docstrings of the compiled functions: scripts/dev/docstrings makes them of kernel/pure/. Do not edit. */
#ifndef SPV_BINDING_DOCS_FUNCTIONS_H
#define SPV_BINDING_DOCS_FUNCTIONS_H

#define SPV_DOC_bip37_scan_block \
    "bip37_scan_block($module, raw, bits, hash_funcs, tweak, flags)\n" \
    "--\n" \
    "\n" \
    "The transactions of a block that a node's filter matches, in order, and the filter's bits after the block.\n" \
    "\n" \
    "Each transaction is tested against the filter as the transactions before it have updated it (Core CMerkleBlock);\n" \
    "`bits` itself is not changed. Raises FormatError as walk_block does, ParameterError for a number out of range."
#define SPV_DOC_bip37_scan_tx \
    "bip37_scan_tx($module, raw, bits, hash_funcs, tweak, flags)\n" \
    "--\n" \
    "\n" \
    "Whether a node's filter matches one transaction, and the filter's bits after it.\n" \
    "\n" \
    "Raises FormatError as parse_tx does, ParameterError for a number out of range."
#define SPV_DOC_check_block \
    "check_block($module, raw, /)\n" \
    "--\n" \
    "\n" \
    "Check that a block's transactions are those that its header commits to, witnesses included.\n" \
    "\n" \
    "Raises FormatError for anything that walk_block refuses; with field \"merkle root\" for a wrong root or duplicated\n" \
    "transactions (CVE-2012-2459); with field \"witness commitment\" for a commitment that is missing, wrong or without a\n" \
    "nonce (Core CheckWitnessMalleation). A block without any witness needs no commitment: before segwit's activation\n" \
    "such outputs have no meaning."
#define SPV_DOC_is_p2pk \
    "is_p2pk($module, script, /)\n" \
    "--\n" \
    "\n" \
    "Whether a script is pay-to-public-key: one direct push of a key, then OP_CHECKSIG (Core Solver,\n" \
    "MatchPayToPubkey)."
#define SPV_DOC_is_pubkey \
    "is_pubkey($module, data, /)\n" \
    "--\n" \
    "\n" \
    "Whether `data` has the shape of a public key: 33 bytes that begin with 02 or 03, or 65 bytes that begin with 04,\n" \
    "06 or 07.\n" \
    "\n" \
    "The point need not be on the curve (Core CPubKey::ValidSize)."
#define SPV_DOC_merkle_root \
    "merkle_root($module, leaves, /)\n" \
    "--\n" \
    "\n" \
    "The Merkle root of one or more hashes, and whether two equal neighbours make it ambiguous (CVE-2012-2459).\n" \
    "\n" \
    "An odd level repeats its last hash, which does not count as ambiguous (Core consensus/merkle.cpp). Raises\n" \
    "ParameterError for no hashes, or for one that does not have 32 bytes."
#define SPV_DOC_multisig_keys \
    "multisig_keys($module, script, /)\n" \
    "--\n" \
    "\n" \
    "The keys of a bare multisig script, or [] for any other script.\n" \
    "\n" \
    "That is OP_m, n pushes of keys, OP_n, OP_CHECKMULTISIG and nothing after it, 1 ≤ m ≤ n ≤ 16 (Core Solver,\n" \
    "MatchMultisig)."
#define SPV_DOC_parse_tx \
    "parse_tx($module, raw, /)\n" \
    "--\n" \
    "\n" \
    "The one transaction that fills `raw`. Raises FormatError as walk_tx does, and for trailing bytes."
#define SPV_DOC_spent_outpoints \
    "spent_outpoints($module, raw, /)\n" \
    "--\n" \
    "\n" \
    "The outpoints (36 bytes each) that the one transaction in `raw` spends. Raises FormatError as parse_tx does."
#define SPV_DOC_strip_witness \
    "strip_witness($module, raw, tx)\n" \
    "--\n" \
    "\n" \
    "The transaction's bytes without marker, flag and witness, to which its txid commits (BIP-144).\n" \
    "\n" \
    "Raises ParameterError for a span that is not of a transaction in `raw`."
#define SPV_DOC_txid \
    "txid($module, raw, tx)\n" \
    "--\n" \
    "\n" \
    "sha256d of the stripped transaction, 32 bytes in wire order. Raises ParameterError as strip_witness does."
#define SPV_DOC_walk_block \
    "walk_block($module, raw, /)\n" \
    "--\n" \
    "\n" \
    "The transactions of the block that fills `raw`, in order.\n" \
    "\n" \
    "The iterator raises FormatError for a short header, no transactions, anything that walk_tx refuses, and trailing\n" \
    "bytes: exhaust it before trusting what it yielded."
#define SPV_DOC_walk_tx \
    "walk_tx($module, raw, at=0)\n" \
    "--\n" \
    "\n" \
    "The transaction that starts at byte `at`, by the rules of Core's UnserializeTransaction (witness allowed).\n" \
    "\n" \
    "Raises FormatError for a truncated transaction, a non-canonical CompactSize, a count or length that the remaining\n" \
    "bytes cannot hold, an unknown segwit flag, and a superfluous witness; ParameterError for a negative offset."
#define SPV_DOC_wtxid \
    "wtxid($module, raw, tx)\n" \
    "--\n" \
    "\n" \
    "sha256d of the transaction with its witness, 32 bytes (BIP-141). Raises ParameterError as strip_witness does."
#define SPV_DOC_decode_address \
    "decode_address($module, text, p2pkh_version, p2sh_version, hrp, /)\n" \
    "--\n" \
    "\n" \
    "The scriptPubKey of a valid address of a network with these parameters, or None, which leaves the address to\n" \
    "spvfilter.address.\n" \
    "\n" \
    "The reference leaves all of them. The compiled twin decodes most valid addresses; it leaves those that\n" \
    "spvfilter.address refuses. Raises ParameterError for a version byte that is not from 0 to 255, TypeError for\n" \
    "parameters of other types."
#define SPV_DOC_encode_address \
    "encode_address($module, script, p2pkh_version, p2sh_version, hrp, /)\n" \
    "--\n" \
    "\n" \
    "The address of a P2PKH, P2SH or witness scriptPubKey on a network with these parameters; None if it has none.\n" \
    "\n" \
    "Without a human-readable part (an empty one) a network has no segwit addresses. Raises ParameterError for a version\n" \
    "byte that is not from 0 to 255, and if a witness program has no bech32 string with this human-readable part;\n" \
    "TypeError for parameters of other types."
#define SPV_DOC_read_at \
    "read_at($module, descriptor, offset, size, key, /)\n" \
    "--\n" \
    "\n" \
    "Up to `size` bytes of an open file, from `offset` on, XORed with `key`; fewer at the end of the file.\n" \
    "\n" \
    "The key has 8 bytes and is repeated from the start of the file, or it is empty. Raises OSError, and ParameterError\n" \
    "for a key of another size, for negative numbers, and for a size above MAX_BLOCK_SIZE."
#define SPV_DOC_joined_frames \
    "joined_frames($module, stream, magic, /)\n" \
    "--\n" \
    "\n" \
    "As `sound_frames`, but successive cfilter messages that have a basic filter and are well-formed are one item.\n" \
    "\n" \
    "It is the hash of the block and the filter of each, and how many bytes of the stream these messages have. A cfilter\n" \
    "message of another filter type, or with a block hash, length and filter (BIP-157 § cfilter) that are not all of its\n" \
    "payload, is an item of its own.\n" \
    "\n" \
    "Raises ParameterError unless the magic has 4 bytes."
#define SPV_DOC_sound_frames \
    "sound_frames($module, stream, magic, /)\n" \
    "--\n" \
    "\n" \
    "The sound messages at the head of a stream, each its command and payload, and how many bytes they have with their\n" \
    "envelopes.\n" \
    "\n" \
    "It ends before the first message that is incomplete or unsound: of another magic, with a payload above 4,000,000\n" \
    "bytes, a command other than 1 to 12 printable ASCII characters padded with NULs, or a wrong checksum (the first 4\n" \
    "bytes of sha256d(payload)).\n" \
    "\n" \
    "Raises ParameterError unless the magic has 4 bytes."
#define SPV_DOC_gcs_build \
    "gcs_build($module, items, key, p, m)\n" \
    "--\n" \
    "\n" \
    "The Golomb-coded set of the distinct `items` under a SipHash key of 16 bytes.\n" \
    "\n" \
    "Raises ParameterError unless 1 ≤ P ≤ 32 and 1 ≤ M < 2^32, for a key of another length, and for more than 2^25 items."
#define SPV_DOC_gcs_check \
    "gcs_check($module, data, p)\n" \
    "--\n" \
    "\n" \
    "N, the number of values in a set, all of which are decoded.\n" \
    "\n" \
    "Raises FormatError for an N that is not canonical, is above 2^25 or is more than the bytes can hold, for bits that\n" \
    "end within an element, and for trailing bytes. Padding bits are ignored (Core GCSFilter). Raises ParameterError\n" \
    "unless 1 ≤ P ≤ 32."
#define SPV_DOC_chain_filter_headers \
    "chain_filter_headers($module, hashes, previous, /)\n" \
    "--\n" \
    "\n" \
    "The filter headers, 32 bytes each, of blocks with these filter hashes, 32 bytes each; `previous` is the one\n" \
    "before the first.\n" \
    "\n" \
    "Each is the double SHA-256 of the filter hash and the filter header before it (BIP-157 § Filter Headers). Raises\n" \
    "ParameterError for other lengths."
#define SPV_DOC_filter_hashes \
    "filter_hashes($module, filters, /)\n" \
    "--\n" \
    "\n" \
    "The filter hashes, 32 bytes each, of compact filters: the double SHA-256 of each (BIP-157 § Filter Headers)."
#define SPV_DOC_find_header \
    "find_header($module, indexes, block_hash, /)\n" \
    "--\n" \
    "\n" \
    "Where a header with this hash may be: each index with its first four bytes, by its place, and the header's number\n" \
    "there.\n" \
    "\n" \
    "Raises ParameterError for a hash of another length and for bytes that are no index."
#define SPV_DOC_header_bits \
    "header_bits($module, headers, /)\n" \
    "--\n" \
    "\n" \
    "The compact bits of headers, 80 bytes each, in order: bits, and the number of consecutive headers that have them.\n" \
    "\n" \
    "Raises FormatError if the last header is truncated."
#define SPV_DOC_header_hashes \
    "header_hashes($module, headers, /)\n" \
    "--\n" \
    "\n" \
    "The block hashes, 32 bytes each, of headers of 80 bytes each.\n" \
    "\n" \
    "Raises FormatError if the last header is truncated."
#define SPV_DOC_index_headers \
    "index_headers($module, headers, last, /)\n" \
    "--\n" \
    "\n" \
    "An index by hash of up to 65,536 headers, 80 bytes each, that follow each other; `last` is the hash of the last\n" \
    "one.\n" \
    "\n" \
    "It has the first four bytes of each hash, in ascending order, and then, in the same order, the numbers of the\n" \
    "headers, u16 LE. Those with equal bytes are in the order of their numbers. Raises FormatError if the last header is\n" \
    "truncated, ParameterError for none, for too many and for a hash of another length."
#define SPV_DOC_join_indexes \
    "join_indexes($module, indexes, /)\n" \
    "--\n" \
    "\n" \
    "The index of all headers of several indexes, in which those of each are numbered after those of the one before\n" \
    "it.\n" \
    "\n" \
    "Raises ParameterError for no headers, for more than 65,536, and for bytes that are no index."
#define SPV_DOC_judge_headers \
    "judge_headers($module, headers, hashes, times, usual, late, late_by, least_version, latest, /)\n" \
    "--\n" \
    "\n" \
    "How many headers, 80 bytes each, obey the rules from the first one on, and how many of these are late.\n" \
    "\n" \
    "A header is late if its time is more than `late_by` seconds above the one before it. Its bits must be those of\n" \
    "`late`, of others those of `usual`: each is bits u32 LE and the target 32 bytes LE, which the hash must not exceed.\n" \
    "The time must be above the median of the eleven times before it and at most `latest`, the version at least\n" \
    "`least_version`. `hashes` are those of the headers, 32 bytes each; `times` are those of up to eleven headers before\n" \
    "them, u32 LE, oldest first. Links are not checked.\n" \
    "\n" \
    "Raises FormatError if the last header is truncated, ParameterError for other sizes and numbers that no header could\n" \
    "have."
#define SPV_DOC_linked_headers \
    "linked_headers($module, headers, hashes, /)\n" \
    "--\n" \
    "\n" \
    "How many headers, 80 bytes each, follow each other from the first one on; `hashes` are theirs, 32 bytes each.\n" \
    "\n" \
    "Raises FormatError if the last header is truncated, ParameterError unless there is a hash for each header."
#define SPV_DOC_extract_matches \
    "extract_matches($module, root, total, hashes, flags, /)\n" \
    "--\n" \
    "\n" \
    "What a partial merkle tree proves: the matched transactions in block order, and whether an inner node also parses\n" \
    "as one.\n" \
    "\n" \
    "Follows Core's CPartialMerkleTree::ExtractMatches. Raises ProofError, whose `cause` is the first Flaw of the tree,\n" \
    "depth first and left before right, and ParameterError for a hash that does not have 32 bytes."
#define SPV_DOC_parse_merkleblock \
    "parse_merkleblock($module, raw, /)\n" \
    "--\n" \
    "\n" \
    "The number of transactions, the hashes and the flag bytes of a merkleblock payload, whose first 80 bytes are the\n" \
    "header.\n" \
    "\n" \
    "Raises FormatError if it is truncated, has trailing bytes, or has more hashes or flag bytes than any block needs."
#define SPV_DOC_hit_lines \
    "hit_lines($module, packed, form, labels, block_hash, height, time, p2pkh_version, p2sh_version, hrp)\n" \
    "--\n" \
    "\n" \
    "A block's packed hits as lines, each with \\n at its end: of CSV if `form` is 0, JSON objects if it is 1.\n" \
    "\n" \
    "The columns: kind (output or input), block_hash, height, time, txid, index, outpoint_txid, outpoint_index, value,\n" \
    "script_pubkey, address, label, coinbase (whether the position is 0), fee. Hashes are reversed hex. What is unknown\n" \
    "is an empty cell, or null.\n" \
    "\n" \
    "`labels` has the labels of entries as the lines show them: a cell with its quotes, or a JSON string with them; None\n" \
    "is none. `block_hash` has 32 bytes, in wire order; `time` is that of the block; the last three parameters are the\n" \
    "network's, as encode_address takes them.\n" \
    "\n" \
    "Raises FormatError for bytes that are not packed hits, ParameterError for parameters out of range and as\n" \
    "encode_address does, and TypeError for parameters of other types."
#define SPV_DOC_hit_sums \
    "hit_sums($module, packed, /)\n" \
    "--\n" \
    "\n" \
    "What the hits of each entry come to, in the order of entries: (entry, matches, received, spent, unknown).\n" \
    "\n" \
    "`received` are the satoshi of its outputs and `spent` those of its spends, where known; `unknown` is the number of\n" \
    "its hits without a value. Raises FormatError for bytes that are not packed hits, and where a sum exceeds 64 bits."
#define SPV_DOC_pack_hits \
    "pack_hits($module, hits, /)\n" \
    "--\n" \
    "\n" \
    "Hits as packed hits. Raises TypeError and ParameterError for what is no hit of a scan."
#define SPV_DOC_unpack_hits \
    "unpack_hits($module, packed, /)\n" \
    "--\n" \
    "\n" \
    "Packed hits as hits. Raises FormatError for bytes that are not packed hits."
#define SPV_DOC_spent_coins \
    "spent_coins($module, undo, /)\n" \
    "--\n" \
    "\n" \
    "The coins in an undo record without its check: for each transaction but the coinbase those of its inputs, in\n" \
    "order.\n" \
    "\n" \
    "Raises UndoError for a truncated record, a number or count out of range, an amount above MAX_MONEY, a key that is\n" \
    "not on the curve, and trailing bytes."

#endif
