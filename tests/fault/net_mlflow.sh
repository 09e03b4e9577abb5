#!/bin/sh
# net_mlflow.sh: faults and kills between mlflow-artifacts: and tests/servers/fake-databricks.js: its proxy of an MLflow server, without
# parts and with parts, which go to the cloud behind it. See net_clouds.sh. run.sh: waits
. "$(dirname "$0")/net_clouds.sh"
databricks_server
url=http://127.0.0.1:$port
artifacts=mlflow-artifacts:/77/0123abcd/artifacts
net_killed mlflow "$url" "$artifacts/net" PUT
net_broken mlflow "$url" --json
curl -s -o mpu.log --noproxy '*' -d '{"mpu":true}' "$url/_control" || fail "no parts"
MLFLOW_ENABLE_PROXY_MULTIPART_UPLOAD=true MLFLOW_MULTIPART_UPLOAD_MINIMUM_FILE_SIZE=5242880 MLFLOW_MULTIPART_UPLOAD_CHUNK_SIZE=5242880
export MLFLOW_ENABLE_PROXY_MULTIPART_UPLOAD MLFLOW_MULTIPART_UPLOAD_MINIMUM_FILE_SIZE MLFLOW_MULTIPART_UPLOAD_CHUNK_SIZE
net_killed mlflow-parts "$url" "$artifacts/parts" /cloud/
net_broken mlflow-parts "$url" --json
curl -s --noproxy '*' "$url/_control" | node -e '
const s = JSON.parse(require("fs").readFileSync(0)), say = (good, text) => { console.log((good ? "PASS" : "FAIL") + ": fake-databricks: " + text); if (!good) process.exitCode = 1; };
say(s.wrong.length === 0, `${s.wrong.length} requests against the rules ${s.wrong.slice(0, 3)}`);
// One whose begin had no reply, or whose process died before its journal knew of it, belongs to nobody: the service lists none.
const most = 4 + (process.env.NET_KILLS || 0) / 4;
say(s.uploads <= most, `${s.uploads} uploads are left open (${most} at most)`);' || failures=$((failures + 1))
[ $failures = 0 ]
