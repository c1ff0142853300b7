"""Constants of Bitcoin's protocol: sizes, limits and prefixes, each with its unit and its source.

"Core" is Bitcoin Core. "Our choice" marks a limit that neither Core nor a BIP sets.
"""

from __future__ import annotations

# Serialization
HASH_SIZE = 32  # Bytes of a hash.
HEADER_SIZE = 80  # Bytes of a block header.
OUTPOINT_SIZE = 36  # Bytes of an outpoint: txid, then index (u32).
MAX_COMPACT_SIZE = 0x02000000  # Largest length or count on the wire, Core serialize.h MAX_SIZE.

# Consensus
MAX_BLOCK_SIZE = 4_000_000  # Bytes of a block, Core consensus/consensus.h MAX_BLOCK_SERIALIZED_SIZE.
MAX_BLOCK_WEIGHT = 4_000_000  # Weight units of a block, Core consensus/consensus.h.
MAX_STANDARD_TX_WEIGHT = 400_000  # Weight units, Core policy/policy.h. Nodes do not relay a heavier transaction.
# Transactions of a block, Core merkleblock.cpp: MAX_BLOCK_WEIGHT / MIN_TRANSACTION_WEIGHT = 16,666.
MAX_BLOCK_TRANSACTIONS = MAX_BLOCK_WEIGHT // 240
MAX_MONEY = 21_000_000 * 100_000_000  # Satoshi, Core consensus/amount.h.
COINBASE_MATURITY = 100  # Blocks until a coinbase output can be spent, Core consensus/consensus.h.
MAX_SCRIPT_SIZE = 10_000  # Bytes of a script that can be executed, Core script/script.h.
# First bytes of the scriptPubKey of a witness commitment, BIP-141 § Commitment structure.
COMMITMENT_PREFIX = bytes.fromhex("6a24aa21a9ed")
MAX_FUTURE_BLOCK_TIME = 7_200  # Seconds that a header may be ahead of the local clock, Core chain.h.
MAX_TIMEWARP = 600  # Seconds that a difficulty period may start before the end of the previous one, BIP-94.

# Files
# Bytes of a block's undo record (our choice). A block has at most 24,390 inputs of 41 bytes, and each of them spends a
# script of at most 10,000 bytes.
MAX_UNDO_SIZE = 250_000_000

# Messages
COMMAND_SIZE = 12  # Bytes of a command, padded with NULs.
ENVELOPE_SIZE = 24  # Bytes of a message header: magic 4, command 12, length (u32), checksum 4.
MAX_PAYLOAD_SIZE = 4_000_000  # Bytes of a message's payload, Core net.h MAX_PROTOCOL_MESSAGE_LENGTH.
# The first protocol version with filters and a relay flag, BIP-37 § Extensions to existing messages.
BIP37_VERSION = 70001
MAX_USER_AGENT_SIZE = 256  # Bytes of a version message's user agent, Core net.h MAX_SUBVERSION_LENGTH.
MAX_ADDRESSES = 1_000  # Addresses in one addr or addrv2, Core net_processing.cpp MAX_ADDR_TO_SEND.
MAX_ADDRESS_SIZE = 512  # Bytes of an address in addrv2, BIP-155 § Specification.
MAX_INVENTORY = 50_000  # Items of inv, getdata and notfound, Core net_processing.cpp MAX_INV_SZ.
MAX_LOCATOR = 101  # Hashes of a locator, Core net_processing.cpp MAX_LOCATOR_SZ.
MAX_HEADERS = 2_000  # Headers in one headers message, Core net_processing.h MAX_HEADERS_RESULTS.
MAX_ANNOUNCED_HEADERS = 8  # Headers that announce new blocks, Core net_processing.cpp MAX_BLOCKS_TO_ANNOUNCE.
# Headers messages with an unknown parent that one peer may send, Core net_processing.cpp
# MAX_NUM_UNCONNECTING_HEADERS_MSGS.
MAX_UNCONNECTING_HEADERS = 10
MAX_BLOCK_INVS = 500  # Block hashes in an answer to getblocks, Core net_processing.cpp.
# Announced transactions of one peer that a node keeps track of, Core node/txdownloadman.h MAX_PEER_TX_ANNOUNCEMENTS.
MAX_TX_REQUESTS = 5_000
# Seconds until a node evicts an unconfirmed transaction, Core kernel/mempool_options.h DEFAULT_MEMPOOL_EXPIRY_HOURS.
MEMPOOL_EXPIRY_S = 336 * 3600

# BIP-37
MAX_FILTER_SIZE = 36_000  # Bytes of a filter, BIP-37 § New messages.
MAX_HASH_FUNCS = 50  # Hash functions of a filter, BIP-37 § New messages.
# Flag bytes of a merkleblock (our choice). A merkle tree over MAX_BLOCK_TRANSACTIONS has 33,341 nodes, with one flag
# bit each, and Core rejects unused flag bits.
MAX_FLAG_BYTES = (33_341 + 7) // 8
# Bytes of a filteradd element, BIP-37 § New messages, and of a push in a script, Core script/script.h
# MAX_SCRIPT_ELEMENT_SIZE.
MAX_ELEMENT_SIZE = 520

# BIP-157 and BIP-158
BASIC_FILTER_TYPE = 0  # Type number of basic filters, BIP-158 § Block Filters.
BASIC_P = 19  # Bits of a Golomb-Rice remainder, BIP-158 § Block Filters.
BASIC_M = 784_931  # Inverse of the false-positive rate, BIP-158 § Block Filters.
# The filter header before the genesis block's filter header, BIP-157 § Filter Headers.
GENESIS_PREVIOUS_FILTER_HEADER = bytes(HASH_SIZE)
MAX_GETCFILTERS = 1_000  # Filters that one getcfilters may request, BIP-157 § getcfilters.
MAX_CFHEADERS = 2_000  # Filter hashes in one cfheaders, BIP-157 § cfheaders.
CHECKPOINT_INTERVAL = 1_000  # Blocks between two filter headers of a cfcheckpt, BIP-157 § cfcheckpt.
