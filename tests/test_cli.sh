#!/bin/sh
# Proves tools/ckpt.c: every command on good, damaged and missing files, its exit statuses, and that --json is JSON.  run.sh: memory
. "$(dirname "$0")/cli_setup.sh"
pass "build"
cat > make.c <<'C'
#define CKPT_NO_REMOTE
#define CKPT_IMPLEMENTATION
#include HEADER
#include <math.h>
#include <unistd.h>
/* make FILE.pt: vast complex numbers.  make DIR [hold]: a run of 80 batches that keeps its newest 6 checkpoints and the best */
int main(int argc, char **argv) {
    static float w[100000], empty[1];
    static uint16_t half[4] = { 0x3c00, 0xc000, 0x7c00, 0x7e00 }, bf[3] = { 0x3f80, 0x4000, 0xff80 };
    static unsigned char e4[4] = { 0x38, 0x7f, 0x7e, 0 }, e5[4] = { 0x3c, 0x7c, 0x7d, 0xbc }, rng[5000], flags[2] = { 1, 0 };
    static int64_t big[2] = { -5, 1000000007 };
    static float cx[4] = { 3, 4, 0, 0 };
    static double vast[4] = { 1.7976931348623157e308, 1.7976931348623157e308, 1, HUGE_VAL };
    int64_t step = 0;
    double loss = 1, lr = 3e-4;
    char note[2000] = "a \"note\"\033[31m.";
    for (int i = 0; i < 100000; i++) w[i] = (float)(i % 1000) / 100.0f;
    ckpt_state st = { 0 };
    ckpt_tensor t = { 0 };
    struct { const char *name; ckpt_dtype d; int64_t n; void *p; } rows[] = {
        { "state/model/f16", CKPT_F16, 4, half }, { "state/model/bf16", CKPT_BF16, 3, bf }, { "state/model/e4", CKPT_F8_E4M3, 4, e4 },
        { "state/model/e5", CKPT_F8_E5M2, 4, e5 }, { "state/model/i64", CKPT_I64, 2, big }, { "state/model/bools", CKPT_BOOL, 2, flags },
        { "state/model/complex", CKPT_C64, 2, cx }, { "state/model/empty", CKPT_F32, 0, empty }
    };
    while (strlen(note) + 3 < sizeof note) strcat(note, "\xc3\xa9");
    if (strstr(argv[1], ".pt") != NULL) {
        t.dtype = CKPT_C128, t.ndim = 1, t.shape[0] = 2, t.data = vast;
        ckpt_bind(&st, "vast", &t);
        return ckpt_save(argv[1], &st, NULL) != CKPT_OK;
    }
    t.dtype = CKPT_F32, t.ndim = 2, t.shape[0] = 1000, t.shape[1] = 100, t.data = w;
    ckpt_bind(&st, "state/model/wte", &t);
    for (int i = 0; i < 8; i++) {
        t.dtype = rows[i].d, t.ndim = 1, t.shape[0] = rows[i].n, t.data = rows[i].p;
        ckpt_bind(&st, rows[i].name, &t);
    }
    ckpt_bind_int(&st, "state/step", &step);
    ckpt_bind_float(&st, "state/metrics/loss", &loss);
    ckpt_bind_float(&st, "state/optimizers/AdamW/param_groups/[0]/lr", &lr);
    ckpt_bind_text(&st, "state/note", note, sizeof note);
    ckpt_bind_bytes(&st, "rng/0/python", rng, sizeof rng);
    ckpt_saver_desc d = { 0 };
    d.state = &st, d.folder = argv[1], d.run_name = "demo", d.save_interval = "10ba", d.keep_best = "min:state/metrics/loss";
    d.num_checkpoints_to_keep = 6;
    ckpt_saver *s = NULL;
    ckpt_timestamp ts = { 0 };
    if (ckpt_saver_open(&s, &d) != CKPT_OK) { fprintf(stderr, "%s\n", ckpt_last_error()); return 1; }
    ckpt_err e = ckpt_saver_resume(s, &ts);
    for (int i = 0; i < 80 && e == CKPT_NOT_FOUND; i++) {
        step = ts.batch + 1;
        loss = step <= 20 ? 0.01 * (double)step : 1.0 / (double)step + 1;
        w[step] += 1;
        ckpt_next_batch(&ts, 32, 32, .1);
        if (ckpt_saver_batch_end(s, &ts) != CKPT_OK) { fprintf(stderr, "%s\n", ckpt_last_error()); return 1; }
    }
    if (argc > 2) { printf("ready\n"); fflush(stdout); for (;;) pause(); }
    e = ckpt_saver_close(s, 0);
    ckpt_state_free(&st);
    return e != CKPT_OK;
}
C
$quick -std=gnu99 -DHEADER="\"$root/ckpt.h\"" -o make make.c -lpthread || { echo "FAIL: build of make.c"; exit 1; }
./make run || { echo "FAIL: make"; exit 1; }

# help and wrong usage
is "no arguments" 2 ./ckpt
is "help" 0 ./ckpt --help
holds "help lists the statuses" "Exit status"
for c in ls show verify diff convert pin unpin rm gc; do
    is "$c --help" 0 ./ckpt $c --help
    holds "$c --help shows its usage" "usage: ckpt $c"
done
is "version" 0 ./ckpt --version
is "unknown command" 2 ./ckpt frobnicate
is "unknown option" 2 ./ckpt ls --frobnicate run
is "an option of another command" 2 ./ckpt ls --stats run
is "show without a file" 2 ./ckpt show
is "diff of one file" 2 ./ckpt diff run/latest-rank0.pt
is "a bad number" 2 ./ckpt gc --keep none run
is "a missing value" 2 ./ckpt gc run --keep
is "an option of gc that is for stores" 2 ./ckpt gc --older-than 3 run
is "an option of ls that is for stores" 2 ./ckpt ls --all run
for wrong in "diff a.pt --json" "ls --json --frobnicate" "ls --frobnicate --json" "frobnicate --json"; do
    is "wrong usage, as JSON: $wrong" 2 ./ckpt $wrong
    json "says so" "d['error']['code'] == 'CKPT_ARG' and d['error']['text'] != ''"
done
is "a name after -- is no option" 3 ./ckpt show -- --json
[ "$out" = "" ] && pass "and no JSON" || fail "and no JSON"
is "a store that there is not" 5 ./ckpt ls foo://bucket/run
says "those that there are" "no store is called foo://; there are file, s3, gs, azure, oci, sftp, wandb, mlflow-artifacts, dbfs and libcloud"
is "no such file" 3 ./ckpt show run/none.pt
is "no such folder" 3 ./ckpt ls none
is "ls of a file" 3 ./ckpt ls run/latest-rank0.pt
is "show of a folder" 2 ./ckpt show run

is "help of an unknown command" 2 ./ckpt help frobnicate

# output that does not arrive
if [ -c /dev/full ]; then
    for c in --help --version "ls --help" "ls run" "verify run" "show --json run/latest-rank0.pt"; do
        ./ckpt $c > /dev/full 2>err
        [ $? = 5 ] && pass "$c with a full disk behind it" || fail "$c with a full disk behind it"
        says "it says so" "cannot write the output"
    done
else echo "SKIP: output to a full disk: no /dev/full here"; fi

# ls
is "ls" 0 ./ckpt ls run
holds "ls names the newest" "ep0-ba80-rank0.pt"
holds "ls shows latest" "<- latest-rank0.pt"
is "ls --verify" 0 ./ckpt ls --verify run
holds "ls --verify says yes" "yes"
is "ls --json" 0 ./ckpt ls --json run
json "ls --json has all" "[c['name'] for c in d['checkpoints']] == ['ep0-ba10-rank0.pt'] + ['ep0-ba%d-rank0.pt' % b for b in (30, 40, 50, 60, 70, 80)]"
json "ls --json has latest" "[c['name'] for c in d['checkpoints'] if c['latest']] == ['ep0-ba80-rank0.pt']"
json "ls --json has times and metrics" "d['checkpoints'][1]['timestamp']['batch'] == 30 and abs(d['checkpoints'][0]['metric'] - 0.1) < 1e-12"
json "ls --json did not read" "all(c['verified'] is None for c in d['checkpoints'])"
is "ls --verify --json" 0 ./ckpt ls --verify --json run
json "ls --verify --json has read" "all(c['verified'] is True for c in d['checkpoints'])"
mkdir empty
is "ls of an empty folder" 0 ./ckpt ls empty
is "ls --json of an empty folder" 0 ./ckpt ls --json empty
json "nothing there" "d['checkpoints'] == []"
case $(./ckpt ls run) in *"$(printf '\033')"*) fail "no colours in a pipe" ;; *) pass "no colours in a pipe" ;; esac
if command -v script >/dev/null 2>&1; then
    out=$(TERM=xterm script -qec "./ckpt ls run" /dev/null </dev/null)
    holds "colours on a terminal" "$(printf '\033[1m')"
    case $(NO_COLOR=1 TERM=xterm script -qec "./ckpt ls run" /dev/null </dev/null) in
        *"$(printf '\033[')"*m*) fail "NO_COLOR" ;; *) pass "NO_COLOR" ;;
    esac
fi

# show
f=run/ep0-ba80-rank0.pt
is "show" 0 ./ckpt show $f
holds "show names a shape" "[1000, 100]"
case $out in *"$(printf '\033')"*) fail "text from a file is tamed" ;; *) pass "text from a file is tamed" ;; esac
is "show --json" 0 ./ckpt show --json $f
json "show --json has names and types" "{e['name']: e.get('dtype') for e in d['entries']}['state/model/bf16'] == 'bfloat16'"
json "show --json has values" "{e['name']: e.get('value') for e in d['entries']}['state/step'] == 80"
json "show --json keeps text" "{e['name']: e.get('value') for e in d['entries']}['state/note'].startswith('a \"note\"')"
json "show --json has the whole text" "{e['name']: e.get('value') for e in d['entries']}['state/note'].endswith('\u00e9' * 900)"
is "show of a text" 0 ./ckpt show $f state/note
json_utf8=$(printf '%s' "$out" | python3 -c "import sys; sys.stdin.buffer.read().decode()" 2>&1) && pass "it is cut between characters" || { fail "it is cut between characters"; echo "$json_utf8" | tail -1; }
is "show --stats" 0 ./ckpt show --stats $f
holds "show --stats counts NaN" "1 NaN"
is "show --stats --json" 0 ./ckpt show --stats --json $f
stats="{e['name'].split('/')[-1]: e['stats'] for e in d['entries'] if 'stats' in e}"
json "float16" "(lambda s: (s['min'], s['max'], s['nan'], s['inf']) == (-2, 1, 1, 1))($stats['f16'])"
json "bfloat16" "(lambda s: (s['min'], s['max'], s['mean'], s['inf']) == (1, 2, 1.5, 1))($stats['bf16'])"
json "float8_e4m3fn" "(lambda s: (s['min'], s['max'], s['nan'], s['inf']) == (0, 448, 1, 0))($stats['e4'])"
json "float8_e5m2" "(lambda s: (s['min'], s['max'], s['nan'], s['inf']) == (-1, 1, 1, 1))($stats['e5'])"
json "int64" "(lambda s: (s['min'], s['max']) == (-5, 1000000007))($stats['i64'])"
json "bool" "(lambda s: (s['min'], s['max'], s['mean'], s['zeros']) == (0, 1, .5, 1))($stats['bools'])"
json "complex" "(lambda s: (s['min'], s['max']) == (0, 5))($stats['complex'])"
json "empty" "(lambda s: (s['count'], s['min'], s['mean']) == (0, None, None))($stats['empty'])"
json "float32" "(lambda s: s['count'] == 100000 and sum(s['histogram']) == 100000 and s['min'] == 0 and 4.9 < s['mean'] < 5.1)($stats['wte'])"
is "show --stats --json, with -ffast-math" 0 ./ckpt-plain show --stats --json $f
json "float16, with -ffast-math" "(lambda s: (s['min'], s['max'], s['nan'], s['inf']) == (-2, 1, 1, 1))($stats['f16'])"
json "float8_e4m3fn, with -ffast-math" "(lambda s: (s['min'], s['max'], s['nan'], s['inf']) == (0, 448, 1, 0))($stats['e4'])"
json "empty, with -ffast-math" "(lambda s: (s['count'], s['min'], s['mean']) == (0, None, None))($stats['empty'])"
is "show of a name" 0 ./ckpt show --json $f state/model 'rng/*'
json "only those" "all(e['name'].startswith(('state/model/', 'rng/')) for e in d['entries']) and len(d['entries']) == 10"
is "show of no such name" 3 ./ckpt show $f state/nothing

# convert and diff
for to in a.pt.gz a.safetensors a.tar a.tgz a.tar.bz2 a.pt.xz a.pt.zst a.safetensors.gz; do
    case $to in *.zst) tool=zstd ;; *.xz) tool=xz ;; *.bz2) tool=bzip2 ;; *) tool=gzip ;; esac
    command -v $tool >/dev/null 2>&1 || { echo "SKIP: convert to $to: no $tool here"; continue; }
    is "convert to $to" 0 ./ckpt convert $f out/$to
    is "$to is the same" 0 ./ckpt diff --all $f out/$to
    is "$to verifies" 0 ./ckpt verify out/$to
done
is "convert back" 0 ./ckpt convert out/a.pt.gz out/back.pt
cmp -s out/back.pt $f && pass "packed and unpacked to the byte" || fail "packed and unpacked to the byte"
is "convert from safetensors" 0 ./ckpt convert --json out/a.safetensors out/c.pt
json "convert --json" "d['size_to'] > 400000"
is "the same through safetensors" 0 ./ckpt diff --all $f out/c.pt
if python3 -c 'import torch; torch.float8_e4m3fn' 2>/dev/null; then
    if python3 -c "import torch; d = torch.load('out/c.pt'); assert d['state']['optimizers']['AdamW']['param_groups'][0]['lr'] == 3e-4 and d['state']['model']['wte'].shape == (1000, 100)
d = torch.load('$f'); e = torch.load('out/back.pt'); assert type(d['state']['optimizers']['AdamW']['param_groups']) is list" 2>pyerr; then pass "torch reads what was converted"; else fail "torch reads what was converted"; tail -3 pyerr; fi
else echo "SKIP: torch reads what was converted: no torch with float8 here"; fi
is "convert does not overwrite" 4 ./ckpt convert $f out/c.pt
is "convert --force does" 0 ./ckpt convert --force $f out/c.pt
is "convert of nothing" 3 ./ckpt convert none.pt out/d.pt
is "convert to an unknown packing" 5 ./ckpt convert $f out/d.safetensors.rar
is "diff of other values" 1 ./ckpt diff run/ep0-ba30-rank0.pt $f
holds "diff counts elements" "50 of 100000 elements differ, by up to 1"
is "diff --json" 1 ./ckpt diff --json run/ep0-ba30-rank0.pt $f
json "diff --json names them" "d['same'] is False and [x for x in d['differences'] if x['name'] == 'state/model/wte'][0]['elements'] == 50"
is "diff with tolerance" 1 ./ckpt diff --atol 1.001 --json run/ep0-ba30-rank0.pt $f
json "within the tolerance" "'state/model/wte' not in [x['name'] for x in d['differences']]"
is "diff --json of the same" 0 ./ckpt diff --json $f $f
json "diff --json says so" "d['same'] is True and d['differences'] == []"
is "diff with a missing file" 3 ./ckpt diff $f none.pt

python3 - <<'E'
import json, struct
def write(name, kind, data):
    head = json.dumps({'w': {'dtype': kind, 'shape': [1], 'data_offsets': [0, len(data)]}}).encode()
    open(name + '.safetensors', 'wb').write(struct.pack('<Q', len(head)) + head + data)
for name, x in ('one', '1'), ('inf', 'inf'), ('less', '-inf'), ('nan', 'nan'): write(name, 'F32', struct.pack('<f', float(x)))
for name, re, im in ('plus', 3, 4), ('minus', -3, -4), ('near', 3, 4.0001): write(name, 'C64', struct.pack('<2f', re, im))
for name, kind, x in ('big', 'I64', 2**62), ('bigger', 'I64', 2**62 + 100), ('low', 'I64', -2**63), ('high', 'I64', 2**63 - 1): write(name, kind, struct.pack('<q', x))
for name, x in ('vast', 2**64 - 101), ('vaster', 2**64 - 1): write(name, 'U64', struct.pack('<Q', x))
def put(name, rows):
    head, data = {}, b''
    for row, kind, x in rows:
        head[row] = {'dtype': kind, 'shape': [len(x) // 8], 'data_offsets': [len(data), len(data) + len(x)]}
        data += x
    text = json.dumps(head).encode()
    open(name + '.safetensors', 'wb').write(struct.pack('<Q', len(text)) + text + data)
most = 1.7976931348623157e308
put('ends', [('double', 'F64', struct.pack('<5d', most, -most, 0, float('nan'), 0)), ('same', 'F64', struct.pack('<2d', most, most)), ('tiny', 'F64', struct.pack('<3d', 5e-324, 1e-323, 1.5e-323)),
             ('long', 'I64', struct.pack('<3q', 2**60, 2**60 + 1, -2**63)), ('close', 'I64', struct.pack('<2q', 2**60 + 1, 2**60 + 2)),
             ('ulong', 'U64', struct.pack('<2Q', 2**64 - 1, 2**60 + 1)), ('none', 'I64', b'')])
E
./make vast.pt || fail "make vast.pt"
for build in ckpt ckpt-plain; do
    is "show --stats of complex128, $build" 0 ./$build show --stats --json vast.pt
    json "complex128 beyond all doubles" "(lambda s: (s['max'], s['inf']) == (1.7976931348623157e308, 1))($stats['vast'])"
    is "show --stats of extremes, $build" 0 ./$build show --stats --json ends.safetensors
    json "double" "(lambda s: (s['min'], s['max'], s['mean'], s['nan'], s['histogram'][0], s['histogram'][8], s['histogram'][15]) == (-1.7976931348623157e308, 1.7976931348623157e308, 0, 1, 1, 2, 1) and 1.2e308 < s['std'] < 1.3e308)($stats['double'])"
    json "the largest alone" "(lambda s: (s['mean'], s['std']) == (1.7976931348623157e308, 0))($stats['same'])"
    [ $build != ckpt ] || json "the smallest" "(lambda s: (s['min'], s['max'], s['mean'], sum(s['histogram'])) == (5e-324, 1.5e-323, 1e-323, 3))($stats['tiny'])"
    json "int64" "(lambda s: (s['min'], s['max']) == (-2**63, 2**60 + 1))($stats['long'])"
    json "int64 that are one double" "(lambda s: (s['min'], s['max']) == (2**60 + 1, 2**60 + 2))($stats['close'])"
    json "uint64" "(lambda s: (s['min'], s['max']) == (2**60 + 1, 2**64 - 1))($stats['ulong'])"
    json "none" "(lambda s: (s['min'], s['max']) == (None, None))($stats['none'])"
done
for pair in "one inf" "inf one" "inf less" "one nan" "plus minus"; do
    is "diff --rtol of $pair" 1 ./ckpt diff --rtol 0.001 ${pair% *}.safetensors ${pair#* }.safetensors
    is "diff --rtol of $pair, with -ffast-math" 1 ./ckpt-plain diff --rtol 0.001 ${pair% *}.safetensors ${pair#* }.safetensors
done
for pair in "big bigger" "bigger big" "vast vaster" "vaster vast"; do
    is "diff --atol of integers that are one double: $pair" 1 ./ckpt diff --atol 99 ${pair% *}.safetensors ${pair#* }.safetensors
    holds "says how far they are apart" "by up to 100"
    is "diff --atol of integers that are near: $pair" 0 ./ckpt diff --atol 100 ${pair% *}.safetensors ${pair#* }.safetensors
done
is "diff of the ends of int64" 1 ./ckpt diff low.safetensors high.safetensors
holds "does not overflow" "by up to 1.84467e+19"
is "diff --rtol of complex numbers that are near" 0 ./ckpt diff --rtol 0.001 plus.safetensors near.safetensors

# what is known by its type alone is not called the same
python3 - <<'E'
import argparse, datetime, pickle, zipfile
def write(name, obj):
    with zipfile.ZipFile(name + '.pt', 'w', zipfile.ZIP_STORED) as z:
        for member, data in ('data.pkl', pickle.dumps(obj, protocol=2)), ('byteorder', 'little'), ('version', '3\n'): z.writestr('a/' + member, data)
write('objects', {'lr': 0.1, 'args': argparse.Namespace(lr=1), 'nothing': None, 'e': {}})
write('others', {'lr': 0.1, 'args': argparse.Namespace(lr=2), 'nothing': None, 'e': {}})
write('list', {'lr': 0.1, 'args': argparse.Namespace(lr=2), 'nothing': None, 'e': []})
write('date', {'lr': 0.1, 'args': datetime.date(2020, 1, 1), 'nothing': None, 'e': {}})
write('none', {'lr': 0.1, 'args': argparse.Namespace(lr=1), 'nothing': {}, 'e': {}})
write('some', {'lr': 0.1, 'args': argparse.Namespace(lr=1), 'nothing': 1, 'e': {}})
write('empty', {'nothing': None, 'e': {}})
for name, step in ('step', 2**62), ('later', 2**62 + 100): write(name, {'step': step})
E
is "diff of objects" 0 ./ckpt diff objects.pt others.pt
holds "says that it has not compared them" "no difference found: 3 entries are the same"
holds "and which" "not compared: 1, of which only the type is known: args"
is "diff --json of objects" 0 ./ckpt diff --json objects.pt others.pt
json "is not the same" "d['same'] is None and d['not_compared'] == ['args'] and d['equal_entries'] == 3 and d['differences'] == []"
for pair in "list:an empty dict -> none an empty list" "date:argparse.Namespace -> object datetime.date" "none:none  -> none an empty dict" "some:none  -> int 1"; do
    is "diff of objects.pt and ${pair%%:*}.pt" 1 ./ckpt diff objects.pt ${pair%%:*}.pt
    holds "tells the kinds" "${pair#*:}"
done
is "diff of nothing but None" 0 ./ckpt diff --json empty.pt empty.pt
json "is the same" "d['same'] is True and d['not_compared'] == [] and d['equal_entries'] == 2"
is "show of an object" 0 ./ckpt show --json objects.pt args
json "says what it is" "d['entries'][0]['what'] == 'argparse.Namespace'"
is "diff --atol of single integers that are one double" 1 ./ckpt diff --atol 99 step.pt later.pt
is "diff --atol of single integers that are near" 0 ./ckpt diff --atol 100 step.pt later.pt
rm step.pt later.pt objects.pt others.pt list.pt date.pt none.pt some.pt empty.pt

# names of other kinds
odd=$(printf 'odd-\377\303\033[31m.pt')
mkdir odd && cp $f "odd/$odd"
mkdir wide
cp run/ep0-ba80-rank0.pt wide/模型-ガ.pt && cp run/ep0-ba80-rank0.pt wide/$(printf 'e\314\201te\314\201.pt') && cp run/ep0-ba80-rank0.pt wide/long-plain-name.pt
is "ls of names that are wide and that combine" 0 ./ckpt ls wide
holds "ls of wide names: the head" "NAME                TIME"
holds "ls of wide names: two columns a character" "模型-ガ.pt          ep 0"
holds "ls of wide names: accents take none" "$(printf 'e\314\201te\314\201.pt')              ep 0"
is "ls of a name that is not UTF-8" 0 ./ckpt ls odd
holds "what a terminal cannot show" "odd-???[31m.pt"
is "ls --json of it" 0 ./ckpt ls --json odd
json "Python finds the file by it" "__import__('os').path.exists('odd/' + d['checkpoints'][0]['name'])"
: > "odd/$odd"
is "verify of what is damaged" 1 ./ckpt verify "odd/$odd"
lacks "no escapes in the sentence" "$(printf '\033')"
is "show of it" 1 ./ckpt show "odd/$odd"
out=$(cat err)
lacks "nor in this one" "$(printf '\033')"

# damage
cp -r run broken
printf 'X' | dd of=broken/ep0-ba80-rank0.pt bs=1 seek=200000 conv=notrunc 2>/dev/null
head -c 300000 run/ep0-ba70-rank0.pt > broken/ep0-ba70-rank0.pt
is "verify" 0 ./ckpt verify run/ep0-ba80-rank0.pt run/latest-rank0.pt
is "verify of damage" 1 ./ckpt verify broken/ep0-ba80-rank0.pt
holds "verify names the entry" "state/model/wte"
is "verify of nothing" 3 ./ckpt verify none.pt
mkdir bare && is "verify of an empty folder" 3 ./ckpt verify bare
says "says what it is" "no checkpoints in bare" && rmdir bare
is "verify of a folder" 1 ./ckpt verify broken
is "verify --json" 1 ./ckpt verify --json broken none.pt
json "verify --json tells all" "[v['ok'] for v in d['verified']] == [True] * 5 + [False] * 3 and d['verified'][-1]['code'] == 'CKPT_NOT_FOUND'"
is "ls sees damage" 1 ./ckpt ls broken
holds "ls says NO" "NO"
is "show of a torn file" 1 ./ckpt show broken/ep0-ba70-rank0.pt
is "error as JSON" 1 ./ckpt show --json broken/ep0-ba70-rank0.pt
json "it names the class" "d['error']['code'] == 'CKPT_CORRUPT'"
is "convert of damage" 1 ./ckpt convert broken/ep0-ba80-rank0.pt out/e.pt
[ ! -e out/e.pt ] && pass "nothing was made of it" || fail "nothing was made of it"
is "gc leads latest away from damage" 0 ./ckpt gc broken
[ "$(readlink broken/latest-rank0.pt)" = ep0-ba60-rank0.pt ] && pass "latest verifies" || fail "latest verifies"
is "gc --damaged" 0 ./ckpt gc --damaged --json broken
json "gc --json" "sorted(x['name'] for x in d['removed']) == ['ep0-ba70-rank0.pt', 'ep0-ba80-rank0.pt'] and d['error'] is None"

# what may not be read is not damaged, and an index that may not be is not empty
cp -r run shut
chmod 000 shut/ep0-ba60-rank0.pt
limited=
[ "$(id -u)" != 0 ] || limited='setpriv --bounding-set=-dac_override,-dac_read_search'
if $limited true 2>/dev/null && ! $limited cat shut/ep0-ba60-rank0.pt >/dev/null 2>&1; then
    is "ls of a file that may not be read" 4 $limited ./ckpt ls --json shut
    json "it is not damaged" "[c['verified'] for c in d['checkpoints']].count(False) == 0 and [c['name'] for c in d['checkpoints'] if c['problem'] and 'denied' in c['problem']] == ['ep0-ba60-rank0.pt']"
    is "ls --verify of it" 4 $limited ./ckpt ls --verify --json shut
    json "is sure of the others" "[(c['verified'], c['name']) for c in d['checkpoints'] if c['verified'] is not True] == [(None, 'ep0-ba60-rank0.pt')]"
    is "verify of it" 4 $limited ./ckpt verify shut
    chmod 644 shut/ep0-ba60-rank0.pt
    is "pin what is shut" 0 ./ckpt pin shut/ep0-ba60-rank0.pt
    chmod 000 shut/.ckpt-index.jsonl
    is "ls of an index that may not be read" 4 $limited ./ckpt ls --json shut
    json "does not say that nothing is pinned" "len(d['checkpoints']) > 5 and all(c['pinned'] is None for c in d['checkpoints'])"
    says "and says why" "it is not known which checkpoints in shut are pinned or damaged: .*denied"
    is "verify with such an index" 4 $limited ./ckpt verify shut
else
    echo "SKIP: what may not be read: needs setpriv, or a user that is not root"
fi
rm -rf shut

# an index of another world
cp -r run far && python3 - <<'E'
import json, zlib
lines = open('far/.ckpt-index.jsonl', 'rb').read().splitlines()[:-1]
d = json.loads(lines[-1])
del d['line']
d['saved_at'] = 1e300
text = json.dumps(d, separators=(',', ':')).encode()[:-1]
lines[-1] = text + b',"line":"%08x"}' % zlib.crc32(text)
body = b''.join(l + b'\n' for l in lines)
open('far/.ckpt-index.jsonl', 'wb').write(body + b'{"checkpoints":%d,"all":"%08x"}\n' % (len(lines), zlib.crc32(body)))
E
is "ls of a time that no calendar has" 0 ./ckpt ls far
if printf '%s\n' "$out" | grep -q 'ep0-ba80-rank0.pt  ep 0  ba 80  -                       -    '; then pass "it is none"; else
    fail "it is none"; printf '%s\n' "$out"; fi
is "ls --json of it" 0 ./ckpt ls --json far
json "nor here" "d['checkpoints'][-1]['saved'] == '' and d['checkpoints'][-1]['saved_at'] == 1e300"

# pin, rm, gc
is "pin" 0 ./ckpt pin run/ep0-ba30-rank0.pt
is "rm of a pinned one" 4 ./ckpt rm run/ep0-ba30-rank0.pt
is "pin through the link" 0 ./ckpt pin --json run/latest-rank0.pt
json "pin --json" "d['pinned'] == ['run/ep0-ba80-rank0.pt']"
is "unpin" 0 ./ckpt unpin run/latest-rank0.pt
is "ls --json shows pins" 0 ./ckpt ls --json run
json "pinned" "[c['name'] for c in d['checkpoints'] if c['pinned']] == ['ep0-ba30-rank0.pt']"
is "rm of the link" 2 ./ckpt rm run/latest-rank0.pt
mkdir run/best && ln -s ../ep0-ba70-rank0.pt run/best/ && printf '../ep0-ba60-rank0.pt' > run/best/ep0-ba60-rank0.pt
is "rm of a link that has its target's name" 2 ./ckpt rm run/best/ep0-ba70-rank0.pt
is "rm of a text that has it" 2 ./ckpt rm run/best/ep0-ba60-rank0.pt
[ -e run/ep0-ba70-rank0.pt ] && [ -e run/ep0-ba60-rank0.pt ] && pass "the checkpoints stay" || fail "the checkpoints stay"
rm -r run/best
is "rm of a folder" 2 ./ckpt rm run
# the folder stays open from name to name
cp -r run several
is "pin of several names" 3 ./ckpt pin --json several/ep0-ba60-rank0.pt several/none.pt several/latest-rank0.pt several/ep0-ba50-rank0.pt
json "those that there are" "[p.split('/')[-1] for p in d['pinned']] == ['ep0-ba60-rank0.pt', 'ep0-ba80-rank0.pt', 'ep0-ba50-rank0.pt']"
says "the other is named" "there is no checkpoint several/none.pt"
is "rm of several names" 4 ./ckpt rm --json several/ep0-ba70-rank0.pt several/ep0-ba60-rank0.pt several/ep0-ba40-rank0.pt
json "but for the pinned one" "[p.split('/')[-1] for p in d['removed']] == ['ep0-ba70-rank0.pt', 'ep0-ba40-rank0.pt']"
is "ls shows what is left" 0 ./ckpt ls --json several
json "and what is pinned" "[c['name'] for c in d['checkpoints'] if c['pinned']] == ['ep0-ba%d-rank0.pt' % i for i in (30, 50, 60, 80)] and 'ep0-ba70-rank0.pt' not in [c['name'] for c in d['checkpoints']]"
rm -rf several

is "rm of nothing" 3 ./ckpt rm run/none.pt
is "rm" 0 ./ckpt rm run/ep0-ba80-rank0.pt
[ "$(readlink run/latest-rank0.pt)" = ep0-ba70-rank0.pt ] && pass "latest has moved" || fail "latest has moved"
is "latest verifies" 0 ./ckpt verify run/latest-rank0.pt
: > "run/.ep0-ba90-rank0.pt.2000000000-$(printf 'not-hex-here').tmp"
is "gc --dry-run" 0 ./ckpt gc --keep 2 --keep-best min --dry-run --json run
json "what would go" "[x['name'] for x in d['removed']] == ['ep0-ba40-rank0.pt', 'ep0-ba50-rank0.pt']"
[ -e run/ep0-ba40-rank0.pt ] && pass "nothing went" || fail "nothing went"
is "gc --keep" 0 ./ckpt gc --keep 2 --keep-best min run
is "the rest" 0 ./ckpt ls --json run
json "pinned, best and newest stay" "[c['name'] for c in d['checkpoints']] == ['ep0-ba%d-rank0.pt' % b for b in (10, 30, 60, 70)]"
is "gc --keep-every without --keep" 2 ./ckpt gc --keep-every 3 run
cp -r run packed
is "a compressed copy" 0 ./ckpt convert packed/ep0-ba30-rank0.pt packed/mine.pt.gz
is "gc beside it" 0 ./ckpt gc --keep 1 packed
is "ls" 0 ./ckpt ls --json packed
json "it stays, and is foreign" "[c['name'] for c in d['checkpoints'] if c['foreign']] == ['mine.pt.gz']"
is "pin of it" 0 ./ckpt pin packed/mine.pt.gz
is "ls" 0 ./ckpt ls --json packed
json "it is known" "sorted(c['name'] for c in d['checkpoints'] if c['pinned'] and not c['foreign']) == ['ep0-ba30-rank0.pt', 'mine.pt.gz']"

# a file in a folder that is no run's
mkdir -p home/deep/er && cp run/ep0-ba30-rank0.pt home/a.pt && cp run/ep0-ba60-rank0.pt home/b.pt && cp run/ep0-ba60-rank0.pt home/deep/er/c.pt
is "rm there" 0 ./ckpt rm home/a.pt
[ "$(ls -A home | tr '\n' ' ')" = "b.pt deep " ] && pass "leaves no index" || { fail "leaves no index"; ls -A home; }
is "pin there" 0 ./ckpt pin home/b.pt
[ "$(grep -c c.pt home/.ckpt-index.jsonl)" = 0 ] && pass "and what lies deep below is not looked at" || fail "and what lies deep below is not looked at"
rm -r home

# checkpoints in sub-folders of a run, by all ways to name them
within() { (cd "$1" && shift && "$@"); }
mkdir -p deep/ep1 && cp run/ep0-ba30-rank0.pt deep/ep1/ba30.pt && cp run/ep0-ba70-rank0.pt deep/ep1/ba70.pt
ln -s ep1/ba70.pt deep/latest.pt
is "gc makes the run's index" 0 ./ckpt gc deep
is "pin from the run's folder" 0 within deep ../ckpt pin --json ep1/ba30.pt
json "by the name that it has there" "d['pinned'] in (['ep1/ba30.pt'], ['./ep1/ba30.pt'])"
is "rm from the sub-folder" 4 within deep/ep1 ../../ckpt rm ba30.pt
is "unpin from the sub-folder" 0 within deep/ep1 ../../ckpt unpin --json ba30.pt
json "by a path of the run's" "d['unpinned'] == ['$dir/deep/ep1/ba30.pt']"
for way in deep/ep1/ba30.pt ./deep/ep1/ba30.pt deep//ep1/ba30.pt "$dir/deep/ep1/ba30.pt"; do
    is "pin of $way" 0 ./ckpt pin --json "$way"
    json "as it was named" "d['pinned'][0].replace('//', '/') == '$way'.replace('//', '/')"
    is "it is the run's" 0 ./ckpt ls --json deep
    json "that has the pin" "[c['pinned'] for c in d['checkpoints']] == [True, False]"
    is "unpin" 0 ./ckpt unpin "$way"
done
is "rm of the newest, by another folder" 0 within deep/ep1 ../../ckpt rm ../../far/../deep/ep1/ba70.pt
[ "$(readlink deep/latest.pt)" = ep1/ba30.pt ] && pass "the run's latest has moved" || fail "the run's latest has moved"
[ "$(ls -A deep/ep1)" = ba30.pt ] && pass "no second index" || { fail "no second index"; ls -A deep/ep1; }
rm run/.ckpt-index.jsonl
is "ls without an index" 0 ./ckpt ls --json run
json "it finds them" "[c['name'] for c in d['checkpoints']] == ['ep0-ba%d-rank0.pt' % b for b in (10, 30, 60, 70)] and not any(c['foreign'] for c in d['checkpoints'])"
is "gc --keep-best without any metric" 4 ./ckpt gc --keep 1 --keep-best min run
says "says why" "nobody knows the best (its index is lost)"
[ -e run/ep0-ba10-rank0.pt ] && pass "the best stays" || fail "the best stays"
is "gc --keep-best when nothing goes" 0 ./ckpt gc --keep 9 --keep-best min run
rm run/.ckpt-index.jsonl
is "gc makes an index" 0 ./ckpt gc run
[ -s run/.ckpt-index.jsonl ] && pass "there it is" || fail "there it is"

# a saver at work
mkfifo ready
./make run hold > ready &
pid=$!
read -r line < ready
is "rm while a saver runs" 4 ./ckpt rm run/ep0-ba60-rank0.pt
grep -q "process $pid" err && pass "it names the process" || { fail "it names the process"; cat err; }
is "gc while a saver runs" 4 ./ckpt gc --keep 1 run
mkdir runs && cp -r run runs/a && rm -f runs/a/.ckpt-lock && ln -s ../run runs/linked
mv run runs/b
before=$(find runs -name '*.pt' | sort)
is "gc of a folder of runs" 4 ./ckpt gc --keep 1 runs
grep -q "runs has no checkpoints of its own.*name the folder of a run" err && pass "it says what to name" || { fail "it says what to name"; cat err; }
is "gc --dry-run of a folder of runs" 4 ./ckpt gc --keep 1 --dry-run --json runs
json "nothing would go" "d['removed'] == [] and 'name the folder of a run' in d['error']"
is "ls of a folder of runs" 0 ./ckpt ls --json runs
json "it shows them all" "sorted(set(c['name'][:2] for c in d['checkpoints'])) == ['a/', 'b/']"
rm runs/b/.ckpt-index.jsonl
is "rm by a path into a run whose saver has a lock alone" 4 ./ckpt rm runs/b/ep0-ba60-rank0.pt
grep -q "process $pid" err && pass "it names that process" || { fail "it names that process"; cat err; }
cp runs/a/.ckpt-index.jsonl runs/b/
is "rm by a path into a run" 0 ./ckpt rm runs/a/ep0-ba60-rank0.pt
[ "$(find runs -name '*.pt' | sort)" = "$(echo "$before" | grep -v runs/a/ep0-ba60)" ] && pass "only that went" || fail "only that went"
[ "$(ls -A runs | tr '\n' ' ')" = "a b linked " ] && pass "the folder above has no index" || { fail "the folder above has no index"; ls -A runs; }
mv runs/b run
is "pin while a saver runs" 0 ./ckpt pin run/ep0-ba60-rank0.pt
is "ls while a saver runs" 0 ./ckpt ls run
kill -9 $pid
wait $pid 2>/dev/null
is "rm after it was killed" 0 ./ckpt rm run/ep0-ba70-rank0.pt
is "the last ones" 0 ./ckpt rm run/ep0-ba10-rank0.pt
is "unpin the rest" 0 ./ckpt unpin run/ep0-ba30-rank0.pt run/ep0-ba60-rank0.pt
is "rm all" 0 ./ckpt rm run/ep0-ba30-rank0.pt run/ep0-ba60-rank0.pt
[ ! -e run/latest-rank0.pt ] && [ ! -L run/latest-rank0.pt ] && pass "no link is left" || fail "no link is left"

exit $failed
