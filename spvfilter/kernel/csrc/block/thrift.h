/* The end of a value in Thrift's compact protocol. The twin is pure/thrift.py. */
#ifndef SPV_BLOCK_THRIFT_H
#define SPV_BLOCK_THRIFT_H

#include "spv.h"

/* pure.thrift._end: moves *at past the value of a type. False if it is malformed, truncated or nested too deep. */
bool spv_thrift_end(spv_bytes raw, unsigned kind, size_t *at);

#endif
