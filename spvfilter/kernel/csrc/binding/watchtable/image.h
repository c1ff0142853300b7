/* Binding of watch/image.h: tables over images, and the methods that write images and packed entries. */
#ifndef SPV_BINDING_WATCHTABLE_IMAGE_H
#define SPV_BINDING_WATCHTABLE_IMAGE_H

#include "binding/watchtable/object.h"

/* A table over an image, which it holds and uses in place. NULL with an exception set. */
PyObject *spv_table_over(PyTypeObject *type, PyObject *image);

PyObject *spv_wt_packed_entries(PyObject *self, PyObject *const *arguments, Py_ssize_t count);
PyObject *spv_wt_image(PyObject *self, PyObject *none);
PyObject *spv_wt_image_size(PyObject *self, PyObject *none);
PyObject *spv_wt_write_image(PyObject *self, PyObject *const *arguments, Py_ssize_t count);

#endif
