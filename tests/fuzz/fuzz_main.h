/* fuzz_main.h: with -DCKPT_FUZZ_MAIN, a main that replays the files it is given, for compilers without libFuzzer. */
#ifndef FUZZ_MAIN_H
#define FUZZ_MAIN_H

#if defined(CKPT_FUZZ_MAIN)
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        FILE *f = fopen(argv[i], "rb");
        if (f == NULL) { perror(argv[i]); return 1; }
        static uint8_t bytes[1 << 24];
        size_t n = fread(bytes, 1, sizeof bytes, f);
        fclose(f);
        uint8_t *exact = (uint8_t *)malloc(n + (n == 0));
        if (exact == NULL) return 1;
        memcpy(exact, bytes, n);
        (void)LLVMFuzzerTestOneInput(exact, n);
        free(exact);
    }
    printf("%d files\n", argc - 1);
    return 0;
}
#endif

#endif // FUZZ_MAIN_H
