#!/bin/sh
# net_gs.sh: faults and kills between gs:// and tests/servers/fake-gcs.js: the JSON API with sessions, and parts of the XML API. See
# net_clouds.sh. run.sh: waits
. "$(dirname "$0")/net_clouds.sh"
gs_server
url=http://127.0.0.1:$port
net_killed gs "$url" gs://ckpt-any-killed/run 'PUT'
[ "$words" = "${words#*kill}" ] || curl -s --noproxy '*' "$url/_control" | node -e '
const s = JSON.parse(require("fs").readFileSync(0)), e = s.ended, again = (e.received - e.size) / 1048576, most = 10 * process.env.NET_KILLS;
const say = (good, text) => { console.log((good ? "PASS" : "FAIL") + ": fake-gcs: " + text); if (!good) process.exitCode = 1; };
// One that was begun as the process died, before its journal knew of it, belongs to nobody: Google lists none and
// forgets them in a week.
say(s.started === 0 && s.sessions <= process.env.NET_KILLS / 4 && s.uploads === 0, `${s.started} sessions with bytes, ${s.sessions} without, and ${s.uploads} uploads are left open`);
say(e.count > 0 && again <= most, `${e.count} sessions of ${(e.size / 1048576).toFixed(1)} MiB, ${again.toFixed(1)} MiB sent again (${most} at most)`);
say(s.wrong.length === 0, `${s.wrong.length} requests against the rules ${s.wrong}`);' || failures=$((failures + 1))
net_broken gs "$url" --json
[ $failures = 0 ]
