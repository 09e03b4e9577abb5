#!/usr/bin/env python3
"""Proves names, numbers and globs against Python itself: format(), repr(), float(), str.format and fnmatch, on random inputs.

The library is compiled as a shared object and called through ctypes. The last line of a skip names its reason.
"""
import ctypes
import fnmatch
import math
import os
import random
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SHIM = r'''
#define CKPT_IMPLEMENTATION
#include "ckpt.h"
static int give(ckpt__buf *b, bool ok, char *out, int cap) {
    int n = -1;
    if (ok && b->err == CKPT_OK && (int)b->len < cap) { memcpy(out, ckpt__buf_cstr(b), b->len + 1); n = (int)b->len; }
    ckpt__buf_free(b);
    return n;
}
int shim_format(int kind, long long i, double f, const char *t, const char *spec, char *out, int cap) {
    ckpt__buf b;
    ckpt__name_value v;
    ckpt__buf_init(&b, NULL);
    memset(&v, 0, sizeof v);
    v.kind = (ckpt__name_kind)kind;
    v.i = i;
    v.f = f;
    v.text = ckpt__txt_view(t);
    return give(&b, ckpt__name_put(&b, &v, ckpt__txt_view(spec)) == NULL, out, cap);
}
int shim_repr(double f, char *out, int cap) {
    ckpt__buf b;
    ckpt__buf_init(&b, NULL);
    ckpt__txt_add_double(&b, f);
    return give(&b, true, out, cap);
}
int shim_text_repr(const char *t, int ascii, char *out, int cap) {
    ckpt__buf b;
    ckpt__buf_init(&b, NULL);
    ckpt__name_repr(&b, ckpt__txt_view(t), ascii != 0);
    return give(&b, true, out, cap);
}
int shim_double(const char *t, double *out) { return ckpt__txt_double(ckpt__txt_view(t), out); }
int shim_glob(const char *p, const char *s) { return ckpt__txt_glob(p, s); }
int shim_name(const char *format, const char *run, char *out, int cap) {
    ckpt_timestamp t;
    ckpt_ranks r;
    ckpt_name_desc d;
    memset(&t, 0, sizeof t);
    memset(&d, 0, sizeof d);
    memset(&r, 0, sizeof r);
    r.world_size = 1;
    t.epoch = 7;
    t.batch = 1234;
    t.total_wct = 3661.5;
    d.run_name = run;
    d.timestamp = &t;
    d.ranks = &r;
    return ckpt_format_name(out, (size_t)cap, format, &d);
}
'''


def build():
    folder = tempfile.mkdtemp()
    source, out = os.path.join(folder, "shim.c"), os.path.join(folder, "shim.so")
    with open(source, "w") as f:
        f.write(SHIM)
    subprocess.run([os.environ.get("CC", "cc"), "-std=gnu99", "-O0", "-shared", "-fPIC", "-DCKPT_NO_REMOTE=", "-I" + os.path.dirname(HERE),
                    source, "-o", out, "-lm", "-lpthread"], check=True)
    lib = ctypes.CDLL(out)
    for name in os.listdir(folder):
        os.remove(os.path.join(folder, name))
    os.rmdir(folder)
    return lib


R = random.Random(20261121)
buf = ctypes.create_string_buffer(20000)
wrong = 0


def check(what, question, got, want):
    global wrong
    if got != want:
        wrong += 1
        if wrong < 30:
            print("%s %r: %r, Python has %r" % (what, question, got, want))


def attempt(fn):
    try:
        return fn()
    except (ValueError, OverflowError, TypeError, AttributeError, IndexError, RuntimeError):
        return None


def text_of(n):
    return None if n < 0 else buf.raw[:n].decode()


def random_spec():
    s = ""
    if R.random() < .4:
        s += (R.choice("*0x_ .<\u00e9>,5") if R.random() < .6 else "") + R.choice("<>=^")
    s += R.choice("+- ") if R.random() < .3 else ""
    s += "z" if R.random() < .1 else ""
    s += "#" if R.random() < .25 else ""
    s += "0" if R.random() < .3 else ""
    s += str(R.choice([0, 1, 2, 3, 5, 8, 9, 10, 12, 17, 20, 40])) if R.random() < .6 else ""
    s += R.choice(",_") if R.random() < .3 else ""
    s += R.choice(",_") if R.random() < .05 else ""
    s += "." + R.choice(["0", "1", "2", "3", "6", "10", "17", "20", "30", ""]) if R.random() < .4 else ""
    s += R.choice("bcdeEfFgGnosxX%s?dfge") if R.random() < .75 else ""
    return s + (R.choice("q d") if R.random() < .03 else "")


def random_int():
    k = R.random()
    if k < .7:
        return R.randint(-20, 2000) if k < .4 else R.randint(-10**9, 10**9)
    return R.choice([0, 1, -1, 2**63 - 1, -2**63, 10**15, 999, 1000, -999, 65, 0x20AC, 0x1F600])


def random_bits(n=64):
    return struct.unpack("<d", struct.pack("<Q", R.getrandbits(n)))[0]


def random_float():
    k = R.random()
    if k < .3:
        return round(R.uniform(-1000, 1000), R.randint(0, 4))
    if k < .5:
        return R.uniform(-1, 1) * 10.0**R.randint(-30, 30)
    if k < .8:
        return random_bits()
    return R.choice([0.0, -0.0, 1e16, 1e15, 1e17, 123456789012345678.0, math.inf, -math.inf, math.nan, 0.5, 1.5, 2.5, 1e-4, 1e-5, 9.5,
                     99.5, 999999.5, 5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, 100.0, 1e22, 1e23])


def specs(lib, count):
    for _ in range(count):
        spec, kind = random_spec(), R.randint(0, 2)
        values = [R.choice(["", "a", "abc", "h\u00e9llo", "{foo}", "\u65e5\u672c", "x" * 10]), random_int(), random_float()]
        if kind == 1 and spec.endswith("c") and not 0 < values[1] < 0xD800:
            continue            # a NUL or half a surrogate pair stays out of names
        n = lib.shim_format(kind, ctypes.c_longlong(values[1]), ctypes.c_double(values[2]), values[0].encode(), spec.encode(), buf, 20000)
        check("format", (values[kind], spec), text_of(n), attempt(lambda: format(values[kind], spec)))


def numbers(lib, count):
    values = [2.0**k for k in range(-1074, 1024)] + [math.nextafter(2.0**k, 0) for k in range(-1073, 1024)]
    values += [float("1e%d" % k) for k in range(-323, 309)] + [random_bits() for _ in range(count)] + [random_bits(52) for _ in range(count // 10)]
    d = ctypes.c_double()
    for v in values:
        check("repr", v, text_of(lib.shim_repr(ctypes.c_double(v), buf, 100)), repr(v))
    for _ in range(count // 2):
        s = "".join(R.choice("0123456789") for _ in range(R.randint(1, 40)))
        if R.random() < .7:
            p = R.randint(0, len(s))
            s = s[:p] + "." + s[p:]
        s += "e%d" % R.randint(-340, 320) if R.random() < .5 else ""
        if R.random() < .02:
            s = "1" + "0" * R.randint(750, 1000) + s.replace(".", "")
        if R.random() < .02:
            s = "0." + "0" * R.randint(0, 300) + "24703282292062327208" + "0" * 800 + "1"
        ok = lib.shim_double(s.encode(), ctypes.byref(d))
        check("float", s, d.value if ok else None, attempt(lambda: float(s)))


def texts(lib, count):
    pieces = ["a", "'", '"', "\\", "\n", "\t", "\x01", "\x7f", "\u00e9", "\u65e5", "\u2028", "\x85", "\xad", "\U0001F600"]
    for _ in range(count):
        t = "".join(R.choice(pieces) for _ in range(R.randint(0, 6)))
        check("repr", t, text_of(lib.shim_text_repr(t.encode(), 0, buf, 1000)), repr(t))
        check("ascii", t, text_of(lib.shim_text_repr(t.encode(), 1, buf, 1000)), ascii(t))
    for _ in range(count):
        p = "".join(R.choice("ab*?[]!-^/\\c\u00e9") for _ in range(R.randint(0, 8)))
        s = "".join(R.choice("ab[]!-^/\\c\u00e9") for _ in range(R.randint(0, 6)))
        check("fnmatch", (p, s), bool(lib.shim_glob(p.encode(), s.encode())), fnmatch.fnmatchcase(s, p))


def partial(text, **known):
    """Composer's loop: a missing name is bound to its own text, a missing position to {}."""
    args = []
    for _ in range(60):
        try:
            return text.format(*args, **known)
        except IndexError:
            args.append("{}")
        except KeyError as e:
            known[e.args[0]] = "{%s}" % e.args[0]
    raise RuntimeError


def names(lib, count):
    pieces = ["a", "{", "}", "{{", "}}", "{epoch}", "{epoch", "batch", "{foo}", "{foo", "!r", "!s", "!", ":", "03d", ">8", "{w}", ".real", "[0]",
              "[", ".", "{}", "{0}", "{total_wct", ":.1f}", "run_name", "{run_name", "/"]
    run = "r\u00fcn"
    for _ in range(count):
        s = "".join(R.choice(pieces) for _ in range(R.randint(1, 6)))
        e = lib.shim_name(s.encode(), run.encode(), buf, 20000)
        want = attempt(lambda: partial(s, epoch=7, batch=1234, total_wct=3661.5, run_name=run, rank=0, sample=0, token=0))
        check("name", s, buf.value.decode() if e == 0 else None, want)


def main():
    if sys.version_info < (3, 11):
        print("Python 3.11 is needed: earlier ones have other rules for 'z' and for '0' before a text's width")
        return 77
    lib = build()
    scale = 5 if os.environ.get("CKPT_LONG") == "1" else 1
    for part, count in ((specs, 60000), (numbers, 30000), (texts, 20000), (names, 40000)):
        before = wrong
        part(lib, count * scale)
        print("%s: %s, as Python has them" % ("PASS" if wrong == before else "FAIL", part.__name__))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
