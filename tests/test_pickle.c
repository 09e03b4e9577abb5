/* Proves that the pickle writer writes what Python's writes, and that the reader knows every opcode of protocols 2 to 5,
   executes nothing, and survives any bytes.                                                                             */
#define CKPT_IMPLEMENTATION
#define CKPT_NO_REMOTE
#define CKPT_STATIC
#include "../ckpt.h"
#include "util.h"

//-- a node as text, in Python's manner ----------------------------------------------

static void show_bytes(ckpt__buf *b, const ckpt__pickle *k, uint32_t node) {
    unsigned char raw[64];
    size_t n = ckpt__pickle_bytes_of(k, node, raw, sizeof raw);
    if (n == SIZE_MAX) { ckpt__buf_text(b, "b?"); return; }
    ckpt__buf_text(b, "b'");
    for (size_t i = 0; i < n; i++) ckpt__buf_fmt(b, raw[i] >= 32 && raw[i] < 127 ? "%c" : "\\x%02x", raw[i]);
    ckpt__buf_text(b, "'");
}

static void show(ckpt__buf *b, const ckpt__pickle *k, uint32_t node, int depth) {
    const ckpt__pickle_node n = k->nodes[node];
    ckpt__view v = ckpt__pickle_view(k, node);
    if (depth > 6) { ckpt__buf_text(b, "..."); return; }
    switch ((ckpt__pickle_kind)n.kind) {
    case CKPT__PICKLE_NONE:    ckpt__buf_text(b, "None"); break;
    case CKPT__PICKLE_BOOL:    ckpt__buf_text(b, n.b != 0 ? "True" : "False"); break;
    case CKPT__PICKLE_INT:     ckpt__buf_fmt(b, "%lld", (long long)(int64_t)n.b); break;
    case CKPT__PICKLE_FLOAT:   ckpt__txt_add_double(b, ckpt__pickle_float_of(k, node)); break;
    case CKPT__PICKLE_TEXT:    ckpt__buf_fmt(b, "'%.*s'", (int)v.n, v.p); break;
    case CKPT__PICKLE_BYTES:   show_bytes(b, k, node); break;
    case CKPT__PICKLE_TUPLE:
        ckpt__buf_text(b, "(");
        for (uint32_t i = 0; i < n.a; i++) {
            if (i > 0) ckpt__buf_text(b, ", ");
            show(b, k, k->refs[n.b + i], depth + 1);
        }
        ckpt__buf_text(b, n.a == 1 ? ",)" : ")");
        break;
    case CKPT__PICKLE_LIST:
    case CKPT__PICKLE_DICT: {
        bool dict = n.kind == CKPT__PICKLE_DICT;
        ckpt__buf_text(b, dict ? "{" : "[");
        int i = 0;
        for (uint32_t c = n.a; c != 0; c = k->cells[c].next, i++) {
            if (i > 0) ckpt__buf_text(b, dict && i % 2 == 1 ? ": " : ", ");
            show(b, k, k->cells[c].node, depth + 1);
        }
        ckpt__buf_text(b, dict ? "}" : "]");
        break;
    }
    case CKPT__PICKLE_GLOBAL:  ckpt__buf_text(b, "<global>"); break;
    case CKPT__PICKLE_STORAGE: ckpt__buf_fmt(b, "<storage %u of %llu>", n.extra, (unsigned long long)n.b); break;
    case CKPT__PICKLE_TENSOR:
        ckpt__buf_fmt(b, "<tensor %u ", n.extra);
        for (uint32_t i = 0; i < 3; i++) show(b, k, k->refs[n.b + i], depth + 1);
        ckpt__buf_text(b, ">");
        break;
    case CKPT__PICKLE_ARRAY:
        ckpt__buf_fmt(b, "<array %u ", n.extra);
        if (n.flag != 0) show(b, k, k->refs[n.b], depth + 1);
        ckpt__buf_text(b, ">");
        break;
    case CKPT__PICKLE_NPDTYPE: ckpt__buf_fmt(b, "<dtype %u%s>", n.extra, n.flag != 0 ? " swapped" : ""); break;
    case CKPT__PICKLE_OTHER:   ckpt__buf_text(b, "<other>"); break;
    }
}

// The value as text, or the code's name and the sentence.
static const char *load(const void *bytes, size_t size) {
    ckpt__pickle k;
    ckpt__buf b;
    uint32_t root = 0;
    // an exact copy, so that the sanitizer sees a read behind the end
    char *copy = (char *)malloc(size > 0 ? size : 1);
    assert_non_null(copy);
    memcpy(copy, bytes, size);
    ckpt__buf_init(&b, NULL);
    ckpt_err e = ckpt__pickle_read(&k, NULL, copy, size, &root);
    if (e != CKPT_OK) ckpt__buf_fmt(&b, "%d: %s", (int)e, ckpt__error_last.text);
    else show(&b, &k, root, 0);
    const char *text = util_fmt("%s", ckpt__buf_cstr(&b));
    ckpt__pickle_free(&k);
    ckpt__buf_free(&b);
    free(copy);
    return text;
}

#define LOADS(text, want) do { \
    const char *got = load(text, sizeof text - 1); \
    if (strcmp(got, want) != 0) fail_msg("%s: got %s, want %s", #text, got, want); \
} while (0)

#define FAILS(text, code, words) do { \
    const char *got = load(text, sizeof text - 1); \
    if (atoi(got) != (int)(code) || strstr(got, words) == NULL) fail_msg("%s: got %s", #text, got); \
} while (0)

static void test_values(void **unused) {
    (void)unused;
    LOADS("N.", "None");
    LOADS("\x80\x02\x88.", "True");
    LOADS("\x80\x02\x89.", "False");
    LOADS("\x80\x02K\xff.", "255");
    LOADS("\x80\x02M\xff\xff.", "65535");
    LOADS("\x80\x02J\xff\xff\xff\xff.", "-1");
    LOADS("\x80\x02J\0\0\0\x80.", "-2147483648");
    LOADS("\x80\x02\x8a\0.", "0");
    LOADS("\x80\x02\x8a\x01\xff.", "-1");
    LOADS("\x80\x02\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f.", "9223372036854775807");
    LOADS("\x80\x02\x8a\x08\0\0\0\0\0\0\0\x80.", "-9223372036854775808");
    LOADS("\x80\x02\x8a\x09\0\0\0\0\0\0\0\x80\xff.", "-9223372036854775808");
    LOADS("\x80\x02\x8a\x09\0\0\0\0\0\0\0\x80\0.", "<other>");          // 2 ** 63
    LOADS("\x80\x02\x8b\x02\0\0\0\xfe\xff.", "-2");
    LOADS("\x80\x02G\x3f\xf8\0\0\0\0\0\0.", "1.5");
    LOADS("\x80\x02X\x02\0\0\0\xc3\xbc.", "'\xc3\xbc'");
    LOADS("\x80\x04\x8c\x01x.", "'x'");
    LOADS("\x80\x04\x8d\x01\0\0\0\0\0\0\0x.", "'x'");
    LOADS("\x80\x02U\x01x.", "'x'");
    LOADS("\x80\x02T\x01\0\0\0x.", "'x'");
    LOADS("\x80\x03" "C\x02" "a\xff.", "b'a\\xff'");
    LOADS("\x80\x03" "B\x02\0\0\0a\xff.", "b'a\\xff'");
    LOADS("\x80\x04\x8e\x02\0\0\0\0\0\0\0a\xff.", "b'a\\xff'");
    LOADS("\x80\x05\x96\x02\0\0\0\0\0\0\0a\xff.", "b'a\\xff'");
}

static void test_containers(void **unused) {
    (void)unused;
    LOADS("\x80\x02).", "()");
    LOADS("\x80\x02K\1\x85.", "(1,)");
    LOADS("\x80\x02K\1K\2\x86.", "(1, 2)");
    LOADS("\x80\x02K\1K\2K\3\x87.", "(1, 2, 3)");
    LOADS("\x80\x02(K\1K\2K\3K\4t.", "(1, 2, 3, 4)");
    LOADS("\x80\x02(t.", "()");
    LOADS("\x80\x02].", "[]");
    LOADS("\x80\x02]K\1a.", "[1]");
    LOADS("\x80\x02](K\1]e.", "[1, []]");
    LOADS("\x80\x02(K\1K\2l.", "[1, 2]");
    LOADS("\x80\x02}.", "{}");
    LOADS("\x80\x02}K\1K\2s.", "{1: 2}");
    LOADS("\x80\x02}(K\1K\2NNu.", "{1: 2, None: None}");
    LOADS("\x80\x02(K\1K\2d.", "{1: 2}");
    LOADS("\x80\x04\x8f(K\1\x90.", "[1]");
    LOADS("\x80\x04(K\1K\2\x91.", "[1, 2]");
    LOADS("\x80\x04\x95\x09\0\0\0\0\0\0\0]\x94(K\1h\0e.", "[1, [1, [1, [1, [1, [1, [..., ...]]]]]]]");
}

static void test_stack_and_memo(void **unused) {
    (void)unused;
    LOADS("\x80\x02K\1K\2" "0.", "1");
    LOADS("\x80\x02K\1(0.", "1");
    LOADS("\x80\x02K\1(K\2K\3" "1.", "1");
    LOADS("\x80\x02](K\1" "2e.", "[1, 1]");
    LOADS("\x80\x02](K\1q\0h\0r\1\0\0\0j\1\0\0\0e.", "[1, 1, 1]");
    LOADS("\x80\x04](K\1\x94K\2\x94h\0h\1e.", "[1, 2, 1, 2]");
}

static void test_known_objects(void **unused) {
    (void)unused;
    LOADS("\x80\x02" "ccollections\nOrderedDict\n)R.", "{}");
    LOADS("\x80\x02" "ccollections\nOrderedDict\n)R(K\1K\2u.", "{1: 2}");
    LOADS("\x80\x02" "ccollections\nOrderedDict\n](](K\1K\2eK\3K\4\x86" "e\x85R.", "{1: 2, 3: 4}");
    LOADS("\x80\x02" "ccollections\nOrderedDict\n)R}X\1\0\0\0xK\1sb.", "{}");            // state_dict's _metadata
    LOADS("\x80\x02" "ccollections\ndefaultdict\nc__builtin__\nlist\n\x85R(K\1K\2u.", "{1: 2}");
    LOADS("\x80\x02" "ccollections\nCounter\n}K\1K\2s\x85R.", "{1: 2}");
    LOADS("\x80\x02" "c__builtin__\nset\n]K\1a\x85R.", "[1]");
    LOADS("\x80\x02" "c__builtin__\nfrozenset\n]K\1a\x85R.", "[1]");
    LOADS("\x80\x02" "ccollections\ndeque\n)N\x86R(K\1K\2e.", "[1, 2]");
    LOADS("\x80\x02" "ctorch\nSize\nK\1K\2\x86\x85R.", "(1, 2)");
    LOADS("\x80\x02" "c_codecs\nencode\nX\3\0\0\0a\xc3\xbfX\6\0\0\0latin1\x86R.", "b'a\\xff'");
    LOADS("\x80\x02" "c_codecs\nencode\nX\3\0\0\0\xe2\x82\xacX\6\0\0\0latin1\x86R.", "b?");      // not latin-1: opaque later
    LOADS("\x80\x02" "c_codecs\nencode\nX\1\0\0\0aX\5\0\0\0rot13\x86R.", "<other>");
    LOADS("\x80\x02" "c__builtin__\nbytes\n)R.", "b''");
    LOADS("\x80\x02" "c__builtin__\nbytearray\nX\1\0\0\0aX\7\0\0\0latin-1\x86R.", "b'a'");
    LOADS("\x80\x05" "cbuiltins\nbytearray\nC\1a\x85R.", "b'a'");
    LOADS("\x80\x02" "cdatetime\ntimedelta\nK\1K\2J\x20\xa1\x07\0\x87R.", "86402.5");
    LOADS("\x80\x02" "cdatetime\ntimedelta\nJ\xff\xff\xff\xffJ\x7f\x51\1\0J\x3f\x42\x0f\0\x87R.", "-1e-06");             // as total_seconds() has it
    LOADS("\x80\x02" "cdatetime\ntimedelta\nK\3J\x9b\x15\0\0J\x8a\x1a\x0b\0\x87R.", "264731.72769");
    LOADS("\x80\x02" "cdatetime\ntimedelta\nJ\xff\xc9\x9a\x3bK\1K\0\x87R.", "86399999913601.0");
    LOADS("\x80\x02" "cnumpy\ndtype\nX\2\0\0\0f8\x89\x88\x87R(K\3X\1\0\0\0<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb.",
          "<dtype 1>");
    LOADS("\x80\x02" "cnumpy\ndtype\nX\2\0\0\0i4\x89\x88\x87R(K\3X\1\0\0\0>NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb.",
          "<dtype 8 swapped>");
    LOADS("\x80\x02" "cnumpy\ndtype\nX\2\0\0\0V8\x89\x88\x87R.", "<dtype 0>");
    LOADS("\x80\x03" "cnumpy.core.multiarray\nscalar\ncnumpy\ndtype\nX\2\0\0\0i2\x89\x88\x87RC\2\xfe\xff\x86R.", "-2");
    LOADS("\x80\x03" "cnumpy._core.multiarray\nscalar\ncnumpy\ndtype\nX\2\0\0\0f4\x89\x88\x87RC\4\0\0\0\x3f\x86R.", "0.5");
    LOADS("\x80\x03" "cnumpy.core.multiarray\nscalar\ncnumpy\ndtype\nX\2\0\0\0b1\x89\x88\x87RC\1\1\x86R.", "True");
    LOADS("\x80\x03" "cnumpy.core.multiarray\nscalar\ncnumpy\ndtype\nX\2\0\0\0u8\x89\x88\x87R"
          "C\x08\xff\xff\xff\xff\xff\xff\xff\xff\x86R.", "<other>");
    LOADS("\x80\x03" "cnumpy.core.multiarray\nscalar\ncnumpy\ndtype\nX\2\0\0\0i2\x89\x88\x87RC\1\xfe\x86R.", "<other>");
    LOADS("\x80\x05\x8c\x12numpy.core.numeric\x8c\x0b_frombuffer\x93(\x96\x04\0\0\0\0\0\0\0abcd"
          "cnumpy\ndtype\nX\2\0\0\0i2\x89\x88\x87RK\2\x85X\1\0\0\0CtR.", "<array 9 (2,)>");
    LOADS("\x80\x05\x8c\x12numpy.core.numeric\x8c\x0b_frombuffer\x93(\x96\x04\0\0\0\0\0\0\0abcd"       // bytes have no order
          "cnumpy\ndtype\nX\2\0\0\0i1\x89\x88\x87R(K\3X\1\0\0\0>NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tbK\4\x85X\1\0\0\0CtR.",
          "<array 10 (4,)>");
}

// One long text, called a scalar again and again: each time costs the same, however long it is.
static void test_scalars_of_one_text(void **unused) {
    (void)unused;
    static const char begin[] = "\x80\x02" "cnumpy.core.multiarray\nscalar\nq\0" "cnumpy\ndtype\nX\2\0\0\0i2\x89\x88\x87Rq\1"
                                "c_codecs\nencode\nX\0\0\x40\0", coded[] = "X\6\0\0\0latin1\x86Rq\2";
    enum { TEXT = 0x400000, TIMES = 100000, EACH = 9 };
    char *pickle = (char *)util_keep(malloc(sizeof begin + TEXT + sizeof coded + TIMES * EACH), false), *p = pickle;
    memcpy(p, begin, sizeof begin - 1);
    p += sizeof begin - 1;
    memset(p, 'x', TEXT);
    p += TEXT;
    memcpy(p, coded, sizeof coded - 1);
    p += sizeof coded - 1;
    for (int i = 0; i < TIMES; i++, p += EACH) memcpy(p, "h\0h\1h\2\x86R0", EACH);
    memcpy(p - 1, ".", 1);                          // the last one is what the pickle holds
    clock_t start = clock();
    assert_string_equal(load(pickle, (size_t)(p - pickle)), "<other>");
    assert_true(clock() - start < 8 * CLOCKS_PER_SEC);
}

#define V2 "ctorch._utils\n_rebuild_tensor_v2\n("
#define V3 "ctorch._utils\n_rebuild_tensor_v3\n("
#define FLOATS STORAGE("ctorch\nFloatStorage\n")
#define UNTYPED STORAGE("ctorch.storage\nUntypedStorage\n")
#define ODICT "ccollections\nOrderedDict\n"
#define STORAGE(type) "(X\7\0\0\0storage" type "X\1\0\0\0" "0X\3\0\0\0cpuK\4tQ"

static void test_tensors(void **unused) {
    (void)unused;
    LOADS("\x80\x02" STORAGE("ctorch\nHalfStorage\n") ".", "<storage 3 of 4>");
    LOADS("\x80\x02" STORAGE("ctorch.cuda\nHalfStorage\n") ".", "<storage 3 of 4>");
    LOADS("\x80\x02" STORAGE("ctorch\nQInt8Storage\n") ".", "<other>");
    LOADS("\x80\x02" V2 FLOATS "K\1K\2\x85K\1\x85\x89NtR.",
          "<tensor 2 1(2,)(1,)>");
    LOADS("\x80\x02" "ctorch._utils\n_rebuild_tensor\n(" FLOATS "K\1K\2\x85K\1\x85tR.",
          "<tensor 2 1(2,)(1,)>");
    LOADS("\x80\x02" V2 FLOATS "K\1K\2\x85K\1\x85\x89N}tR.",
          "<tensor 2 1(2,)(1,)>");
    LOADS("\x80\x02" V2 FLOATS "K\1K\2\x85K\1\x85\x89N}X\3\0\0\0neg\x88stR.", "<other>");
    LOADS("\x80\x02" V3 UNTYPED "K\1K\2\x85K\1\x85\x89Nctorch\nuint16\ntR.", "<tensor 13 1(2,)(1,)>");
    LOADS("\x80\x02" V3 UNTYPED "K\1K\2\x85K\1\x85\x89Nctorch\nuint4\ntR.", "<other>");
    LOADS("\x80\x02" "ctorch._utils\n_rebuild_parameter\n(" V2 FLOATS "K\1K\2\x85K\1\x85\x89NtR\x88NtR.", "<tensor 2 1(2,)(1,)>");
    LOADS("\x80\x02" "ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_tensor_v2\nctorch\nTensor\n(" FLOATS
          "K\1K\2\x85K\1\x85\x89Nt}tR.", "<tensor 2 1(2,)(1,)>");
    LOADS("\x80\x02" "ctorch._utils\n_rebuild_tensor_v2\n(NK\1K\2\x85K\1\x85\x89NtR.", "<other>");
    LOADS("\x80\x02" "ctorch._utils\n_rebuild_tensor_v2\n)R.", "<other>");
}

#define ARRAY_I2 "cnumpy.core.numeric\n_frombuffer\n(C\x04" "abcdcnumpy\ndtype\nX\2\0\0\0i2\x89\x88\x87R" \
    "K\2\x85X\1\0\0\0CtR"
#define T2 V2 FLOATS "K\1K\2\x85K\1\x85\x89NtR"
#define FROM_CPU "ctorch._utils\n_rebuild_device_tensor_from_cpu_tensor\n("
#define FROM_NUMPY "ctorch._utils\n_rebuild_device_tensor_from_numpy\n("
#define FROM_XLA "ctorch._utils\n_rebuild_xla_tensor\n("
#define ON_XLA "X\5\0\0\0xla:0\x89tR"

// Tensors of devices without storages, and those that are carried in something else.
static void test_carried_tensors(void **unused) {
    (void)unused;
    LOADS("\x80\x02" FROM_CPU T2 "ctorch\nfloat32\n" ON_XLA ".", "<tensor 2 1(2,)(1,)>");
    LOADS("\x80\x02" FROM_CPU T2 "ctorch\nfloat16\n" ON_XLA ".", "<other>");
    LOADS("\x80\x02" FROM_CPU T2 "N" ON_XLA ".", "<other>");
    LOADS("\x80\x02" FROM_CPU "Nctorch\nfloat32\n" ON_XLA ".", "<other>");
    LOADS("\x80\x02" "ctorch._utils\n_rebuild_device_tensor_from_cpu_tensor\n)R.", "<other>");
    LOADS("\x80\x03" FROM_NUMPY ARRAY_I2 "ctorch\nint16\n" ON_XLA ".", "<array 9 (2,)>");
    LOADS("\x80\x03" FROM_XLA ARRAY_I2 "ctorch\nint16\n" ON_XLA ".", "<array 9 (2,)>");
    LOADS("\x80\x03" FROM_XLA ARRAY_I2 "ctorch\nbfloat16\n" ON_XLA ".", "<other>");
    LOADS("\x80\x03" "ctorch._utils\n_rebuild_parameter\n(" FROM_CPU T2 "ctorch\nfloat32\n" ON_XLA "\x88NtR.",
          "<tensor 2 1(2,)(1,)>");
    LOADS("\x80\x02" "ctorch.tensor\n_rebuild_from_type\n(ctorch._utils\n_rebuild_tensor_v2\nc__main__\nMine\n(" FLOATS
          "K\1K\2\x85K\1\x85\x89Nt}tR.", "<tensor 2 1(2,)(1,)>");
    LOADS("\x80\x02" "ctorch.torch_version\nTorchVersion\nX\5\0\0\0" "2.9.0\x85\x81.", "'2.9.0'");
    LOADS("\x80\x02" "ctorch.torch_version\nTorchVersion\nK\1\x85\x81.", "<other>");
    LOADS("\x80\x02" "ctorch.jit._pickle\nrestore_type_tag\n(}(X\1\0\0\0a" "ctorch.jit._pickle\nbuild_intlist\n(](K\1K\2etRu"
          "X\4\0\0\0DicttR.", "{'a': [1, 2]}");
    LOADS("\x80\x02" "ctorch.jit._pickle\nbuild_tensorlist\n)R.", "<other>");
}

// Whatever is not known is kept as a name; what is done to it afterwards is dropped.
static void test_unknown_objects(void **unused) {
    (void)unused;
    LOADS("\x80\x02" "cos\nsystem\nX\2\0\0\0id\x85R.", "<other>");
    LOADS("\x80\x02" "cos\nsystem\n.", "<global>");
    LOADS("\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x02id\x85R.", "<other>");
    LOADS("\x80\x02" "c__main__\nThing\n)\x81}X\1\0\0\0xK\1sb.", "<other>");
    LOADS("\x80\x02" "c__main__\nThing\n)\x81(K\1K\2e(K\1K\2uK\3a.", "<other>");
    LOADS("\x80\x04" "c__main__\nThing\n)}\x92.", "<other>");
    LOADS("\x80\x02NN\x86\x85)R.", "<other>");
    LOADS("\x80\x02NQ.", "<other>");
    LOADS("\x80\x02)Q.", "<other>");
}

static void test_damage(void **unused) {
    (void)unused;
    FAILS("", CKPT_CORRUPT, "ends early");
    FAILS(".", CKPT_CORRUPT, "stack is empty");
    FAILS("\x80\x02", CKPT_CORRUPT, "ends early");
    FAILS("\x80\x06N.", CKPT_CORRUPT, "newer than 5");
    FAILS("\x80\x02K", CKPT_CORRUPT, "ends early");
    FAILS("\x80\x02X\xff\xff\xff\xffx.", CKPT_CORRUPT, "ends early");
    FAILS("\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xffx.", CKPT_CORRUPT, "ends early");
    FAILS("\x80\x02\x8b\xff\xff\xff\xffx.", CKPT_CORRUPT, "ends early");
    FAILS("\x80\x02" "ctorch", CKPT_CORRUPT, "ends early");
    FAILS("\x80\x02\x85.", CKPT_CORRUPT, "stack is empty");
    FAILS("\x80\x02K\1(\x85.", CKPT_CORRUPT, "stack is empty");
    FAILS("\x80\x02t.", CKPT_CORRUPT, "mark");
    FAILS("\x80\x02" "e.", CKPT_CORRUPT, "mark");
    FAILS("\x80\x02K\1a.", CKPT_CORRUPT, "stack is empty");
    FAILS("\x80\x02K\1K\2a.", CKPT_CORRUPT, "no list");
    FAILS("\x80\x02]K\1K\2s.", CKPT_CORRUPT, "no dict");
    FAILS("\x80\x02K\1s.", CKPT_CORRUPT, "stack is empty");
    FAILS("\x80\x02}(K\1u.", CKPT_CORRUPT, "no dict");
    FAILS("\x80\x02(K\1" "d.", CKPT_CORRUPT, "without a value");
    FAILS("\x80\x02h\0.", CKPT_CORRUPT, "not there");
    FAILS("\x80\x02j\xff\xff\xff\xff.", CKPT_CORRUPT, "not there");
    FAILS("\x80\x02Nr\xff\xff\xff\xff.", CKPT_CORRUPT, "out of range");
    FAILS("\x80\x02q\0.", CKPT_CORRUPT, "stack is empty");
    FAILS("\x80\x02N(q\0.", CKPT_CORRUPT, "stack is empty");
    FAILS("\x80\x02R.", CKPT_CORRUPT, "stack is empty");
    FAILS("\x80\x02" "b.", CKPT_CORRUPT, "stack is empty");
    FAILS("\x80\x02(N.", CKPT_OK, "");                      // a mark left behind harms nobody
    FAILS("\x80\x02\xc9.", CKPT_CORRUPT, "unknown");
    FAILS("\x80\x05\x97.", CKPT_CORRUPT, "unknown");        // an out-of-band buffer
    FAILS("I1\n.", CKPT_UNSUPPORTED, "protocol 0 or 1");
    FAILS("(lp0\n.", CKPT_UNSUPPORTED, "protocol 0 or 1");
    FAILS("\x80\x02" "ccollections\nOrderedDict\n]K\1a\x85R.", CKPT_CORRUPT, "pairs");
    FAILS("\x80\x02(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0" "0X\3\0\0\0cpuJ\xff\xff\xff\xfftQ.", CKPT_CORRUPT,
          "negative");
}

// Every cut and every changed byte of a rich pickle ends in a value or a sentence.
static void test_any_bytes(void **unused) {
    (void)unused;
    static const char rich[] = "\x80\x02}(X\1\0\0\0a](K\1J\xff\xff\xff\xff\x8a\x03" "abcG\x3f\xf8\0\0\0\0\0\0e" "X\1\0\0\0bq\0" V2
        FLOATS "K\1K\2\x85K\1\x85\x89" "ccollections\nOrderedDict\n)RtRh\0c__main__\nThing\n)\x81}h\0K\1sbu.";
    char copy[sizeof rich];
    assert_int_equal(load(rich, sizeof rich - 1)[0], '{');
    for (size_t n = 0; n < sizeof rich - 1; n++) (void)load(rich, n);
    for (size_t at = 0; at < sizeof rich - 1; at++) {
        memcpy(copy, rich, sizeof rich);
        for (int c = 0; c < 256; c++) {
            copy[at] = (char)c;
            (void)load(copy, sizeof rich - 1);
        }
    }
}

//-- the writer --------------------------------------------------------------------

static void assert_int(int64_t v, const char *want, size_t size) {
    ckpt__pickle_writer w;
    ckpt__pickle_begin(&w, NULL);
    ckpt__pickle_int(&w, v);
    assert_int_equal(w.out.len, size + 2);
    assert_memory_equal(w.out.data + 2, want, size);
    ckpt__pickle_op(&w, '.');
    assert_string_equal(load(w.out.data, w.out.len), util_fmt("%lld", (long long)v));
    ckpt__buf_free(&w.out);
}

static void test_writing_ints(void **unused) {
    (void)unused;
#define INT(v, text) assert_int(v, text, sizeof text - 1)
    INT(0, "K\0");                  INT(255, "K\xff");                  INT(256, "M\0\1");               INT(65535, "M\xff\xff");
    INT(65536, "J\0\0\1\0");        INT(-1, "J\xff\xff\xff\xff");       INT(INT32_MAX, "J\xff\xff\xff\x7f");
    INT(INT32_MIN, "J\0\0\0\x80");  INT(2147483648, "\x8a\5\0\0\0\x80\0");  INT(-2147483649, "\x8a\5\xff\xff\xff\x7f\xff");
    INT(140737488355327, "\x8a\6\xff\xff\xff\xff\xff\x7f");     INT(140737488355328, "\x8a\7\0\0\0\0\0\x80\0");
    INT(INT64_MAX, "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f"); INT(INT64_MIN, "\x8a\x08\0\0\0\0\0\0\0\x80");
#undef INT
}

static void test_writing_floats(void **unused) {
    (void)unused;
    static const struct { double v; const char *text; } all[] = {
        { 0.0, "0.0" }, { -0.0, "-0.0" }, { 0.1, "0.1" }, { 1e300, "1e+300" }, { 5e-324, "5e-324" }, { HUGE_VAL, "inf" }
    };
    for (int i = 0; i < UTIL_COUNT(all); i++) {
        ckpt__pickle_writer w;
        ckpt__pickle_begin(&w, NULL);
        ckpt__pickle_float(&w, all[i].v);
        ckpt__pickle_op(&w, '.');
        assert_string_equal(load(w.out.data, w.out.len), all[i].text);
        ckpt__buf_free(&w.out);
    }
}

// Every dtype, every number of dimensions; the second tensor of a dtype fetches its words from the memo.
static void test_writing_tensors(void **unused) {
    (void)unused;
    static const int64_t shape[CKPT_MAX_DIMS] = { 2, 1, 3, 0x7FFFFFFF, 2, 1, 1, 1 };
    for (int d = (int)CKPT_F64; d <= (int)CKPT_C128; d++) {
        for (int ndim = 0; ndim <= CKPT_MAX_DIMS; ndim++) {
            ckpt__pickle_writer w;
            ckpt__pickle_begin(&w, NULL);
            ckpt__pickle_tensor(&w, (ckpt_dtype)d, ndim, shape, "123456789012345678901b");
            size_t first = w.out.len;
            ckpt__pickle_tensor(&w, (ckpt_dtype)d, ndim, shape, "123456789012345678901b");
            assert_true(w.out.len - first < first && w.out.err == CKPT_OK);
            ckpt__pickle_op(&w, '\x86');
            ckpt__pickle_op(&w, '.');
            const char *got = load(w.out.data, w.out.len), *want = util_fmt("(<tensor %d 0(", d);
            if (strncmp(got, want, strlen(want)) != 0) fail_msg("%s", got);
            ckpt__buf_free(&w.out);
        }
    }
}

// What is read in one go is read as the machine reads it, which is made to by another opcode for the same number of the memo;
// and cut or changed anywhere it is refused or read as the machine would.
static void test_own_tensors(void **unused) {
    (void)unused;
    static const int64_t shape[] = { 3, 300, 70000, 0 };
    enum { EACH = 5 };
    ckpt__pickle_writer w;
    ckpt__buf slow;
    ckpt__pickle k;
    uint32_t root;
    ckpt__pickle_begin(&w, NULL);
    ckpt__buf_init(&slow, NULL);
    ckpt__buf_add(&w.out, "](", 2);
    for (int i = 0; i < 5 * EACH; i++) ckpt__pickle_tensor(&w, i % 5 == 4 ? CKPT_I8 : CKPT_F32, i % 5, shape, "12");
    ckpt__buf_add(&w.out, "e.", 2);
    assert_int_equal(w.out.err, CKPT_OK);
    for (size_t i = 0; i < w.out.len; i++) {
        bool opens = w.out.len - i > 4 && memcmp(w.out.data + i, "h\0((", 4) == 0;
        if (opens) ckpt__buf_add(&slow, "j\0\0\0\0", 5);
        else ckpt__buf_byte(&slow, (unsigned char)w.out.data[i]);
        if (opens) i++;
    }
    assert_int_equal(slow.len, w.out.len + 3 * (5 * EACH - 1));
    assert_string_equal(load(w.out.data, w.out.len), load(slow.data, slow.len));
    assert_int_equal(ckpt__pickle_read(&k, NULL, slow.data, slow.len, &root), CKPT_OK);
    size_t nodes = k.node_count;
    ckpt__pickle_free(&k);
    assert_int_equal(ckpt__pickle_read(&k, NULL, w.out.data, w.out.len, &root), CKPT_OK);
    assert_true(k.node_count + 4 * 3 * (EACH - 1) <= nodes);
    ckpt__pickle_free(&k);
    for (size_t cut = 0; cut < w.out.len; cut++) assert_int_equal(atoi(load(w.out.data, cut)), (int)CKPT_CORRUPT);
    for (size_t i = 0; i < w.out.len; i++) {
        w.out.data[i] ^= 1;
        (void)load(w.out.data, w.out.len);
        w.out.data[i] ^= 1;
    }
    ckpt__buf_free(&w.out);
    ckpt__buf_free(&slow);
}

//-- memory that is refused --------------------------------------------------------

static int  refuse_at, refuse_count;
static long refuse_live;

static void *refusing(void *p, size_t old_size, size_t new_size, void *user) {
    (void)user;
    if (new_size == 0) {
        refuse_live -= (long)old_size;
        free(p);
        return NULL;
    }
    if (refuse_count++ == refuse_at) return NULL;
    refuse_live += (long)new_size - (long)old_size;
    return realloc(p, new_size);
}

static void test_every_allocation(void **unused) {
    (void)unused;
    static const char rich[] = "\x80\x02}(X\1\0\0\0a](K\1K\2e" "X\1\0\0\0bq\0" V2 FLOATS "K\1K\2\x85K\1\x85\x89NtRu.";
    ckpt_allocator a = { refusing, NULL };
    ckpt_err e = CKPT_NOMEM;
    for (refuse_at = 0; e != CKPT_OK; refuse_at++) {
        ckpt__pickle k;
        uint32_t root;
        refuse_count = 0;
        e = ckpt__pickle_read(&k, &a, rich, sizeof rich - 1, &root);
        if (e != CKPT_OK) assert_int_equal(e, CKPT_NOMEM);
        ckpt__pickle_free(&k);
        assert_int_equal(refuse_live, 0);
    }
    assert_true(refuse_at > 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values), cmocka_unit_test(test_containers), cmocka_unit_test(test_stack_and_memo),
            cmocka_unit_test(test_known_objects), cmocka_unit_test(test_scalars_of_one_text),
        cmocka_unit_test(test_tensors), cmocka_unit_test(test_carried_tensors), cmocka_unit_test(test_unknown_objects),
            cmocka_unit_test(test_damage), cmocka_unit_test(test_any_bytes),
        cmocka_unit_test(test_writing_ints), cmocka_unit_test(test_writing_floats), cmocka_unit_test(test_writing_tensors),
            cmocka_unit_test(test_own_tensors),
            cmocka_unit_test(test_every_allocation)
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
