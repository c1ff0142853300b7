#include "watch/tables.h"

#include "block/place.h"
#include "block/script.h"
#include "block/scripttype.h"
#include "block/txid.h"
#include "watch/protocols.h"

#include <stdlib.h>

enum { BLOCKS, TRANSACTIONS, INPUTS, OUTPUTS };

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
    OP_RETURN_PROTOCOL
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
    uint8_t txid[32];         /* in display order */
    spv_column **columns;     /* the columns by table */
    spv_column **first[OUTPUTS + 2]; /* the first column of each table among them, and their end */
    spv_error *error;
} rows;

static bool wants(const spv_tables *tables, unsigned table, unsigned id) {
    for (size_t i = 0; i < tables->count; i++)
        if ((tables->columns[i].table == table || table > OUTPUTS) && tables->columns[i].id == id)
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

/* The columns that all tables have. */
static spv_status put_place(const rows *r, spv_column *c) {
    enum { TIME = 68 }; /* offset in the header */
    if (c->id == BLOCK_HASH)
        return spv_put_hash(c, r->hash);
    if (c->id == BLOCK_NUMBER)
        return put_height(c, r->height);
    spv_put_64(c, 1000 * (uint64_t)spv_le32(r->raw.data + TIME));
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

/* The amounts of a transaction: satoshi that it spends. */
static uint64_t value_spent(const rows *r, const spv_tx *tx) {
    uint64_t total = 0;
    for (uint32_t i = 0; i < tx->inputs; i++)
        total += r->coins[r->next + i].coin.value;
    return total;
}

static void put_amount(const rows *r, spv_column *c, const spv_tx *tx, size_t weight) {
    if (!r->coins || !r->index) {
        spv_put_null(c);
        return;
    }
    const uint64_t value = value_spent(r, tx), fee = value - r->paid[r->index];
    if (c->id == FEE_RATE)
        spv_put_float(c, (double)fee / (double)((weight + 3) / 4));
    else
        spv_put_64(c, c->id == FEE ? fee : value);
}

static spv_status put_tx(const rows *r, spv_column *c) {
    const spv_tx *tx = &r->txs[r->index];
    const size_t size = tx->end - tx->start, weight = 3 * stripped_size(tx) + size;
    switch (c->id) {
    case TX_HASH:
        return spv_put_hash(c, r->txid);
    case WITNESS_HASH:
        return spv_put_wire_hash(c, r->wtxids[r->index]);
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
        put_amount(r, c, tx, weight);
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

static spv_status put_input(const rows *r, spv_column *c, uint32_t number, const spv_item *input, size_t witness) {
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
        spv_put_32(c, (uint32_t)witness);
        break;
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
        const size_t size = witness ? next_witness(r->raw.data, &witness) : 0;
        EACH (r, INPUTS, c)
            if (!status)
                status = put_input(r, c, i, &input, size);
    }
    at = tx->outputs_at;
    for (uint32_t i = 0; i < tx->outputs && !status; i++) {
        const spv_item output = spv_next_output(r->raw.data, &at);
        EACH (r, OUTPUTS, c)
            if (!status)
                status = put_output(r, c, i, &output);
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
            spv_refuse(r->error, start, "undo input count", "%u, but transaction %u has %u", (unsigned)count, number, r->txs[number].inputs)
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
            spv_refuse(r->error, 0, "undo transaction count", "%u, but the block has %u", (unsigned)total, r->transactions - 1)
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

/* Computes the hashes that the columns need, and allocates memory for the rows. */
static spv_status prepare(rows *r) {
    enum { ANY_TABLE = OUTPUTS + 1 };
    size_t counts[OUTPUTS + 1] = {1, r->transactions};
    uint8_t hash[32];
    spv_sha256d(r->raw.data, SPV_HEADER_SIZE, hash);
    spv_reverse(hash, r->hash);
    if (wants(r->tables, ANY_TABLE, TX_HASH) && !(r->txids = malloc(r->transactions * sizeof *r->txids)))
        return SPV_NOMEM;
    if (wants(r->tables, ANY_TABLE, WITNESS_HASH) && !(r->wtxids = malloc(r->transactions * sizeof *r->wtxids)))
        return SPV_NOMEM;
    if (r->txids)
        spv_txids(r->raw.data, r->txs, r->transactions, r->txids);
    if (r->wtxids)
        spv_wtxids(r->raw.data, r->txs, r->transactions, r->wtxids);
    for (uint32_t i = 0; i < r->transactions; i++) {
        counts[INPUTS] += i ? r->txs[i].inputs : 0;
        counts[OUTPUTS] += r->txs[i].outputs;
    }
    spv_status status = SPV_OK;
    for (size_t i = 0; i < r->tables->count && !status; i++)
        status = spv_column_reserve(&r->tables->columns[i], counts[r->tables->columns[i].table]);
    return status;
}

/* Groups the columns by their tables, so that a row visits only its own. */
static spv_status group(rows *r) {
    spv_column **next = r->columns = malloc((r->tables->count + 1) * sizeof *r->columns);
    if (!next)
        return SPV_NOMEM;
    for (unsigned table = BLOCKS; table <= OUTPUTS; table++) {
        r->first[table] = next;
        for (size_t i = 0; i < r->tables->count; i++)
            if (r->tables->columns[i].table == table)
                *next++ = &r->tables->columns[i];
    }
    r->first[OUTPUTS + 1] = next;
    return SPV_OK;
}

static spv_status add_rows(rows *r, const spv_record *record) {
    spv_status status = group(r);
    if (!status)
        status = walk(r);
    if (!status)
        status = add_paid(r);
    if (!status && record->memory)
        status = read_record(r, record);
    if (!status)
        status = prepare(r);
    EACH (r, BLOCKS, c)
        if (!status)
            status = put_block(r, c);
    for (; r->index < r->transactions && !status; r->index++) {
        if (r->txids)
            spv_reverse(r->txids[r->index], r->txid);
        status = put_rows(r);
        r->next += r->index ? r->txs[r->index].inputs : 0;
    }
    return status;
}

spv_status spv_add_block_rows(spv_tables *tables, spv_bytes block, const spv_record *record, int32_t height, spv_error *error) {
    if (block.size > SPV_MAX_BLOCK_SIZE)
        return spv_refuse(error, SPV_MAX_BLOCK_SIZE, "block", "%zu bytes, a block has at most %d", block.size, SPV_MAX_BLOCK_SIZE);
    rows r = {.tables = tables, .raw = block, .height = height, .error = error};
    const spv_status status = add_rows(&r, record);
    free(r.columns);
    free(r.txs);
    free(r.txids);
    free(r.wtxids);
    free(r.paid);
    free(r.coins);
    return status;
}
