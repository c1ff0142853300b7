/* Signatures and docstrings of the compiled types: scripts/dev/docstrings makes them of kernel/pure/. Do not edit. */
#ifndef SPV_BINDING_DOCS_TYPES_H
#define SPV_BINDING_DOCS_TYPES_H

#define SPV_DOC_BitCore \
    "BitCore(cells, hash_funcs, family, key, buffer, encoding=0, partitioned=False, custom=None, encode=None, private=False)\n" \
    "--\n" \
    "\n" \
    "A bit array with k hash functions. Bit b is `1 << (b & 7)` of byte `b >> 3`, as in BIP-37.\n" \
    "\n" \
    "`buffer` is ⌈m/8⌉ bytes long. An array without bits or functions contains every key, and adding a key does nothing.\n" \
    "Core has done the same since 0.21, so that it never divides by a size of 0 (CVE-2013-5700).\n" \
    "\n" \
    "Raises ParameterError for a number out of range, a key that is not 16 bytes long, or a buffer of a different size."
#define SPV_DOC_BitCore_bits \
    "Number of bits m."
#define SPV_DOC_BitCore_add \
    "add($self, key, /)\n" \
    "--\n" \
    "\n" \
    "Set the bits of a key, and return True if the key was new, that is, if any of its bits was not set before.\n" \
    "\n" \
    "Raises TypeError or KeyRangeError for a key that does not fit the filter's encoding, ReadOnlyError if the memory\n" \
    "is read-only, CapacityError if there is no room."
#define SPV_DOC_BitCore_update \
    "update($self, *keys, nulls='raise', padding=None)\n" \
    "--\n" \
    "\n" \
    "Add one or more batches of keys, and return how many keys were new.\n" \
    "\n" \
    "A batch is an iterable of keys, a buffer, or a column. Columns of NumPy, pandas, polars and pyarrow are\n" \
    "accepted, and objects with `__arrow_c_array__` or `__arrow_c_stream__` (Arrow's C data interface), such as\n" \
    "relations of DuckDB. A table must have one column. Keys of a column are\n" \
    "\n" \
    "- str: Arrow's string, large_string and string_view; NumPy's U and StringDType\n" \
    "- bytes-like: Arrow's binary, large_binary, binary_view and fixed_size_binary; NumPy's V, and S with `padding`\n" \
    "- int: integers of any width, whose values must fit\n" \
    "- any of them as objects, or from dictionaries (categoricals)\n" \
    "\n" \
    "For bytes-like keys, a two-dimensional buffer of n×w bytes holds n keys of w bytes. A one-dimensional buffer or\n" \
    "NumPy array of integers wider than a byte holds one key per integer, in the machine's byte order.\n" \
    "\n" \
    "Args:\n" \
    "    keys: The batches.\n" \
    "    nulls: How to handle nulls in a column, masked values, and None or NaN in an iterable: \"raise\" raises an\n" \
    "        error, and \"skip\" leaves them out. With a custom `encode` function, \"raise\" passes None to that\n" \
    "        function.\n" \
    "    padding: How to handle the zeros at the end of NumPy's byte strings (S): \"keep\" for keys of the full width,\n" \
    "        such as digests, or \"strip\" for text. S is an error without it.\n" \
    "\n" \
    "Raises:\n" \
    "    TypeError: A key has the wrong type, or a batch is bytes, bytearray or str, which are single keys. The keys\n" \
    "        before it have been added.\n" \
    "    KeyRangeError: An integer key does not fit the encoding. The keys before it have been added.\n" \
    "    ColumnError: A column contradicts itself. The keys before it have been added. The lengths of an Arrow\n" \
    "        array's buffers cannot be checked; the library that made it is trusted.\n" \
    "    ParameterError: `nulls` is neither \"raise\" nor \"skip\", or `padding` neither \"keep\" nor \"strip\".\n" \
    "    ReadOnlyError: The memory is read-only.\n" \
    "    OSError: An Arrow stream fails."
#define SPV_DOC_BitCore_contains_many \
    "contains_many($self, keys, /, *, nulls='raise', padding=None)\n" \
    "--\n" \
    "\n" \
    "Test a batch of keys, as `update` accepts it, and return one byte for each key: 1 if it is contained, else 0.\n" \
    "\n" \
    "For a column, the result is a mask of the column's library: an array of NumPy's bool for NumPy and pandas, a\n" \
    "Boolean Series for polars, a BooleanArray for pyarrow. A skipped null counts as not contained. Raises the same\n" \
    "errors as `update`, except ReadOnlyError."
#define SPV_DOC_BitCore_set_bits \
    "set_bits($self)\n" \
    "--\n" \
    "\n" \
    "Return the number of bits that are 1."
#define SPV_DOC_BitCore_union_set_bits \
    "union_set_bits($self, other, /)\n" \
    "--\n" \
    "\n" \
    "Return the number of bits that are 1 in this array or in the other one.\n" \
    "\n" \
    "Raises MismatchError for an array of a different shape, and TypeError for other objects."
#define SPV_DOC_BitCore_plane_set_bits \
    "plane_set_bits($self)\n" \
    "--\n" \
    "\n" \
    "Return the number of bits that are 1 in the plane of each function.\n" \
    "\n" \
    "If the array is not partitioned, the plane of each function is the whole array."
#define SPV_DOC_BitCore_clear \
    "clear($self)\n" \
    "--\n" \
    "\n" \
    "Set every bit to 0. Raises ReadOnlyError if the memory is read-only."
#define SPV_DOC_Hashed_buffer \
    "The buffer that contains the cells: the caller's buffer, or a memoryview of the filter's own memory.\n" \
    "\n" \
    "Setting it replaces the cells with those of another buffer of the same size, and returns once no thread writes\n" \
    "to the old buffer any more. Raises ParameterError for a buffer that has the wrong size or is not contiguous."
#define SPV_DOC_Hashed_room \
    "Number of new keys that may be added before room is made, or None (the default) for no limit.\n" \
    "\n" \
    "A new key decrements it, and removing the last copy of a key increments it. -1 means unknown, which is the value\n" \
    "after `|=`, `&=`, `clear` and setting the buffer. Raises ParameterError for a number below -1."
#define SPV_DOC_Hashed_body \
    "The bytes of the buffer, as a read-only memoryview."
#define SPV_DOC_Hashed_positions \
    "positions($self, key, /)\n" \
    "--\n" \
    "\n" \
    "Return the cells of a key, one for each hash function, in order. Some may be equal.\n" \
    "\n" \
    "Raises TypeError or KeyRangeError for a key that does not fit the filter's encoding."
#define SPV_DOC_Hashed_cells \
    "Number of cells m."
#define SPV_DOC_Hashed_encoding \
    "Encoding of the keys, an `Encoding`."
#define SPV_DOC_Hashed_family \
    "The hash family, a `Family`."
#define SPV_DOC_Hashed_hash_funcs \
    "Number of hash functions k."
#define SPV_DOC_Hashed_key \
    "Key of the hash family, 16 bytes."
#define SPV_DOC_Hashed_partitioned \
    "True if each hash function has its own plane of cells."
#define SPV_DOC_CounterCore \
    "CounterCore(cells, hash_funcs, family, key, buffer, encoding=0, partitioned=False, custom=None, encode=None, private=False, counter_bits=4)\n" \
    "--\n" \
    "\n" \
    "An array of 4-, 8- or 16-bit counters (`counter_bits`) with k hash functions. See Hashed for the other arguments.\n" \
    "\n" \
    "8-bit counters are bytes, and 16-bit counters are little endian, at an even address. A 4-bit counter c is in\n" \
    "byte `c >> 1`: in the low nibble if c is even, else in the high nibble. `buffer` is ⌈m/2⌉, m or 2m bytes long.\n" \
    "\n" \
    "A key counts once in each of its distinct counters. A counter that has reached its largest value (15, 255 or 65,535)\n" \
    "stays there: it is no longer known how many keys it counts, so it is never decremented.\n" \
    "\n" \
    "Raises ParameterError for a number out of range, a key that is not 16 bytes long, or a buffer of a different size."
#define SPV_DOC_CounterCore_counter_limit \
    "Largest value of a counter: 15, 255 or 65,535. A counter that has reached it never changes."
#define SPV_DOC_CounterCore_add \
    "add($self, key, /)\n" \
    "--\n" \
    "\n" \
    "Increment the counters of a key, and return True if the key was new, that is, if any of its counters was 0.\n" \
    "\n" \
    "Raises TypeError or KeyRangeError for a key that does not fit the filter's encoding, ReadOnlyError if the memory\n" \
    "is read-only, CapacityError if there is no room."
#define SPV_DOC_CounterCore_remove \
    "remove($self, key, /)\n" \
    "--\n" \
    "\n" \
    "Decrement the counters of a key.\n" \
    "\n" \
    "Raises KeyError if the key is not contained, because removing it could lose other keys. Raises TypeError,\n" \
    "KeyRangeError and ReadOnlyError in the same cases as `add`."
#define SPV_DOC_CounterCore_count \
    "count($self, key, /)\n" \
    "--\n" \
    "\n" \
    "Return an upper bound on how often the key was added: the smallest of its counters.\n" \
    "\n" \
    "If the result is `counter_limit`, the key was added at least that often. Raises TypeError or KeyRangeError for a\n" \
    "key that does not fit the filter's encoding."
#define SPV_DOC_CounterCore_update \
    "update($self, *keys, nulls='raise', padding=None)\n" \
    "--\n" \
    "\n" \
    "Add one or more batches of keys, as BloomFilter.update accepts them, and return how many keys were new.\n" \
    "\n" \
    "Raises the same errors as BloomFilter.update."
#define SPV_DOC_CounterCore_contains_many \
    "contains_many($self, keys, /, *, nulls='raise', padding=None)\n" \
    "--\n" \
    "\n" \
    "Test a batch of keys and return a mask, as BloomFilter.contains_many does. Raises the same errors."
#define SPV_DOC_CounterCore_set_cells \
    "set_cells($self)\n" \
    "--\n" \
    "\n" \
    "Return the number of counters that are not 0."
#define SPV_DOC_CounterCore_to_bits \
    "to_bits($self)\n" \
    "--\n" \
    "\n" \
    "Return a bit for each counter, set if the counter is not 0, in the layout of BitCore: ⌈m/8⌉ bytes."
#define SPV_DOC_CounterCore_clear \
    "clear($self)\n" \
    "--\n" \
    "\n" \
    "Set every counter to 0. Raises ReadOnlyError if the memory is read-only."
#define SPV_DOC_CounterCore_counter_bits \
    "Size of a counter in bits: 4, 8 or 16."
#define SPV_DOC_SeriesCore \
    "SeriesCore(slices)\n" \
    "--\n" \
    "\n" \
    "A series of BitCores, the slices, that form one set.\n" \
    "\n" \
    "The set contains a key if any slice contains it. A new key is added to the last slice. If the last slice has no\n" \
    "room, a derived class first appends another.\n" \
    "\n" \
    "All slices have the same hash family, key and encoding, so that a key is encoded and hashed only once. They may\n" \
    "differ in everything else. Raises ParameterError for no slice or more than 64, MismatchError for slices that differ,\n" \
    "TypeError for other objects."
#define SPV_DOC_SeriesCore_slices \
    "The slices. Keys are added to the last one."
#define SPV_DOC_SeriesCore_append \
    "append($self, slice, count, /)\n" \
    "--\n" \
    "\n" \
    "Add a slice, unless there are more than `count` slices because another thread has added one.\n" \
    "\n" \
    "Returns True if it was added.\n" \
    "\n" \
    "Raises CapacityError if there are 64 slices, ParameterError for a negative count, MismatchError if the slice\n" \
    "differs from the others, TypeError for other objects."
#define SPV_DOC_SeriesCore_add \
    "add($self, key, /)\n" \
    "--\n" \
    "\n" \
    "Add a key to the last slice unless a slice contains it, and return True if it was new.\n" \
    "\n" \
    "Raises TypeError or KeyRangeError for a key that does not fit the encoding, ReadOnlyError if the memory is\n" \
    "read-only, CapacityError if there is no room."
#define SPV_DOC_SeriesCore_update \
    "update($self, *keys, nulls='raise', padding=None)\n" \
    "--\n" \
    "\n" \
    "Add one or more batches of keys, as BloomFilter.update accepts them, and return how many keys were new.\n" \
    "\n" \
    "Raises the same errors as BloomFilter.update, and CapacityError if there is no room. The keys before the error\n" \
    "have been added."
#define SPV_DOC_SeriesCore_contains_many \
    "contains_many($self, keys, /, *, nulls='raise', padding=None)\n" \
    "--\n" \
    "\n" \
    "Test a batch of keys and return a mask, as BloomFilter.contains_many does. Raises the same errors."
#define SPV_DOC_ReadBuffer \
    "ReadBuffer()\n" \
    "--\n" \
    "\n" \
    "Memory for the block that `WatchTable.scan_files` reads.\n" \
    "\n" \
    "It is reused for every block, because fresh memory costs more time than reading. Only one thread can use it at a\n" \
    "time. The compiled twin keeps memory for the largest block so far; the reference keeps none."
#define SPV_DOC_FuseCore \
    "FuseCore(fingerprint_bits, seed, segment_length, segments, family, key, buffer, encoding=0, custom=None, encode=None)\n" \
    "--\n" \
    "\n" \
    "The table of a binary fuse filter, which `fuse_build` made, and the hash and encoding of its keys.\n" \
    "\n" \
    "A table without segments contains no key, and has no cells.\n" \
    "\n" \
    "- `fingerprint_bits` is 8, 16 or 32. A key that was not added is reported with probability 2^-fingerprint_bits.\n" \
    "- `seed`, `segment_length` and `segments` are the arguments of `fuse_build`.\n" \
    "- `family` is FAST, SIPHASH, or CUSTOM with the function `custom`; `key` is its key, 16 bytes.\n" \
    "- `buffer` contains the fingerprints, little endian, and is used in place, not copied.\n" \
    "\n" \
    "Raises ParameterError for a number out of range, any other family, a key that is not 16 bytes long, or a buffer of\n" \
    "the wrong size."
#define SPV_DOC_FuseCore_fingerprint_bits \
    "Number of bits in a fingerprint: 8, 16 or 32."
#define SPV_DOC_FuseCore_seed \
    "Number of the seed."
#define SPV_DOC_FuseCore_segment_length \
    "Number of cells in a segment, a power of two."
#define SPV_DOC_FuseCore_segments \
    "Number of segments in which a key's first cell can be, or 0 for a table without keys."
#define SPV_DOC_FuseCore_body \
    "The bytes of the table, as a read-only memoryview."
#define SPV_DOC_FuseCore_contains_many \
    "contains_many($self, keys, /, *, nulls='raise', padding=None)\n" \
    "--\n" \
    "\n" \
    "Test a batch of keys and return a mask, as BloomFilter.contains_many does. Raises the same errors."
#define SPV_DOC_FuseCore_hash_many \
    "hash_many($self, keys, /, *, nulls='raise', padding=None)\n" \
    "--\n" \
    "\n" \
    "Return the 64-bit hashes of a batch of keys, 8 bytes little endian for each key. Skipped nulls have none.\n" \
    "\n" \
    "Accepts the same batches as BloomFilter.update, and raises the same errors as BloomFilter.contains_many."
#define SPV_DOC_FuseCore_encoding \
    "Encoding of the keys, an `Encoding`."
#define SPV_DOC_FuseCore_family \
    "The hash family, a `Family`."
#define SPV_DOC_FuseCore_key \
    "Key of the hash family, 16 bytes."
#define SPV_DOC_GcsQuery \
    "GcsQuery(items)\n" \
    "--\n" \
    "\n" \
    "Items to look for in many Golomb-coded sets.\n" \
    "\n" \
    "Each set has its own SipHash key, so the items are hashed again for each set."
#define SPV_DOC_GcsQuery_match_any \
    "match_any($self, data, key, p, m)\n" \
    "--\n" \
    "\n" \
    "Return True if a set contains any of the items. False positives are possible.\n" \
    "\n" \
    "Args:\n" \
    "    data: The set.\n" \
    "    key: 16-byte SipHash key.\n" \
    "    p: P, the number of bits in a remainder, from 1 to 32.\n" \
    "    m: M, the inverse of the false-positive rate, from 1 to 2^32 - 1.\n" \
    "\n" \
    "Raises:\n" \
    "    FormatError: The set is malformed. This is checked even if there are no items.\n" \
    "    ParameterError: P or M is out of range, or the key has the wrong length."
#define SPV_DOC_GcsQuery_match_many \
    "match_many($self, sets, p, m)\n" \
    "--\n" \
    "\n" \
    "Query many sets, and return one byte for each set: 1 if `match_any` returns True for it, else 0.\n" \
    "\n" \
    "Args:\n" \
    "    sets: Pairs (key, data) of bytes.\n" \
    "    p: P, the number of bits in a remainder, from 1 to 32.\n" \
    "    m: M, the inverse of the false-positive rate, from 1 to 2^32 - 1.\n" \
    "\n" \
    "Raises:\n" \
    "    FormatError: A set is malformed. The error's `field` names the set.\n" \
    "    ParameterError: P or M is out of range, or a key has the wrong length."
#define SPV_DOC_WatchTable \
    "WatchTable(image=None)\n" \
    "--\n" \
    "\n" \
    "The entries and coins of a watch list, and the scan for them.\n" \
    "\n" \
    "A scan does not change the table. `learn` adds the outputs that a scan found.\n" \
    "\n" \
    "Threads may scan and read a table while another thread changes it. A scan may or may not find an entry that is added\n" \
    "during the scan. With the compiled kernel every operation is atomic: several threads may change a table, and a copy\n" \
    "is consistent.\n" \
    "\n" \
    "Args:\n" \
    "    image: An image that `write_image` wrote. The table uses these bytes in place, and they must not change. By\n" \
    "        default the table is empty.\n" \
    "\n" \
    "Raises:\n" \
    "    FormatError: The header, the offsets or the coins of the image are malformed. Other damage can hide entries, and\n" \
    "        is not noticed.\n" \
    "    ParameterError: The image starts at an address that is not divisible by 8."
#define SPV_DOC_WatchTable_add \
    "add($self, kind, value, /)\n" \
    "--\n" \
    "\n" \
    "Add an entry, and return its number, from 0. An existing entry keeps its number.\n" \
    "\n" \
    "Raises ParameterError for an outpoint that is not 36 bytes long, a data prefix that is not 1 to 64 bytes long,\n" \
    "and an unknown script type."
#define SPV_DOC_WatchTable_find \
    "find($self, kind, value, /)\n" \
    "--\n" \
    "\n" \
    "Return the number of an entry, or NO_ENTRY."
#define SPV_DOC_WatchTable_count_of \
    "count_of($self, kind, /)\n" \
    "--\n" \
    "\n" \
    "Return the number of entries of a kind."
#define SPV_DOC_WatchTable_entry \
    "entry($self, number, /)\n" \
    "--\n" \
    "\n" \
    "Return the kind and the bytes of an entry. Raises IndexError if no entry has this number."
#define SPV_DOC_WatchTable_entries \
    "entries($self)\n" \
    "--\n" \
    "\n" \
    "Yield the entries as (kind, bytes), in the order of their numbers.\n" \
    "\n" \
    "The table may change during the iteration. Entries that are added after the call are not yielded."
#define SPV_DOC_WatchTable_packed_entries \
    "packed_entries($self, first, most, /)\n" \
    "--\n" \
    "\n" \
    "Return entries as bytes for a digest: for each, its kind (u8), its size (u32 LE) and its value.\n" \
    "\n" \
    "Args:\n" \
    "    first: Number of the first entry. If there is no such entry, the result is empty.\n" \
    "    most: Largest number of entries to return.\n" \
    "\n" \
    "Raises:\n" \
    "    ParameterError: A number is not between 0 and 2^32 - 1."
#define SPV_DOC_WatchTable_image \
    "image($self)\n" \
    "--\n" \
    "\n" \
    "Return the image over which the table was opened, or None if there was none or the table has changed."
#define SPV_DOC_WatchTable_image_size \
    "image_size($self)\n" \
    "--\n" \
    "\n" \
    "Return the size of the table's image in bytes."
#define SPV_DOC_WatchTable_write_image \
    "write_image($self, room, key, /)\n" \
    "--\n" \
    "\n" \
    "Write the table's image. `WatchTable(image)` opens a table over it without reading all entries.\n" \
    "\n" \
    "Tables with the same contents, in the same order, have the same image for the same key.\n" \
    "\n" \
    "Args:\n" \
    "    room: Memory for the image, of `image_size()` bytes, at an address divisible by 8.\n" \
    "    key: Key of the hashes in the index, 64 random bytes: an attacker who knew it could choose entries whose\n" \
    "        hashes collide.\n" \
    "\n" \
    "Raises:\n" \
    "    ParameterError: The key is not 64 bytes long, or the address of the memory is wrong.\n" \
    "    FormatError: The memory has the wrong size, or the table uses a damaged image. In a damaged image, an entry\n" \
    "        may occur twice, be invalid, or change."
#define SPV_DOC_WatchTable_coin \
    "coin($self, outpoint, /)\n" \
    "--\n" \
    "\n" \
    "Return the known facts about an outpoint (36 bytes), or None if it is not watched."
#define SPV_DOC_WatchTable_coins \
    "coins($self)\n" \
    "--\n" \
    "\n" \
    "Yield the watched outpoints (36 bytes), each with the current state of its coin.\n" \
    "\n" \
    "The table may change during the iteration. Outpoints that are added after the call are not yielded."
#define SPV_DOC_WatchTable_set_coin \
    "set_coin($self, outpoint, entry, value, script, /)\n" \
    "--\n" \
    "\n" \
    "Watch an outpoint. If it is already watched, it keeps its entry, and gains a missing value or script.\n" \
    "\n" \
    "Args:\n" \
    "    outpoint: The outpoint, 36 bytes.\n" \
    "    entry: Number of the entry for which it is watched. The entry may belong to another table.\n" \
    "    value: Value in satoshi, or NO_VALUE.\n" \
    "    script: scriptPubKey, or None.\n" \
    "\n" \
    "Raises:\n" \
    "    ParameterError: The outpoint is not 36 bytes long, or a number is out of range."
#define SPV_DOC_WatchTable_learn \
    "learn($self, hits, /)\n" \
    "--\n" \
    "\n" \
    "Watch the outpoints of the outputs among `hits`, except those of data prefixes and script types.\n" \
    "\n" \
    "Raises ParameterError in the same cases as `set_coin`; in that case no outpoint is added."
#define SPV_DOC_WatchTable_learn_packed \
    "learn_packed($self, packed, /)\n" \
    "--\n" \
    "\n" \
    "Watch the outpoints of the outputs among packed hits, and return their number.\n" \
    "\n" \
    "Outputs that matched a data prefix or a script type are left out. Raises FormatError if the bytes are not\n" \
    "packed hits; in that case no outpoint is added."
#define SPV_DOC_WatchTable_copy \
    "copy($self)\n" \
    "--\n" \
    "\n" \
    "Return an independent copy of the table."
#define SPV_DOC_WatchTable_without \
    "without($self, outpoints, /)\n" \
    "--\n" \
    "\n" \
    "Return an independent copy of the table that does not watch these outpoints (36 bytes each).\n" \
    "\n" \
    "Outpoints that are entries are still watched. Raises ParameterError for an outpoint that is not 36 bytes long."
#define SPV_DOC_WatchTable_add_address_lines \
    "add_address_lines($self, chunk, at, p2pkh_version, p2sh_version, hrp, jobs, /)\n" \
    "--\n" \
    "\n" \
    "Add the addresses on lines of text, up to the first line that is not taken.\n" \
    "\n" \
    "A line is `address` or `address,label`. The reference takes no lines. The compiled twin takes lines whose\n" \
    "address `decode_address` decodes; watch/textfile.py handles all others.\n" \
    "\n" \
    "Args:\n" \
    "    chunk: The text. Only whole lines are taken.\n" \
    "    at: Offset in bytes at which the first line starts.\n" \
    "    p2pkh_version: Version byte of the network's P2PKH addresses.\n" \
    "    p2sh_version: Version byte of the network's P2SH addresses.\n" \
    "    hrp: Human-readable part of the network's bech32 addresses.\n" \
    "    jobs: Number of threads that decode addresses, 1 to 256. The entries are in the order of the lines.\n" \
    "\n" \
    "Returns:\n" \
    "    The number of bytes taken, the number of lines taken, and the labels as (entry, UTF-8 without control\n" \
    "    characters).\n" \
    "\n" \
    "Raises:\n" \
    "    ParameterError: A version byte is not between 0 and 255, the offset is negative, or the number of threads is\n" \
    "        out of range.\n" \
    "    IndexError: The offset is beyond the chunk."
#define SPV_DOC_WatchTable_script_totals \
    "script_totals($self, sums, first, label_places, label_texts, p2pkh_version, p2sh_version, hrp, /)\n" \
    "--\n" \
    "\n" \
    "Return the sums of scripts as CSV lines, and the number of the next entry.\n" \
    "\n" \
    "The columns are the entry as script:HEX, address, label, received, spent, unknown and matches. An entry without\n" \
    "matches has no line. The lines end before the next entry with matches that is not a script, or at the last\n" \
    "entry.\n" \
    "\n" \
    "Args:\n" \
    "    sums: The sums of entries in the format of `add_hit_sums`, starting with the entry `first`.\n" \
    "    first: Number of the first entry.\n" \
    "    label_places: Offsets of the labels, as for `hit_lines`.\n" \
    "    label_texts: The labels as CSV cells, as for `hit_lines`.\n" \
    "    p2pkh_version: Version byte of the network's P2PKH addresses.\n" \
    "    p2sh_version: Version byte of the network's P2SH addresses.\n" \
    "    hrp: Human-readable part of the network's bech32 addresses.\n" \
    "\n" \
    "Raises:\n" \
    "    FormatError: The label of an entry is outside `label_texts`.\n" \
    "    ParameterError: An argument is out of range, or an address cannot be encoded.\n" \
    "    TypeError: An argument has the wrong type."
#define SPV_DOC_WatchTable_match_script \
    "match_script($self, script, /)\n" \
    "--\n" \
    "\n" \
    "Return the entry that an output with this scriptPubKey matches, or NO_ENTRY.\n" \
    "\n" \
    "Entries are tried in this order: script, multisig key, data, the longest data prefix, script type."
#define SPV_DOC_WatchTable_scan_block \
    "scan_block($self, raw, found=None, undo=None)\n" \
    "--\n" \
    "\n" \
    "Return the outputs and inputs of a block that match the table: transactions in order, inputs before outputs.\n" \
    "\n" \
    "Spends of outputs that the scan found earlier in the same block are included. With `undo`, an input also matches\n" \
    "by the script that it spends, every spend has its value and script, and every hit has the fee of its\n" \
    "transaction.\n" \
    "\n" \
    "Args:\n" \
    "    raw: The block.\n" \
    "    found: Table that collects the coins of a run of blocks until they are learned. Spends of its coins are\n" \
    "        included, and the coins of this block are added to it.\n" \
    "    undo: The block's undo record with its checksum, or None.\n" \
    "\n" \
    "Raises:\n" \
    "    FormatError: The block is malformed, pays more than 21 million coins, or has a matching transaction twice\n" \
    "        (CVE-2012-2459: such a copy has the header of the genuine block).\n" \
    "    UndoError: The record does not belong to the block. After an error `found` is unchanged."
#define SPV_DOC_WatchTable_scan_blocks \
    "scan_blocks($self, blocks, found=None, check=False, undo=None, packed=False)\n" \
    "--\n" \
    "\n" \
    "Scan several blocks in order.\n" \
    "\n" \
    "For a malformed block, the result is the error that scan_block raises.\n" \
    "\n" \
    "Args:\n" \
    "    blocks: The blocks.\n" \
    "    found: Table that collects coins, as in scan_block.\n" \
    "    check: True calls check_block for each block first.\n" \
    "    undo: The undo record of each block, or None for a block without one.\n" \
    "    packed: True returns the hits of each block as bytes, which `unpack_hits` unpacks.\n" \
    "\n" \
    "Raises:\n" \
    "    ParameterError: The number of undo records is not the number of blocks."
#define SPV_DOC_WatchTable_scan_files \
    "scan_files($self, places, buffer, found=None, check=False, undo=None, packed=False)\n" \
    "--\n" \
    "\n" \
    "Scan several blocks in open files, as scan_blocks does.\n" \
    "\n" \
    "Each block is read into the buffer and scanned before the next.\n" \
    "\n" \
    "For a place that cannot be read, or does not contain a block with the given hash, the result is None.\n" \
    "\n" \
    "Args:\n" \
    "    places: The places of the blocks.\n" \
    "    buffer: Memory for the block.\n" \
    "    found: Table that collects coins, as in scan_block.\n" \
    "    check: True calls check_block for each block first.\n" \
    "    undo: The place of each block's undo record, or None for a block without one.\n" \
    "    packed: True returns the hits of each block as bytes, which `unpack_hits` unpacks.\n" \
    "\n" \
    "Raises:\n" \
    "    ParameterError: A place is invalid, or the number of undo records is not the number of places. Nothing was\n" \
    "        read.\n" \
    "    BufferError: Another thread is using the buffer."
#define SPV_DOC_WatchTable_scan_tx \
    "scan_tx($self, raw, /)\n" \
    "--\n" \
    "\n" \
    "Return the outputs and inputs of one transaction that match the table.\n" \
    "\n" \
    "Raises FormatError if it is malformed."

#endif
