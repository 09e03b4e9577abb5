#!/bin/sh
# Proves the commands of tools/ckpt.c that take URIs, on a file:// store: ls, get, put, cp, verify, rm, gc; their exit statuses, and that --json
# is JSON. What differs for s3:// and sftp:// lies below the public interface and is tested there.  run.sh: memory
. "$(dirname "$0")/cli_setup.sh"
same() { if cmp -s "$2" "$3"; then pass "$1"; else fail "$1"; fi; }
cat > make.c <<'C'
#define CKPT_NO_REMOTE
#define CKPT_IMPLEMENTATION
#include HEADER
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
/* make FILE: a small checkpoint.  make begin URI NAME: an upload in parts that nobody finishes.  make stage FOLDER BUCKET FILE [FOLDER/]:
   uploads that fail, so that they stay in the staging folder.  make refuse FOLDER BUCKET FILE: the same of one.pt, which is there. */
int main(int argc, char **argv) {
    static float w[50000];
    if (argc > 4) {
        char uri[4096], name[2][4096];
        ckpt_uploader *u = NULL;
        ckpt_uploader_desc d;
        memset(&d, 0, sizeof d);
        snprintf(uri, sizeof uri, "file://%s", argv[3]);
        d.bucket_uri = uri;
        d.upload_staging_folder = argv[2];
        if (ckpt_uploader_open(&u, &d) != CKPT_OK) { puts(ckpt_last_error()); return 1; }
        if (strcmp(argv[1], "refuse") == 0)
            return ckpt_upload_file(u, "one.pt", argv[4], false) != CKPT_OK || ckpt_uploader_close(u, 0) != CKPT_EXISTS;
        rmdir(argv[3]);
        fclose(fopen(argv[3], "w"));            /* a file where the bucket belongs */
        snprintf(name[0], sizeof name[0], "%sone.pt", argc > 5 ? argv[5] : "");
        snprintf(name[1], sizeof name[1], "%stwo.pt", argc > 5 ? argv[5] : "");
        if (ckpt_upload_file(u, name[0], argv[4], true) != CKPT_OK || ckpt_upload_file(u, name[1], argv[4], true) != CKPT_OK) {
            puts(ckpt_last_error());
            return 1;
        }
        return ckpt_uploader_close(u, 0) == CKPT_OK;
    }
    if (argc > 3) {
        ckpt_store *s = NULL;
        ckpt__transfer t;
        ckpt__store_multi m;
        ckpt__buf id;
        memset(&t, 0, sizeof t);
        memset(&m, 0, sizeof m);
        ckpt__buf_init(&id, NULL);
        m.name = argv[3];
        m.size = 1 << 20;
        m.t = &t;
        return ckpt_store_open(&s, argv[2], NULL) != CKPT_OK || ckpt__store_run_begin(s, &m, &id) != CKPT_OK;
    }
    ckpt_state st;
    memset(&st, 0, sizeof st);
    ckpt_bind_f32(&st, "state/model/w", w, 50000);
    return ckpt_save(argv[1], &st, NULL) != CKPT_OK;
}
C
$quick -w -DHEADER="\"$root/ckpt.h\"" -o make make.c -lpthread -lm || { echo "FAIL: build of make.c"; exit 1; }
./make a.pt || { echo "FAIL: make a.pt"; exit 1; }
bucket=file://$dir/bucket

is "ls of nothing" 0 ./ckpt ls "$bucket"
is "ls of nothing, JSON" 0 ./ckpt ls --json "$bucket"
json "no objects" "d['objects'] == [] and d['bytes'] == 0"
is "put" 0 ./ckpt put a.pt "$bucket/run/ep1.pt"
holds "it says where to" "bucket/run/ep1.pt"
is "put behind a slash" 0 ./ckpt put a.pt "$bucket/run/"
is "put once more" 4 ./ckpt put a.pt "$bucket/run/ep1.pt"
says "it exists" "overwriting"
is "put --force" 0 ./ckpt put --force --json a.pt "$bucket/run/ep1.pt"
json "put's JSON" "d['to'].endswith('run/ep1.pt') and d['size'] > 200000"
is "put a name with a space" 0 ./ckpt put a.pt "$bucket/a%20b%25.pt"
[ -f "bucket/a b%.pt" ] && pass "its name is decoded" || fail "its name is decoded"
is "put of nothing" 3 ./ckpt put none.pt "$bucket/x"
mkdir texts && ./make texts/ep1.pt && printf 'ep1.pt' > texts/latest.pt && printf 'nothing like it' > texts/note.txt
is "put of a text that stands for a link" 0 ./ckpt put texts/latest.pt "$bucket/texts/newest.pt"
same "sends what it leads to" texts/ep1.pt bucket/texts/newest.pt
is "put of one behind a slash" 0 ./ckpt put texts/latest.pt "$bucket/texts/"
same "has the name that was given" texts/ep1.pt bucket/texts/latest.pt
ln -s ep1.pt texts/linked.pt && is "put of a link behind a slash" 0 ./ckpt put texts/linked.pt "$bucket/texts/"
same "as a link has" texts/ep1.pt bucket/texts/linked.pt
is "put of a note" 0 ./ckpt put texts/note.txt "$bucket/texts/"
same "sends the note" texts/note.txt bucket/texts/note.txt
printf 'ep1.pt' > texts/best.pt.symlink
is "put of a text for a store" 0 ./ckpt put texts/best.pt.symlink "file://$dir/linked/"
same "sends the text" texts/best.pt.symlink linked/best.pt.symlink
is "put of what it leads to" 0 ./ckpt put texts/ep1.pt "file://$dir/linked/"
is "get by the name that it stands for" 0 ./ckpt get "file://$dir/linked/best.pt" got.pt
same "what it leads to" texts/ep1.pt got.pt
is "put of it under the name of a checkpoint" 0 ./ckpt put texts/best.pt.symlink "$bucket/texts/best.pt"
same "sends what it leads to" texts/ep1.pt bucket/texts/best.pt
is "put of a text under the name of a link" 0 ./ckpt put texts/latest.pt "$bucket/texts/latest.pt.symlink"
same "sends the text" texts/latest.pt bucket/texts/latest.pt.symlink
is "put of a checkpoint under the name of a link" 4 ./ckpt put --force texts/ep1.pt "$bucket/texts/latest.pt.symlink"
says "it says what belongs there" "latest.pt.symlink is to hold the name of a checkpoint"
same "the link is as it was" texts/latest.pt bucket/texts/latest.pt.symlink
ln -s ep1.pt texts/way.pt && is "put of a link to one" 4 ./ckpt put texts/way.pt "$bucket/texts/way.pt.symlink"
printf 'ep1.pt\nep2.pt\n' > texts/two && is "put of two lines" 4 ./ckpt put texts/two "$bucket/texts/way.pt.symlink"
is "cp of a checkpoint under the name of a link" 4 ./ckpt cp "$bucket/texts/best.pt" "$bucket/texts/way.pt.symlink"
[ ! -e bucket/texts/way.pt.symlink ] && pass "nothing was put" || fail "nothing was put"
rm -r linked got.pt
rm -r texts bucket/texts
is "ls" 0 ./ckpt ls "$bucket"
holds "ls shows names" "run/ep1.pt"
is "ls --json" 0 ./ckpt ls --json "$bucket"
json "three objects in order" "[o['name'] for o in d['objects']] == ['a b%.pt', 'run/a.pt', 'run/ep1.pt']"
is "ls below a folder" 0 ./ckpt ls --json "$bucket/run"
json "two objects" "[o['name'] for o in d['objects']] == ['a.pt', 'ep1.pt']"
is "ls of one object" 0 ./ckpt ls --json "$bucket/run/ep1.pt"
json "itself" "[o['name'] for o in d['objects']] == ['ep1.pt']"

is "show of an object" 0 ./ckpt show --json "$bucket/run/ep1.pt"
json "its size in the store" "d['size'] == $(wc -c < a.pt) and len(d['entries']) == 1"
printf 'run/ep1.pt' > bucket/latest.symlink
is "show through a link" 0 ./ckpt show "$bucket/latest.symlink"
lacks "nothing is said of a size that was not asked for" "0 B"
is "JSON of it" 0 ./ckpt show --json "$bucket/latest.symlink"
json "no size" "d['size'] is None and len(d['entries']) == 1"
rm bucket/latest.symlink

is "get" 0 ./ckpt get "$bucket/run/ep1.pt" back.pt
same "the same bytes" a.pt back.pt
is "get once more" 4 ./ckpt get "$bucket/run/ep1.pt" back.pt
is "get --force" 0 ./ckpt get --force "$bucket/run/ep1.pt" back.pt
mkdir into
is "get into a folder" 0 ./ckpt get "$bucket/run/ep1.pt" into
same "its own name" a.pt into/ep1.pt
is "get here" 0 ./ckpt get --json "$bucket/a%20b%25.pt"
json "get's JSON" "d['to'] == 'a b%.pt'"
same "its decoded name" a.pt "a b%.pt"
is "get of nothing" 3 ./ckpt get "$bucket/none.pt" x
says "it names the object that was asked for" "cannot find [^ ]*none.pt in"
if [ -d /proc/self ]; then
    is "get to where nothing can be made" 3 ./ckpt get "$bucket/run/ep1.pt" /proc/x.pt
    says "it names the destination" "cannot create /proc/.x.pt"
fi
is "get of a folder" 3 ./ckpt get "$bucket/run" x
is "get of no name" 2 ./ckpt get "$bucket/"
is "get of a local path" 2 ./ckpt get a.pt
is "get .." 4 ./ckpt get "$bucket/.." x

is "cp up" 0 ./ckpt cp a.pt "$bucket/copy.pt"
is "cp across" 0 ./ckpt cp "$bucket/copy.pt" "file://$dir/other/"
same "there it is" a.pt other/copy.pt
printf 'copy.pt' > bucket/latest.pt.symlink
is "get through a link" 0 ./ckpt get "$bucket/latest.pt.symlink"
same "by the name of a checkpoint" a.pt latest.pt
is "get through a link, into a folder" 0 ./ckpt get "$bucket/latest.pt.symlink" into
same "by that name" a.pt into/latest.pt
is "cp through a link, behind a slash" 0 ./ckpt cp "$bucket/latest.pt.symlink" "file://$dir/other/"
same "by that name, too" a.pt other/latest.pt
is "cp of a link onto itself" 0 ./ckpt cp --force "$bucket/latest.pt.symlink" "$bucket/latest.pt.symlink"
is "get through it" 0 ./ckpt get --force "$bucket/latest.pt.symlink"
same "it leads there still" a.pt latest.pt
is "cp of a link to where it leads nowhere" 4 ./ckpt cp "$bucket/latest.pt.symlink" "file://$dir/mirror/newest.pt.symlink"
says "it says what it leads to" "leads to copy.pt, which is not where"
[ ! -e mirror/newest.pt.symlink ] && pass "it is not there" || fail "it is not there"
is "cp of what it leads to" 0 ./ckpt cp "$bucket/copy.pt" "file://$dir/mirror/copy.pt"
is "cp of it after that" 0 ./ckpt cp --json "$bucket/latest.pt.symlink" "file://$dir/mirror/newest.pt.symlink"
same "is the same text" bucket/latest.pt.symlink mirror/newest.pt.symlink
is "get through the copy" 0 ./ckpt get "file://$dir/mirror/newest.pt"
same "gets the checkpoint" a.pt newest.pt
rm -r mirror newest.pt
rm bucket/latest.pt.symlink
is "cp down" 0 ./ckpt cp "file://$dir/other/copy.pt" down.pt
is "cp of two files" 2 ./ckpt cp a.pt b.pt
is "cp over" 4 ./ckpt cp a.pt "$bucket/copy.pt"

is "verify" 0 ./ckpt verify "$bucket/run/ep1.pt" a.pt
holds "both are whole" "ep1.pt"
printf 'X' | dd of=bucket/run/a.pt bs=1 seek=150000 conv=notrunc 2>/dev/null
is "verify a damaged one" 1 ./ckpt verify --json "$bucket/run/a.pt" "$bucket/run/ep1.pt"
json "one of two" "[v['ok'] for v in d['verified']] == [False, True]"
is "verify nothing" 3 ./ckpt verify "$bucket/none.pt"
[ -z "$(ls tmp)" ] && pass "no temporary files are left" || { fail "no temporary files are left"; ls tmp; }

# broken off in the middle of a download: when it was faster than that, nothing is left either
mkdir slow && head -c 300000000 /dev/zero > slow/huge.pt
./ckpt verify "file://$dir/slow/huge.pt" >/dev/null 2>err &
pid=$!
while [ -z "$(find tmp -type f ! -name .lock)" ] && kill -0 $pid 2>/dev/null; do :; done
kill $pid 2>/dev/null
wait $pid
echo "  it ended with $?"
[ -z "$(ls -A tmp)" ] && pass "nothing is left by who was told to end" || { fail "nothing is left by who was told to end"; ls -lRA tmp; }
# stopped there, it lives, and others let its folder be; killed, it is gone, and the next one clears that
./ckpt verify "file://$dir/slow/huge.pt" >/dev/null 2>err &
pid=$!
while [ -z "$(find tmp -type f ! -name .lock)" ] && kill -0 $pid 2>/dev/null; do :; done
kill -STOP $pid 2>/dev/null
had=$(ls tmp)
mkdir kept && echo x > kept/.lock && ln -s ../kept tmp/ckpt-tool-1-a1 && mkdir tmp/ckpt-tool-2-a1 tmp/ckpt-tool-3-a1 tmp/ckpt-tool-x-a1
touch tmp/ckpt-tool-2-a1/huge.pt tmp/ckpt-tool-3-a1/.lock tmp/ckpt-tool-x-a1/.lock && mkdir tmp/ckpt-tool-3-a1/below && touch tmp/ckpt-tool-3-a1/below/huge.pt
is "verify while another one is stopped" 0 ./ckpt verify "$bucket/run/ep1.pt"
[ -z "$had" ] || { kill -0 $pid 2>/dev/null && [ -e "tmp/$had" ]; } && pass "the other's folder is there" || fail "the other's folder is there"
kill -KILL $pid 2>/dev/null
wait $pid 2>/dev/null
is "verify when it is killed" 0 ./ckpt verify "$bucket/run/ep1.pt"
[ "$(ls -A tmp | tr '\n' ' ')" = "ckpt-tool-1-a1 ckpt-tool-2-a1 ckpt-tool-x-a1 " ] && [ -e kept/.lock ] && pass "the next one clears what it has left" ||
    { fail "the next one clears what it has left"; ls -lRA tmp; }
rm -rf kept
rm -rf slow tmp/ckpt-tool* tmp/.ckpt-tool*

is "rm" 0 ./ckpt rm "$bucket/run/ep1.pt" "$bucket/run/a.pt"
[ -z "$(ls bucket/run)" ] && pass "both are gone" || fail "both are gone"
rmdir bucket/run
is "rm once more" 3 ./ckpt rm "$bucket/run/ep1.pt"
is "put of model" 0 ./ckpt put a.pt "$bucket/model"
is "rm of model/, which is no directory" 3 ./ckpt rm "$bucket/model/"
[ -f bucket/model ] && pass "rm of model/ leaves the object model" || fail "rm of model/ leaves the object model"
is "rm of model" 0 ./ckpt rm "$bucket/model"
is "rm --json" 0 ./ckpt rm --json "$bucket/copy.pt"
json "rm's JSON" "len(d['removed']) == 1"

./make begin "$bucket" run/big.pt || fail "begin an upload"
is "ls does not show it" 0 ./ckpt ls --json "$bucket"
json "only what is whole" "[o['name'] for o in d['objects']] == ['a b%.pt']"
is "gc lets young ones be" 0 ./ckpt gc "$bucket"
holds "and says so" "1 upload is younger than 24 h"
touch -d @0 bucket/run/.ckpt-upload-* 2>/dev/null && {
    is "gc lets those be of which nobody knows when they began" 0 ./ckpt gc --older-than 1 "$bucket"
    holds "and says that too" "1 upload was begun at a time that is not known"
    is "gc --json of those" 0 ./ckpt gc --json "$bucket"
    json "they are no older" "d['count'] == 0 and d['younger'] == 1"
}
is "gc --dry-run" 0 ./ckpt gc --older-than 0 --dry-run --json "$bucket"
json "what would go" "[u['name'] for u in d['removed']] == ['run/big.pt']"
[ -d bucket/run ] && pass "it is there" || fail "it is there"
is "gc" 0 ./ckpt gc --older-than 0 "$bucket"
[ ! -e bucket/run ] && pass "it is gone" || fail "it is gone"
is "gc again" 0 ./ckpt gc --older-than 0 "$bucket"
holds "nothing left" "nothing to remove"
is "gc --keep of a URI" 2 ./ckpt gc --keep 2 "$bucket"

# without a standard output the text goes into no file that is opened instead
for what in a.pt "file://$dir/a.pt"; do
    is "verify of $what with a closed output" 5 sh -c './ckpt verify "$1" >&-' - "$what"
    says "says so" "cannot write the output"
    is "verify of $what with all closed" 5 sh -c './ckpt verify "$1" <&- >&- 2>&-' - "$what"
done

mkdir staging
./make stage "$dir/staging" "$dir/late" a.pt || fail "stage an upload that fails"
is "pending" 0 ./ckpt pending --json staging
json "two files wait" "sorted(p['name'] for p in d['pending']) == ['one.pt', 'two.pt'] and all(p['state'] == 'waits' and p['size'] > 200000 for p in d['pending'])"
is "pending as text" 0 ./ckpt pending staging
holds "it names the object" "late/one.pt"
is "push into what is in the way" 5 ./ckpt push staging
rm late
is "push" 0 ./ckpt push --json staging
json "two files went" "d['pushed'][0]['files'] == 2 and d['pushed'][0]['code'] == 'CKPT_OK'"
same "they are there" a.pt late/two.pt
is "nothing pending" 0 ./ckpt pending staging
holds "it says so" "nothing is pending"
is "nothing to push" 0 ./ckpt push staging
# a record that cannot be read: nobody is told that nothing waits
mkdir staging/u-00000000-0000000000000000-00000001.upload
is "pending, unread" 5 ./ckpt pending staging
holds "it is listed" "0 B    0 %        -  unread"
holds "and named" "00000001.upload"
is "pending --json, unread" 5 ./ckpt pending --json staging
json "it is listed too" "[(p['state'], p['added']) for p in d['pending']] == [('unread', None)]"
is "push, unread" 5 ./ckpt push staging
rmdir staging/u-00000000-0000000000000000-00000001.upload
# what was refused stays, and so does what is damaged: each time it is told
mkdir refused-staging full
echo other > full/one.pt
./make refuse "$dir/refused-staging" "$dir/full" a.pt || fail "stage an upload that is refused"
for i in first second; do
    is "push of what was refused, the $i time" 4 ./ckpt push refused-staging
    says "it says so" "1 file is left"
    lacks "and not that there is nothing" "nothing to push"
done
is "push --json of it" 4 ./ckpt push --json refused-staging
json "nothing went" "d['pushed'] == []"
for record in refused-staging/*.upload; do echo garbage > "$record"; done
is "push of what is damaged" 4 ./ckpt push refused-staging
says "that is said, too" "1 file is left"
# of a staged file that was cut, and of one that is gone, no more is left than the record; the status of a push is the same each time
for how in cut gone; do
    rm -rf cut-staging cut && mkdir cut-staging
    ./make stage "$dir/cut-staging" "$dir/cut" a.pt || fail "stage what is $how"
    rm cut
    for data in cut-staging/*.data; do
        if [ $how = cut ]; then head -c 1000 "$data" > short && cat short > "$data"; else rm "$data"; fi
    done
    is "pending of what is $how" 0 ./ckpt pending --json cut-staging
    json "it does not wait" "[p['state'] for p in d['pending']] == ['damaged'] * 2"
    for i in first second; do
        is "push of what is $how, the $i time" 4 ./ckpt push cut-staging
        [ "$(sort err | uniq -d)" = "" ] && pass "no sentence comes twice" || { fail "no sentence comes twice"; cat err; }
    done
done
is "pending of no folder" 3 ./ckpt pending none
mkdir -p saves/.ckpt-staging
./make stage "$dir/saves/.ckpt-staging" "$dir/later" a.pt || fail "stage an upload beside checkpoints"
rm later
# its uploader ran on another machine: what counts is whether anybody holds its lock
owner=$(ls saves/.ckpt-staging | sed -n 's/^\(u-[0-9a-f]*-[0-9a-f]*\).*/\1/p' | head -n 1)
echo '7 elsewhere 5 pid:[1]' > "saves/.ckpt-staging/$owner.lock"
hold() {            # somebody holds the lock; $holder is to be killed
    rm -f held
    "$real_python" -c 'import fcntl, sys, time
f = open(sys.argv[1], "r+")
fcntl.lockf(f, fcntl.LOCK_EX, 1)
open("held", "w").close()
time.sleep(600)' "saves/.ckpt-staging/$owner.lock" >/dev/null 2>&1 &
    holder=$!
    pids="$pids $holder"
    while [ ! -e held ] && kill -0 $holder 2>/dev/null; do sleep 0.05; done
}
hold
is "pending while another sends" 0 ./ckpt pending --json saves
json "two are on their way" "[p['state'] for p in d['pending']] == ['on its way'] * 2"
is "push while another sends" 4 ./ckpt push saves
says "it says so" "2 files are left"
kill $holder
wait $holder 2>/dev/null
is "pending after its death" 0 ./ckpt pending --json saves
json "two wait" "[p['state'] for p in d['pending']] == ['waits'] * 2"
# another process takes them up just now: they have not arrived, and who pushes is not told that they have
cat > between.c <<'C'
#define CKPT_IMPLEMENTATION
#include HEADER
#include <stdio.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void stop(void) {                                            /* with what a store farther away would have sent */
    char path[4096];
    snprintf(path, sizeof path, "%s/fetched", getenv("TMPDIR"));
    fclose(fopen(path, "w"));
    kill(getpid(), SIGTERM);
    for (;;) pause();
}
static ckpt_err open_file(ckpt_file **f, const char *path) {        /* told to end once it has been fetched */
    ckpt_err e = ckpt_file_open(f, path);
    if (e == CKPT_OK) stop();
    return e;
}
static void on_bytes(const ckpt_progress *p, void *user) {
    (void)user;
    if (strcmp(p->phase, "verify") == 0) stop();
}
static ckpt_err convert_it(const ckpt_convert_desc *d) {
    ckpt_convert_desc own = *d;
    own.progress.fn = on_bytes;
    return ckpt_convert(&own);
}
static ckpt_err open_late(ckpt_uploader **u, const ckpt_uploader_desc *d) {
    fclose(fopen("opens", "w"));
    while (access("held", F_OK) != 0) usleep(2000);
    return ckpt_uploader_open(u, d);
}
#define ckpt_uploader_open open_late
#define ckpt_file_open open_file
#define ckpt_convert convert_it
#include TOOL
C
built ckpt-between $cc -std=gnu99 -O0 -g -DCKPT_NO_REMOTE -DCKPT__IMPLEMENTED -DHEADER="\"$root/ckpt.h\"" -DTOOL="\"$root/tools/ckpt.c\"" between.c library.o \
    -lpthread -lm || { echo "FAIL: build of the tool with something between"; exit 1; }
rm held
./ckpt-between push saves >said 2>err &
pusher=$!
pids="$pids $pusher"
while [ ! -e opens ] && kill -0 $pusher 2>/dev/null; do sleep 0.02; done
hold
wait $pusher
[ $? = 4 ] && pass "push of what another takes up" || fail "push of what another takes up"
says "says so" "2 files are left"
kill $holder
wait $holder 2>/dev/null
is "push of a folder of checkpoints" 0 ./ckpt push --json saves
json "what waits in the hidden one" "d['pushed'][0]['files'] == 2 and d['pushed'][0]['code'] == 'CKPT_OK'"
same "it is there" a.pt later/two.pt

mkdir bucket/run && cp a.pt bucket/run
for how in "show $bucket/run/a.pt" "diff $bucket/run/a.pt a.pt" "convert $bucket/run/a.pt ended.pt" "merge $bucket/run/a.pt ended.pt"; do
    is "${how%% *} that is told to end" 143 ./ckpt-between $how
    [ -z "$(ls -A tmp)" ] && pass "leaves nothing of what it fetched" || { fail "leaves nothing of what it fetched"; ls -lRA tmp; rm -rf tmp/* tmp/.[!.]*; }
done
rm -r bucket/run
./make stage "$dir/named-staging" "$dir/named" a.pt 'run{run_name}/' || fail "stage an upload with the run's name in braces"
rm named
is "push of what has the run's name in braces" 0 ./ckpt push --json named-staging
json "both files went" "d['pushed'][0]['files'] == 2"
same "it is there by its name, with them" a.pt 'named/run{run_name}/two.pt'

# rights that end at the folder of a run; root has none beyond them without this capability
limited=
[ "$(id -u)" != 0 ] || limited='setpriv --bounding-set=-dac_override'
mkdir shared && chmod 555 shared
if { [ -z "$limited" ] || $limited true 2>/dev/null; } && ! $limited touch shared/x 2>/dev/null; then
    ./make stage "$dir/run-staging" "$dir/owned" a.pt 'run{rank}/' || fail "stage an upload to a run's folder"
    rm owned
    mkdir owned 'owned/run{rank}' && chmod 555 owned
    is "push to a folder in what may not be written to" 0 $limited ./ckpt push --json run-staging
    json "both files went there" "d['pushed'][0]['files'] == 2"
    same "it is there by its name" a.pt 'owned/run{rank}/two.pt'
    chmod 755 owned
else
    echo "SKIP: push to a folder in what may not be written to: needs setpriv, or a user that is not root"
fi
chmod 755 shared

mkdir clouds && export FOLDER_OF_CLOUDS="$dir/clouds"
cloud='?provider=LOCAL&key_environ=FOLDER_OF_CLOUDS'
is "put, with settings behind the name" 0 ./ckpt put a.pt "libcloud://box/run/ep1.pt$cloud"
same "it is there" a.pt clouds/box/run/ep1.pt
is "put behind a slash, with settings" 0 ./ckpt put a.pt "libcloud://box/run/$cloud"
is "cp, with settings" 0 ./ckpt cp "libcloud://box/run/a.pt$cloud" "libcloud://box/other/$cloud"
same "it is there under its name" a.pt clouds/box/other/a.pt
is "cp to a bucket, no slash behind it" 0 ./ckpt cp "libcloud://box/run/a.pt$cloud" "libcloud://box$cloud"
same "it has the name of what came" a.pt clouds/box/a.pt
is "ls, with settings" 0 ./ckpt ls --json "libcloud://box/run/ep1.pt$cloud"
json "that object" "[o['name'] for o in d['objects']] == ['ep1.pt']"
is "get, with settings" 0 ./ckpt get --json "libcloud://box/run/ep1.pt$cloud"
json "its own name, without the settings" "d['to'] == 'ep1.pt'"
same "the same bytes" a.pt ep1.pt
is "verify, with settings" 0 ./ckpt verify "libcloud://box/run/ep1.pt$cloud"
is "rm, with settings" 0 ./ckpt rm "libcloud://box/run/ep1.pt$cloud"
[ ! -e clouds/box/run/ep1.pt ] && pass "it is gone" || fail "it is gone"

is "an unknown store" 5 ./ckpt ls gs://bucket/x
says "it says what to do" "s3://bucket"
is "no network here" 5 ./ckpt put a.pt s3://bucket/x
says "it says so" "CKPT_NO_REMOTE"
for uri in dbfs:/Volumes/a/b/c/x.pt mlflow-artifacts:/1/2/artifacts/x.pt DBFS:/Volumes/a/b/c/x.pt; do
    is "get $uri" 5 ./ckpt get $uri
    says "it names the folder" "${uri%x.pt}' is"
    is "put $uri" 5 ./ckpt put a.pt $uri
    says "it is the object's name, and no folder's" "${uri%x.pt}' is"
done
# passwords are in nothing that is said
secret=sftp://user:hunter2@host/x.pt
for how in "5 verify" "5 verify --json" "5 show --json" "5 diff --json a.pt" "5 put --json a.pt" "5 get --json" "5 rm" "2 split a.pt 2" "5 cp a.pt" "2 convert a.pt"; do
    is "$how" ${how%% *} ./ckpt ${how#* } $secret
    lacks "no password" hunter2
    if grep -q hunter2 err; then fail "no password in what is wrong"; else pass "no password in what is wrong"; fi
done
is "verify of one" 5 ./ckpt verify $secret
holds "says the rest" "sftp://user@host/x.pt"
is "get of none" 2 ./ckpt get sftp://user:hunter2@host/
says "says the rest" "'sftp://user@host/' names no object"
is "a port is none" 5 ./ckpt verify sftp://host:22/a@b.pt
holds "and stays" "sftp://host:22/a@b.pt"
# What follows an authority without a path is text: a user's name, a value of a checkpoint.
is "text behind a port" 5 ./ckpt verify --json "http://b:9 \", owner c@d.pt"
holds "is no password" 'b:9 ' && holds "nor cut" 'owner c@d.pt'
is "another machine" 4 ./ckpt ls file://host/x
is "put into what ends with two slashes" 4 ./ckpt put a.pt s3://bucket/x//
says "it is another place than the one with one slash" "s3://bucket/x//a.pt has '//'"
for command in 'get' 'get --force' 'put --force a.pt' 'cp a.pt' 'rm'; do
    is "$command of a name behind two slashes" 4 ./ckpt $command s3://bucket/x//y.pt
    says "it is another object than the one behind one slash" "s3://bucket/x//y.pt has '//'"
done
is "in a file system it is the same one" 0 ./ckpt put a.pt "$bucket/two//y.pt"
is "rm of that" 0 ./ckpt rm "$bucket//two//y.pt"
exit $failed
