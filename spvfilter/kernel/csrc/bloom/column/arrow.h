/* Arrow's C data interface: the structs of a producer are checked and made into columns. The structs are those of
   the specification (https://arrow.apache.org/docs/format/CDataInterface.html and CStreamInterface.html). The twin
   is pure/arrow.py. */
#ifndef SPV_BLOOM_COLUMN_ARROW_H
#define SPV_BLOOM_COLUMN_ARROW_H

#include "bloom/column/column.h"

struct ArrowSchema {
    const char *format, *name, *metadata;
    int64_t flags, n_children;
    struct ArrowSchema **children, *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};

struct ArrowArray {
    int64_t length, null_count, offset, n_buffers, n_children;
    const void **buffers;
    struct ArrowArray **children, *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

struct ArrowArrayStream {
    int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *);
    int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *);
    const char *(*get_last_error)(struct ArrowArrayStream *);
    void (*release)(struct ArrowArrayStream *);
    void *private_data;
};

typedef struct {
    spv_layout layout;
    spv_kind kind;
    size_t width; /* SPV_FIXED, SPV_NUMBERS */
    bool is_signed;
} spv_arrow_layout;

/* The type of a column of keys, from a schema: the layout of the keys, or of a dictionary's numbers and values. */
typedef struct {
    spv_arrow_layout keys, values;
    bool named, within; /* there is a dictionary; the column is the only column of a table */
} spv_arrow_type;

/* Fails with SPV_FORMAT for a malformed schema, and with SPV_FLAW for a type that cannot hold keys; error->field is
   then the format of the type, or NULL. */
spv_status spv_arrow_type_of(const struct ArrowSchema *schema, spv_arrow_type *type, spv_error *error);

/* Makes the column of an array of that type. Its first row is the caller's key number `first`. `values` is room for
   a dictionary. Both refer to the array. Fails with SPV_FORMAT if the array contradicts the type or itself. */
spv_status spv_arrow_column(
    const spv_arrow_type *type, const struct ArrowArray *array, size_t first, spv_column *column, spv_column *values, spv_error *error);

#endif
