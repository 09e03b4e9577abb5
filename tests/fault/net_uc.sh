#!/bin/sh
# net_uc.sh: faults and kills between dbfs:/Volumes/... and tests/servers/fake-databricks.js, and the cloud behind it: parts, and the one stream of
# Google Cloud. See net_clouds.sh. run.sh: waits
. "$(dirname "$0")/net_clouds.sh"
databricks_server
url=http://127.0.0.1:$port
# left STORE KILLS
left() {
    # One whose begin had no reply, or whose process died before its journal knew of it, belongs to nobody: the service lists none. No
    # byte is sent before the journal knows, so that those with bytes all come to an end.
    curl -s --noproxy '*' "$url/_control" | NAME=$1 MOST=$((4 + $2 * (1 + 4 * ${CKPT_LONG:-0}))) node -e '
const s = JSON.parse(require("fs").readFileSync(0)), most = Number(process.env.MOST);
const say = (good, text) => { console.log(`${good ? "PASS" : "FAIL"}: fake-databricks, ${process.env.NAME}: ${text}`); if (!good) process.exitCode = 1; };
say(s.wrong.length === 0, `${s.wrong.length} requests against the rules ${s.wrong.slice(0, 3)}`);
say(s.started === 0 && s.uploads <= most, `${s.started} uploads with bytes and ${s.uploads} in all are left open (${most} at most)`);' || failures=$((failures + 1))
}
net_killed uc "$url" dbfs:/Volumes/main/default/ckpt/net /cloud/
net_broken uc "$url" '--json --xml /cloud/'
left uc 20
curl -s -o databricks.cloud --noproxy '*' -d '{"resumable":true,"clear":true,"forget":true,"empty":true}' "$url/_control" || fail 'no stream'
net_killed uc-gcp "$url" dbfs:/Volumes/main/default/ckpt/streams /cloud/ 8
words=$(echo " $words " | sed 's/ storm / /; s/ stall / /')
net_broken uc-gcp "$url" '--json --xml /cloud/'
left uc-gcp 8
[ $failures = 0 ]
