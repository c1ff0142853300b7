#include "spv.h"

#include <stdarg.h>
#include <stdio.h>

spv_status spv_refuse(spv_error *error, size_t offset, const char *field, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    error->offset = offset;
    error->field = field;
    return SPV_FORMAT;
}
