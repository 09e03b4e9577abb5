#!/bin/sh
# Proves the commands of tools/ckpt.c on checkpoints of many ranks, which real savers wrote: ls, show, verify, diff, merge, split, pin, rm, gc,
# and get, put, cp, rm, gc on a file:// store; damage at any byte, missing files, directories without .metadata; that what split
# writes loads on other numbers of ranks and in Python as Hugging Face's loaders read it; and that a merge needs little memory.  run.sh: memory
. "$(dirname "$0")/cli_setup.sh"
good() { if eval "$2"; then pass "$1"; else fail "$1"; fi; }
$quick -std=gnu99 -g -DHEADER="\"$root/ckpt.h\"" -DFORK_RANKS="\"$root/tests/fork_ranks.h\"" -o make "$root/tests/cli_shards_make.c" -lpthread -lm ||
    { echo "FAIL: build of cli_shards_make.c"; exit 1; }
./make run 4 .pt || { echo "FAIL: make"; exit 1; }
f=run/ep0-ba30

# ls
is "ls" 0 ./ckpt ls run
holds "ls names the directory" "ep0-ba30/"
holds "ls counts checkpoints, not files" "3 checkpoints"
holds "ls has a column for ranks" "RANKS"
holds "ls shows the link" "<- latest"
lacks "ls lists no rank's file" "__0_0"
is "ls --verify" 0 ./ckpt ls --verify run
holds "ls --verify says yes" "yes"
is "ls --json" 0 ./ckpt ls --json run
json "ls --json has them" "[(c['name'], c['ranks'], c['sharded'], c['unfinished']) for c in d['checkpoints']] == [('ep0-ba%d' % b, 4, True, False) for b in (10, 20, 30)]"
json "ls --json has latest and times" "[(c['latest'], c['timestamp']['batch'], c['number']) for c in d['checkpoints']] == [(None, 10, 1), (None, 20, 2), ('latest', 30, 3)]"
size=$(cat $f/__*.pt $f/.metadata | wc -c)
json "ls --json has the size of all files" "d['checkpoints'][2]['size'] == $size"
is "ls of the directory itself" 0 ./ckpt ls --json $f
json "is one row" "[c['ranks'] for c in d['checkpoints']] == [4]"
cp -r run lost && rm lost/.ckpt-index.jsonl
is "ls without an index" 0 ./ckpt ls --json lost
json "finds them again" "[(c['name'], c['ranks'], c['timestamp']['batch'], c['number']) for c in d['checkpoints']] == [('ep0-ba%d' % b, 4, b, b // 10) for b in (10, 20, 30)]"

# show
is "show" 0 ./ckpt show $f
holds "show has ranks and files" "4 ranks, 4 files"
holds "show has whole shapes" "[1000, 100]"
holds "show counts pieces" "in 4 pieces"
lacks "names are tamed" "$(printf '\033')"
is "show of the link" 0 ./ckpt show run/latest
is "show --json" 0 ./ckpt show --json $f
json "show --json has ranks and files" "d['ranks'] == 4 and [x['name'] for x in d['files']] == ['__%d_0.pt' % i for i in range(4)] and d['size'] == sum(x['size'] for x in d['files'])"
json "whole shapes, pieces" "{e['name']: (e.get('shape'), e.get('pieces')) for e in d['entries'] if e['kind'] == 'tensor'} == {'state/model/wte': ([1000, 100], 4), 'state/model/cols': ([64, 96], 4), 'state/model/grid': ([40, 60], 4), 'state/model/odd': ([7, 3], 4), 'state/model/norm': ([128], 1), 'state/model/hostile\x1b[31m': ([333], 1)}"
json "values of all ranks" "[e['name'] for e in d['entries'] if e['name'].startswith('rng/')] == ['rng/%d/python' % i for i in range(4)] and {e['name']: e.get('value') for e in d['entries']}['state/step'] == 30"
is "show --stats" 0 ./ckpt show --stats --json $f state/model
json "stats go over pieces" "(lambda s: s['wte']['count'] == 100000 and s['wte']['min'] == -100 and s['wte']['max'] == 150 and abs(s['wte']['mean'] - sum(i % 251 - 100 for i in range(100000)) / 1e5) < 1e-9 and s['cols']['max'] == 150 and sum(s['grid']['histogram']) == 2400)({e['name'].split('/')[-1]: e['stats'] for e in d['entries']})"

# merge, convert, diff
for to in m.pt m.safetensors m.tar m.pt.gz m.tgz; do
    is "merge to $to" 0 ./ckpt merge $f out/$to
    is "$to is the same" 0 ./ckpt diff --all $f out/$to
    is "$to verifies" 0 ./ckpt verify out/$to
done
is "merge again" 4 ./ckpt merge $f out/m.pt
is "merge --force --json" 0 ./ckpt merge --force --json run/latest out/m.pt
json "merge --json" "d['size_from'] > 400000 and d['size_to'] > 400000"
is "convert does the same" 0 ./ckpt convert $f out/c.pt
is "diff both ways" 0 ./ckpt diff --all out/c.pt $f
is "diff of two of them" 1 ./ckpt diff run/ep0-ba20 $f
holds "diff names what is different" "state/step"
lacks "and not what is the same" "state/model/wte"
./make one.pt 1 .pt one
is "diff with the same in one file" 1 ./ckpt diff --json one.pt $f
json "no value differs" "all(x['what'] == 'only in b' for x in d['differences'])"
is "merge of a folder" 2 ./ckpt merge run out/x.pt
is "merge to a URI" 2 ./ckpt merge $f file:///x.pt
if python3 -c 'import torch' 2>/dev/null; then python=python3; else python=/usr/bin/python3; fi
if $python -c 'import torch' 2>/dev/null; then
    is "torch loads the merged file" 0 $python -c "
import torch
d = torch.load('out/m.pt')['state']
w = torch.arange(100000).remainder(251).sub(100).to(torch.float32).reshape(1000, 100)
assert torch.equal(d['model']['wte'], w) and d['step'] == 30 and d['optimizers']['AdamW']['param_groups'][0]['lr'] == 3e-4
assert torch.equal(d['model']['grid'], torch.arange(2400).remainder(251).sub(100).to(torch.float64).reshape(40, 60))"
else echo "SKIP: torch loads the merged file: no torch here"; fi

# split
n=0
for how in "" "--whole" "--as .safetensors" "--as .safetensors --whole" "--as .pt.gz" "--as .tar"; do
    n=$((n + 1))
    is "split $how" 0 ./ckpt split $how out/m.pt 3 split$n
    is "split $how is the same" 0 ./ckpt diff --all out/m.pt split$n
    is "split $how verifies" 0 ./ckpt verify split$n
done
is "split --json" 0 ./ckpt split --json $f 7 again
json "split --json" "d['files'] == 7 and d['size_to'] > 400000"
is "a split of one that was split" 0 ./ckpt split again 2 again2
is "is the same" 0 ./ckpt diff --all again2 $f
is "more files than rows" 0 ./ckpt split --as .safetensors one.pt 11 many
is "more files than rows: the same" 0 ./ckpt diff --all many one.pt
is "no tensor is cut" 0 ./ckpt show --json split2
json "no tensor is cut (pieces)" "all(e.get('pieces', 0) <= 1 for e in d['entries'])"
is "cut by rows" 0 ./ckpt show --json split1
json "cut by rows (pieces)" "{e['name']: e['pieces'] for e in d['entries'] if e['kind'] == 'tensor'}['state/model/wte'] == 3"
is "split again" 4 ./ckpt split out/m.pt 2 split1
is "split to many compressed files" 0 ./ckpt split --as .pt.gz out/m.pt 60 packed
is "merge of more files than a login may open" 0 sh -c 'ulimit -Sn 40 && exec ./ckpt merge packed out/packed.pt'
is "split --force" 0 ./ckpt split --force out/m.pt 2 split1
good "what was there before is gone" '[ "$(ls -A split1 | tr "\n" " ")" = ".metadata __0_1.pt __1_1.pt " ]'
is "split --force as something unknown here" 5 env PATH=/nowhere ./ckpt split --force --as .pt.lzo out/m.pt 2 split1
is "leaves what was there" 0 ./ckpt verify split1
is "split onto itself" 4 ./ckpt split --force split1 3 split1
is "split of a rank's file onto its directory" 4 ./ckpt split --force split1/__0_1.pt 3 split1
is "is not touched" 0 ./ckpt verify split1
is "split into no files" 2 ./ckpt split out/m.pt 0 none
for ending in .xyz .pth .tarry; do is "split as $ending" 2 ./ckpt split --as $ending out/m.pt 2 none; done
is "split without a directory" 2 ./ckpt split out/m.pt 2
good "nothing was made" '[ ! -e none ]'
is "the index of Hugging Face" 0 python3 "$root/tests/hf_index.py" split4
holds "all tensors by the index" "tensors in"
good "only where tensors are whole" '[ ! -e split3/model.safetensors.index.json ]'
./make hf 1 .safetensors
is "the saver writes it too" 0 python3 "$root/tests/hf_index.py" hf/ep0-ba30
if vendor_has @huggingface/hub; then
    is "@huggingface/hub reads what was split" 0 node "$root/tests/hf_hub.mjs" "$vendor" split4 129026
    is "@huggingface/hub reads the saver's" 0 node "$root/tests/hf_hub.mjs" "$vendor" hf/ep0-ba30 114026
else
    echo "SKIP: @huggingface/hub: not installed (CKPT_LONG=1 has npm install it, CKPT_NODE_MODULES says where it is)"
fi
for ranks in 1 3 5; do
    mkdir back$ranks
    is "split for $ranks ranks" 0 ./ckpt split $f 2 back$ranks/ep0-ba30
    is "$ranks ranks load it" 0 ./make back$ranks $ranks .pt check
    holds "$ranks ranks: at its time" 30
    is "$ranks ranks go on from it" 0 ./make back$ranks $ranks .pt more
    is "$ranks ranks: all verify" 0 ./ckpt ls --verify back$ranks
done
is "a merged one loads on ranks" 0 ./make back3 2 .pt check

# verify: a byte changed anywhere, a file missing, cut or exchanged, no .metadata
is "verify" 0 ./ckpt verify $f
holds "verify says ok" "ok"
is "verify of the link" 0 ./ckpt verify run/latest
is "verify of the folder" 0 ./ckpt verify --json run
json "verify has one line each" "[(v['path'], v['ok']) for v in d['verified']] == [('run/ep0-ba%d' % b, True) for b in (10, 20, 30)]"
cp -r $f bad
missed=$(python3 -S - <<'P'
import os, subprocess
for name in [".metadata"] + ["__%d_0.pt" % k for k in range(4)]:
    size = os.path.getsize("bad/" + name)
    for at in [0, 7, 100, size // 3, size // 2, size * 2 // 3, size - 40, size - 1]:
        with open("bad/" + name, "r+b", 0) as f:
            f.seek(at)
            b = f.read(1)[0]
            f.seek(at)
            f.write(bytes([b ^ 0x10]))
            if subprocess.run(["./ckpt-plain", "verify", "bad"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode != 1:
                print("not seen: %s, byte %d" % (name, at))
            f.seek(at)
            f.write(bytes([b]))
print("all were tried")
P
)
good "a changed byte in any file is found" '[ "$missed" = "all were tried" ] || { echo "$missed"; false; }'
is "and it is whole again" 0 ./ckpt verify bad
mv bad/__2_0.pt keep
is "a missing file" 1 ./ckpt verify bad
holds "names the file" "__2_0.pt"
is "merge with a missing file" 1 ./ckpt merge bad x.pt
good "nothing was written" '[ ! -e x.pt ]'
is "put with a missing file" 1 ./ckpt put bad "file://$dir/bucket/bad"
is "ls with a missing file" 1 ./ckpt ls bad
holds "ls names it" "__2_0.pt is missing"
head -c 1000 keep > bad/__2_0.pt
is "a file that is cut" 1 ./ckpt verify bad
is "ls with a file that is cut" 1 ./ckpt ls bad
holds "ls says how long" "has 1000 bytes"
cp bad/__3_0.pt bad/__2_0.pt
is "files that were exchanged" 1 ./ckpt verify bad
mv keep bad/__2_0.pt
mv bad/.metadata keep
is "no .metadata" 1 ./ckpt verify bad
holds "it does not count" "does not count"
is "show without .metadata" 1 ./ckpt show bad
says "show says why" "does not count"
is "merge without .metadata" 1 ./ckpt merge bad x.pt
is "diff without .metadata" 5 ./ckpt diff bad one.pt
is "put without .metadata" 1 ./ckpt put bad "file://$dir/bucket/bad"
printf 'nonsense' > bad/.metadata
is "a .metadata of something else" 1 ./ckpt verify bad
sed 's/"__1_0.pt"/"..\/x.pt"/' keep > bad/.metadata
is "a .metadata that leaves its directory" 1 ./ckpt verify bad
mkdir mixed && cp -r $f mixed/ep0-ba30 && cp -r run/ep0-ba20 mixed/ep0-ba20 && rm mixed/ep0-ba20/.metadata
is "ls with an unfinished one" 0 ./ckpt ls mixed
holds "ls says so" "unfinished"
holds "and does not count it" "1 checkpoint,"
is "ls --json with an unfinished one" 0 ./ckpt ls --json mixed
json "it is marked" "sorted((c['name'], c['unfinished'], c['ranks']) for c in d['checkpoints']) == [('ep0-ba20', True, None), ('ep0-ba30', False, 4)]"
is "verify with an unfinished one" 0 ./ckpt verify --json mixed
json "it is neither" "sorted((v['path'], v['ok']) for v in d['verified']) == [('mixed/ep0-ba20', None), ('mixed/ep0-ba30', True)]"
mkdir begun && cp -r mixed/ep0-ba20 begun/
is "verify of nothing but an unfinished one" 3 ./ckpt verify --json begun
json "it is told of" "[(v['path'], v['ok']) for v in d['verified']] == [('begun/ep0-ba20', None)]"
is "pin of an unfinished one" 5 ./ckpt pin mixed/ep0-ba20
mkdir dcp && printf 'pickle' > dcp/.metadata && printf x > dcp/__0_0.distcp
is "another library's directory is none" 0 ./ckpt ls --json dcp
json "nothing of ours" "d['checkpoints'] == []"

# pin, rm
cp -r run pins
is "pin" 0 ./ckpt pin pins/latest pins/ep0-ba10/
is "ls shows pins" 0 ./ckpt ls --json pins
json "which" "[c['pinned'] for c in d['checkpoints']] == [True, False, True]"
is "rm of a pinned one" 4 ./ckpt rm pins/ep0-ba10
is "rm of the link" 2 ./ckpt rm pins/latest
mkdir pins/best && ln -s ../ep0-ba20 pins/best/
is "rm of a link that has its target's name" 2 ./ckpt rm pins/best/ep0-ba20
good "the checkpoint stays" '[ -e pins/ep0-ba20/.metadata ]'
rm -r pins/best
is "rm of a rank's file" 3 ./ckpt rm pins/ep0-ba20/__0_0.pt
(cd pins/ep0-ba10 && ../../ckpt unpin . && cd ../ep0-ba20 && ../../ckpt pin .) > said 2>&1
good "a directory is named from inside it" 'grep -q "pinned.*ep0-ba20" said && [ -z "$(find pins/ep0-ba?0 -name ".ckpt*")" ]'
is "its pin is the run's" 0 ./ckpt ls --json pins
json "and so is its unpin" "[c['pinned'] for c in d['checkpoints']] == [False, True, True]"
is "unpin" 0 ./ckpt unpin pins/ep0-ba20 pins/ep0-ba30
printf mine > pins/ep0-ba30/notes.txt
is "rm" 0 ./ckpt rm pins/ep0-ba30
good "the link moved" '[ "$(readlink pins/latest)" = ep0-ba20 ]'
good "other files stay" '[ "$(ls -A pins/ep0-ba30)" = notes.txt ]'
is "rm --json" 0 ./ckpt rm --json pins/ep0-ba10/
json "rm --json names it" "d['removed'] == ['pins/ep0-ba10']"
good "the directory is gone" '[ ! -e pins/ep0-ba10 ]'
is "the last one" 0 ./ckpt rm pins/ep0-ba20
good "the link is gone" '[ ! -L pins/latest ]'
is "rm of nothing" 3 ./ckpt rm pins/ep0-ba20
is "rm of an unfinished one" 0 ./ckpt rm mixed/ep0-ba20
good "it is gone" '[ ! -e mixed/ep0-ba20 ] && [ -e mixed/ep0-ba30/.metadata ]'

cp -r run lostpin && ./ckpt pin lostpin/ep0-ba10 > said && rm lostpin/ep0-ba10/.metadata && touch -t 202001010000 lostpin/ep0-ba10/*
is "ls of a pinned one that has lost its .metadata" 1 ./ckpt ls lostpin
holds "says that it is gone" "its .metadata is gone"
is "gc" 0 ./ckpt gc --keep 1 lostpin
is "a saver goes on there" 0 ./make lostpin 3 .pt more
good "neither takes it" '[ "$(ls -A lostpin/ep0-ba10 | tr "\n" " ")" = "__0_0.pt __1_0.pt __2_0.pt __3_0.pt " ]'
is "it is pinned still" 4 ./ckpt rm lostpin/ep0-ba10
is "unpin of it" 0 ./ckpt unpin lostpin/ep0-ba10
is "then it goes" 0 ./ckpt rm lostpin/ep0-ba10

# gc
cp -r run tidy
is "gc -n says what would go" 0 ./ckpt gc -n --keep 1 --json tidy
json "with all of a directory" "[r['name'] for r in d['removed']] == ['ep0-ba10', 'ep0-ba20'] and d['bytes'] > 900000"
is "gc keeps what is asked" 0 ./ckpt gc --keep 2 --json tidy
json "gc names directories" "[r['name'] for r in d['removed']] == ['ep0-ba10']"
good "gc removed it" '[ ! -e tidy/ep0-ba10 ] && [ -e tidy/ep0-ba20/.metadata ]'
rm tidy/ep0-ba30/.metadata
cp -r tidy/ep0-ba30 tidy/deep && mkdir tidy/sub && mv tidy/deep tidy/sub/deep
is "gc leaves what is young" 0 ./ckpt gc tidy
good "young ones stay" '[ -e tidy/ep0-ba30/__0_0.pt ] && [ -e tidy/sub/deep/__0_0.pt ]'
good "the link leads to one that counts" '[ "$(readlink tidy/latest)" = ep0-ba20 ]'
touch -d '2 hours ago' tidy/sub/deep/* tidy/sub/deep 2>/dev/null || touch -t 202001010000 tidy/sub/deep/* tidy/sub/deep
is "gc -n" 0 ./ckpt gc -n --json tidy
json "gc -n names old ones" "[r['name'] for r in d['removed']] == ['sub/deep']"
good "gc -n removes nothing" '[ -e tidy/sub/deep/__0_0.pt ]'
is "gc removes old ones" 0 ./ckpt gc tidy
good "old ones go" '[ ! -e tidy/sub ] && [ -e tidy/ep0-ba30/__0_0.pt ]'
./make busy tidy/ep0-ba30/__9_0.pt x > busy & pids="$pids $!" busy=$!
while [ ! -s busy ]; do sleep 0.05; done
is "gc --now while somebody writes" 0 ./ckpt gc --now tidy
good "what is being written stays" '[ -e tidy/ep0-ba30/__0_0.pt ]'
kill $busy; wait $busy 2>/dev/null
is "gc --now" 0 ./ckpt gc --now tidy
good "then it goes" '[ ! -e tidy/ep0-ba30 ] && [ -e tidy/ep0-ba20/.metadata ]'
mkdir foreign && printf 'not ours at all, but with such a name' > foreign/__0_0.pt && touch -t 202001010000 foreign/__0_0.pt
mkdir foreign/torch && (cd foreign/torch && python3 -c "
import struct, json
h = json.dumps({'w': {'dtype': 'U8', 'shape': [4], 'data_offsets': [0, 4]}}).encode()
open('__0_0.safetensors', 'wb').write(struct.pack('<Q', len(h)) + h + b'abcd')") && touch -t 202001010000 foreign/torch/*
is "gc with files of others" 0 ./ckpt gc --now foreign
good "a file of others stays" '[ -e foreign/torch/__0_0.safetensors ]'
./make held 2 .pt hold > held.out & pids="$pids $!" held=$!
while [ ! -s held.out ]; do sleep 0.05; done
is "gc while a saver is at work" 4 ./ckpt gc --now held
is "rm while a saver is at work" 4 ./ckpt rm held/ep0-ba10
is "pin while a saver is at work" 0 ./ckpt pin held/ep0-ba10
is "ls while a saver is at work" 0 ./ckpt ls held
kill $held; wait $held 2>/dev/null
for p in $(ps -eo pid,args 2>/dev/null | awk -v d="$dir" '$2 == "./make" && $3 == "held" { print $1 }'); do
    [ "$(readlink /proc/$p/cwd 2>/dev/null)" = "$dir" ] && kill $p
done
rm -rf run8 && cp -r run run8
./ckpt pin run8/ep0-ba10 >/dev/null && ./ckpt rm run8/ep0-ba20 >/dev/null
is "a saver takes over what the tool left" 0 ./make run8 3 .pt more
is "all of it verifies" 0 ./ckpt ls --verify --json run8
json "and the pin is kept" "[(c['name'], c['pinned'], c['ranks']) for c in d['checkpoints']] == [('ep0-ba10', True, 4), ('ep0-ba30', False, 4)] + [('ep0-ba%d' % b, False, 3) for b in (40, 50, 60)]"

# tarballs of each rank's own: every rank's index, link and rotation for itself
./make tars 3 .tar tars
is "ls of ranks' tarballs" 0 ./ckpt ls --json tars
json "all ranks' are known" "len(d['checkpoints']) == 18 and all(c['metric'] is None and not c['foreign'] and c['checksum'] for c in d['checkpoints'])"
json "links of each rank" "sorted((c['name'], c['latest']) for c in d['checkpoints'] if c['latest']) == [('ep0-ba60-rank%d.tar' % r, 'latest-rank%d.tar' % r) for r in range(3)]"
is "pin of them" 0 ./ckpt pin tars/ep0-ba10-rank0.tar tars/ep0-ba10-rank1.tar tars/ep0-ba10-rank2.tar
good "each in its own index" '[ "$(grep -c rank1 tars/.ckpt-index.jsonl)" = 0 ] && grep -q "rank1.tar.*pinned.:true" tars/.ckpt-index-rank1.jsonl'
rm tars/ep0-ba60-rank2.tar
is "gc of them" 0 ./ckpt gc --keep 2 --json tars
json "counts what all ranks have" "sorted(r['name'] for r in d['removed']) == sorted('ep0-ba%d-rank%d.tar' % (b, r) for b in (20, 30) for r in range(3))"
good "a rank's link leads to its own" '[ "$(readlink tars/latest-rank2.tar)" = ep0-ba50-rank2.tar ] && [ "$(readlink tars/latest-rank0.tar)" = ep0-ba60-rank0.tar ]'
is "rm of one" 0 ./ckpt rm tars/ep0-ba60-rank1.tar
good "its link moved" '[ "$(readlink tars/latest-rank1.tar)" = ep0-ba50-rank1.tar ]'
is "all go on from where all are" 0 ./make tars 3 .tar tars
is "ranks' tarballs verify" 0 ./ckpt ls --verify tars

# a store
u=file://$dir/bucket
is "put" 0 ./ckpt put $f $u/run/
good "put wrote all" 'diff -r $f bucket/run/ep0-ba30 >/dev/null'
mkdir leads && for x in $f/__* $f/.metadata; do ln -s ../$x leads; done
is "put of links" 0 ./ckpt put leads $u/leads
good "has what they lead to" 'diff -r $f bucket/leads >/dev/null' && rm -r bucket/leads
is "put again" 4 ./ckpt put $f $u/run/ep0-ba30
says "put names it" "run/ep0-ba30 is a checkpoint already"
is "put --force --json" 0 ./ckpt put --force --json $f/ $u/run/ep0-ba30
json "put --json" "d['files'] == 4 and d['size'] > 400000"
./ckpt put run/ep0-ba20 $u/run/ >/dev/null && ./ckpt put out/m.pt $u/run/m.pt >/dev/null && ./ckpt put split4 $u/hf >/dev/null
printf '%s' "${dir#/}/bucket/run/ep0-ba30" > bucket/run/latest.symlink
is "ls of a URI" 0 ./ckpt ls $u/run
holds "one row each" "ep0-ba30/  4 ranks  <- latest.symlink"
lacks "no rank's object" "__0_0"
is "ls --all of a URI" 0 ./ckpt ls --all $u/run
holds "every object" "ep0-ba30/__0_0.pt"
is "ls --json of a URI" 0 ./ckpt ls --json $u
json "in checkpoints and objects" "sorted((c['name'], c['ranks'], c['unfinished'], c['latest']) for c in d['checkpoints']) == [('hf', 3, False, None), ('run/ep0-ba20', 4, False, None), ('run/ep0-ba30', 4, False, 'run/latest.symlink')] and sorted(o['name'] for o in d['objects']) == ['run/latest.symlink', 'run/m.pt']"
is "verify URIs" 0 ./ckpt verify $u/run/ep0-ba30 $u/run/ep0-ba20/ $u/run/latest $u/run/m.pt
is "show of a URI" 0 ./ckpt show --json $u/run/latest
json "show of a URI has ranks" "d['ranks'] == 4"
is "diff of URIs" 0 ./ckpt diff $u/run/ep0-ba30 $f
is "merge of a URI" 0 ./ckpt merge $u/run/latest fromuri.pt
is "which is the same" 0 ./ckpt diff --all fromuri.pt $f
is "get" 0 ./ckpt get $u/run/ep0-ba30
good "get has all" 'diff -r ep0-ba30 $f >/dev/null'
is "get again" 4 ./ckpt get $u/run/ep0-ba30
is "get --force" 0 ./ckpt get --force $u/run/ep0-ba20 ep0-ba30
good "get replaced it" 'diff -r ep0-ba30 run/ep0-ba20 >/dev/null'
# what is replaced counts until the new one does, and nothing of it stays, where they share no name
cp -r ep0-ba30 old && is "another with the index of Hugging Face" 0 ./ckpt split --force --whole --as .safetensors out/m.pt 3 old
mkdir bucket/old bucket/other && cp old/* old/.metadata bucket/old && cp old/* old/.metadata bucket/other
mkdir bucket/torn && cp $f/.metadata $f/__[0-2]* bucket/torn
is "get --force of what lacks a file" 3 ./ckpt get --force $u/torn old
is "cp --force of it" 3 ./ckpt cp --force $u/torn $u/old
for x in old $u/old; do is "leaves what was there whole: $x" 0 ./ckpt verify $x; done
is "get --force over other names" 0 ./ckpt get --force $u/run/ep0-ba20 old
is "put --force over other names" 0 ./ckpt put --force run/ep0-ba20 $u/old
is "cp --force over other names" 0 ./ckpt cp --force $u/run/ep0-ba20 $u/other
for x in old bucket/old bucket/other; do good "nothing of the old one stays: $x" 'diff -r $x run/ep0-ba20 >/dev/null'; done
rm -r old bucket/old bucket/other bucket/torn
# a model of Hugging Face's that is not ours keeps its index, whatever lies beside it; what was ours does not
for how in "put $f $u/model" "cp $u/run/ep0-ba30 $u/model"; do
    mkdir bucket/model && echo '{"weight_map":{}}' > bucket/model/model.safetensors.index.json
    is "--force where there is none: ${how%% *}" 0 ./ckpt $how --force
    is "--force again: ${how%% *}" 0 ./ckpt $how --force
    good "leaves their index" '[ -e bucket/model/model.safetensors.index.json ] && rm bucket/model/.metadata'
    is "--force over a broken one: ${how%% *}" 0 ./ckpt $how --force
    good "leaves it, too" 'grep -q "{}" bucket/model/model* && cp split4/model* bucket/model'
    is "--force over one with an index of ours: ${how%% *}" 0 ./ckpt $how --force
    good "leaves no index" 'diff -r $f bucket/model >/dev/null' && rm -r bucket/model
done
cp -r $f bucket/model && echo '{"weight_map":{"a": "model-1.safetensors"}}' > bucket/model/model.safetensors.index.json
is "rm of what lies beside a model" 0 ./ckpt rm $u/model
good "leaves the model" '[ "$(ls -A bucket/model)" = model.safetensors.index.json ]' && cp $f/__* bucket/model
is "gc --now of what lies beside a model" 0 ./ckpt gc --now --older-than 0 $u/model
good "leaves the model as well" '[ "$(ls -A bucket/model)" = model.safetensors.index.json ]' && rm -r bucket/model
cp -r split4 bucket/model
is "rm of one with an index of ours" 0 ./ckpt rm $u/model
good "takes that, too" '[ ! -e bucket/model ]'
# without --force it is not overwritten either, but what was broken off goes on
for how in "put split4 $u/model" "cp $u/hf $u/model"; do
    mkdir bucket/model && echo '{"weight_map":{}}' > bucket/model/model.safetensors.index.json
    is "onto a model with an index: ${how%% *}" 4 ./ckpt $how
    good "leaves it" '[ "$(ls -A bucket/model)" = model.safetensors.index.json ] && grep -q "{}" bucket/model/*'
    cp split4/__0_* bucket/model
    is "where one was broken off: ${how%% *}" 0 ./ckpt $how
    good "has all" 'diff -r split4 bucket/model >/dev/null' && rm -r bucket/model
done
# onto itself, by other names
ln -s bucket/self self
for from in $f split4; do
    cp -r $from bucket/self
    is "put --force of $from onto itself" 0 ./ckpt put --force self $u/self
    is "get --force of it onto itself" 0 ./ckpt get --force $u/self bucket/self
    is "cp --force of it onto itself" 0 ./ckpt cp --force $u/self $u/self
    is "it counts" 0 ./ckpt verify $u/self
    good "it is as it was" 'diff -r bucket/self $from >/dev/null && rm -r bucket/self'
done
rm self
mkdir here
is "get of the link, into a folder" 0 ./ckpt get $u/run/latest here
good "get has its name" 'diff -r here/ep0-ba30 $f >/dev/null'
is "get --json to a new place" 0 ./ckpt get --json $u/run/latest.symlink here/new/one
json "get --json" "d['to'] == 'here/new/one' and d['files'] == 4"
rm here/new/one/.metadata here/new/one/__3_0.pt
is "get goes on where it was broken off" 0 ./ckpt get $u/run/latest here/new/one
good "and has all" 'diff -r here/new/one $f >/dev/null'
is "get with the index of Hugging Face" 0 ./ckpt get $u/hf gothf
is "that it has" 0 python3 "$root/tests/hf_index.py" gothf
is "cp from store to store" 0 ./ckpt cp $u/run/ep0-ba30 $u/copy/
good "cp has all" 'diff -r bucket/copy/ep0-ba30 $f >/dev/null'
good "cp left nothing" '[ -z "$(ls -A tmp)" ]'
printf x | dd of=bucket/copy/ep0-ba30/__1_0.pt bs=1 seek=6000 conv=notrunc 2>/dev/null
is "verify of a damaged URI" 1 ./ckpt verify $u/copy/ep0-ba30
rm bucket/copy/ep0-ba30/__1_0.pt
is "verify of a URI with a missing object" 1 ./ckpt verify $u/copy/ep0-ba30
is "get of one" 3 ./ckpt get $u/copy/ep0-ba30 broken
good "it does not count" '[ ! -e broken/.metadata ]'
is "rm of it" 0 ./ckpt rm $u/copy/ep0-ba30/
good "all of it is gone" '[ ! -e bucket/copy/ep0-ba30 ]'
cat > between.c <<'C'
#define CKPT_IMPLEMENTATION
#include HEADER
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static void third(const char *name) {                       /* or before what BEFORE says, the AFTERth time */
    static int seen;
    const char *before = getenv("BEFORE"), *after = getenv("AFTER");
    if (strcmp(name, before != NULL ? before : "__2_0.pt") != 0) return;
    if ((after == NULL || ++seen == atoi(after)) && system(getenv("BETWEEN")) != 0) abort();
}
static ckpt_err get(ckpt_store *s, const char *name, const char *to, bool over) {
    const char *unfetched = getenv("UNFETCHED");
    if (unfetched != NULL && strstr(name, unfetched) != NULL) return ckpt_set_error(CKPT_NET, "the store does not answer");
    third(name);
    return ckpt_store_get(s, name, to, over);
}
static ckpt_err put(ckpt_store *s, const char *name, const char *path, bool over) { third(name); return ckpt_store_put(s, name, path, over); }
static ckpt_err open_file(ckpt_file **f, const char *path) {
    const char *unread = getenv("UNREAD");
    if (unread != NULL && strcmp(path, unread) == 0) return ckpt_set_error(CKPT_IO, "the disk does not answer");
    return ckpt_file_open(f, path);
}
static ckpt_err size_of(ckpt_store *s, const char *name, uint64_t *size) {
    const char *unsized = getenv("UNSIZED");
    if (getenv("UNSEEN") != NULL) return ckpt_set_error(CKPT_AUTH, "it may not be seen");
    if (unsized != NULL && strcmp(name, unsized) == 0) return ckpt_set_error(CKPT_NET, "the store does not answer");
    if (getenv("UNLISTED") != NULL && ckpt_store_size(s, name, size) == CKPT_NOT_FOUND) return ckpt_set_error(CKPT_AUTH, "it may not be seen");
    return ckpt_store_size(s, name, size);
}
static ckpt_err remove_in(ckpt_store *s, const char *name) {
    return getenv("KEPT") != NULL ? ckpt_set_error(CKPT_AUTH, "it may not be removed") : ckpt_store_remove(s, name);
}
static ckpt_err open_in(ckpt_folder **f, const ckpt_folder_desc *d) {       /* OPENED comes right after the first one */
    static int seen;
    const char *opened = getenv("OPENED");
    ckpt_err e = ckpt_folder_open(f, d);
    if (getenv("LOOKS") != NULL) fprintf(stderr, "a look\n");
    if (seen++ == 0 && opened != NULL && system(opened) != 0) abort();
    return e;
}
static ckpt_err verify_in(ckpt_folder *f, int index) {       /* with AGAIN it was saved again meanwhile */
    static int seen;
    const char *first = getenv("FIRST"), *again = getenv("AGAIN");
    if (seen++ == 0 && first != NULL && system(first) != 0) abort();
    return seen == 1 && again != NULL ? ckpt_set_error(CKPT_NOT_FOUND, "saved again") : ckpt_folder_verify(f, index);
}
#define ckpt_folder_verify verify_in
#define ckpt_folder_open open_in
#define ckpt_store_remove remove_in
#define ckpt_file_open open_file
#define ckpt_store_size size_of
#define ckpt_store_get get
#define ckpt_store_put put
#include TOOL
C
built ckpt-between $cc -std=c99 -O0 -g -DCKPT_NO_REMOTE -DCKPT__IMPLEMENTED -DHEADER="\"$root/ckpt.h\"" -DTOOL="\"$root/tools/ckpt.c\"" between.c library.o \
    -lpthread -lm || { echo "FAIL: build of the tool with something between"; exit 1; }
cp -r $f bucket/good
for how in "put run/ep0-ba20 $u/good" "cp $u/run/ep0-ba20 $u/good" "get $u/run/ep0-ba20 bucket/good"; do
    is "--force over one that cannot be read just now: ${how%% *}" 5 env BETWEEN=true "UNREAD=${how##* }" ./ckpt-between $how --force
    good "leaves it" 'diff -r $f bucket/good >/dev/null'
done
rm -r bucket/good
for how in "get $u/hf gotten" "cp $u/hf $u/gotten"; do
    is "${how%% *} where the store does not say whether there is an index" 5 env BETWEEN=true UNSIZED=model.safetensors.index.json ./ckpt-between $how
    good "does not count" '[ ! -e gotten/.metadata ] && [ ! -e bucket/gotten/.metadata ]' && rm -rf gotten bucket/gotten
done
# an index that cannot be read just now may be ours: nothing goes, for without ranks' files it would lead to nothing
for how in "rm $u/model" "gc --now --older-than 0 $u/model" "put --force $f $u/model" "cp --force $u/run/ep0-ba30 $u/model" "get --force $u/run/ep0-ba30 bucket/model"; do
    cp -r split4 bucket/model && case $how in gc*) rm bucket/model/.metadata ;; esac
    cp -r bucket/model before
    is "${how%% *} where the store does not give the index" 5 env BETWEEN=true UNFETCHED=model.safetensors.index.json ./ckpt-between $how
    good "leaves all" 'diff -r before bucket/model >/dev/null' && rm -rf before bucket/model
done
is "put with keys that may not list" 4 env BETWEEN=true UNLISTED=1 ./ckpt-between put $f $u/unseen
says "says which right is missing" "the right to list"
for how in "put" "put over one"; do
    is "$how with keys that may not list, and --force" 0 env BETWEEN=true UNLISTED=1 ./ckpt-between put --force $f $u/unseen
    good "has all" 'diff -r $f bucket/unseen >/dev/null'
done
# who may not see what is there either has it stop counting before its files are overwritten, or leaves it
is "put --force with keys that may only put" 4 env BETWEEN=true UNSEEN=1 KEPT=1 ./ckpt-between put --force run/ep0-ba20 $u/unseen
says "says which rights are" "the right to list, and --force that or the right to remove"
good "leaves it as it was" 'diff -r $f bucket/unseen >/dev/null'
is "put --force with keys that may not read or list" 0 env "BETWEEN=[ ! -e bucket/unseen/.metadata ]" UNSEEN=1 ./ckpt-between put --force run/ep0-ba20 $u/unseen
good "has all" 'diff -r run/ep0-ba20 bucket/unseen >/dev/null'
rm -r bucket/unseen
# a run that goes on lets go of what was there when the folder was looked at, or saves it again
for what in "verify" "ls --verify"; do
    for gone in ep0-ba10 one.pt; do
        cp -r run live && cp one.pt live/one.pt
        is "$what while $gone goes" 0 env "FIRST=./ckpt-plain rm live/$gone >said" ./ckpt-between $what --json live
        json "tells of the others" "len(d['verified' if 'verified' in d else 'checkpoints']) == 3 and '$gone' not in str(d)"
        rm -r live
    done
    mkdir live && cp -r run/ep0-ba20 live
    is "$what while the only one goes and the next one comes" 0 env "FIRST=./ckpt-plain rm live/ep0-ba20 >said; cp -r run/ep0-ba30 live" ./ckpt-between $what --json live
    json "tells of that" "['ep0-ba30' in (c.get('name') or c['path']) for c in d.get('verified') or d['checkpoints']] == [True]"
    rm -r live
    is "$what of one that was saved again" 0 env AGAIN=1 ./ckpt-between $what --json run
    json "tells of all" "len(d['verified' if 'verified' in d else 'checkpoints']) == 3"
    cp -r run live && is "$what of one that loses a file" 1 env "FIRST=rm live/ep0-ba10/__1_0.pt" ./ckpt-between $what live && rm -r live
done
cp -r run live && mv live/ep0-ba10 away
is "ls while one goes" 0 env "OPENED=mv away live/ep0-ba10 && ./ckpt-plain rm live/ep0-ba10 >said" ./ckpt-between ls --json live
json "tells of the others" "[c['name'] for c in d['checkpoints']] == ['ep0-ba20', 'ep0-ba30']"
rm -r live
# of those that are missing from the beginning a second look tells at once whether they were let go of
cp -r run live && rm -r live/ep0-ba10 live/ep0-ba20/.metadata
for what in "ls" "verify"; do
    want=$([ $what = ls ] && echo 1 || echo 3)
    is "$what with several that are missing" $want env LOOKS=1 ./ckpt-between $what --json live
    json "tells of all" "len(d['verified' if 'verified' in d else 'checkpoints']) == 3"
    good "looks a second time, not once for each" '[ "$(grep -c "a look" err)" = 2 ]'
done
rm -r live
between() {         # NAME STATUS ARGUMENT... COPY: the tool copies bucket/now, which something happens to
    rm -rf bucket/now && mkdir bucket/now && cp $f/.metadata $f/__* bucket/now
    is "$@"
    for copy; do :; done
    copy=${copy#"file://$dir/"}
    if [ "$2" = 0 ]; then good "it has all" 'diff -r $copy bucket/now >/dev/null'
    else good "it does not count" '[ -e $copy/__0_0.pt ] && [ ! -e $copy/.metadata ]'; fi
    good "nothing is left" '[ -z "$(ls -A tmp)" ] && rm -r $copy bucket/now'
}
for what in "saved again:cp run/ep0-ba20/.metadata bucket/now/.metadata" "removed:rm -f bucket/now/.metadata" "the same:true"; do
    export BETWEEN="${what#*:}"
    [ "$BETWEEN" = true ] && want=0 || want=1
    between "get of one that is ${what%%:*} meanwhile" $want ./ckpt-between get $u/now got
    between "put of one that is ${what%%:*} meanwhile" $want ./ckpt-between put bucket/now $u/to
    between "cp of one that is ${what%%:*} meanwhile" $want ./ckpt-between cp $u/now $u/to
done
# another copy to the same place: the one that is overtaken says so, and nothing of it counts
for at in "__1_0.pt 1" "__2_0.pt 1" ".metadata 2" ".metadata 3"; do
    export BEFORE="${at% *}" AFTER="${at#* }"
    for how in "put $f $u/both" "cp $u/run/ep0-ba30 $u/both" "get $u/run/ep0-ba30 bucket/both"; do
        is "${how%% *} while another one comes, at $at" 4 env "BETWEEN=./ckpt-plain put run/ep0-ba20 $u/both >said" ./ckpt-between $how
        says "says so" "was made by another meanwhile"
        good "the other one is whole" 'diff -r run/ep0-ba20 bucket/both >/dev/null && rm -r bucket/both'
        [ "$at" = ".metadata 3" ] && continue
        mkdir bucket/both && cp $f/__3_0.pt bucket/both
        is "${how%% *} while another one begins, at $at" 4 env "BETWEEN=cp run/ep0-ba20/__0_0.pt bucket/both" ./ckpt-between $how
        good "does not count" '[ ! -e bucket/both/.metadata ] && rm -r bucket/both'
    done
done
unset BEFORE AFTER
mkdir bucket/twice && cp $f/.metadata $f/__0_0.pt bucket/twice && for r in 0 1 2 3; do cp $f/__${r}_0.pt bucket/twice/__${r}_1.pt; done
is "ls of one that was saved again under its name" 0 ./ckpt ls --json $u
json "is one row, of so many ranks" "[(c['name'], c['ranks'], c['unfinished']) for c in d['checkpoints'] if c['name'] == 'twice'] == [('twice', 4, False)]"
rm bucket/twice/.metadata && cp -r bucket/twice again4
is "verify of it, unfinished" 1 ./ckpt verify again4
holds "says that it does not count" "does not count"
is "rm of it" 0 ./ckpt rm $u/twice
good "both times' files are gone" '[ ! -e bucket/twice ]'
mkdir bucket/theirs && cp $f/__0_0.pt bucket/theirs/__0_0.pth && touch -t 202001010000 bucket/theirs/*
is "gc of a URI with other people's files" 0 ./ckpt gc --now --older-than 0 $u
good "takes none of them" '[ -e bucket/theirs/__0_0.pth ]' && rm -r bucket/theirs
mkdir bucket/half bucket/way && cp $f/__* bucket/half && cp $f/__* bucket/way
for c in verify show; do
    is "$c of an unfinished URI" 1 ./ckpt $c $u/half
    case $c in verify) holds "$c says why" "does not count" ;; *) says "$c says why" "does not count" ;; esac
done
is "get of an unfinished URI" 1 ./ckpt get $u/half
is "gc of a URI leaves what is young" 0 ./ckpt gc --json $u
json "both" "d['count'] == 0 and d['unfinished'] == 2"
touch -d '2 hours ago' bucket/half/* 2>/dev/null && {
    is "gc of a URI, hours later" 0 ./ckpt gc --json $u
    json "the other ranks' files may be kept from the store still" "d['count'] == 0 and d['unfinished'] == 2"
    is "gc -n of a URI that is told how long" 0 ./ckpt gc -n --older-than 1 --json $u
    json "goes by that" "[r['name'] for r in d['removed']] == ['half'] and d['unfinished'] == 1"
}
touch -t 202001010000 bucket/half/* bucket/way/*
./make begin $u way/__7_0.pt
is "gc -n of a URI" 0 ./ckpt gc -n --json $u
json "names the old one" "[r['name'] for r in d['removed']] == ['half'] and d['unfinished'] == 1"
is "gc of a URI" 0 ./ckpt gc $u
good "the old one is gone, one on its way is not" '[ ! -e bucket/half ] && [ -e bucket/way/__0_0.pt ] && [ -e bucket/run/ep0-ba30/__0_0.pt ]'
is "gc --now does not take it either" 0 ./ckpt gc --now $u
good "it is still there" '[ -e bucket/way/__0_0.pt ]'
is "gc when the upload is given up" 0 ./ckpt gc --now --older-than 0 $u
good "then it goes" '[ ! -e bucket/way/__0_0.pt ] && [ -e bucket/run/ep0-ba30/.metadata ]'
mkdir bucket/twice && cp run/ep0-ba20/.metadata run/ep0-ba20/__* bucket/twice && cp $f/__0_0.pt bucket/twice/__7_0.pt && cp $f/__0_0.pt bucket/twice/__0_1.pt
is "gc of a URI with files that no .metadata names" 0 ./ckpt gc --json $u
json "young ones stay" "d['count'] == 0 and d['unfinished'] == 0"
touch -t 202001010000 bucket/twice/* bucket/twice/.metadata
is "gc -n of old ones" 0 ./ckpt gc -n --json $u
json "names them" "sorted((r['name'], r['stray']) for r in d['removed']) == [('twice/__0_1.pt', True), ('twice/__7_0.pt', True)]"
is "gc of them" 0 ./ckpt gc $u
holds "gc says why" "which its .metadata does not name"
good "they are gone, the checkpoint is whole" '[ ! -e bucket/twice/__0_1.pt ] && [ ! -e bucket/twice/__7_0.pt ] && diff -r run/ep0-ba20 bucket/twice >/dev/null && rm -r bucket/twice'
is "cp of a link to a directory" 0 ./ckpt cp $u/run/latest.symlink $u/run/newest.symlink
good "is its text" 'cmp -s bucket/run/latest.symlink bucket/run/newest.symlink && rm bucket/run/newest.symlink'
is "put of a directory under the name of a link" 4 ./ckpt put --force run/ep0-ba20 $u/run/latest.symlink
is "cp of one" 4 ./ckpt cp $u/run/ep0-ba20 $u/run/way.symlink
good "nothing was put" '[ -f bucket/run/latest.symlink ] && [ ! -e bucket/run/way.symlink ]'
is "rm of what a .symlink leads to" 4 ./ckpt rm $u/run/ep0-ba30/
says "rm names the link" "latest.symlink leads to"
good "it is still there" '[ -e bucket/run/ep0-ba30/.metadata ] && [ -e bucket/run/ep0-ba30/__0_0.pt ]'
printf '%s' "${dir#/}/bucket/run/m.pt" > bucket/run/m-latest.pt.symlink
is "rm of an object that one leads to" 4 ./ckpt rm $u/run/m.pt
for i in 1 2 3 4 5 6 7; do for k in 0 1 2 3 4 5 6 7 8 9; do printf 'nothing' > bucket/run/a$i$k.symlink; done; done
is "rm of one that the last of many leads to" 4 ./ckpt rm $u/run/m.pt
rm bucket/run/a??.symlink
mkdir bucket/run/deep && printf '%s' "${dir#/}/bucket/run/ep0-ba20" > bucket/run/deep/x.symlink
fill() { for k in 1 2 3; do printf '%s' $k > bucket/run/go$k.txt; done; }
looks() { fill; strace -f -o trace -e trace=openat ./ckpt-plain rm "$@" > /dev/null; grep -c "m-latest.pt.symlink" trace; }
strace -f -o trace -e trace=openat true 2>/dev/null && {
    one=$(looks $u/run/go1.txt) three=$(looks $u/run/go1.txt $u/run/go2.txt $u/run/go3.txt)
    good "of several in a folder the links there are read once" '[ "$one" -gt 0 ] && [ "$one" = "$three" ]'
    fill
    strace -f -o trace -P "$dir/bucket/run/m-latest.pt.symlink" -e trace=openat -e inject=openat:error=EIO ./ckpt-plain rm $u/run/go1.txt > /dev/null 2>err &&
        fail "rm beside a link that cannot be read" || pass "rm beside a link that cannot be read"
    says "rm says so" "m-latest.pt.symlink leads to cannot be read"
    good "it is still there" '[ -e bucket/run/go1.txt ]'
}
fill
is "rm of others, of the link, then of what it led to" 0 ./ckpt rm $u/run/go1.txt $u/run/go2.txt $u/run/go3.txt $u/run/m-latest.pt.symlink $u/run/m.pt
good "they went" '[ ! -e bucket/run/go1.txt ] && [ ! -e bucket/run/m-latest.pt.symlink ] && [ ! -e bucket/run/m.pt ]'
for called in ep0.pt run.tar.d x.tgz v1.safetensors; do
    cp -r $f bucket/run/$called
    is "rm of a directory that is called like a file: $called" 0 ./ckpt rm $u/run/$called
    good "it is gone" '[ ! -e bucket/run/$called ]'
    is "rm of it once more: $called" 3 ./ckpt rm $u/run/$called/
    says "names what is not there" "$called"
done
is "rm of a URI" 0 ./ckpt rm --json $u/run/ep0-ba20
json "rm of a URI says so" "d['removed'] == ['$u/run/ep0-ba20']"
good "rm of a URI did" '[ ! -e bucket/run/ep0-ba20 ]'
is "no such URI" 3 ./ckpt show $u/run/none
is "no such URI to get" 3 ./ckpt get $u/run/none

# memory: 1 GiB of holes in two tensors, one cut by rows and one by columns
python3 - <<'P'
import os, zlib
ranks, half, block = 4, 1 << 27, 262144
def zeros(n):
    crc, z = 0, bytes(1 << 24)
    while n > 0:
        crc = zlib.crc32(z[:min(n, len(z))], crc)
        n -= min(n, len(z))
    return '%08x' % crc
rows, one, sums = half // 4096, zeros(half), zeros(block) * (half // block)
def pieces(place, offset):
    return ','.join('[%d,%d,"%s",[%d,%d],[%d,1024],"%s"]' % (r, place, one, offset(r)[0], offset(r)[1], rows, sums) for r in range(ranks))
t = '{"format":"ckpt sharded checkpoint","version":1,"byteorder":"little","world_size":%d,"block":%d,\n"files":[' % (ranks, block)
t += ','.join('\n{"name":"__%d_0.pt","size":%d,"crc32":"%s"}' % (r, 2 * half, zeros(2 * half)) for r in range(ranks)) + '],\n"entries":{\n'
t += '"state/rows":{"tensor":"float32","shape":[%d,1024],"pieces":[%s]},\n' % (rows * ranks, pieces(0, lambda r: (rows * r, 0)))
t += '"state/columns":{"tensor":"float32","shape":[%d,%d],"pieces":[%s]}}' % (rows, 1024 * ranks, pieces(half, lambda r: (0, 1024 * r)))
t += ',\n"crc32":"%08x"}\n' % zlib.crc32(t.encode())
os.mkdir('big')
for r in range(ranks):
    with open('big/__%d_0.pt' % r, 'wb') as f:
        f.truncate(2 * half)
open('big/.metadata', 'w').write(t)
P
peak() {            # prints the most memory that a command had, in KiB; its status is the command's
    python3 -c "import resource, subprocess, sys
s = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(s)" "$@"
}
is "verify of 1 GiB" 0 peak ./ckpt-plain verify big
good "needs less than 64 MiB (it had $out KiB)" '[ "$out" -lt 65536 ]'
is "merge of 1 GiB" 0 peak ./ckpt-plain merge --no-verify big big.pt
good "needs less than 64 MiB (it had $out KiB)" '[ "$out" -lt 65536 ]'
good "and wrote it all" '[ "$(wc -c < big.pt)" -gt 1073741824 ]'
rm -f big.pt
is "split of 1 GiB" 0 peak ./ckpt-plain split --no-verify big 3 big3
good "needs less than 64 MiB (it had $out KiB)" '[ "$out" -lt 65536 ]'

[ $failed = 0 ] || { echo "test_cli_shards.sh: failed"; exit 1; }
