/* Binding of merkle.h and bip37.h; the twin of the second half of pure.py. */
#include "binding.h"

int spv_add_scan(PyObject *module) {
    (void)module;
    return 0;
}
