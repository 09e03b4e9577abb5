#!/bin/sh
# net_uc.sh: faults and kills between dbfs:/Volumes/... and tests/servers/fake-databricks.js, and the cloud behind it. See net_clouds.sh.
# run.sh: waits
. "$(dirname "$0")/net_clouds.sh"
databricks_server
url=http://127.0.0.1:$port
net_killed uc "$url" dbfs:/Volumes/main/default/ckpt/net /cloud/
net_broken uc "$url" --json
curl -s --noproxy '*' "$url/_control" | node -e '
const s = JSON.parse(require("fs").readFileSync(0)), say = (good, text) => { console.log((good ? "PASS" : "FAIL") + ": fake-databricks: " + text); if (!good) process.exitCode = 1; };
say(s.wrong.length === 0, `${s.wrong.length} requests against the rules ${s.wrong.slice(0, 3)}`);
// One whose begin had no reply, or whose process died before its journal knew of it, belongs to nobody: the service lists none.
const most = 4 + (process.env.NET_KILLS || 0) / 4;
say(s.uploads <= most, `${s.uploads} uploads are left open (${most} at most)`);' || failures=$((failures + 1))
[ $failures = 0 ]
