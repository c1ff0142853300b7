/* The addresses of a column of scripts. The twin is pure/scriptaddresses.py. */
#ifndef SPV_WATCH_ADDRESSCOLUMN_H
#define SPV_WATCH_ADDRESSCOLUMN_H

#include "watch/address.h"
#include "watch/columns.h"

/* Appends the address of each script from number *at on, up to `until`. The offsets fit the scripts. *unfit is the
   result of spv_encode_address for an address that cannot be encoded, else 0. */
spv_status spv_add_addresses_of(
    const spv_address_form *form, const uint8_t *offsets, const uint8_t *scripts, size_t *at, size_t until, spv_column *column, size_t *unfit
);

#endif
