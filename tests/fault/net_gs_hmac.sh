#!/bin/sh
# net_gs_hmac.sh: faults and kills between gs:// with an HMAC key and Ceph's gateway, in Google's stead. See net_clouds.sh. The storms and
# stalls, which S3's are, only with CKPT_LONG=1. run.sh: waits
. "$(dirname "$0")/net_clouds.sh"
[ -n "${NET_WORDS:-}" ] || [ "${CKPT_LONG:-0}" = 1 ] || words='kill table'
gateway http
GCS_KEY=$RGW_KEY GCS_SECRET=$RGW_SECRET
export GCS_KEY GCS_SECRET
unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
net_killed gs-hmac "$RGW_HTTP" gs://net/run partNumber
net_broken gs-hmac "$RGW_HTTP"
[ $failures = 0 ]
