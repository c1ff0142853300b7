/* Binding of block/frames.h: sound_frames, joined_frames; the twin of pure/frames.py. */
#ifndef SPV_BINDING_FRAMES_H
#define SPV_BINDING_FRAMES_H

#include "binding/binding.h"

/* Adds them to the module; -1 with an exception set where that fails. */
int spv_add_frames(PyObject *module, spv_state *state);

#endif
