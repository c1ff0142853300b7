/* Runs a fuzz target over files without a fuzzer, for tools under which no fuzzer runs. */
#include "check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        size_t size;
        uint8_t *input = read_file(argv[i], &size);
        LLVMFuzzerTestOneInput(input, size);
        release(input);
    }
    printf("%d inputs, nothing found\n", argc - 1);
    return 0;
}
