"""Constants of Bitcoin's protocol: sizes, limits and prefixes, each with its source."""

from __future__ import annotations

# Serialisation
HASH_SIZE = 32  # bytes
HEADER_SIZE = 80  # bytes of a block header
OUTPOINT_SIZE = 36  # bytes: txid, then index u32
MAX_COMPACT_SIZE = 0x02000000  # Core serialize.h MAX_SIZE: no length on the wire may be larger

# Consensus
MAX_BLOCK_SIZE = 4_000_000  # bytes, Core consensus/consensus.h MAX_BLOCK_SERIALIZED_SIZE
MAX_BLOCK_WEIGHT = 4_000_000  # Core consensus/consensus.h
MAX_STANDARD_TX_WEIGHT = 400_000  # Core policy/policy.h: a heavier transaction is relayed by nobody
# Core merkleblock.cpp: MAX_BLOCK_WEIGHT / MIN_TRANSACTION_WEIGHT = 16,666
MAX_BLOCK_TRANSACTIONS = MAX_BLOCK_WEIGHT // 240
MAX_MONEY = 21_000_000 * 100_000_000  # satoshi, Core consensus/amount.h
COINBASE_MATURITY = 100  # blocks, Core consensus/consensus.h
MAX_SCRIPT_SIZE = 10_000  # bytes, Core script/script.h
COMMITMENT_PREFIX = bytes.fromhex("6a24aa21a9ed")  # of the witness commitment's output, BIP-141 § Commitment structure
MAX_FUTURE_BLOCK_TIME = 7_200  # seconds a header may be ahead of our clock, Core chain.h
MAX_TIMEWARP = 600  # seconds that a difficulty period may start before the end of the last one, BIP-94

# Files
# bytes, ours: 24,390 inputs of 41 bytes fit into a block, and each spends a script of at most 10,000 bytes
MAX_UNDO_SIZE = 250_000_000

# Messages
COMMAND_SIZE = 12  # bytes
ENVELOPE_SIZE = 24  # bytes: magic 4, command 12, length u32, checksum 4
MAX_PAYLOAD_SIZE = 4_000_000  # bytes, Core net.h MAX_PROTOCOL_MESSAGE_LENGTH
BIP37_VERSION = (
    70001  # the first protocol version with filters and a relay flag, BIP-37 § Extensions to existing messages
)
MAX_USER_AGENT_SIZE = 256  # bytes, Core net.h MAX_SUBVERSION_LENGTH
MAX_ADDRESSES = 1_000  # in one addr or addrv2, Core net_processing.cpp MAX_ADDR_TO_SEND
MAX_ADDRESS_SIZE = 512  # bytes of an address in addrv2, BIP-155 § Specification
MAX_INVENTORY = 50_000  # items of inv, getdata and notfound, Core net_processing.cpp MAX_INV_SZ
MAX_LOCATOR = 101  # hashes of a locator, Core net_processing.cpp MAX_LOCATOR_SZ
MAX_HEADERS = 2_000  # in one headers message, Core net_processing.h MAX_HEADERS_RESULTS
MAX_ANNOUNCED_HEADERS = 8  # Core net_processing.cpp MAX_BLOCKS_TO_ANNOUNCE
MAX_UNCONNECTING_HEADERS = 10  # messages, Core net_processing.cpp MAX_NUM_UNCONNECTING_HEADERS_MSGS
MAX_BLOCK_INVS = 500  # in an answer to getblocks, Core net_processing.cpp
MAX_TX_REQUESTS = 5_000  # transactions asked of one peer, Core node/txdownloadman.h MAX_PEER_TX_ANNOUNCEMENTS
MEMPOOL_EXPIRY_S = 336 * 3600  # seconds, Core kernel/mempool_options.h DEFAULT_MEMPOOL_EXPIRY_HOURS

# BIP-37
MAX_FILTER_SIZE = 36_000  # bytes, BIP-37 § New messages
MAX_HASH_FUNCS = 50  # BIP-37 § New messages
MAX_FLAG_BYTES = (
    33_341 + 7
) // 8  # ours: a tree over MAX_BLOCK_TRANSACTIONS has 33,341 nodes, and Core refuses unused flag bits
MAX_ELEMENT_SIZE = (
    520  # bytes of a filteradd, BIP-37 § New messages; of a script's push, Core script/script.h MAX_SCRIPT_ELEMENT_SIZE
)

# BIP-157 and BIP-158
BASIC_FILTER_TYPE = 0  # BIP-158 § Block Filters
BASIC_P = 19  # bits of remainder, BIP-158 § Block Filters
BASIC_M = 784_931  # 1 / false-positive rate, BIP-158 § Block Filters
# the filter header before that of the genesis block, BIP-157 § Filter Headers
GENESIS_PREVIOUS_FILTER_HEADER = bytes(HASH_SIZE)
MAX_GETCFILTERS = 1_000  # filters of one getcfilters, BIP-157 § getcfilters
MAX_CFHEADERS = 2_000  # filter hashes of one cfheaders, BIP-157 § cfheaders
CHECKPOINT_INTERVAL = 1_000  # blocks between the headers of a cfcheckpt, BIP-157 § cfcheckpt
