// run.sh: libs=-lz,-lzstd,-llz4,-llzma,-lbz2
// Proves >>codec built with every CKPT_WITH_ switch: the cases of test_codec.c in-process, and against the tools both ways.
#define CKPT_WITH_ZLIB
#define CKPT_WITH_ZSTD
#define CKPT_WITH_LZ4
#define CKPT_WITH_LZMA
#define CKPT_WITH_BZIP2
#include "test_codec.c"
