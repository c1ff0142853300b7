/* The image of a watch table: its entries, their index and its coins as bytes. A table that is opened over an image
   looks its entries up in these bytes. The twin is pure/image.py.

   Numbers have the byte order of the machine, except in records and coins, where they are little-endian. Sections follow
   a header of 192 bytes. Each section starts at a multiple of 64 bytes, and zeros fill the gaps.

   | bytes | field of the header |
   |---|---|
   | 8 | `SPVTABLE` |
   | u32 | 0x01020304, which shows the byte order |
   | u32 | version, 1 |
   | u64 | bytes of the image |
   | u64 | bytes of the records |
   | u64 | bytes of the coins |
   | u64 | groups of the index; 0 if no entry is in it |
   | u64 | groups of the index of uncompressed keys; 0 if there is none |
   | u32 | entries |
   | u32 | coins |
   | u32 | uncompressed keys in their index |
   | u32 | scripts of fewer than 17 bytes or more than 40 |
   | u64 | sizes of data prefixes, as bits |
   | 6 u32 | entries of each kind |
   | 24 | zeros |
   | 64 | key of the hashes in the indexes |

   | section | contents |
   |---|---|
   | index | its tags, then its numbers (index.h) |
   | full keys | the index of uncompressed keys in the same form |
   | offsets | u64 for each entry: offset of its record |
   | records | the records of the entries (table.h), in their order |
   | coins | for each coin: outpoint, u32 entry, u64 value, u32 size of its script or 0xFFFFFFFF, its script |

   An image is hostile input. `spv_table_open` checks the header, the order of the records and the coins. Each lookup checks the number and the
   record that it reads, and ends after SPV_REACH groups. Wrong contents can therefore hide entries, but cannot make a
   lookup read other memory or run without end. To verify an image, write the table again with the same key: a genuine image
   has the same bytes. */
#ifndef SPV_WATCH_IMAGE_H
#define SPV_WATCH_IMAGE_H

#include "watch/table.h"

enum { SPV_IMAGE_ALIGNMENT = 8 }; /* of the address of an image */

/* Opens a table over an image, which must stay in memory as long as the table and its copies. */
spv_status spv_table_open(spv_bytes image, spv_table **table, spv_error *error);
/* The bytes of a table's image. SPV_RANGE if they do not fit into memory. */
spv_status spv_image_size(const spv_table *table, size_t *size);
/* Writes the image of a table: the same bytes for the same contents and key. SPV_FORMAT for entries that no table
   has, which only a table over a damaged image can contain, and if `size` is wrong. */
spv_status spv_image_write(const spv_table *table, const spv_table_key *key, uint8_t *image, size_t size, spv_error *error);
/* pure.table.WatchTable.packed_entries: the bytes of the entries from `first` to before `end`. Writes up to `room`
   bytes to `to`, and returns the number of all bytes. */
size_t spv_pack_entries(const spv_table *table, uint32_t first, uint32_t end, uint8_t *to, size_t room);

#endif
