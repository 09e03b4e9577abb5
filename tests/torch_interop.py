#!/usr/bin/env python3
"""torch_interop.py: torch reads what ckpt.h writes, in both modes of torch.load, and ckpt.h reads what torch writes.

   python3 tests/torch_interop.py [--long]     --long (or CKPT_LONG=1) adds files of more than 4 GiB (sparse ours, dense torch's)
"""
import os, sys

try:
    import torch
except ImportError:
    if sys.executable != "/usr/bin/python3" and os.path.exists("/usr/bin/python3") and "CKPT_REEXEC" not in os.environ:
        os.environ["CKPT_REEXEC"] = "1"            # python3-torch belongs to the system's own python
        os.execv("/usr/bin/python3", ["/usr/bin/python3"] + sys.argv)
    print("no torch for python3 (python3-torch)")
    sys.exit(77)

import collections, copy, datetime, io, math, random, shutil, struct, subprocess, tempfile, time
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
LONG = "--long" in sys.argv or os.environ.get("CKPT_LONG", "0") not in ("", "0")
NEW = hasattr(torch, "float8_e4m3fn") and hasattr(torch, "uint16")
FLOATS_IN_SAFE_MODE = int(torch.__version__.split(".")[0]) >= 2     # torch 1.13's allow-list unpickler has no BINFLOAT
failed = 0


def check(what, good):
    global failed
    if not good:
        failed += 1
        print("FAIL:", what)


def same(what, got, want):
    check("%s: got %r, want %r" % (what, got, want), type(got) is type(want) and got == want)


def run(*args):
    return subprocess.run([TOOL] + list(args), check=True, stdout=subprocess.PIPE).stdout.decode()


#-- torch reads ours

def pattern(dtype, n, plain):
    mult, mask = 0x0102030405060708, (1 << 64) - 1 if not plain else 0x3FFF3FFF3FFF3F3F
    raw = b"".join(struct.pack("<Q", (mult * (i + 1) & mask)) for i in range(16))
    t = torch.empty(0, dtype=dtype)
    size = torch.empty(1, dtype=dtype).element_size()
    return bytes(raw[:n * size])


def raw_of(t):
    t = t.detach().contiguous()
    if t.numel() == 0:
        return b""
    if hasattr(t, "untyped_storage"):
        s = t.untyped_storage()
        off = t.storage_offset() * t.element_size()
        return bytes(bytearray(s)[off:off + t.numel() * t.element_size()])
    if t.dtype == torch.bfloat16:
        return t.view(torch.int16).numpy().tobytes()
    return t.numpy().tobytes()


def check_ours(path, safe, floats):
    label = "%s, weights_only=%s" % (os.path.basename(path), safe)
    d = torch.load(path, weights_only=safe)
    m = d["state"]["model"]
    same(label + " type", type(d), dict)
    for name in ("float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 complex64 complex128").split():
        t = m[name]
        same(label + " dtype", t.dtype, getattr(torch, name))
        same(label + " shape", tuple(t.shape), (2, 3))
        same(label + " bytes of " + name, raw_of(t), pattern(t.dtype, 6, True))
    same(label + " bool", m["bool"].tolist(), [True, False, True, True, False])
    same(label + " bool dtype", m["bool"].dtype, torch.bool)
    same(label + " empty", tuple(m["empty"].shape), (4, 0, 2))
    same(label + " scalar", (tuple(m["scalar"].shape), m["scalar"].item()), ((), 42.5))
    same(label + " deep", (tuple(m["deep"].shape), m["deep"].flatten().tolist()), ((1, 5, 1, 1, 1), [1.0, 2.0, 3.0, 4.0, 5.0]))
    same(label + " tied", m["tied.a"].tolist(), m["tied.b"].tolist())
    check(label + " big", torch.equal(m["big"], torch.arange(40000, dtype=torch.float32)))
    check(label + " contiguous", all(t.is_contiguous() for t in m.values()))
    check(label + " requires no grad", not any(t.requires_grad for t in m.values()))
    ints = [0, 255, 256, 65535, 65536, 2147483647, 2147483648, -1, -128, -129, -32769, -2147483648, -2147483649,
            2**63 - 1, -2**63, 140737488355328, -140737488355328]
    same(label + " ints", [d["state"]["ints"][str(i)] for i in range(len(ints))], ints)
    groups = d["state"]["optimizers"]["AdamW"]["param_groups"]
    same(label + " list", type(groups), list)
    same(label + " list length", len(groups), 2)
    same(label + " order of keys", list(d["state"])[:6], ["model", "ints", "optimizers", "text", "none", "code"])
    want = [{"step": 255, "amsgrad": True}, {"step": 256, "amsgrad": False}]
    if floats:
        want[0]["lr"] = 0.001
        same(label + " inf", d["state"]["inf"], math.inf)
        same(label + " floats", repr(d["state"]["wd"]), "[0.25, -0.0]")
    same(label + " list items", groups, want)
    same(label + " text", d["state"]["text"], "gr\u00fc\u00dfe")
    same(label + " empty text", d["state"]["none"], "")
    same(label + " bytes", bytes(d["state"]["code"].tolist()), bytes([0, 1, 255, 10, 97, 128, 0, 7]))
    same(label + " no bytes", (d["state"]["nothing"].numel(), d["state"]["nothing"].dtype), (0, torch.uint8))


def check_python_zip(path):
    import zipfile
    z = zipfile.ZipFile(path)
    check("python's zipfile finds " + repr(z.testzip()), z.testzip() is None)
    for i in z.infolist():
        check("alignment of " + i.filename, data_offset(path, i) % (4096 if i.file_size >= 65536 else 64) == 0)
    check("data.pkl comes first", z.namelist()[0].endswith("/data.pkl"))


def data_offset(path, info):
    with open(path, "rb") as f:
        f.seek(info.header_offset + 26)
        n, m = struct.unpack("<HH", f.read(4))
    return info.header_offset + 30 + n + m


def torch_reads_ours():
    a, p = os.path.join(DIR, "ours.pt"), os.path.join(DIR, "plain.pt")
    run("write", a)
    run("write-plain", p)
    check_ours(a, False, True)
    check_ours(p, False, False)
    check_ours(p, True, False)
    if FLOATS_IN_SAFE_MODE:
        check_ours(a, True, True)
    else:
        try:
            torch.load(a, weights_only=True)
            check("torch 1.13 learnt floats in weights_only mode: test them", False)
        except Exception as e:
            check("only a float stops torch 1.13: " + str(e), "operand 71" in str(e))
    check_python_zip(a)
    for name in ("empty", "small", "lists"):
        same("golden/%s.pt" % name, type(torch.load(os.path.join(HERE, "golden", name + ".pt"))), dict)
    # what torch writes again reads the same
    again = os.path.join(DIR, "again.pt")
    torch.save(torch.load(a), again)
    check("saved again by torch it reads the same", dump(again, True) == dump(a, True))
    run("write-new", os.path.join(DIR, "new.pt"))
    if NEW:
        for safe in (False, True):
            d = torch.load(os.path.join(DIR, "new.pt"), weights_only=safe)
            for name, t in d.items():
                same("new dtype", t.dtype, getattr(torch, name))
                same("new bytes", raw_of(t.view(torch.uint8)), pattern(torch.uint8, t.numel() * t.element_size(), False))


def new_dtypes_as_torch_builds_them():
    """torch 1.13 lacks these dtypes: its own unpickler runs with stand-ins, so that the calls and their arguments are checked."""
    import pickle, zipfile
    calls = []

    class Global:
        def __init__(self, name): self.name = name
        def __call__(self, *args): return calls.append((self.name, args)) or (self.name, args)

    class Reader(pickle.Unpickler):
        def find_class(self, module, name):
            return collections.OrderedDict if name == "OrderedDict" else Global(module + "." + name)
        def persistent_load(self, pid): return ("pid",) + tuple(x.name if isinstance(x, Global) else x for x in pid)

    z = zipfile.ZipFile(os.path.join(DIR, "new.pt"))
    Reader(io.BytesIO(z.read("my run/data.pkl"))).load()
    want = {"float8_e4m3fn": 1, "float8_e5m2": 1, "uint16": 2, "uint32": 4, "uint64": 8}
    same("number of new dtypes", len(calls), len(want))
    for i, ((name, args), (dtype, size)) in enumerate(zip(calls, want.items())):
        same("function", name, "torch._utils._rebuild_tensor_v3")
        same("arguments", (args[0], args[1:6], args[6].name),
             (("pid", "storage", "torch.storage.UntypedStorage", str(i), "cpu", 6 * size),
              (0, (2, 3), (3, 1), False, collections.OrderedDict()), "torch." + dtype))
        same("bytes", z.read("my run/data/%d" % i), pattern(torch.uint8, 6 * size, False))


#-- ours reads torch's

def dump(path, joined=False):
    """{name: (kind, ...)} or, for a file that is refused, the line that says so"""
    text = run("dump", path)
    if text.startswith("CKPT_"):
        return text.strip()
    out = {}
    for line in text.splitlines():
        f = line.split("\t")
        name = bytes.fromhex(f[1]).decode()
        check("two entries called " + name, name not in out)
        if f[0] in ("tensor", "bytes"):
            shape = tuple(int(x) for x in f[3].split(",") if x)
            out[name] = (f[0] if not joined else "tensor", f[2], shape, bytes.fromhex(f[4]) if "large" not in f[4] else f[4])
        elif f[0] in ("int", "bool"):
            out[name] = (f[0], int(f[2]))
        elif f[0] == "float":
            out[name] = (f[0], repr(float.fromhex(f[2])))
        elif f[0] == "text":
            out[name] = (f[0], bytes.fromhex(f[2]).decode())
        elif f[0] == "other":
            out[name] = ("other", bytes.fromhex(f[2]).decode())
        else:
            out[name] = (f[0],)
    return out


def expect(obj, path="", out=None):
    """what a dump of torch.save(obj) must be, worked out by other means"""
    out = {} if out is None else out
    join = lambda k: path + ("/" if path else "") + str(k)
    if isinstance(obj, torch.Tensor):
        out[path or "value"] = ("tensor", str(obj.dtype).replace("torch.", ""), tuple(obj.shape), raw_of(obj))
    elif isinstance(obj, np.ndarray):
        out[path] = ("tensor", str(obj.dtype), tuple(obj.shape), np.ascontiguousarray(obj).tobytes())
    elif isinstance(obj, (bool, np.bool_)):
        out[path] = ("bool", int(obj))
    elif isinstance(obj, (int, np.integer)):
        out[path] = ("int", int(obj))
    elif isinstance(obj, (float, np.floating)):
        out[path] = ("float", repr(float(obj)))
    elif isinstance(obj, str):
        out[path] = ("text", obj)
    elif isinstance(obj, (bytes, bytearray)):
        out[path] = ("bytes", "uint8", (len(obj),), bytes(obj)) if len(obj) else ("bytes", "uint8", (0,), b"")
    elif isinstance(obj, datetime.timedelta):
        out[path] = ("float", repr(obj.total_seconds()))
    elif obj is None or (isinstance(obj, (dict, list, tuple, set)) and len(obj) == 0):
        out[path] = ("none",)
    elif isinstance(obj, dict):
        for k, v in obj.items():
            expect(v, join(k), out)
    elif isinstance(obj, (list, tuple, set, frozenset, collections.deque)):
        for i, v in enumerate(obj):
            expect(v, join(i), out)
    else:
        out[path] = ("other", type(obj).__module__ + "." + type(obj).__name__)
    return out


def round_trip(what, obj, **kw):
    path = os.path.join(DIR, "theirs.pt")
    torch.save(obj, path, **kw)
    got, want = dump(path), expect(obj)
    if got == want:
        return
    check(what, False)
    if isinstance(got, str):
        print("   ", got)
        return
    for k in list(want) + [k for k in got if k not in want]:
        if got.get(k) != want.get(k):
            print("    %s: got %.300r, want %.300r" % (k, got.get(k), want.get(k)))
            break


def refused(what, obj, code, words, write=None, **kw):
    path = os.path.join(DIR, "refused.pt")
    (write or (lambda p: torch.save(obj, p, **kw)))(path)
    got = dump(path)
    check("%s: %s" % (what, got), isinstance(got, str) and got.startswith(code) and words in got)


class Unknown:
    def __init__(self): self.inside = torch.ones(2)


class Called:
    """pickles as a call of a function, the way that a torch which this one is not would write it"""
    def __init__(self, function, *args): self.made = (function, args)
    def __reduce__(self): return self.made


def stand_in(module, name, kind=type):
    """a function, class or dtype of a newer torch, by its name alone"""
    import importlib, types
    if module not in sys.modules:
        sys.modules[module] = types.ModuleType(module)
    there = getattr(sys.modules[module], name, None)
    if there is not None:
        return there
    made = type(name, (), {"__reduce__": lambda self: name})
    made.__module__ = module
    if kind is not type:
        made = made()
    setattr(sys.modules[module], name, made)
    return made


class Trap:
    def __reduce__(self): return (os.system, ("touch '%s'" % os.path.join(DIR, "executed"),))


def model():
    torch.manual_seed(1)
    m = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2))
    opt = torch.optim.AdamW(m.parameters(), lr=0.01)
    m(torch.randn(16, 4)).sum().backward()
    opt.step()
    return m, opt


def ours_reads_torch():
    m, opt = model()
    sched = torch.optim.lr_scheduler.StepLR(opt, 3)
    base = torch.arange(24, dtype=torch.float32)
    round_trip("a state dict", m.state_dict())
    round_trip("an AdamW state dict after a step", opt.state_dict())
    round_trip("a scheduler", {"sched": {k: v for k, v in sched.state_dict().items()}})
    round_trip("parameters", list(m.parameters()))
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8,
                  torch.bool, torch.complex64, torch.complex128):
        round_trip(str(dtype), {"t": (torch.arange(6) % 2).to(dtype).reshape(2, 3), "s": torch.tensor(1, dtype=dtype), "e": torch.empty(0, 3, dtype=dtype)})
    round_trip("shared storages, offsets and strides",
               {"a": base, "b": base[3:9], "c": base.reshape(4, 6).t(), "d": base.reshape(2, 3, 4).permute(2, 0, 1), "e": base[::5], "f": base[:1].expand(3, 1).squeeze(),
                "g": base.reshape(4, 6)[:, 2], "h": base[5], "i": base.reshape(4, 6)[4:, 3:], "j": base[24:]})
    round_trip("a tensor by itself", base.reshape(2, 12))
    round_trip("containers", {"list": [base[:2], {"x": base[:3]}, [1, [2, (3, "4")]]], "tuple": (base[:1], None, True), "od": collections.OrderedDict(b=1, a=base[:4]),
                              "set": {5}, "frozen": frozenset(["x"]), "dd": collections.defaultdict(list, {"k": [1.5]}), "counter": collections.Counter("aab"),
                              "deque": collections.deque([1, 2]), "empty": [{}, [], (), set(), None], "size": torch.Size([3, 4])})
    round_trip("keys", {1: "int", -7: "negative", True: "bool", None: "none", "": "empty", "a/b": "slash", "\u00fc": "utf"})
    round_trip("scalars", {"i": [0, 1, -1, 255, 256, 65536, 2**31, -2**31, 2**62, -2**63, 2**63 - 1], "f": [0.1, 1e300, math.inf, -0.0], "t": ["", "\u00e4\u20ac\U0001f600"],
                           "b": [b"", b"abc\x00\xff\x80", bytearray(b"\x80x")], "td": datetime.timedelta(days=2, seconds=3, microseconds=500001)})
    round_trip("numpy", {"a": np.arange(6.0).reshape(2, 3), "i": np.arange(3, dtype=np.int32), "e": np.zeros((0, 2)), "b": np.array([True, False]), "u": np.arange(700, dtype=np.uint32),
                         "s": np.float64(0.5), "f": np.float32(0.25), "n": np.int64(-3), "k": np.uint8(200), "o": np.bool_(True)})
    clock = torch.tensor([0.5, 3600.5], dtype=torch.float64)        # ours, loaded and saved again
    same("clocks that torch has saved again", dump_of({"state": {"timestamp": {"Timestamp": {"batch": 3, "total_wct": torch.tensor(12.25, dtype=torch.float64), "epoch_wct": clock[1]}}}}),
         {"state/timestamp/Timestamp/batch": ("int", 3), "state/timestamp/Timestamp/total_wct": ("float", "12.25"), "state/timestamp/Timestamp/epoch_wct": ("float", "3600.5")})
    random.seed(3)
    np.random.seed(3)
    round_trip("Composer's rng and timestamps", {"state": {"timestamp": {"Timestamp": {"epoch": 1, "batch": 3, "total_wct": datetime.timedelta(seconds=1.25)}}, "run_name": "r"},
                                                 "rng": [{"python": random.getstate(), "numpy": np.random.get_state(), "torch": torch.random.get_rng_state(), "cuda": []}]})
    for protocol in (2, 3, 4, 5):
        round_trip("pickle protocol %d" % protocol, {"m": m.state_dict(), "n": np.arange(4.0), "b": [b"\x00\xff" * 300, bytearray(b"abc"), {1, 2}], "t": "x" * 300, "i": 2**40}, pickle_protocol=protocol)
    same("an unknown object", dump_of({"x": Unknown(), "y": 1}), {"x": ("other", "__main__.Unknown"), "y": ("int", 1)})
    same("a big int", dump_of({"x": 2**64, "y": -2**63 - 1}), {"x": ("other", ""), "y": ("other", "")})
    same("an array in Fortran order and one of objects", dump_of({"x": np.asfortranarray(np.ones((2, 3))), "y": np.array([{}], dtype=object)}), {"x": ("other", "numpy.ndarray"), "y": ("other", "numpy.ndarray")})
    same("the other byte order", dump_of({"x": np.arange(3, dtype=">i4")}), {"x": ("other", "numpy.ndarray")})
    same("a dtype and a device", dump_of({"x": torch.float32, "d": torch.device("cpu")}), {"x": ("other", "torch.float32"), "d": ("other", "torch.device")})
    same("a sparse tensor", dump_of({"x": torch.eye(2).to_sparse(), "y": 2}), {"x": ("other", "torch._utils._rebuild_sparse_tensor"), "y": ("int", 2)})
    same("two keys with one text", dump_of({1: 5, "1": 6, "a/b": 1, "a": {"b": 2}}), {"1": ("int", 5), "1#1": ("int", 6), "a/b": ("int", 1), "a/b#3": ("int", 2)})
    same("something that executes", dump_of({"x": Trap(), "y": 3}), {"x": ("other", "posix.system"), "y": ("int", 3)})
    check("the unpickler executed something", not os.path.exists(os.path.join(DIR, "executed")))
    newer_forms()
    loop = []
    loop.append(loop)
    same("a list that holds itself", dump_of({"x": loop, "y": 1}), {"x/0": ("other", "a reference to what it is part of"), "y": ("int", 1)})
    same("one tuple in many places", {k: v for k, v in dump_of({"x": [(0, 0, 0.5)] * 100000, "y": 1}).items() if k in ("x/99999/2", "y")}, {"x/99999/2": ("float", "0.5"), "y": ("int", 1)})
    laughs = [1]
    for _ in range(40):
        laughs = [laughs, laughs, laughs, laughs]
    refused("a billion laughs", laughs, "CKPT_UNSUPPORTED", "unfolds")
    refused("the form before 1.6", {"a": base}, "CKPT_UNSUPPORTED", "before 1.6", _use_new_zipfile_serialization=False)
    refused("TorchScript", None, "CKPT_UNSUPPORTED", "TorchScript", write=lambda p: torch.jit.script(m).save(p))
    refused("a deflated zip", None, "CKPT_UNSUPPORTED", "compressed", write=deflated)
    many = {"layer.%d" % i: torch.full((i % 5,), float(i)) for i in range(20000)}
    round_trip("20,000 tensors", many)


def newer_forms():
    """What torch 2.1 to 2.9 write and 1.13 does not, and what no program in C can hold: the rest of the file stays readable."""
    import argparse, pathlib, zipfile
    t, n = torch.arange(6, dtype=torch.float32).reshape(2, 3), np.arange(6, dtype=np.int16)
    whole = ("tensor", "float32", (2, 3), raw_of(t))
    cpu = stand_in("torch._utils", "_rebuild_device_tensor_from_cpu_tensor")
    same("tensors of a TPU", dump_of({"a": Called(cpu, t, torch.float32, "xla:0", False), "b": Called(torch._utils._rebuild_device_tensor_from_numpy, n, torch.int16, "xla:0", False),
                                      "p": Called(torch._utils._rebuild_parameter, Called(cpu, t, torch.float32, "xla:0", False), True, collections.OrderedDict()),
                                      "bf": Called(torch._utils._rebuild_device_tensor_from_numpy, np.ones(2, np.float32), torch.bfloat16, "xla:0", False), "end": 1}),
         {"a": whole, "b": ("tensor", "int16", (6,), n.tobytes()), "p": whole, "bf": ("other", "torch._utils._rebuild_device_tensor_from_numpy"), "end": ("int", 1)})
    v3, e8m0 = stand_in("torch._utils", "_rebuild_tensor_v3"), stand_in("torch", "float8_e8m0fnu", object)
    bytes_of = torch.arange(4, dtype=torch.uint8)
    raw = bytes_of.untyped_storage() if hasattr(bytes_of, "untyped_storage") else bytes_of.storage().untyped()
    same("a dtype that C has no word for", dump_of({"x": Called(v3, raw, 0, (4,), (1,), False, collections.OrderedDict(), e8m0), "y": Called(v3, raw, 0, (2,), (1,), False, collections.OrderedDict(), stand_in("torch", "uint16", object)), "z": raw}),
         {"x": ("other", "torch.float8_e8m0fnu"), "y": ("tensor", "uint16", (2,), bytes([0, 1, 2, 3])), "z": ("tensor", "uint8", (4,), bytes([0, 1, 2, 3]))})
    wrapped = (torch._utils._rebuild_wrapper_subclass if hasattr(torch._utils, "_rebuild_wrapper_subclass") else stand_in("torch._utils", "_rebuild_wrapper_subclass"))
    dtensor = stand_in("torch.distributed.tensor", "DTensor")
    same("a DTensor, and a tensor with attributes",
         dump_of({"d": Called(torch._tensor._rebuild_from_type_v2, wrapped, dtensor, (dtensor, torch.float32, (2, 3), (3, 1), 0, None, "cpu", False), {"_local_tensor": t}),
                  "t": Called(torch._tensor._rebuild_from_type_v2, torch._utils._rebuild_tensor_v2, torch.Tensor, (t.storage(), 0, (2, 3), (3, 1), False, collections.OrderedDict()), {"tag": 1}), "y": t}),
         {"d": ("other", "torch.distributed.tensor.DTensor"), "t": whole, "y": whole})
    conj = Called(torch._utils._rebuild_tensor_v2, torch.tensor([1 + 2j]).storage(), 0, (1,), (1,), False, collections.OrderedDict(), {"conj": True})   # 1.13 loses that
    same("tensors of other kinds", dump_of({"q": torch.quantize_per_tensor(t, 0.5, 0, torch.qint8), "m": torch.empty(2, device="meta"), "c": conj,
                                            "d": torch.zeros(1, 1, 1, 1, 1, 1, 1, 1, 2), "y": t}),
         {"q": ("other", "torch._utils._rebuild_qtensor"), "m": ("other", "torch._utils._rebuild_meta_tensor_no_storage"), "c": ("other", "torch._utils._rebuild_tensor_v2"),
          "d": ("other", "a tensor of 9 dimensions"), "y": whole})
    jit = __import__("torch.jit._pickle", fromlist=["x"])   # what torch::pickle_save of C++ wraps its dicts and lists in
    tagged = lambda value, kind: Called(jit.restore_type_tag, value, kind)
    same("a dict of libtorch", dump_of(tagged({"w": t, "i": Called(jit.build_intlist, [1, 2]), "f": tagged([0.5], "List[float]")}, "Dict[str, Any]")),
         {"w": whole, "i/0": ("int", 1), "i/1": ("int", 2), "f/0": ("float", "0.5")})
    got = dump_of({"v": torch.__version__, "args": argparse.Namespace(lr=1.0), "path": pathlib.PurePosixPath("/a"), "y": t, "n": np.random.default_rng(1).bit_generator.state})
    same("a version", got.get("v"), ("text", str(torch.__version__)))
    same("a namespace", got.get("args"), ("other", "argparse.Namespace"))
    same("what stands behind them", got.get("y"), whole)
    # the records of torch 2.7 and later, and sums that were never taken (set_crc32_options(False), skip_data)
    path, more = os.path.join(DIR, "one.pt"), os.path.join(DIR, "more.pt")
    torch.save({"x": t, "e": torch.empty(0)}, path)
    with zipfile.ZipFile(path) as z, zipfile.ZipFile(more, "w", zipfile.ZIP_STORED) as out:
        for i, name in enumerate(z.namelist()):
            out.writestr(name, z.read(name))
            if i == 0:
                for extra, text in ((".format_version", "1"), (".storage_alignment", "64"), ("byteorder", sys.byteorder), (".data/serialization_id", "0" * 40)):
                    extra = name.split("/")[0] + "/" + extra
                    if extra not in z.namelist(): out.writestr(extra, text)       # torch 2.6 has two of them
    want = {"x": whole, "e": ("tensor", "float32", (0,), b"")}
    same("records of newer versions", dump(more), want)
    data = bytearray(open(path, "rb").read())
    at = -1
    while (at := data.find(b"PK\1\2", at + 1)) >= 0:
        data[at + 16:at + 20] = bytes(4)
    at = -1
    while (at := data.find(b"PK\7\x08", at + 1)) >= 0:
        data[at + 4:at + 8] = bytes(4)
    open(more, "wb").write(data)
    same("without sums", dump(more), want)


def deflated(path):
    import zipfile
    torch.save({"a": torch.ones(300)}, path + ".stored")
    with zipfile.ZipFile(path + ".stored") as z, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for n in z.namelist():
            out.writestr(n, z.read(n))


def dump_of(obj):
    path = os.path.join(DIR, "one.pt")
    torch.save(obj, path)
    return dump(path)


#-- large

def many_tensors():
    path = os.path.join(DIR, "many.pt")
    run("write-many", path)
    d = torch.load(path)["state"]["model"]
    same("100,000 tensors", len(d), 100000)
    for i in (0, 1, 65534, 65535, 65536, 99999):
        same("tensor %d" % i, d["layer.%d.weight" % i].tolist(), [float(x) for x in range(4 + i % 8)])
    os.unlink(path)


def large():
    path = os.path.join(DIR, "large.pt")
    run("write-big", path)
    import zipfile
    z = zipfile.ZipFile(path)
    same("zip64 sizes", [i.file_size for i in z.infolist() if "/data/" in i.filename], [5 << 30, 24])
    check("an entry behind 4 GiB", z.getinfo("huge/data/1").header_offset > 4 << 30)
    d = dump(path)
    same("ours, 5 GiB", (d["big"][2], d["small"][3]), ((5 << 30,), struct.pack("<qqq", 7, 8, 9)))
    if not LONG:
        print("torch's part of the files over 4 GiB is left out (--long)")
        return
    same("its sum", z.testzip(), None)
    t = torch.load(path)
    same("torch reads it", (t["big"].numel(), int(t["big"].numpy().any()), t["small"].tolist()), (5 << 30, 0, [7, 8, 9]))
    del t
    torch.save({"big": torch.zeros((4 << 30) + 7, dtype=torch.uint8), "small": torch.tensor([1, 2])}, path)
    d = dump(path)
    same("torch's, 4 GiB", (d["big"][2], d["small"][3]), (((4 << 30) + 7,), struct.pack("<qq", 1, 2)))
    os.unlink(path)


def main():
    global DIR, TOOL
    DIR = tempfile.mkdtemp(prefix="ckpt-torch-")
    try:
        TOOL = os.path.join(DIR, "torch_interop")
        subprocess.run([os.environ.get("CC", "cc"), "-std=gnu99", "-O0", "-w", os.path.join(HERE, "torch_interop.c"), "-o", TOOL, "-lcmocka", "-lpthread", "-lm"], check=True)
        for part in (torch_reads_ours, new_dtypes_as_torch_builds_them, ours_reads_torch, many_tensors, large):
            begin = time.time()
            part()
            print("%s: %.1f s" % (part.__name__, time.time() - begin))
    finally:
        shutil.rmtree(DIR, ignore_errors=True)
    print("PASS" if failed == 0 else "FAIL: %d checks" % failed, "with torch", torch.__version__)
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
