#!/bin/sh
# Check the description of the removed container, and that only the running one is left.
set -eu
test "$(docker ps --all --format '{{.Names}}')" = busy
cd /var/lib/gpufleet/migration
test "$(stat --format %a . containers containers/*.json | tr '\n' ' ')" = "700 700 600 "
grep -q TOKEN=s3cret containers/*.json
