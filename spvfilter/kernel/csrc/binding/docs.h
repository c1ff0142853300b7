/* Signatures and docstrings of the compiled functions and types: those of kernel/pure/, written by scripts/docstrings. Not to be edited. */
#ifndef SPV_BINDING_DOCS_H
#define SPV_BINDING_DOCS_H

#define SPV_DOC_bip37_scan_block \
    "bip37_scan_block($module, raw, bits, hash_funcs, tweak, flags)\n" \
    "--\n" \
    "\n" \
    "The transactions of a block that a node's filter matches, in order, and the filter's bits after the block.\n" \
    "\n" \
    "Each transaction is tested against the filter as the transactions before it have updated it (Core CMerkleBlock); `bits` itself is not\n" \
    "changed. Raises FormatError as walk_block does, ParameterError for a number out of range."
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
    "Raises FormatError for anything that walk_block refuses; with field \"merkle root\" for a wrong root or duplicated transactions\n" \
    "(CVE-2012-2459); with field \"witness commitment\" for a commitment that is missing, wrong or without a nonce (Core\n" \
    "CheckWitnessMalleation). A block without any witness needs no commitment: before segwit's activation such outputs have no meaning."
#define SPV_DOC_is_p2pk \
    "is_p2pk($module, script, /)\n" \
    "--\n" \
    "\n" \
    "Whether a script is pay-to-public-key: one direct push of a key, then OP_CHECKSIG (Core Solver, MatchPayToPubkey)."
#define SPV_DOC_is_pubkey \
    "is_pubkey($module, data, /)\n" \
    "--\n" \
    "\n" \
    "Whether `data` has the shape of a public key: 33 bytes that begin with 02 or 03, or 65 bytes that begin with 04, 06 or 07.\n" \
    "\n" \
    "The point need not be on the curve (Core CPubKey::ValidSize)."
#define SPV_DOC_merkle_root \
    "merkle_root($module, leaves, /)\n" \
    "--\n" \
    "\n" \
    "The Merkle root of one or more hashes, and whether two equal neighbours make it ambiguous (CVE-2012-2459).\n" \
    "\n" \
    "An odd level repeats its last hash, which does not count as ambiguous (Core consensus/merkle.cpp). Raises ParameterError for no hashes,\n" \
    "or for one that does not have 32 bytes."
#define SPV_DOC_multisig_keys \
    "multisig_keys($module, script, /)\n" \
    "--\n" \
    "\n" \
    "The keys of a bare multisig script, or [] for any other script.\n" \
    "\n" \
    "That is OP_m, n pushes of keys, OP_n, OP_CHECKMULTISIG and nothing after it, 1 ≤ m ≤ n ≤ 16 (Core Solver, MatchMultisig)."
#define SPV_DOC_parse_tx \
    "parse_tx($module, raw, /)\n" \
    "--\n" \
    "\n" \
    "The one transaction that fills `raw`. Raises FormatError as walk_tx does, and for trailing bytes."
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
    "The iterator raises FormatError for a short header, no transactions, anything that walk_tx refuses, and trailing bytes: exhaust it\n" \
    "before trusting what it yielded."
#define SPV_DOC_walk_tx \
    "walk_tx($module, raw, at=0)\n" \
    "--\n" \
    "\n" \
    "The transaction that starts at byte `at`, by the rules of Core's UnserializeTransaction (witness allowed).\n" \
    "\n" \
    "Raises FormatError for a truncated transaction, a non-canonical CompactSize, a count or length that the remaining bytes cannot hold, an\n" \
    "unknown segwit flag, and a superfluous witness; ParameterError for a negative offset."
#define SPV_DOC_wtxid \
    "wtxid($module, raw, tx)\n" \
    "--\n" \
    "\n" \
    "sha256d of the transaction with its witness, 32 bytes (BIP-141). Raises ParameterError as strip_witness does."
#define SPV_DOC_decode_address \
    "decode_address($module, text, p2pkh_version, p2sh_version, hrp, /)\n" \
    "--\n" \
    "\n" \
    "The scriptPubKey of a valid address of a network with these parameters, or None, which leaves the address to spvfilter.address.\n" \
    "\n" \
    "The reference leaves all of them. The compiled twin decodes most valid addresses; it leaves those that spvfilter.address refuses.\n" \
    "Raises ParameterError for a version byte that is not from 0 to 255, TypeError for parameters of other types."
#define SPV_DOC_BitCore \
    "BitCore(cells, hash_funcs, family, key, buffer, encoding=0, partitioned=False, custom=None, encode=None, private=False)\n" \
    "--\n" \
    "\n" \
    "A bit array with k hash functions; bit b is `1 << (b & 7)` of byte `b >> 3`, as BIP-37 lays it out.\n" \
    "\n" \
    "`buffer` holds ⌈m/8⌉ bytes. With no bits or no functions everything is contained and adding does nothing, as in Core since 0.21\n" \
    "(CVE-2013-5700: never divide by the size). Raises ParameterError for numbers out of range, a key that does not have 16 bytes,\n" \
    "or a buffer of another size."
#define SPV_DOC_BitCore_bits \
    "The number of bits, m."
#define SPV_DOC_BitCore_add \
    "add($self, key, /)\n" \
    "--\n" \
    "\n" \
    "Set the key's bits. True if the key was new, that is, if any of its bits was not set before.\n" \
    "\n" \
    "Raises TypeError or OverflowError for a key that the filter's encoding does not take, ReadOnlyError."
#define SPV_DOC_BitCore_update \
    "update($self, keys, /)\n" \
    "--\n" \
    "\n" \
    "Add a batch of keys and return how many were new.\n" \
    "\n" \
    "A batch is an iterable of keys, or a contiguous buffer. For bytes-like keys, a two-dimensional buffer of n×w bytes holds n\n" \
    "keys of w bytes, and a one-dimensional buffer of integers holds one key for each, in the machine's byte order. For int keys, the\n" \
    "buffer is one-dimensional and of exactly the encoding's type, int64 or uint64. All other keys come as an iterable.\n" \
    "\n" \
    "Raises TypeError for anything else, including bytes, bytearray and str, which are one key; TypeError or OverflowError for a key that\n" \
    "the filter's encoding does not take, after adding the keys before it; ReadOnlyError."
#define SPV_DOC_BitCore_contains_many \
    "contains_many($self, keys, /)\n" \
    "--\n" \
    "\n" \
    "Test a batch of keys, as `update` takes it: one byte for each key, 1 if it is contained, else 0.\n" \
    "\n" \
    "Raises TypeError or OverflowError as `update` does."
#define SPV_DOC_BitCore_set_bits \
    "set_bits($self)\n" \
    "--\n" \
    "\n" \
    "The number of bits that are 1."
#define SPV_DOC_BitCore_union_set_bits \
    "union_set_bits($self, other, /)\n" \
    "--\n" \
    "\n" \
    "The number of bits that are 1 in either array. Raises MismatchError for one of another shape, TypeError for other objects."
#define SPV_DOC_BitCore_plane_set_bits \
    "plane_set_bits($self)\n" \
    "--\n" \
    "\n" \
    "The number of bits that are 1 in the plane of each function, which is the whole array unless it is partitioned."
#define SPV_DOC_BitCore_clear \
    "clear($self)\n" \
    "--\n" \
    "\n" \
    "Set every bit to 0. Raises ReadOnlyError."
#define SPV_DOC_Hashed_buffer \
    "The buffer that holds the cells: the one given, or a memoryview of the filter's own memory.\n" \
    "\n" \
    "Setting it exchanges the cells for those of another buffer of the same size, and returns once no thread writes to the old one.\n" \
    "Raises ParameterError for a buffer of another size, or one that is not contiguous."
#define SPV_DOC_Hashed_body \
    "The buffer's bytes, as a read-only memoryview."
#define SPV_DOC_Hashed_positions \
    "positions($self, key, /)\n" \
    "--\n" \
    "\n" \
    "The cells of a key, one for each hash function, in their order; some may be equal.\n" \
    "\n" \
    "Raises TypeError or OverflowError for a key that the filter's encoding does not take."
#define SPV_DOC_Hashed_same_shape \
    "same_shape($self, other, /)\n" \
    "--\n" \
    "\n" \
    "Check that both filters put every key into the same cells. Raises MismatchError, which names the first difference, TypeError."
#define SPV_DOC_Hashed_cells \
    "The number of cells, m."
#define SPV_DOC_Hashed_encoding \
    "The keys' encoding, an `Encoding`."
#define SPV_DOC_Hashed_family \
    "The hash family, a `Family`."
#define SPV_DOC_Hashed_hash_funcs \
    "The number of hash functions, k."
#define SPV_DOC_Hashed_key \
    "The hash family's key, 16 bytes."
#define SPV_DOC_Hashed_partitioned \
    "Whether each hash function has a plane of cells of its own."
#define SPV_DOC_CounterCore \
    "CounterCore(cells, hash_funcs, family, key, buffer, encoding=0, partitioned=False, custom=None, encode=None, private=False)\n" \
    "--\n" \
    "\n" \
    "An array of 4-bit counters with k hash functions; counter c is the low nibble of byte `c >> 1` if c is even, else the high one.\n" \
    "\n" \
    "`buffer` holds ⌈m/2⌉ bytes. A key counts once in each of its distinct counters. A counter that has reached 15 sticks: the number of keys\n" \
    "it counts is no longer known, so it is never decremented. Raises ParameterError as BitCore does."
#define SPV_DOC_CounterCore_add \
    "add($self, key, /)\n" \
    "--\n" \
    "\n" \
    "Count the key once more. True if the key was new, that is, if any of its counters was 0.\n" \
    "\n" \
    "Raises TypeError or OverflowError for a key that the filter's encoding does not take, ReadOnlyError."
#define SPV_DOC_CounterCore_remove \
    "remove($self, key, /)\n" \
    "--\n" \
    "\n" \
    "Count the key once less.\n" \
    "\n" \
    "Raises KeyError for a key that is not contained, since removing it would lose others; TypeError, OverflowError and ReadOnlyError as\n" \
    "`add` does."
#define SPV_DOC_CounterCore_count \
    "count($self, key, /)\n" \
    "--\n" \
    "\n" \
    "The most times that the key can have been added: the least of its counters, of which 15 means 15 or more.\n" \
    "\n" \
    "Raises TypeError or OverflowError for a key that the filter's encoding does not take."
#define SPV_DOC_CounterCore_update \
    "update($self, keys, /)\n" \
    "--\n" \
    "\n" \
    "Add a batch of keys, as BloomFilter.update takes it, and return how many were new. Raises the same errors."
#define SPV_DOC_CounterCore_contains_many \
    "contains_many($self, keys, /)\n" \
    "--\n" \
    "\n" \
    "Test a batch of keys, as `update` takes it: one byte for each key, 1 if it is contained, else 0.\n" \
    "\n" \
    "Raises TypeError or OverflowError as `update` does."
#define SPV_DOC_CounterCore_set_cells \
    "set_cells($self)\n" \
    "--\n" \
    "\n" \
    "The number of counters that are not 0."
#define SPV_DOC_CounterCore_to_bits \
    "to_bits($self)\n" \
    "--\n" \
    "\n" \
    "A bit for each counter, set if the counter is not 0, in the layout of BitCore: ⌈m/8⌉ bytes."
#define SPV_DOC_CounterCore_clear \
    "clear($self)\n" \
    "--\n" \
    "\n" \
    "Set every counter to 0. Raises ReadOnlyError."
#define SPV_DOC_ReadBuffer \
    "ReadBuffer()\n" \
    "--\n" \
    "\n" \
    "Memory for the block that `WatchTable.scan_files` reads. It is reused for every block, since fresh memory costs more than reading.\n" \
    "\n" \
    "One thread can use it at a time. The compiled twin keeps memory for the largest block so far; the reference keeps none."
#define SPV_DOC_read_at \
    "read_at($module, descriptor, offset, size, key, /)\n" \
    "--\n" \
    "\n" \
    "Up to `size` bytes of an open file, from `offset` on, XORed with `key`; fewer at the end of the file.\n" \
    "\n" \
    "The key has 8 bytes and is repeated from the start of the file, or it is empty. Raises OSError, and ParameterError for a key of another\n" \
    "size, for negative numbers, and for a size above MAX_BLOCK_SIZE."
#define SPV_DOC_sound_frames \
    "sound_frames($module, stream, magic, /)\n" \
    "--\n" \
    "\n" \
    "The sound messages at the head of a stream, each its command and payload, and how many bytes they have with their envelopes.\n" \
    "\n" \
    "It ends before the first message that is incomplete or unsound: of another magic, with a payload above 4,000,000 bytes, a command other\n" \
    "than 1 to 12 printable ASCII characters padded with NULs, or a wrong checksum (the first 4 bytes of sha256d(payload)).\n" \
    "\n" \
    "Raises ParameterError unless the magic has 4 bytes."
#define SPV_DOC_GcsQuery \
    "GcsQuery(items)\n" \
    "--\n" \
    "\n" \
    "Items to look for in many Golomb-coded sets. Each set has its own SipHash key, so the items are hashed anew for each."
#define SPV_DOC_GcsQuery_match_any \
    "match_any($self, data, key, p, m)\n" \
    "--\n" \
    "\n" \
    "Whether a set contains any of the items; false positives are possible. The key has 16 bytes.\n" \
    "\n" \
    "Raises FormatError for a malformed set, even if there are no items; ParameterError unless 1 ≤ P ≤ 32 and 1 ≤ M < 2^32, and for a key\n" \
    "of another length."
#define SPV_DOC_GcsQuery_match_many \
    "match_many($self, sets, p, m)\n" \
    "--\n" \
    "\n" \
    "Query many sets, pairs (key, data) of bytes: one byte for each set, 1 if `match_any` is true of it, else 0.\n" \
    "\n" \
    "Raises FormatError and ParameterError as `match_any` does; the FormatError's `field` names the set."
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
    "Raises FormatError for an N that is not canonical, is above 2^25 or is more than the bytes can hold, for bits that end within an\n" \
    "element, and for trailing bytes. Padding bits are ignored (Core GCSFilter). Raises ParameterError unless 1 ≤ P ≤ 32."
#define SPV_DOC_chain_filter_headers \
    "chain_filter_headers($module, hashes, previous, /)\n" \
    "--\n" \
    "\n" \
    "The filter headers, 32 bytes each, of blocks with these filter hashes, 32 bytes each; `previous` is the one before the first.\n" \
    "\n" \
    "Each is the double SHA-256 of the filter hash and the filter header before it (BIP-157 § Filter Headers). Raises ParameterError for\n" \
    "other lengths."
#define SPV_DOC_find_header \
    "find_header($module, indexes, block_hash, /)\n" \
    "--\n" \
    "\n" \
    "Where a header with this hash may be: each index with its first four bytes, by its place, and the header's number there.\n" \
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
    "An index by hash of up to 65,536 headers, 80 bytes each, that follow each other; `last` is the hash of the last one.\n" \
    "\n" \
    "It has the first four bytes of each hash, in ascending order, and then, in the same order, the numbers of the headers, u16 LE. Those\n" \
    "with equal bytes are in the order of their numbers. Raises FormatError if the last header is truncated, ParameterError for none, for\n" \
    "too many and for a hash of another length."
#define SPV_DOC_join_indexes \
    "join_indexes($module, indexes, /)\n" \
    "--\n" \
    "\n" \
    "The index of all headers of several indexes, in which those of each are numbered after those of the one before it.\n" \
    "\n" \
    "Raises ParameterError for no headers, for more than 65,536, and for bytes that are no index."
#define SPV_DOC_judge_headers \
    "judge_headers($module, headers, hashes, times, usual, late, late_by, least_version, latest, /)\n" \
    "--\n" \
    "\n" \
    "How many headers, 80 bytes each, obey the rules from the first one on, and how many of these are late.\n" \
    "\n" \
    "A header is late if its time is more than `late_by` seconds above the one before it. Its bits must be those of `late`, of others those\n" \
    "of `usual`: each is bits u32 LE and the target 32 bytes LE, which the hash must not exceed. The time must be above the median of the\n" \
    "eleven times before it and at most `latest`, the version at least `least_version`. `hashes` are those of the headers, 32 bytes each;\n" \
    "`times` are those of up to eleven headers before them, u32 LE, oldest first. Links are not checked.\n" \
    "\n" \
    "Raises FormatError if the last header is truncated, ParameterError for other sizes and numbers that no header could have."
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
    "What a partial merkle tree proves: the matched transactions in block order, and whether an inner node also parses as one.\n" \
    "\n" \
    "Follows Core's CPartialMerkleTree::ExtractMatches. Raises ProofError, whose `cause` is the first Flaw of the tree, depth first and left\n" \
    "before right, and ParameterError for a hash that does not have 32 bytes."
#define SPV_DOC_parse_merkleblock \
    "parse_merkleblock($module, raw, /)\n" \
    "--\n" \
    "\n" \
    "The number of transactions, the hashes and the flag bytes of a merkleblock payload, whose first 80 bytes are the header.\n" \
    "\n" \
    "Raises FormatError if it is truncated, has trailing bytes, or has more hashes or flag bytes than any block needs."
#define SPV_DOC_WatchTable \
    "WatchTable()\n" \
    "--\n" \
    "\n" \
    "Entries, coins, and the scan for them. A scan does not change the table; `learn` adds the outputs that it found.\n" \
    "\n" \
    "Threads may scan and read a table while another thread changes it; a scan may or may not find what is added during it. With the compiled\n" \
    "kernel every operation is atomic: several threads may change a table, and a copy is consistent."
#define SPV_DOC_WatchTable_add \
    "add($self, kind, value, /)\n" \
    "--\n" \
    "\n" \
    "Add an entry and return its number, from 0; an entry that is already there keeps its own.\n" \
    "\n" \
    "Raises ParameterError for an outpoint that does not have 36 bytes."
#define SPV_DOC_WatchTable_find \
    "find($self, kind, value, /)\n" \
    "--\n" \
    "\n" \
    "The number of an entry, or NO_ENTRY."
#define SPV_DOC_WatchTable_entry \
    "entry($self, number, /)\n" \
    "--\n" \
    "\n" \
    "The kind and bytes of an entry. Raises IndexError if no entry has this number."
#define SPV_DOC_WatchTable_entries \
    "entries($self)\n" \
    "--\n" \
    "\n" \
    "The present entries as (kind, bytes), in the order of their numbers; the table may change during the iteration."
#define SPV_DOC_WatchTable_coin \
    "coin($self, outpoint, /)\n" \
    "--\n" \
    "\n" \
    "What is known about an outpoint (36 bytes); None if it is not watched."
#define SPV_DOC_WatchTable_coins \
    "coins($self)\n" \
    "--\n" \
    "\n" \
    "The present outpoints (36 bytes), each with its coin as it is when it is yielded; the table may change during the iteration."
#define SPV_DOC_WatchTable_set_coin \
    "set_coin($self, outpoint, entry, value, script, /)\n" \
    "--\n" \
    "\n" \
    "Watch an outpoint on behalf of `entry`; an outpoint that is already watched keeps its entry and gains a missing value or script.\n" \
    "\n" \
    "The entry may belong to another table. Raises ParameterError for an outpoint that does not have 36 bytes and for numbers out of\n" \
    "range."
#define SPV_DOC_WatchTable_learn \
    "learn($self, hits, /)\n" \
    "--\n" \
    "\n" \
    "Watch the outpoints of the outputs among `hits`. Raises ParameterError as `set_coin` does, and then learns nothing."
#define SPV_DOC_WatchTable_copy \
    "copy($self)\n" \
    "--\n" \
    "\n" \
    "An independent copy of the table."
#define SPV_DOC_WatchTable_without \
    "without($self, outpoints, /)\n" \
    "--\n" \
    "\n" \
    "An independent copy of the table that does not watch these outpoints (36 bytes each), but for those that are entries.\n" \
    "\n" \
    "Raises ParameterError for an outpoint that does not have 36 bytes."
#define SPV_DOC_WatchTable_add_address_lines \
    "add_address_lines($self, chunk, at, p2pkh_version, p2sh_version, hrp, /)\n" \
    "--\n" \
    "\n" \
    "Add the addresses of whole lines `address` or `address,label` in `chunk` from byte `at` on, up to the first one not taken.\n" \
    "\n" \
    "Returns the number of bytes and of lines taken, and the labels as (entry, UTF-8 without control characters). Lines that are not\n" \
    "taken are left to watch/textfile.py: by the reference all, by the compiled twin those that `decode_address` leaves.\n" \
    "\n" \
    "Raises ParameterError for a version byte that is not from 0 to 255 or a negative offset, IndexError for an offset beyond the chunk."
#define SPV_DOC_WatchTable_match_script \
    "match_script($self, script, /)\n" \
    "--\n" \
    "\n" \
    "The entry that an output with this scriptPubKey matches, or NO_ENTRY: by script, then by multisig key, then by data."
#define SPV_DOC_WatchTable_scan_block \
    "scan_block($self, raw, found=None, undo=None)\n" \
    "--\n" \
    "\n" \
    "The outputs and inputs of a block that concern the table: transactions in order, inputs before outputs.\n" \
    "\n" \
    "They include spends of outputs found earlier in the same block. `found` is a table that collects the coins of a run of blocks until\n" \
    "they are learned: spends of those are included, too, and the block's are added. With `undo`, the block's undo record and its check,\n" \
    "an input is also found by the script that it spends, every spend has its value and script, and every hit its transaction's fee.\n" \
    "\n" \
    "Raises FormatError for a malformed block, and if a transaction that concerns the table is in it twice (CVE-2012-2459: such a copy\n" \
    "has the header of the genuine block); UndoError for a record that is not the block's; `found` is then unchanged."
#define SPV_DOC_WatchTable_scan_blocks \
    "scan_blocks($self, blocks, found=None, check=False, undo=None)\n" \
    "--\n" \
    "\n" \
    "The hits of several blocks, scanned one after the other; for a malformed block, the error that scan_block raises.\n" \
    "\n" \
    "With `check`, check_block is called for each block first. `undo` has the undo record of each block, or None. Raises ParameterError\n" \
    "if it has another number of items."
#define SPV_DOC_WatchTable_scan_files \
    "scan_files($self, places, buffer, found=None, check=False, undo=None)\n" \
    "--\n" \
    "\n" \
    "The hits of several blocks in open files, as from scan_blocks. Each block is read into the buffer and scanned before the next.\n" \
    "\n" \
    "The result is None for a place that cannot be read or does not hold a block with that hash. `undo` has the place of the undo record\n" \
    "of each block, or None. Raises ParameterError for an invalid place, or another number of them, before anything is read, and\n" \
    "BufferError if another thread uses the buffer."
#define SPV_DOC_WatchTable_scan_tx \
    "scan_tx($self, raw, /)\n" \
    "--\n" \
    "\n" \
    "The outputs and inputs of one transaction that concern the table. Raises FormatError for a malformed one."
#define SPV_DOC_spent_coins \
    "spent_coins($module, undo, /)\n" \
    "--\n" \
    "\n" \
    "The coins in an undo record without its check: for each transaction but the coinbase those of its inputs, in order.\n" \
    "\n" \
    "Raises UndoError for a truncated record, a number or count out of range, an amount above MAX_MONEY, a key that is not on the curve, and\n" \
    "trailing bytes."

#endif
