/* Binding of watch/address.h: decode_address and encode_address, and the network's parameters as arguments. The twin
   is pure/address.py. */
#ifndef SPV_BINDING_ADDRESSES_H
#define SPV_BINDING_ADDRESSES_H

#include "binding/arguments.h"

#include "watch/address.h"

/* pure.address.check_network: p2pkh_version, p2sh_version, hrp; false with an exception set. `hrp` must outlive `network`. */
bool spv_take_network(const spv_state *state, PyObject *const *arguments, spv_address_network *network);

int spv_add_addresses(PyObject *module, spv_state *state);

/* The same parameters for encoding. */
bool spv_take_form(const spv_state *state, PyObject *const *arguments, spv_address_form *form);

/* Raises the ParameterError for a human-readable part `hrp` (a str). `unfit` is the result of spv_encode_address. */
SPV_COLD PyObject *spv_refuse_hrp(const spv_state *state, PyObject *hrp, size_t unfit);

#endif
