/* Binding of block/frames.h: sound_frames and joined_frames. The twin is pure/frames.py. */
#ifndef SPV_BINDING_FRAMES_H
#define SPV_BINDING_FRAMES_H

#include "binding/binding.h"

/* Adds the functions to the module. Returns -1 with an exception set if that fails. */
int spv_add_frames(PyObject *module, spv_state *state);

#endif
