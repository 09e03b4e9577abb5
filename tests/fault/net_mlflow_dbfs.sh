#!/bin/sh
# net_mlflow_dbfs.sh: faults and kills between dbfs:/databricks/mlflow-tracking/... and tests/servers/fake-databricks.js, and the clouds behind it:
# parts on AWS, blocks on Azure, whole files on Google Cloud. See net_clouds.sh. run.sh: waits
. "$(dirname "$0")/net_clouds.sh"
databricks_server
url=http://127.0.0.1:$port
unset MLFLOW_TRACKING_USERNAME MLFLOW_TRACKING_PASSWORD
MLFLOW_MULTIPART_UPLOAD_CHUNK_SIZE=5242880
export MLFLOW_MULTIPART_UPLOAD_CHUNK_SIZE

# cloud NAME KILLS [WORDS]: all of it, or of what was asked for what WORDS have.
cloud() {
    curl -s -o databricks.cloud --noproxy '*' -d "{\"cloud\":\"$1\",\"clear\":true,\"forget\":true,\"empty\":true}" "$url/_control" || fail "no $1"
    all_words=$words
    [ $# -lt 3 ] || { words=; for one in $all_words; do case " $3 " in *" $one "*) words="$words $one" ;; esac; done; }
    net_killed "dbfs-$1" "$url" "dbfs:/databricks/mlflow-tracking/77/0123abcd/artifacts/killed-$1" /cloud/ "$2"
    net_broken "dbfs-$1" "$url" '--json --xml /cloud/ --bodies'
    words=$all_words
    # One whose begin had no reply, or whose process died before its journal knew of it, belongs to nobody: the service lists none,
    # and gives none up of another process.
    curl -s --noproxy '*' "$url/_control" | NAME=$1 MOST=$((4 + $2 / 4 * (1 + 4 * ${CKPT_LONG:-0}))) node -e '
const s = JSON.parse(require("fs").readFileSync(0)), most = Number(process.env.MOST);
const say = (good, text) => { console.log(`${good ? "PASS" : "FAIL"}: fake-databricks, ${process.env.NAME}: ${text}`); if (!good) process.exitCode = 1; };
say(s.wrong.length === 0, `${s.wrong.length} requests against the rules ${s.wrong.slice(0, 3)}`);
say(s.uploads <= most, `${s.uploads} uploads are left open (${most} at most)`);' || failures=$((failures + 1))
}
cloud aws 20
cloud azure 8 'kill table stall'
cloud gcp 4 'kill table'
[ $failures = 0 ]
