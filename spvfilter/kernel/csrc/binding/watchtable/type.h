/* Binding of watch/table.h and watch/scan.h: the type WatchTable, the twin of pure.table.WatchTable. */
#ifndef SPV_BINDING_WATCHTABLE_TYPE_H
#define SPV_BINDING_WATCHTABLE_TYPE_H

#include "binding/binding.h"

int spv_add_watch_table(PyObject *module, spv_state *state);

#endif
