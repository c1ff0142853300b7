#include "watch/tables.h"

#include "block/envelope.h"
#include "block/place.h"
#include "block/script.h"
#include "block/scripttype.h"
#include "block/txid.h"
#include "watch/packed.h"
#include "watch/protocols.h"

#include <stdlib.h>

enum { BLOCKS, TRANSACTIONS, INPUTS, OUTPUTS, ITEMS, TABLE_COUNT };

/* The columns of all tables. A name that several tables have stands for the same number, if it means the same. */
enum {
    BLOCK_HASH,
    BLOCK_NUMBER,
    BLOCK_TIMESTAMP,
    PREVIOUS_HASH,
    MERKLE_ROOT,
    BITS,
    NONCE,
    STRIPPED_SIZE,
    TRANSACTION_COUNT,
    COINBASE_PARAM,
    TX_HASH,
    WITNESS_HASH,
    TX_INDEX,
    VERSION,
    LOCK_TIME,
    SIZE,
    VIRTUAL_SIZE,
    WEIGHT,
    IS_COINBASE,
    INPUT_COUNT,
    OUTPUT_COUNT,
    INPUT_VALUE,
    OUTPUT_VALUE,
    FEE,
    FEE_RATE,
    INDEX,
    SPENT_HASH,
    SPENT_INDEX,
    SCRIPT,
    SEQUENCE,
    WITNESS_SIZE,
    TYPE,
    VALUE,
    ADDRESS,
    SPENT_SCRIPT,
    SPENT_HEIGHT,
    OP_RETURN_DATA,
    OP_RETURN_SCRIPT,
    OP_RETURN_PROTOCOL,
    WITNESS,
    INSCRIPTIONS,
    CONTENT_TYPE,
    CONTENT_SIZE,
    CONTENT_HASH,
    KIND,
    BLOCK_TIME,
    TYPE_NAME,
    IS_MATCH,
    ENTRY
};

static const struct {
    const char *name;
    unsigned table, id;
    spv_layout layout;
} NAMES[] = {
    {"blocks.hash", BLOCKS, BLOCK_HASH, SPV_HASH},
    {"blocks.number", BLOCKS, BLOCK_NUMBER, SPV_INT32},
    {"blocks.timestamp", BLOCKS, BLOCK_TIMESTAMP, SPV_INT64},
    {"blocks.previous_hash", BLOCKS, PREVIOUS_HASH, SPV_HASH},
    {"blocks.merkle_root", BLOCKS, MERKLE_ROOT, SPV_HASH},
    {"blocks.version", BLOCKS, VERSION, SPV_INT32},
    {"blocks.bits", BLOCKS, BITS, SPV_INT64},
    {"blocks.nonce", BLOCKS, NONCE, SPV_INT64},
    {"blocks.size", BLOCKS, SIZE, SPV_INT32},
    {"blocks.stripped_size", BLOCKS, STRIPPED_SIZE, SPV_INT32},
    {"blocks.weight", BLOCKS, WEIGHT, SPV_INT32},
    {"blocks.transaction_count", BLOCKS, TRANSACTION_COUNT, SPV_INT32},
    {"blocks.coinbase_param", BLOCKS, COINBASE_PARAM, SPV_BINARY},
    {"transactions.hash", TRANSACTIONS, TX_HASH, SPV_HASH},
    {"transactions.witness_hash", TRANSACTIONS, WITNESS_HASH, SPV_HASH},
    {"transactions.block_hash", TRANSACTIONS, BLOCK_HASH, SPV_HASH},
    {"transactions.block_number", TRANSACTIONS, BLOCK_NUMBER, SPV_INT32},
    {"transactions.block_timestamp", TRANSACTIONS, BLOCK_TIMESTAMP, SPV_INT64},
    {"transactions.index", TRANSACTIONS, TX_INDEX, SPV_INT32},
    {"transactions.version", TRANSACTIONS, VERSION, SPV_INT32},
    {"transactions.lock_time", TRANSACTIONS, LOCK_TIME, SPV_INT64},
    {"transactions.size", TRANSACTIONS, SIZE, SPV_INT32},
    {"transactions.virtual_size", TRANSACTIONS, VIRTUAL_SIZE, SPV_INT32},
    {"transactions.weight", TRANSACTIONS, WEIGHT, SPV_INT32},
    {"transactions.is_coinbase", TRANSACTIONS, IS_COINBASE, SPV_BITS},
    {"transactions.input_count", TRANSACTIONS, INPUT_COUNT, SPV_INT32},
    {"transactions.output_count", TRANSACTIONS, OUTPUT_COUNT, SPV_INT32},
    {"transactions.input_value", TRANSACTIONS, INPUT_VALUE, SPV_INT64},
    {"transactions.output_value", TRANSACTIONS, OUTPUT_VALUE, SPV_INT64},
    {"transactions.fee", TRANSACTIONS, FEE, SPV_INT64},
    {"transactions.fee_rate", TRANSACTIONS, FEE_RATE, SPV_FLOAT64},
    {"inputs.transaction_hash", INPUTS, TX_HASH, SPV_HASH},
    {"inputs.block_hash", INPUTS, BLOCK_HASH, SPV_HASH},
    {"inputs.block_number", INPUTS, BLOCK_NUMBER, SPV_INT32},
    {"inputs.block_timestamp", INPUTS, BLOCK_TIMESTAMP, SPV_INT64},
    {"inputs.transaction_index", INPUTS, TX_INDEX, SPV_INT32},
    {"inputs.index", INPUTS, INDEX, SPV_INT32},
    {"inputs.spent_transaction_hash", INPUTS, SPENT_HASH, SPV_HASH},
    {"inputs.spent_output_index", INPUTS, SPENT_INDEX, SPV_INT64},
    {"inputs.script", INPUTS, SCRIPT, SPV_BINARY},
    {"inputs.sequence", INPUTS, SEQUENCE, SPV_INT64},
    {"inputs.witness_size", INPUTS, WITNESS_SIZE, SPV_INT32},
    {"inputs.witness", INPUTS, WITNESS, SPV_BINARY},
    {"inputs.inscription_count", INPUTS, INSCRIPTIONS, SPV_INT32},
    {"inputs.content_type", INPUTS, CONTENT_TYPE, SPV_TEXT},
    {"inputs.content_size", INPUTS, CONTENT_SIZE, SPV_INT64},
    {"inputs.content_hash", INPUTS, CONTENT_HASH, SPV_HASH},
    {"inputs.type", INPUTS, TYPE, SPV_INT8},
    {"inputs.value", INPUTS, VALUE, SPV_INT64},
    {"inputs.address", INPUTS, ADDRESS, SPV_TEXT},
    {"inputs.spent_script", INPUTS, SPENT_SCRIPT, SPV_BINARY},
    {"inputs.spent_block_number", INPUTS, SPENT_HEIGHT, SPV_INT32},
    {"outputs.transaction_hash", OUTPUTS, TX_HASH, SPV_HASH},
    {"outputs.block_hash", OUTPUTS, BLOCK_HASH, SPV_HASH},
    {"outputs.block_number", OUTPUTS, BLOCK_NUMBER, SPV_INT32},
    {"outputs.block_timestamp", OUTPUTS, BLOCK_TIMESTAMP, SPV_INT64},
    {"outputs.transaction_index", OUTPUTS, TX_INDEX, SPV_INT32},
    {"outputs.index", OUTPUTS, INDEX, SPV_INT32},
    {"outputs.type", OUTPUTS, TYPE, SPV_INT8},
    {"outputs.value", OUTPUTS, VALUE, SPV_INT64},
    {"outputs.script", OUTPUTS, SCRIPT, SPV_BINARY},
    {"outputs.address", OUTPUTS, ADDRESS, SPV_TEXT},
    {"outputs.op_return", OUTPUTS, OP_RETURN_DATA, SPV_BINARY},
    {"outputs.op_return_script", OUTPUTS, OP_RETURN_SCRIPT, SPV_BINARY},
    {"outputs.op_return_protocol", OUTPUTS, OP_RETURN_PROTOCOL, SPV_TEXT},
    {"items.kind", ITEMS, KIND, SPV_TEXT},
    {"items.block_hash", ITEMS, BLOCK_HASH, SPV_HASH},
    {"items.block_number", ITEMS, BLOCK_NUMBER, SPV_INT32},
    {"items.block_time", ITEMS, BLOCK_TIME, SPV_INT64},
    {"items.transaction_hash", ITEMS, TX_HASH, SPV_HASH},
    {"items.index", ITEMS, INDEX, SPV_INT32},
    {"items.source_transaction_hash", ITEMS, SPENT_HASH, SPV_HASH},
    {"items.source_output_index", ITEMS, SPENT_INDEX, SPV_INT64},
    {"items.value", ITEMS, VALUE, SPV_INT64},
    {"items.script", ITEMS, SPENT_SCRIPT, SPV_BINARY},
    {"items.address", ITEMS, ADDRESS, SPV_TEXT},
    {"items.type", ITEMS, TYPE_NAME, SPV_TEXT},
    {"items.is_match", ITEMS, IS_MATCH, SPV_BITS},
    {"items.entry", ITEMS, ENTRY, SPV_INT32},
    {"items.is_coinbase", ITEMS, IS_COINBASE, SPV_BITS},
    {"items.fee", ITEMS, FEE, SPV_INT64},
    {"items.size", ITEMS, SIZE, SPV_INT32},
    {"items.virtual_size", ITEMS, VIRTUAL_SIZE, SPV_INT32},
    {"items.weight", ITEMS, WEIGHT, SPV_INT32},
};

/* Columns. */

bool spv_column_named(spv_bytes name, spv_column *column) {
    static const char hex[] = ":hex";
    const size_t tail = sizeof hex - 1;
    const bool is_hex = name.size > tail && !memcmp(name.data + name.size - tail, hex, tail);
    const size_t size = is_hex ? name.size - tail : name.size;
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        if (strlen(NAMES[i].name) != size || memcmp(NAMES[i].name, name.data, size))
            continue;
        const spv_layout layout = NAMES[i].layout;
        *column = (spv_column){.table = NAMES[i].table, .id = NAMES[i].id, .layout = is_hex ? SPV_TEXT : layout, .is_hex = is_hex};
        return !is_hex || layout == SPV_HASH || layout == SPV_BINARY;
    }
    return false;
}

/* Rows. */

/* A coin that an input spends. */
typedef struct {
    spv_packed_coin coin;
    size_t at; /* its offset in the undo */
} spent;

/* A hit: an input or an output of a transaction. */
typedef struct {
    const uint8_t *txid;
    uint32_t position, n, entry;
    bool spend;
} mark;

/* The current block and its transactions. */
typedef struct {
    spv_tables *tables;
    spv_bytes raw;
    int32_t height;
    uint32_t transactions;
    size_t stripped;
    uint8_t hash[32]; /* in display order */
    spv_tx *txs;
    spv_hash *txids, *wtxids; /* NULL unless a column needs them */
    uint64_t *paid;
    spent *coins;             /* of all inputs, in order, without the coinbase's; NULL without an undo record */
    size_t next;              /* number of the transaction's first coin */
    uint32_t index;           /* of the transaction */
    uint64_t value;           /* of the transaction's coins, if there are any */
    uint8_t txid[32];         /* in display order */
    bool chooses;             /* only transactions with hits have rows */
    mark *marks;              /* the hits, in the order of the rows; NULL unless `chooses` */
    size_t mark_count, next_mark;
    spv_tx *chosen;           /* the transactions that have rows: `txs` unless `chooses` */
    uint32_t *positions;      /* of the chosen transactions in the block; NULL unless `chooses` */
    uint32_t count, number;   /* of the chosen transactions, and of the current one among them */
    spv_column **columns;     /* the columns by table */
    spv_column **first[TABLE_COUNT + 1]; /* the first column of each table among them, and their end */
    spv_error *error;
} rows;

static bool wants(const spv_tables *tables, unsigned table, unsigned id) {
    for (size_t i = 0; i < tables->count; i++)
        if ((tables->columns[i].table == table || table == TABLE_COUNT) && tables->columns[i].id == id)
            return true;
    return false;
}

static size_t stripped_size(const spv_tx *tx) {
    return tx->end - tx->start - (tx->witness ? tx->end - 4 - tx->witness + 2 : 0);
}

static spv_status put_height(spv_column *c, int32_t height) {
    if (height < 0)
        spv_put_null(c);
    else
        spv_put_32(c, (uint32_t)height);
    return SPV_OK;
}

enum { TIME_AT = 68 /* offset of the time in the header */ };

/* The columns that all tables have. */
static spv_status put_place(const rows *r, spv_column *c) {
    if (c->id == BLOCK_HASH)
        return spv_put_hash(c, r->hash);
    if (c->id == BLOCK_NUMBER)
        return put_height(c, r->height);
    spv_put_64(c, 1000 * (uint64_t)spv_le32(r->raw.data + TIME_AT));
    return SPV_OK;
}

static spv_status put_block(const rows *r, spv_column *c) {
    const uint8_t *raw = r->raw.data;
    switch (c->id) {
    case PREVIOUS_HASH:
        return spv_put_wire_hash(c, raw + 4);
    case MERKLE_ROOT:
        return spv_put_wire_hash(c, raw + 36);
    case VERSION:
        spv_put_32(c, spv_le32(raw));
        break;
    case BITS:
        spv_put_64(c, spv_le32(raw + 72));
        break;
    case NONCE:
        spv_put_64(c, spv_le32(raw + 76));
        break;
    case SIZE:
        spv_put_32(c, (uint32_t)r->raw.size);
        break;
    case STRIPPED_SIZE:
        spv_put_32(c, (uint32_t)r->stripped);
        break;
    case WEIGHT:
        spv_put_32(c, (uint32_t)(3 * r->stripped + r->raw.size));
        break;
    case TRANSACTION_COUNT:
        spv_put_32(c, r->transactions);
        break;
    case COINBASE_PARAM:
        if (r->txs[0].inputs) {
            size_t at = r->txs[0].inputs_at;
            const spv_item input = spv_next_input(raw, &at);
            return spv_put_bytes(c, (spv_bytes){raw + input.script, input.script_end - input.script});
        }
        spv_put_null(c);
        break;
    default:
        return put_place(r, c);
    }
    return SPV_OK;
}

static void put_amount(const rows *r, spv_column *c, size_t weight) {
    if (!r->coins || !r->index) {
        spv_put_null(c);
        return;
    }
    const uint64_t fee = r->value - r->paid[r->index];
    if (c->id == FEE_RATE)
        spv_put_float(c, (double)fee / (double)((weight + 3) / 4));
    else
        spv_put_64(c, c->id == FEE ? fee : r->value);
}

static spv_status put_tx(const rows *r, spv_column *c) {
    const spv_tx *tx = &r->txs[r->index];
    const size_t size = tx->end - tx->start, weight = 3 * stripped_size(tx) + size;
    switch (c->id) {
    case TX_HASH:
        return spv_put_hash(c, r->txid);
    case WITNESS_HASH:
        return spv_put_wire_hash(c, r->wtxids[r->number]);
    case TX_INDEX:
        spv_put_32(c, r->index);
        break;
    case VERSION:
        spv_put_32(c, spv_le32(r->raw.data + tx->start));
        break;
    case LOCK_TIME:
        spv_put_64(c, spv_le32(r->raw.data + tx->end - 4));
        break;
    case SIZE:
        spv_put_32(c, (uint32_t)size);
        break;
    case VIRTUAL_SIZE:
        spv_put_32(c, (uint32_t)((weight + 3) / 4));
        break;
    case WEIGHT:
        spv_put_32(c, (uint32_t)weight);
        break;
    case IS_COINBASE:
        spv_put_bit(c, !r->index);
        break;
    case INPUT_COUNT:
        spv_put_32(c, r->index ? tx->inputs : 0);
        break;
    case OUTPUT_COUNT:
        spv_put_32(c, tx->outputs);
        break;
    case OUTPUT_VALUE:
        spv_put_64(c, r->paid[r->index]);
        break;
    case INPUT_VALUE:
    case FEE:
    case FEE_RATE:
        put_amount(r, c, weight);
        break;
    default:
        return put_place(r, c);
    }
    return SPV_OK;
}

static spv_status put_address(const rows *r, spv_column *c, spv_bytes script) {
    uint8_t text[SPV_MAX_ADDRESS];
    const size_t size = spv_encode_address(&r->tables->form, script, NULL, text);
    if (!size) {
        spv_put_null(c);
        return SPV_OK;
    }
    if (size > SPV_MAX_ADDRESS) {
        r->tables->unfit = size;
        return SPV_RANGE;
    }
    return spv_put_bytes(c, (spv_bytes){text, size});
}

static spv_solved type_of(const spv_packed_coin *coin) {
    switch (coin->kind) {
    case SPV_PACKED_P2PKH:
        return SPV_TYPE_PUBKEYHASH;
    case SPV_PACKED_P2SH:
        return SPV_TYPE_SCRIPTHASH;
    case SPV_PACKED_NONE:
        return spv_solve(coin->body);
    default:
        return SPV_TYPE_PUBKEY;
    }
}

/* The columns of an input that need its coin, which is NULL without an undo record. */
static spv_status put_coin(const rows *r, spv_column *c, const spent *of) {
    uint8_t room[SPV_SHORT_SCRIPT];
    spv_bytes script;
    spv_status status;
    if (!of) {
        spv_put_null(c);
        return SPV_OK;
    }
    switch (c->id) {
    case TYPE:
        spv_put_8(c, (uint8_t)type_of(&of->coin));
        return SPV_OK;
    case VALUE:
        spv_put_64(c, of->coin.value);
        return SPV_OK;
    case SPENT_HEIGHT:
        return put_height(c, of->coin.code >> 1 ? (int32_t)(of->coin.code >> 1) : -1);
    case ADDRESS:
        if (of->coin.kind >= SPV_PACKED_KEY && of->coin.kind < SPV_PACKED_NONE) {
            spv_put_null(c);
            return SPV_OK;
        }
        return put_address(r, c, spv_plain_script(&of->coin, room));
    default:
        status = spv_script_of_coin(&of->coin, of->at, room, &script, r->error);
        return status ? status : spv_put_bytes(c, script);
    }
}

/* pure.tables._Input.content_type: printable ASCII. */
static spv_status put_content_type(spv_column *c, const spv_inscription *found) {
    const spv_bytes type = found->is_number ? (spv_bytes){&found->number, 1} : found->type;
    bool is_text = found->has_type;
    for (size_t i = 0; is_text && i < type.size; i++)
        is_text = type.data[i] >= 0x20 && type.data[i] < 0x7F;
    if (is_text)
        return spv_put_bytes(c, type);
    spv_put_null(c);
    return SPV_OK;
}

static spv_status put_content_hash(spv_column *c, spv_bytes script, const spv_inscription *found) {
    uint8_t digest[32], *body = malloc(found->body_size + 1);
    if (!body)
        return SPV_NOMEM;
    spv_copy_body(script, found, body);
    spv_sha256(body, found->body_size, digest);
    free(body);
    return spv_put_hash(c, digest);
}

/* The columns of an input's witness. */
static spv_status put_witness(spv_column *c, spv_bytes witness) {
    spv_inscription found;
    if (c->id == WITNESS) {
        if (witness.size)
            return spv_put_bytes(c, witness);
        spv_put_null(c);
        return SPV_OK;
    }
    const spv_bytes script = spv_leaf_script(witness);
    spv_find_inscription(script, &found);
    if (c->id == INSCRIPTIONS)
        spv_put_32(c, found.count);
    else if (c->id == CONTENT_TYPE)
        return put_content_type(c, &found);
    else if (!found.has_body)
        spv_put_null(c);
    else if (c->id == CONTENT_SIZE)
        spv_put_64(c, found.body_size);
    else
        return put_content_hash(c, script, &found);
    return SPV_OK;
}

static spv_status put_input(const rows *r, spv_column *c, uint32_t number, const spv_item *input, spv_bytes witness) {
    const uint8_t *raw = r->raw.data;
    switch (c->id) {
    case TX_HASH:
        return spv_put_hash(c, r->txid);
    case TX_INDEX:
        spv_put_32(c, r->index);
        break;
    case INDEX:
        spv_put_32(c, number);
        break;
    case SPENT_HASH:
        return spv_put_wire_hash(c, raw + input->at);
    case SPENT_INDEX:
        spv_put_64(c, spv_le32(raw + input->at + 32));
        break;
    case SCRIPT:
        return spv_put_bytes(c, (spv_bytes){raw + input->script, input->script_end - input->script});
    case SEQUENCE:
        spv_put_64(c, spv_le32(raw + input->script_end));
        break;
    case WITNESS_SIZE:
        spv_put_32(c, (uint32_t)witness.size);
        break;
    case WITNESS:
    case INSCRIPTIONS:
    case CONTENT_TYPE:
    case CONTENT_SIZE:
    case CONTENT_HASH:
        return put_witness(c, witness);
    case BLOCK_HASH:
    case BLOCK_NUMBER:
    case BLOCK_TIMESTAMP:
        return put_place(r, c);
    default:
        return put_coin(r, c, r->coins ? &r->coins[r->next + number] : NULL);
    }
    return SPV_OK;
}

/* pure.blocks.null_pushes, joined. */
static spv_status put_op_return(spv_column *c, spv_bytes script) {
    size_t at = 1;
    spv_status status = SPV_OK;
    if (spv_solve(script) != SPV_TYPE_NULLDATA) {
        spv_put_null(c);
        return SPV_OK;
    }
    while (!status && at < script.size) {
        const uint8_t opcode = script.data[at++];
        const size_t width = opcode == 0x4C ? 1 : opcode == 0x4D ? 2 : opcode == 0x4E ? 4 : 0;
        size_t length = opcode <= 0x4B ? opcode : 0;
        uint8_t number;
        if (width)
            length = width == 1 ? script.data[at] : width == 2 ? spv_le16(script.data + at) : spv_le32(script.data + at);
        at += width;
        const bool is_number = spv_pushed_number(opcode, &number);
        status = is_number ? spv_column_append(c, &number, 1) : spv_column_append(c, script.data + at, length);
        at += length;
    }
    if (!status)
        spv_put_appended(c);
    return status;
}

/* The columns of an OP_RETURN output. */
static spv_status put_null_data(const rows *r, spv_column *c, spv_bytes script) {
    const spv_tx *tx = &r->txs[r->index];
    uint8_t spent[32];
    if (!script.size || script.data[0] != 0x6A) {
        spv_put_null(c);
        return SPV_OK;
    }
    if (c->id == OP_RETURN_DATA)
        return put_op_return(c, script);
    if (c->id == OP_RETURN_SCRIPT)
        return spv_put_bytes(c, (spv_bytes){script.data + 1, script.size - 1});
    size_t at = tx->inputs_at;
    const bool is_coinbase = !r->index, has_input = !is_coinbase && tx->inputs;
    if (has_input)
        spv_reverse(r->raw.data + spv_next_input(r->raw.data, &at).at, spent);
    const char *name = spv_protocol_of(script, has_input ? spent : NULL, is_coinbase);
    if (name)
        return spv_put_bytes(c, (spv_bytes){(const uint8_t *)name, strlen(name)});
    spv_put_null(c);
    return SPV_OK;
}

static spv_status put_output(const rows *r, spv_column *c, uint32_t number, const spv_item *output) {
    const spv_bytes script = {r->raw.data + output->script, output->script_end - output->script};
    switch (c->id) {
    case TX_HASH:
        return spv_put_hash(c, r->txid);
    case TX_INDEX:
        spv_put_32(c, r->index);
        break;
    case INDEX:
        spv_put_32(c, number);
        break;
    case TYPE:
        spv_put_8(c, (uint8_t)spv_solve(script));
        break;
    case VALUE:
        spv_put_64(c, spv_le64(r->raw.data + output->at));
        break;
    case SCRIPT:
        return spv_put_bytes(c, script);
    case ADDRESS:
        return put_address(r, c, script);
    case OP_RETURN_DATA:
    case OP_RETURN_SCRIPT:
    case OP_RETURN_PROTOCOL:
        return put_null_data(r, c, script);
    default:
        return put_place(r, c);
    }
    return SPV_OK;
}

/* blocktables.SCRIPT_TYPES. */
static spv_status put_type(spv_column *c, spv_solved type) {
    static const char *const names[SPV_SCRIPT_TYPES] = {
        [SPV_TYPE_NONSTANDARD] = "nonstandard",
        [SPV_TYPE_PUBKEY] = "pubkey",
        [SPV_TYPE_PUBKEYHASH] = "pubkeyhash",
        [SPV_TYPE_SCRIPTHASH] = "scripthash",
        [SPV_TYPE_MULTISIG] = "multisig",
        [SPV_TYPE_WITNESS_V0_KEYHASH] = "witness_v0_keyhash",
        [SPV_TYPE_WITNESS_V0_SCRIPTHASH] = "witness_v0_scripthash",
        [SPV_TYPE_WITNESS_V1_TAPROOT] = "witness_v1_taproot",
        [SPV_TYPE_ANCHOR] = "anchor",
        [SPV_TYPE_NULLDATA] = "nulldata",
        [SPV_TYPE_WITNESS_UNKNOWN] = "witness_unknown",
    };
    return spv_put_bytes(c, (spv_bytes){(const uint8_t *)names[type], strlen(names[type])});
}

/* The columns that items of both kinds have in common. */
static spv_status put_item(const rows *r, spv_column *c, bool is_input, const mark *hit) {
    switch (c->id) {
    case KIND:
        return spv_put_bytes(c, is_input ? (spv_bytes){(const uint8_t *)"input", 5} : (spv_bytes){(const uint8_t *)"output", 6});
    case IS_MATCH:
        spv_put_bit(c, hit);
        return SPV_OK;
    case ENTRY:
        if (hit)
            spv_put_32(c, hit->entry);
        else
            spv_put_null(c);
        return SPV_OK;
    case BLOCK_TIME:
        spv_put_64(c, spv_le32(r->raw.data + TIME_AT));
        return SPV_OK;
    default:
        return put_tx(r, c);
    }
}

static spv_status put_input_item(const rows *r, spv_column *c, uint32_t number, const spv_item *input, const mark *hit) {
    const spent *coin = r->coins ? &r->coins[r->next + number] : NULL;
    switch (c->id) {
    case TYPE_NAME:
        if (coin)
            return put_type(c, type_of(&coin->coin));
        spv_put_null(c);
        return SPV_OK;
    case INDEX:
    case SPENT_HASH:
    case SPENT_INDEX:
    case VALUE:
    case ADDRESS:
    case SPENT_SCRIPT:
        return put_input(r, c, number, input, (spv_bytes){NULL, 0});
    default:
        return put_item(r, c, true, hit);
    }
}

static spv_status put_output_item(const rows *r, spv_column *c, uint32_t number, const spv_item *output, const mark *hit) {
    const spv_bytes script = {r->raw.data + output->script, output->script_end - output->script};
    switch (c->id) {
    case TYPE_NAME:
        return put_type(c, spv_solve(script));
    case SPENT_HASH:
        return spv_put_hash(c, r->txid);
    case SPENT_INDEX:
        spv_put_64(c, number);
        return SPV_OK;
    case SPENT_SCRIPT:
        return spv_put_bytes(c, script);
    case INDEX:
    case VALUE:
    case ADDRESS:
        return put_output(r, c, number, output);
    default:
        return put_item(r, c, false, hit);
    }
}

/* The first hit of an input or output of the current transaction; NULL if it has none. The calls are in the order of the
   rows. */
static const mark *take_marks(rows *r, bool spend, uint32_t n) {
    const size_t start = r->next_mark;
    while (r->next_mark < r->mark_count) {
        const mark *next = &r->marks[r->next_mark];
        if (next->position != r->index || next->spend != spend || next->n != n)
            break;
        r->next_mark++;
    }
    return r->next_mark > start ? &r->marks[start] : NULL;
}

/* The size of the witness at *at. Moves *at past it. */
static size_t next_witness(const uint8_t *raw, size_t *at) {
    const size_t start = *at;
    for (size_t items = spv_checked_length(raw, at); items; items--) {
        const size_t size = spv_checked_length(raw, at);
        *at += size;
    }
    return *at - start;
}

#define EACH(r, of, c) for (spv_column *c, **each = (r)->first[of]; each < (r)->first[(of) + 1] && (c = *each); each++)

/* The rows of one transaction. */
static spv_status put_rows(rows *r) {
    const spv_tx *tx = &r->txs[r->index];
    spv_status status = SPV_OK;
    EACH (r, TRANSACTIONS, c)
        if (!status)
            status = put_tx(r, c);
    size_t at = tx->inputs_at, witness = tx->witness;
    for (uint32_t i = 0; r->index && i < tx->inputs && !status; i++) {
        const spv_item input = spv_next_input(r->raw.data, &at);
        const size_t start = witness, size = witness ? next_witness(r->raw.data, &witness) : 0;
        const spv_bytes stack = {r->raw.data + start, size};
        EACH (r, INPUTS, c)
            if (!status)
                status = put_input(r, c, i, &input, stack);
        const mark *hit = take_marks(r, true, i);
        EACH (r, ITEMS, c)
            if (!status)
                status = put_input_item(r, c, i, &input, hit);
    }
    at = tx->outputs_at;
    for (uint32_t i = 0; i < tx->outputs && !status; i++) {
        const spv_item output = spv_next_output(r->raw.data, &at);
        EACH (r, OUTPUTS, c)
            if (!status)
                status = put_output(r, c, i, &output);
        const mark *hit = take_marks(r, false, i);
        EACH (r, ITEMS, c)
            if (!status)
                status = put_output_item(r, c, i, &output, hit);
    }
    return status;
}

/* Blocks. */

/* Walks the block. */
static spv_status walk(rows *r) {
    size_t at = 0;
    spv_status status = spv_block_start(r->raw.data, r->raw.size, &at, &r->transactions, r->error);
    if (status)
        return status;
    r->txs = malloc(r->transactions * sizeof *r->txs); /* each transaction has 10 bytes or more in `raw` */
    r->paid = calloc(r->transactions, sizeof *r->paid);
    if (!r->txs || !r->paid)
        return SPV_NOMEM;
    r->stripped = r->raw.size;
    for (uint32_t i = 0; i < r->transactions; i++) {
        status = spv_walk_tx(r->raw.data, r->raw.size, at, &r->txs[i], r->error);
        if (status)
            return status;
        at = r->txs[i].end;
        r->stripped -= at - r->txs[i].start - stripped_size(&r->txs[i]);
    }
    return spv_block_end(r->raw.size, at, r->error);
}

/* pure.tables._paid of all transactions. */
static spv_status add_paid(rows *r) {
    for (uint32_t i = 0; i < r->transactions; i++) {
        size_t at = r->txs[i].outputs_at;
        for (uint32_t k = 0; k < r->txs[i].outputs; k++) {
            const spv_item output = spv_next_output(r->raw.data, &at);
            const uint64_t value = spv_le64(r->raw.data + output.at);
            if (value > SPV_MAX_MONEY || r->paid[i] + value > SPV_MAX_MONEY)
                return spv_refuse(r->error, output.at, "value", "a transaction pays more than 21 million coins");
            r->paid[i] += value;
        }
    }
    return SPV_OK;
}

/* pure.undo._coins_of_tx. */
static spv_status read_coins(rows *r, spv_bytes undo, size_t *at, uint32_t number, spent *coins) {
    const size_t start = *at;
    uint64_t count = 0, total = 0;
    spv_status status = spv_undo_count(undo.data, undo.size, at, SPV_MIN_COIN_SIZE, &count, "undo input count", r->error);
    if (status)
        return status;
    if (count != r->txs[number].inputs)
        return spv_refuse_undo(
            spv_refuse(r->error, start, "undo input count", "must be %u, as in transaction %u, not %u", r->txs[number].inputs, number, (unsigned)count)
        );
    for (uint64_t i = 0; i < count; i++) {
        coins[i].at = *at;
        if ((status = spv_read_coin(undo.data, undo.size, at, &coins[i].coin, r->error)))
            return status;
        total += coins[i].coin.value;
        if (total > SPV_MAX_MONEY)
            return spv_refuse_undo(spv_refuse(r->error, coins[i].at, "undo amount", "transaction %u spends more than 21 million coins", number));
    }
    if (r->paid[number] > total)
        return spv_refuse_undo(spv_refuse(r->error, start, "undo amount", "transaction %u pays more than it spends", number));
    return SPV_OK;
}

/* pure.undo.coins_of_block. */
static spv_status read_record(rows *r, const spv_record *record) {
    const spv_bytes undo = spv_undo_of(record);
    size_t at = 0, inputs = 0, next = 0;
    uint64_t total = 0;
    if (record->state != SPV_SOUND)
        return spv_refuse_record(record, r->error);
    spv_status status = spv_undo_count(undo.data, undo.size, &at, 1, &total, "undo transaction count", r->error);
    if (status)
        return status;
    if (total != r->transactions - 1)
        return spv_refuse_undo(
            spv_refuse(r->error, 0, "undo transaction count", "must be %u, as in the block, not %u", r->transactions - 1, (unsigned)total)
        );
    for (uint32_t i = 1; i < r->transactions; i++)
        inputs += r->txs[i].inputs;
    r->coins = malloc((inputs + 1) * sizeof *r->coins); /* each input has 41 bytes or more in `raw` */
    if (!r->coins)
        return SPV_NOMEM;
    for (uint32_t i = 1; i < r->transactions && !status; i++) {
        status = read_coins(r, undo, &at, i, r->coins + next);
        next += r->txs[i].inputs;
    }
    return status ? status : spv_undo_end(undo.size, at, r->error);
}

/* The order of the rows: by transaction, inputs before outputs. Several hits of one row are in the order of entries. */
static int in_row_order(const void *one, const void *other) {
    const mark *a = one, *b = other;
    if (a->position != b->position)
        return a->position < b->position ? -1 : 1;
    if (a->spend != b->spend)
        return a->spend ? -1 : 1;
    if (a->n != b->n)
        return a->n < b->n ? -1 : 1;
    return a->entry < b->entry ? -1 : a->entry > b->entry;
}

static spv_status refuse_hit(rows *r) {
    return spv_refuse(r->error, 0, "hits", "a hit belongs to a different block");
}

/* Reads the hits. */
static spv_status read_marks(rows *r, spv_bytes packed) {
    const size_t most = packed.size / SPV_PACKED_HEAD; /* each hit has this size or more */
    if (!(r->marks = malloc((most + 1) * sizeof *r->marks)))
        return SPV_NOMEM;
    for (size_t at = 0; at < packed.size;) {
        spv_packed_hit hit;
        const spv_status status = spv_next_hit(packed, &at, &hit, r->error);
        if (status)
            return status;
        r->marks[r->mark_count++] = (mark){
            .txid = hit.txid, .position = hit.position, .n = hit.n, .entry = hit.entry, .spend = hit.spend
        };
    }
    qsort(r->marks, r->mark_count, sizeof *r->marks, in_row_order);
    return SPV_OK;
}

/* pure.tables._matches without the txids: chooses the transactions that have rows. */
static spv_status choose(rows *r, spv_bytes hits) {
    r->chooses = hits.data;
    if (!r->chooses) {
        r->chosen = r->txs;
        r->count = r->transactions;
        return SPV_OK;
    }
    const spv_status status = read_marks(r, hits);
    if (status)
        return status;
    r->chosen = malloc((r->mark_count + 1) * sizeof *r->chosen);
    r->positions = malloc((r->mark_count + 1) * sizeof *r->positions);
    if (!r->chosen || !r->positions)
        return SPV_NOMEM;
    for (size_t i = 0; i < r->mark_count; i++) {
        const mark *next = &r->marks[i];
        if (next->position >= r->transactions)
            return refuse_hit(r);
        const spv_tx *tx = &r->txs[next->position];
        if (next->n >= (!next->spend ? tx->outputs : next->position ? tx->inputs : 0))
            return refuse_hit(r);
        if (i && r->marks[i - 1].position == next->position)
            continue;
        r->positions[r->count] = next->position;
        r->chosen[r->count++] = *tx;
    }
    return SPV_OK;
}

/* Fails unless the txids of the hits are those of the block. */
static spv_status check_marks(rows *r) {
    size_t number = 0;
    for (size_t i = 0; i < r->mark_count; i++) {
        number += i && r->marks[i - 1].position != r->marks[i].position;
        if (memcmp(r->txids[number], r->marks[i].txid, sizeof *r->txids))
            return refuse_hit(r);
    }
    return SPV_OK;
}

/* Computes the hashes that the columns need, and allocates memory for the rows. */
static spv_status prepare(rows *r) {
    size_t counts[TABLE_COUNT] = {1, r->count};
    uint8_t hash[32];
    spv_sha256d(r->raw.data, SPV_HEADER_SIZE, hash);
    spv_reverse(hash, r->hash);
    if ((r->chooses || wants(r->tables, TABLE_COUNT, TX_HASH) || wants(r->tables, ITEMS, SPENT_HASH))
        && !(r->txids = malloc((r->count + 1) * sizeof *r->txids)))
        return SPV_NOMEM;
    if (wants(r->tables, TABLE_COUNT, WITNESS_HASH) && !(r->wtxids = malloc((r->count + 1) * sizeof *r->wtxids)))
        return SPV_NOMEM;
    if (r->txids)
        spv_txids(r->raw.data, r->chosen, r->count, r->txids);
    if (r->wtxids)
        spv_wtxids(r->raw.data, r->chosen, r->count, r->wtxids);
    spv_status status = r->chooses ? check_marks(r) : SPV_OK;
    for (uint32_t i = 0; i < r->count; i++) {
        const bool is_coinbase = r->positions ? !r->positions[i] : !i;
        counts[INPUTS] += is_coinbase ? 0 : r->chosen[i].inputs;
        counts[OUTPUTS] += r->chosen[i].outputs;
    }
    counts[ITEMS] = counts[INPUTS] + counts[OUTPUTS];
    for (size_t i = 0; i < r->tables->count && !status; i++)
        status = spv_column_reserve(&r->tables->columns[i], counts[r->tables->columns[i].table]);
    return status;
}

/* Groups the columns by their tables, so that a row visits only its own. */
static spv_status group(rows *r) {
    spv_column **next = r->columns = malloc((r->tables->count + 1) * sizeof *r->columns);
    if (!next)
        return SPV_NOMEM;
    for (unsigned table = BLOCKS; table < TABLE_COUNT; table++) {
        r->first[table] = next;
        for (size_t i = 0; i < r->tables->count; i++)
            if (r->tables->columns[i].table == table)
                *next++ = &r->tables->columns[i];
    }
    r->first[TABLE_COUNT] = next;
    return SPV_OK;
}

/* Moves to the chosen transaction with a number. */
static void move_to(rows *r, uint32_t number) {
    const uint32_t index = r->positions ? r->positions[number] : number;
    for (; r->index < index; r->index++)
        r->next += r->index ? r->txs[r->index].inputs : 0;
    r->number = number;
    r->value = 0;
    for (uint32_t i = 0; r->coins && index && i < r->txs[index].inputs; i++)
        r->value += r->coins[r->next + i].coin.value;
    if (r->txids)
        spv_reverse(r->txids[number], r->txid);
}

static spv_status add_rows(rows *r, const spv_record *record, spv_bytes hits) {
    spv_status status = group(r);
    if (!status)
        status = walk(r);
    if (!status)
        status = add_paid(r);
    if (!status && record->memory)
        status = read_record(r, record);
    if (!status)
        status = choose(r, hits);
    if (!status)
        status = prepare(r);
    EACH (r, BLOCKS, c)
        if (!status)
            status = put_block(r, c);
    for (uint32_t i = 0; i < r->count && !status; i++) {
        move_to(r, i);
        status = put_rows(r);
    }
    return status;
}

spv_status spv_add_block_rows(
    spv_tables *tables, spv_bytes block, const spv_record *record, int32_t height, spv_bytes hits, spv_error *error
) {
    if (block.size > SPV_MAX_BLOCK_SIZE)
        return spv_refuse(error, SPV_MAX_BLOCK_SIZE, "block", "must be at most %d bytes long, not %zu", SPV_MAX_BLOCK_SIZE, block.size);
    rows r = {.tables = tables, .raw = block, .height = height, .error = error};
    const spv_status status = add_rows(&r, record, hits);
    if (r.chooses)
        free(r.chosen);
    free(r.marks);
    free(r.positions);
    free(r.columns);
    free(r.txs);
    free(r.txids);
    free(r.wtxids);
    free(r.paid);
    free(r.coins);
    return status;
}
