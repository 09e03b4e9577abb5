#!/usr/bin/env python3
"""Checks >>safetensors against the format's own text, with nothing of ours in between: a reader and a writer of the format in
plain Python and numpy, that share no code with ckpt.h. Debian has no safetensors package."""
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import zlib

try:
    import numpy as np
except ImportError:
    debian = '/usr/bin/python3'
    if os.path.exists(debian) and os.environ.get('CKPT_REEXEC') != '1':
        os.environ['CKPT_REEXEC'] = '1'
        os.execv(debian, [debian] + sys.argv)
    print('no numpy (python3-numpy)')
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = tempfile.TemporaryDirectory()
TMP = FOLDER.name
HELPER = os.path.join(TMP, 'safetensors_helper')
BITS = {'BOOL': 8, 'F4': 4, 'F6_E2M3': 6, 'F6_E3M2': 6, 'U8': 8, 'I8': 8, 'F8_E5M2': 8, 'F8_E4M3': 8, 'F8_E8M0': 8, 'I16': 16,
        'U16': 16, 'F16': 16, 'BF16': 16, 'I32': 32, 'U32': 32, 'F32': 32, 'C64': 64, 'F64': 64, 'I64': 64, 'U64': 64}
NUMPY = {'BOOL': '?', 'U8': 'u1', 'I8': 'i1', 'I16': '<i2', 'U16': '<u2', 'F16': '<f2', 'I32': '<i4', 'U32': '<u4', 'F32': '<f4',
         'C64': '<c8', 'F64': '<f8', 'I64': '<i8', 'U64': '<u8'}
TORCH = {'float64': 'F64', 'float32': 'F32', 'float16': 'F16', 'bfloat16': 'BF16', 'float8_e4m3fn': 'F8_E4M3', 'float8_e5m2': 'F8_E5M2',
         'int64': 'I64', 'int32': 'I32', 'int16': 'I16', 'int8': 'I8', 'uint64': 'U64', 'uint32': 'U32', 'uint16': 'U16', 'uint8': 'U8',
         'bool': 'BOOL', 'complex64': 'C64'}
ORDER = ['F64', 'F32', 'F16', 'BF16', 'F8_E4M3', 'F8_E5M2', 'I64', 'I32', 'I16', 'I8', 'U64', 'U32', 'U16', 'U8', 'BOOL', 'C64']


class Bad(Exception):
    pass


def need(condition, why):
    if not condition:
        raise Bad(why)


def no_twice(pairs):
    need(len({k for k, _ in pairs}) == len(pairs), 'a key stands twice')
    return dict(pairs)


def no_number(text):
    raise Bad('a number that is no whole one: ' + text)


def parse(data):
    """The format as its README states it. Returns metadata, {name: (dtype, shape, begin, end)}, the data and the header's length."""
    need(len(data) >= 8, 'too short')
    n = struct.unpack('<Q', data[:8])[0]
    need(n <= 100_000_000 and n <= len(data) - 8, 'impossible header length')
    header = data[8:8 + n]
    need(header[:1] == b'{', 'the header does not begin with {')
    try:
        tree = json.loads(header.decode('utf-8'), object_pairs_hook=no_twice, parse_float=no_number, parse_constant=no_number)
    except ValueError as e:
        raise Bad(str(e))
    meta = tree.pop('__metadata__', None)
    if meta is None:                                    # the reference takes null for none
        meta = {}
    need(isinstance(meta, dict) and all(isinstance(v, str) for v in meta.values()), '__metadata__ is not text to text')
    tensors, at = {}, 0
    for name, t in tree.items():
        need(isinstance(t, dict) and set(t) == {'dtype', 'shape', 'data_offsets'}, 'members of a tensor')
        need(t['dtype'] in BITS, 'dtype')
        need(isinstance(t['shape'], list) and all(type(x) is int and x >= 0 for x in t['shape']), 'shape')
        need(isinstance(t['data_offsets'], list) and len(t['data_offsets']) == 2, 'offsets')
        begin, end = t['data_offsets']
        need(type(begin) is int and type(end) is int and 0 <= begin <= end, 'offsets')
        elements = 1
        for x in t['shape']:
            elements *= x
        need(elements * BITS[t['dtype']] == (end - begin) * 8, 'size')
        tensors[name] = (t['dtype'], t['shape'], begin, end)
    for begin, end in sorted((b, e) for _, _, b, e in tensors.values()):
        need(begin == at, 'a hole or an overlap')
        at = end
    need(at == len(data) - 8 - n, 'the data does not end with the file')
    return meta, tensors, data[8 + n:], n


def make(tensors, meta=None, pad=0, order=None):
    """What the reference implementation writes, from {name: (dtype, shape, bytes)}."""
    tree, at = {}, 0
    if meta is not None:
        tree['__metadata__'] = meta
    for name in order or tensors:
        dtype, shape, raw = tensors[name]
        tree[name] = {'dtype': dtype, 'shape': list(shape), 'data_offsets': [at, at + len(raw)]}
        at += len(raw)
    text = json.dumps(tree, separators=(',', ':'), ensure_ascii=bool(pad % 2)).encode('utf-8') + b' ' * pad
    return struct.pack('<Q', len(text)) + text + b''.join(tensors[k][2] for k in order or tensors)


def helper(what, path):
    r = subprocess.run([HELPER, what, path], stdout=subprocess.PIPE, timeout=60)
    return r.returncode, r.stdout.decode('utf-8', 'backslashreplace')


def read_back(data):
    path = os.path.join(TMP, 'x.safetensors')
    with open(path, 'wb') as f:
        f.write(data)
    return helper('read', path)


def check_written():
    path = os.path.join(TMP, 'ours.safetensors')
    rc, said = helper('write', path)
    need(rc == 0, said)
    whole = open(path, 'rb').read()
    meta, tensors, data, n = parse(whole)
    need(meta.get('format') == 'pt', 'the format, which transformers, accelerate and huggingface_hub demand')
    need((8 + n) % 4096 == 0, 'the data does not begin at a multiple of 4096')
    need(len(tensors) == 17, 'tensors')
    for k, dtype in enumerate(ORDER):
        name = 'state/model/%d.%s' % (k, '\u00e9"\\' if k == 5 else 'weight')
        shape = [[3, 5], [1024], [7, 2, 3], [0, 4]][k % 4]
        size = BITS[dtype] // 8 * int(np.prod(shape))
        want = ((7 * np.arange(size, dtype=np.int64) + 31 * k) % 251).astype('u1')
        got = tensors[name]
        need(got[0] == dtype and got[1] == shape, name)
        need(data[got[2]:got[3]] == want.tobytes(), 'bytes of ' + name)
        if dtype in NUMPY:
            a = np.frombuffer(data[got[2]:got[3]], NUMPY[dtype]).reshape(shape)
            need(a.tobytes() == want.tobytes(), 'numpy ' + name)
        width = BITS[dtype] // 8
        need(got[2] % width == 0, 'alignment of ' + name)
    need(tensors['rng/0/bytes'][:2] == ('U8', [625]) and json.loads(meta['ckpt.bytes']) == ['rng/0/bytes'], 'bytes')
    for i, v in enumerate([0, -1, 2**63 - 1, -2**63]):
        need(int(meta['ckpt.int:state/int/%d' % i]) == v, 'int')
    for i, v in enumerate([0.1, -0.0, 1e16, 5e-324, 1e300, 123456789.125]):
        need(meta['ckpt.float:state/float/%d' % i] == repr(v), 'float ' + repr(v))
    need([meta['ckpt.bool:state/bool/%d' % i] for i in (0, 1)] == ['true', 'false'], 'bool')
    need([meta['ckpt.text:state/text/%d' % i] for i in range(3)] == ['', 'plain', 'q" b\\ t\t \x01 \u00e9 \U0001f600'], 'text')
    sums = meta['ckpt.crc32']
    for i, (b, e) in enumerate(sorted((t[2], t[3]) for t in tensors.values())):
        need(int(sums[8 * i:8 * i + 8], 16) == zlib.crc32(data[b:e]), 'checksum %d' % i)
    own = meta['ckpt.header_crc32'].encode()
    blank = whole[:8 + n].replace(b'"ckpt.header_crc32":"' + own, b'"ckpt.header_crc32":"00000000')
    need(int(own, 16) == zlib.crc32(blank), 'checksum of the header')


def check_read():
    rng = random.Random(1)
    for rounds in range(60):
        tensors = {}
        for i in range(rng.randrange(8)):
            dtype = rng.choice(ORDER)
            shape = [rng.randrange(5) if rng.random() < 0.1 else rng.randrange(1, 6) for _ in range(rng.randrange(5))]
            size = BITS[dtype] // 8 * int(np.prod(shape, dtype=np.int64))
            tensors['%d.%s' % (i, rng.choice(['weight', 'b\u00fcas', 'a"b\\c', 'x/y', '\U0001f600', '\t']))] = (dtype, shape, rng.randbytes(size))
        order = list(tensors)
        rng.shuffle(order)
        data = make(tensors, rng.choice([None, {}, {'format': 'pt'}, {'a\u00e9': '"\n\x7f'}]), rng.randrange(9), order)
        parse(data)
        rc, said = read_back(data)
        need(rc == 0, said)
        lines = {line.split('\t')[0]: line.split('\t') for line in said.split('\n') if line}
        need(len(said.split('\n')) - 1 == len(tensors), 'number of entries')
        for name, (dtype, shape, raw) in tensors.items():
            if '\t' in name:
                continue
            got = lines[name]
            need(TORCH[got[2]] == dtype and got[3] == ','.join(map(str, shape)), name)
            need(int(got[4], 16) == zlib.crc32(raw), 'bytes of ' + name)


def check_agreement():
    """Damaged foreign files: where this reader refuses, so does ours, and the other way round."""
    rng = random.Random(2)
    base = make({'a': ('F32', [2, 3], bytes(24)), 'b': ('I64', [1], bytes(8)), 'c': ('U8', [0], b'')}, {'format': 'pt'}, 3)
    n = struct.unpack('<Q', base[:8])[0]
    pool = b'{}[]",:0123456789 -+.eEabFIU\\u\x00\x7f\xc3\xff'
    ok = 0
    for rounds in range(1500):
        data = bytearray(base)
        for _ in range(rng.choice([1, 1, 1, 2])):
            at = rng.randrange(len(data) if rng.random() < 0.1 else 8 + n)
            how = rng.random()
            if how < 0.6:
                data[at] = rng.choice(pool)
            elif how < 0.8:
                del data[at]
                data[:8] = struct.pack('<Q', n - 1)
            else:
                data.insert(at, rng.choice(pool))
                data[:8] = struct.pack('<Q', n + 1)
        try:
            parse(bytes(data))
            good = True
        except (Bad, RecursionError):
            good = False
        rc, said = read_back(bytes(data))
        if b'\\u0000' in data or b'ckpt.' in data:
            continue                                # refused on purpose: a name with a NUL
        need((rc == 0) == good, 'one says %s, the other %s: %r' % (good, said, bytes(data)))
        # a dtype that is spelt otherwise may be one that the format has got since
        need(rc == 0 or said.startswith(('CKPT_CORRUPT: ', 'CKPT_UNSUPPORTED: the safetensors header names the dtype ')), said)
        ok += good
    need(ok > 20, 'too few of the changed files are still good')


def main():
    cc = os.environ.get('CC', 'cc')
    built = subprocess.run([cc, '-O0', '-g', os.path.join(HERE, 'safetensors_helper.c'), '-o', HELPER, '-lpthread', '-lm'],
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if built.returncode != 0:
        print(built.stdout.decode('utf-8', 'replace'))
        print('FAIL: the helper does not compile')
        return 1
    status = 0
    for fn in (check_written, check_read, check_agreement):
        try:
            fn()
            print('PASS: ' + fn.__name__)
        except Bad as e:
            print('FAIL: %s: %s' % (fn.__name__, e))
            status = 1
    return status


sys.exit(main())
