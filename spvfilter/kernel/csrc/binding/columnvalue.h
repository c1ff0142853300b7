/* Columns as the tuples that block_columns and hit_columns return. */
#ifndef SPV_BINDING_COLUMNVALUE_H
#define SPV_BINDING_COLUMNVALUE_H

#include "binding/binding.h"

#include "watch/columns.h"

/* A column as blocktables.ColumnBuffers. NULL with an exception set. */
PyObject *spv_column_value(const spv_column *column);

#endif
