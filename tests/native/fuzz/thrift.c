/* Fuzz target: the end of a value in Thrift's compact protocol, against a recursive reading. The input:

   u8   The low half is the type of the value. The high half is the offset at which the value begins.
   The rest has the value. */
#include "block/thrift.h"
#include "check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { DEEPEST = 16 };

__extension__ typedef unsigned __int128 wide;

typedef struct {
    const uint8_t *raw;
    size_t size, at;
    bool bad;
} plain_reader;

static unsigned next_byte(plain_reader *r) {
    if (r->at < r->size)
        return r->raw[r->at++];
    r->bad = true;
    return 0;
}

static wide plain_number(plain_reader *r) {
    wide value = 0, scale = 1;
    for (int place = 0; place < 10; place++, scale *= 128) {
        const unsigned byte = next_byte(r);
        value += scale * (byte % 128);
        if (byte < 128)
            return value;
    }
    r->bad = true;
    return 0;
}

static void pass(plain_reader *r, wide count) {
    if (count > r->size - r->at)
        r->bad = true;
    else
        r->at += (size_t)count;
}

static void read_value(plain_reader *r, unsigned kind, bool within, unsigned deep);

/* Every item takes a byte or more, so a count that is too large ends at the end of the bytes. */
static void read_items(plain_reader *r, wide count, unsigned first, unsigned second, unsigned deep) {
    for (wide i = 0; i < count && !r->bad; i++)
        read_value(r, i % 2 ? second : first, true, deep + 1);
}

static void read_value(plain_reader *r, unsigned kind, bool within, unsigned deep) {
    unsigned head;
    wide count;
    if (kind >= 9 && deep > DEEPEST)
        r->bad = true;
    if (r->bad)
        return;
    switch (kind) {
    case 1:
    case 2:
        pass(r, within);
        return;
    case 3:
        pass(r, 1);
        return;
    case 4:
    case 5:
    case 6:
        plain_number(r);
        return;
    case 7:
        pass(r, 8);
        return;
    case 8:
        count = plain_number(r);
        pass(r, count);
        return;
    case 9:
    case 10:
        head = next_byte(r);
        count = head / 16 == 15 ? plain_number(r) : head / 16;
        read_items(r, count, head % 16, head % 16, deep);
        return;
    case 11:
        count = plain_number(r);
        if (!count)
            return;
        head = next_byte(r);
        read_items(r, 2 * count, head / 16, head % 16, deep);
        return;
    case 12:
        while ((head = next_byte(r)) && !r->bad) {
            if (head < 16)
                plain_number(r);
            read_value(r, head % 16, false, deep + 1);
        }
        return;
    default:
        r->bad = true;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!size)
        return 0;
    const unsigned kind = data[0] % 16;
    const size_t start = data[0] / 16;
    uint8_t *raw = exact_copy(data + 1, size - 1);
    size_t at = start;
    plain_reader r = {raw, size - 1, start, start > size - 1};
    read_value(&r, kind, false, 0);
    CHECK(spv_thrift_end((spv_bytes){raw, size - 1}, kind, &at) == !r.bad);
    CHECK(at == (r.bad ? start : r.at));
    release(raw);
    return 0;
}
