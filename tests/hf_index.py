#!/usr/bin/env python3
"""run.sh: helper (of test_cli_shards.sh): loads a checkpoint of several .safetensors files as Hugging Face's loaders do.

    python3 hf_index.py DIR

What transformers does (load_sharded_checkpoint, get_checkpoint_shard_files): read model.safetensors.index.json, take the set of
files in weight_map, load each file whole, and complain of names that are missing or unexpected. Files are read with Hugging Face's
own safetensors package where it is installed, else with a reader of the format's own text that shares no code with ckpt.h. Values
are compared with the formula of cli_shards_make.c: element i of a tensor is i % 251 - 100."""
import json
import math
import os
import struct
import sys

CODES = {'F64': 'd', 'F32': 'f', 'I64': 'q', 'I32': 'i', 'I16': 'h', 'U8': 'B', 'BF16': 'H'}


def fail(why):
    print('hf_index.py: ' + why)
    sys.exit(1)


def plain(path):
    """{name: (dtype, shape, bytes)} by the format's own description."""
    with open(path, 'rb') as f:
        data = f.read()
    n = struct.unpack('<Q', data[:8])[0]
    header = json.loads(data[8:8 + n])
    out, ends = {}, []
    for name, e in header.items():
        if name == '__metadata__':
            if any(not isinstance(v, str) for v in e.values()):
                fail('%s: metadata that is no text' % path)
            if e.get('format') != 'pt':
                fail('%s: transformers and accelerate refuse metadata without "format": "pt"' % path)
            continue
        begin, end = e['data_offsets']
        ends.append((begin, end))
        out[name] = e['dtype'], e['shape'], data[8 + n + begin:8 + n + end]
    at = 0
    for begin, end in sorted(ends):
        if begin != at:
            fail('%s: a hole at %d' % (path, at))
        at = end
    if at != len(data) - 8 - n:
        fail('%s: %d bytes follow the tensors' % (path, len(data) - 8 - n - at))
    return out


def theirs(path):
    """The same names by Hugging Face's package; None when it is not there."""
    try:
        from safetensors import safe_open
    except ImportError:
        return None
    with safe_open(path, framework='np') as f:
        return set(f.keys())


def values(dtype, raw):
    v = struct.unpack('<%d%s' % (len(raw) // struct.calcsize(CODES[dtype]), CODES[dtype]), raw)
    if dtype == 'BF16':
        v = [struct.unpack('<f', struct.pack('<I', x << 16))[0] for x in v]
    return list(v)


EXPECTED = {
    'state/model/wte': ('F32', [1000, 100], lambda i: i % 251 - 100),
    'state/model/cols': ('I16', [64, 96], lambda i: i % 251 - 100),
    'state/model/grid': ('F64', [40, 60], lambda i: i % 251 - 100),
    'state/model/odd': ('F32', [7, 3], lambda i: i % 251 - 100),
    'state/model/norm': ('F32', [128], lambda i: i % 251 - 100),
    'state/model/hostile\x1b[31m': ('BF16', [333], lambda i: 1.0 if i % 2 == 0 else -2.0),
}


def main():
    folder = sys.argv[1]
    with open(os.path.join(folder, 'model.safetensors.index.json'), encoding='utf-8') as f:
        index = json.load(f)
    weight_map = index['weight_map']
    state, total, package = {}, 0, False
    for name in sorted(set(weight_map.values())):
        if os.path.basename(name) != name:
            fail('the index names %r' % name)
        path = os.path.join(folder, name)
        loaded = plain(path)
        keys = theirs(path)
        if keys is not None:
            package = True
            if keys != set(loaded):
                fail('%s: the package sees other names' % name)
        for key, value in loaded.items():
            if key in state:
                fail('%r is in two files' % key)
            if weight_map.get(key) != name:
                fail('%r is in %s, and the index says %s' % (key, name, weight_map.get(key)))
            state[key] = value
            total += len(value[2])
    missing = set(weight_map) - set(state)
    if missing:
        fail('the index names what no file has: %s' % sorted(missing))
    if index['metadata']['total_size'] != total:
        fail('total_size is %r, and the tensors have %d bytes' % (index['metadata']['total_size'], total))
    for key, (dtype, shape, value) in EXPECTED.items():
        if key not in state:
            fail('%r is missing' % key)
        if state[key][0] != dtype or state[key][1] != shape:
            fail('%r is %s %s' % (key, state[key][0], state[key][1]))
        got, count = values(dtype, state[key][2]), math.prod(shape)
        if got != [value(i) for i in range(count)]:
            fail('the values of %r are wrong' % key)
    print('%d tensors in %d files%s' % (len(state), len(set(weight_map.values())), ', as the safetensors package sees them' if package else ''))


main()
