#include "watch/columns.h"

#include "watch/hex.h"

#include <stdlib.h>

/* Bytes of the values of some rows, of a layout without offsets. */
static size_t width_of(spv_layout layout, size_t rows) {
    static const uint8_t widths[] = {[SPV_INT8] = 1, [SPV_INT32] = 4, [SPV_INT64] = 8, [SPV_FLOAT64] = 8, [SPV_HASH] = 32};
    return layout == SPV_BITS ? (rows + 7) / 8 : rows * widths[layout];
}

size_t spv_column_size(const spv_column *column) {
    return spv_has_offsets(column) ? column->size : width_of(column->layout, column->rows);
}

void spv_column_free(spv_column *column) {
    free(column->validity);
    free(column->offsets);
    free(column->data);
}

/* Memory of `size` bytes, the first `old` as before and the others zero. */
static bool grow(uint8_t **memory, size_t old, size_t size) {
    uint8_t *grown = realloc(*memory, size + 1);
    if (!grown)
        return false;
    memset(grown + old, 0, size + 1 - old);
    *memory = grown;
    return true;
}

spv_status spv_column_reserve(spv_column *c, size_t more) {
    enum { STEP = 64 };
    const size_t needed = c->rows + more, old = c->room;
    if (needed <= old && c->validity)
        return SPV_OK;
    const size_t room = ((needed > 2 * old ? needed : 2 * old) + STEP) / STEP * STEP;
    if (!grow(&c->validity, old / 8, room / 8))
        return SPV_NOMEM;
    if (spv_has_offsets(c)) {
        if (!grow(&c->offsets, old ? 4 * (old + 1) : 0, 4 * (room + 1)))
            return SPV_NOMEM;
    } else if (!grow(&c->data, width_of(c->layout, old), width_of(c->layout, room))) {
        return SPV_NOMEM;
    }
    c->room = room;
    return SPV_OK;
}

spv_status spv_column_append(spv_column *c, const uint8_t *data, size_t size) {
    const size_t more = c->is_hex ? 2 * size : size;
    if (more > INT32_MAX - c->size)
        return SPV_RANGE;
    if (SPV_UNLIKELY(c->size + more > c->data_room)) {
        const size_t room = 2 * c->data_room > c->size + more ? 2 * c->data_room : c->size + more;
        uint8_t *grown = realloc(c->data, room + 1);
        if (!grown)
            return SPV_NOMEM;
        c->data = grown;
        c->data_room = room;
    }
    if (!more)
        return SPV_OK;
    if (c->is_hex)
        spv_put_hex(c->data + c->size, (spv_bytes){data, size});
    else
        memcpy(c->data + c->size, data, size);
    c->size += more;
    return SPV_OK;
}
