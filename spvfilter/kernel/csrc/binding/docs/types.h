/* Signatures and docstrings of the compiled types: scripts/dev/docstrings makes them of kernel/pure/. Do not edit. */
#ifndef SPV_BINDING_DOCS_TYPES_H
#define SPV_BINDING_DOCS_TYPES_H

#define SPV_DOC_BitCore \
    "BitCore(cells, hash_funcs, family, key, buffer, encoding=0, partitioned=False, custom=None, encode=None, private=False)\n" \
    "--\n" \
    "\n" \
    "A bit array with k hash functions; bit b is `1 << (b & 7)` of byte `b >> 3`, as BIP-37 lays it out.\n" \
    "\n" \
    "`buffer` holds ⌈m/8⌉ bytes. With no bits or no functions everything is contained and adding does nothing, as in Core\n" \
    "since 0.21 (CVE-2013-5700: never divide by the size). Raises ParameterError for numbers out of range, a key that\n" \
    "does not have 16 bytes, or a buffer of another size."
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
    "update($self, *keys, nulls='raise')\n" \
    "--\n" \
    "\n" \
    "Add a batch of keys, or several, and return how many were new.\n" \
    "\n" \
    "A batch is an iterable of keys, a buffer, or a column: an array of NumPy, a Series or an Index of pandas, a\n" \
    "Series of polars, an array of pyarrow, anything else with `__arrow_c_array__` or `__arrow_c_stream__` (Arrow's C\n" \
    "data interface), such as a relation of DuckDB, also a table of one column. Each key must be what a single key\n" \
    "has to be. Str keys come as Arrow's string, large_string and string_view, NumPy's U and StringDType; bytes-like\n" \
    "keys as binary, large_binary, binary_view and fixed_size_binary, and as NumPy's S; int keys as integers of any\n" \
    "width, whose values must fit; all of them as objects, and from dictionaries (categoricals). Beyond that, for\n" \
    "bytes-like keys a two-dimensional buffer of n×w bytes holds n keys of w bytes, and a one-dimensional buffer or\n" \
    "NumPy array of integers, other than single bytes, holds one key for each, in the machine's byte order.\n" \
    "\n" \
    "`nulls` says what a null in a column is, a masked value, and None or NaN in an iterable: \"raise\" refuses it,\n" \
    "\"skip\" leaves it out. A list's None goes to the user's own `encode`, unless it is skipped.\n" \
    "\n" \
    "Raises TypeError for anything else, including bytes, bytearray and str, which are one key; TypeError or\n" \
    "OverflowError for a key that the filter's encoding does not take, and ColumnError for a column that contradicts\n" \
    "itself, after adding the keys before it; OSError if a stream fails; ReadOnlyError; ParameterError. How long the\n" \
    "buffers of an Arrow array are is its producer's word, as everywhere."
#define SPV_DOC_BitCore_contains_many \
    "contains_many($self, keys, /, *, nulls='raise')\n" \
    "--\n" \
    "\n" \
    "Test a batch of keys, as `update` takes it: one byte for each key, 1 if it is contained, else 0.\n" \
    "\n" \
    "A null that is skipped is not.\n" \
    "\n" \
    "What comes back for a column is a mask that indexes it: for NumPy and pandas an array of NumPy's bool, for\n" \
    "polars a Boolean Series, for pyarrow a BooleanArray; for everything else bytes. Raises what `update` does, but\n" \
    "ReadOnlyError."
#define SPV_DOC_BitCore_set_bits \
    "set_bits($self)\n" \
    "--\n" \
    "\n" \
    "The number of bits that are 1."
#define SPV_DOC_BitCore_union_set_bits \
    "union_set_bits($self, other, /)\n" \
    "--\n" \
    "\n" \
    "The number of bits that are 1 in either array.\n" \
    "\n" \
    "Raises MismatchError for one of another shape, TypeError for other objects."
#define SPV_DOC_BitCore_plane_set_bits \
    "plane_set_bits($self)\n" \
    "--\n" \
    "\n" \
    "The number of bits that are 1 in the plane of each function, which is the whole array unless it is\n" \
    "partitioned."
#define SPV_DOC_BitCore_clear \
    "clear($self)\n" \
    "--\n" \
    "\n" \
    "Set every bit to 0. Raises ReadOnlyError."
#define SPV_DOC_Hashed_buffer \
    "The buffer that holds the cells: the one given, or a memoryview of the filter's own memory.\n" \
    "\n" \
    "Setting it exchanges the cells for those of another buffer of the same size, and returns once no thread writes\n" \
    "to the old one. Raises ParameterError for a buffer of another size, or one that is not contiguous."
#define SPV_DOC_Hashed_room \
    "The number of new keys that may be added before `make_room` is called; None: there is no limit, which is the\n" \
    "default.\n" \
    "\n" \
    "A new key takes one; a key that `remove` lets go gives one back. -1 means unknown: so it is after `|=`, `&=`,\n" \
    "`clear` and an exchange of the buffer. Raises ParameterError for numbers below -1."
#define SPV_DOC_Hashed_make_room \
    "make_room($self)\n" \
    "--\n" \
    "\n" \
    "Called before a new key is added if `room` is 0 or unknown: derived classes set `room`, or raise.\n" \
    "\n" \
    "Raises CapacityError."
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
    "Check that both filters put every key into the same cells.\n" \
    "\n" \
    "Raises MismatchError, which names the first difference, TypeError."
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
    "An array of 4-bit counters with k hash functions; counter c is the low nibble of byte `c >> 1` if c is even, else\n" \
    "the high one.\n" \
    "\n" \
    "`buffer` holds ⌈m/2⌉ bytes. A key counts once in each of its distinct counters. A counter that has reached 15\n" \
    "sticks: the number of keys it counts is no longer known, so it is never decremented. Raises ParameterError as\n" \
    "BitCore does."
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
    "Raises KeyError for a key that is not contained, since removing it would lose others; TypeError, OverflowError\n" \
    "and ReadOnlyError as `add` does."
#define SPV_DOC_CounterCore_count \
    "count($self, key, /)\n" \
    "--\n" \
    "\n" \
    "The most times that the key can have been added: the least of its counters, of which 15 means 15 or more.\n" \
    "\n" \
    "Raises TypeError or OverflowError for a key that the filter's encoding does not take."
#define SPV_DOC_CounterCore_update \
    "update($self, *keys, nulls='raise')\n" \
    "--\n" \
    "\n" \
    "Add a batch of keys, as BloomFilter.update takes it, and return how many were new. Raises the same errors."
#define SPV_DOC_CounterCore_contains_many \
    "contains_many($self, keys, /, *, nulls='raise')\n" \
    "--\n" \
    "\n" \
    "Test a batch of keys, and return a mask, as BloomFilter.contains_many does. Raises the same errors."
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
#define SPV_DOC_SeriesCore \
    "SeriesCore(slices)\n" \
    "--\n" \
    "\n" \
    "A series of BitCores, its slices, that is one set: a key is contained if any slice contains it, and is added to\n" \
    "the last one.\n" \
    "\n" \
    "All slices have one hash family, key and encoding, so that a key is encoded and hashed once; they may differ in\n" \
    "everything else. While the last slice has no room, a new key first calls `make_room`. Raises ParameterError for less\n" \
    "than one slice or more than 64, MismatchError for slices that differ, TypeError for other objects."
#define SPV_DOC_SeriesCore_slices \
    "The slices, from the first to the one that keys are added to."
#define SPV_DOC_SeriesCore_append \
    "append($self, slice, count, /)\n" \
    "--\n" \
    "\n" \
    "Add a slice unless there are more than `count`, as another thread may have added one meanwhile.\n" \
    "\n" \
    "Whether it was added.\n" \
    "\n" \
    "Raises CapacityError if there are 64, ParameterError for a negative count, MismatchError and TypeError as the\n" \
    "constructor does."
#define SPV_DOC_SeriesCore_make_room \
    "make_room($self)\n" \
    "--\n" \
    "\n" \
    "Called before a new key is added if the last slice's `room` is 0 or unknown: derived classes append one or\n" \
    "set it, or raise.\n" \
    "\n" \
    "Raises CapacityError."
#define SPV_DOC_SeriesCore_add \
    "add($self, key, /)\n" \
    "--\n" \
    "\n" \
    "Add a key to the last slice unless a slice contains it. True if it was new.\n" \
    "\n" \
    "Raises TypeError or OverflowError for a key that the encoding does not take, ReadOnlyError, and what `make_room`\n" \
    "raises."
#define SPV_DOC_SeriesCore_update \
    "update($self, *keys, nulls='raise')\n" \
    "--\n" \
    "\n" \
    "Add a batch of keys, as BloomFilter.update takes it, and return how many were new.\n" \
    "\n" \
    "Raises the same errors, and what `make_room` raises, after adding the keys before."
#define SPV_DOC_SeriesCore_contains_many \
    "contains_many($self, keys, /, *, nulls='raise')\n" \
    "--\n" \
    "\n" \
    "Test a batch of keys, and return a mask, as BloomFilter.contains_many does. Raises the same errors."
#define SPV_DOC_ReadBuffer \
    "ReadBuffer()\n" \
    "--\n" \
    "\n" \
    "Memory for the block that `WatchTable.scan_files` reads.\n" \
    "\n" \
    "It is reused for every block, since fresh memory costs more than reading.\n" \
    "\n" \
    "One thread can use it at a time. The compiled twin keeps memory for the largest block so far; the reference keeps\n" \
    "none."
#define SPV_DOC_GcsQuery \
    "GcsQuery(items)\n" \
    "--\n" \
    "\n" \
    "Items to look for in many Golomb-coded sets.\n" \
    "\n" \
    "Each set has its own SipHash key, so the items are hashed anew for each."
#define SPV_DOC_GcsQuery_match_any \
    "match_any($self, data, key, p, m)\n" \
    "--\n" \
    "\n" \
    "Whether a set contains any of the items; false positives are possible. The key has 16 bytes.\n" \
    "\n" \
    "Raises FormatError for a malformed set, even if there are no items; ParameterError unless 1 ≤ P ≤ 32 and 1 ≤ M <\n" \
    "2^32, and for a key of another length."
#define SPV_DOC_GcsQuery_match_many \
    "match_many($self, sets, p, m)\n" \
    "--\n" \
    "\n" \
    "Query many sets, pairs (key, data) of bytes: one byte for each set, 1 if `match_any` is true of it, else 0.\n" \
    "\n" \
    "Raises FormatError and ParameterError as `match_any` does; the FormatError's `field` names the set."
#define SPV_DOC_WatchTable \
    "WatchTable()\n" \
    "--\n" \
    "\n" \
    "Entries, coins, and the scan for them. A scan does not change the table; `learn` adds the outputs that it found.\n" \
    "\n" \
    "Threads may scan and read a table while another thread changes it; a scan may or may not find what is added during\n" \
    "it. With the compiled kernel every operation is atomic: several threads may change a table, and a copy is\n" \
    "consistent."
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
    "The present entries as (kind, bytes), in the order of their numbers; the table may change during the\n" \
    "iteration."
#define SPV_DOC_WatchTable_coin \
    "coin($self, outpoint, /)\n" \
    "--\n" \
    "\n" \
    "What is known about an outpoint (36 bytes); None if it is not watched."
#define SPV_DOC_WatchTable_coins \
    "coins($self)\n" \
    "--\n" \
    "\n" \
    "The present outpoints (36 bytes), each with its coin as it is when it is yielded; the table may change during\n" \
    "the iteration."
#define SPV_DOC_WatchTable_set_coin \
    "set_coin($self, outpoint, entry, value, script, /)\n" \
    "--\n" \
    "\n" \
    "Watch an outpoint on behalf of `entry`; an outpoint that is already watched keeps its entry and gains a\n" \
    "missing value or script.\n" \
    "\n" \
    "The entry may belong to another table. Raises ParameterError for an outpoint that does not have 36 bytes and for\n" \
    "numbers out of range."
#define SPV_DOC_WatchTable_learn \
    "learn($self, hits, /)\n" \
    "--\n" \
    "\n" \
    "Watch the outpoints of the outputs among `hits`.\n" \
    "\n" \
    "Raises ParameterError as `set_coin` does, and then learns nothing."
#define SPV_DOC_WatchTable_learn_packed \
    "learn_packed($self, packed, /)\n" \
    "--\n" \
    "\n" \
    "As `learn`, of packed hits; the number of outputs among them.\n" \
    "\n" \
    "Raises FormatError for bytes that are not packed hits, and then learns nothing."
#define SPV_DOC_WatchTable_copy \
    "copy($self)\n" \
    "--\n" \
    "\n" \
    "An independent copy of the table."
#define SPV_DOC_WatchTable_without \
    "without($self, outpoints, /)\n" \
    "--\n" \
    "\n" \
    "An independent copy of the table that does not watch these outpoints (36 bytes each), but for those that are\n" \
    "entries.\n" \
    "\n" \
    "Raises ParameterError for an outpoint that does not have 36 bytes."
#define SPV_DOC_WatchTable_add_address_lines \
    "add_address_lines($self, chunk, at, p2pkh_version, p2sh_version, hrp, /)\n" \
    "--\n" \
    "\n" \
    "Add the addresses of whole lines `address` or `address,label` in `chunk` from byte `at` on, up to the first\n" \
    "one not taken.\n" \
    "\n" \
    "Returns the number of bytes and of lines taken, and the labels as (entry, UTF-8 without control characters).\n" \
    "Lines that are not taken are left to watch/textfile.py: by the reference all, by the compiled twin those that\n" \
    "`decode_address` leaves.\n" \
    "\n" \
    "Raises ParameterError for a version byte that is not from 0 to 255 or a negative offset, IndexError for an\n" \
    "offset beyond the chunk."
#define SPV_DOC_WatchTable_match_script \
    "match_script($self, script, /)\n" \
    "--\n" \
    "\n" \
    "The entry that an output with this scriptPubKey matches, or NO_ENTRY: by script, then by multisig key, then\n" \
    "by data."
#define SPV_DOC_WatchTable_scan_block \
    "scan_block($self, raw, found=None, undo=None)\n" \
    "--\n" \
    "\n" \
    "The outputs and inputs of a block that concern the table: transactions in order, inputs before outputs.\n" \
    "\n" \
    "They include spends of outputs found earlier in the same block. `found` is a table that collects the coins of a\n" \
    "run of blocks until they are learned: spends of those are included, too, and the block's are added. With `undo`,\n" \
    "the block's undo record and its check, an input is also found by the script that it spends, every spend has its\n" \
    "value and script, and every hit its transaction's fee.\n" \
    "\n" \
    "Raises FormatError for a malformed block, and if a transaction that concerns the table is in it twice\n" \
    "(CVE-2012-2459: such a copy has the header of the genuine block); UndoError for a record that is not the\n" \
    "block's; `found` is then unchanged."
#define SPV_DOC_WatchTable_scan_blocks \
    "scan_blocks($self, blocks, found=None, check=False, undo=None, packed=False)\n" \
    "--\n" \
    "\n" \
    "The hits of several blocks, scanned one after the other; for a malformed block, the error that scan_block\n" \
    "raises.\n" \
    "\n" \
    "With `check`, check_block is called for each block first. `undo` has the undo record of each block, or None.\n" \
    "Raises ParameterError if it has another number of items. With `packed`, the hits of a block are bytes, which\n" \
    "`unpack_hits` turns back."
#define SPV_DOC_WatchTable_scan_files \
    "scan_files($self, places, buffer, found=None, check=False, undo=None, packed=False)\n" \
    "--\n" \
    "\n" \
    "The hits of several blocks in open files, as from scan_blocks.\n" \
    "\n" \
    "Each block is read into the buffer and scanned before the next.\n" \
    "\n" \
    "The result is None for a place that cannot be read or does not hold a block with that hash. `undo` has the place\n" \
    "of the undo record of each block, or None. With `packed`, the hits of a block are bytes, as from scan_blocks.\n" \
    "Raises ParameterError for an invalid place, or another number of them, before anything is read, and BufferError\n" \
    "if another thread uses the buffer."
#define SPV_DOC_WatchTable_scan_tx \
    "scan_tx($self, raw, /)\n" \
    "--\n" \
    "\n" \
    "The outputs and inputs of one transaction that concern the table. Raises FormatError for a malformed one."

#endif
