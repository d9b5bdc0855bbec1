#!/usr/bin/env bash
# Runs the demo on a bucket of a versitygw that lives as long as this script: an S3 on the loopback, with dummy keys.
# Arguments: the command `kafkalike`, then what the demo is to be told.
set -euo pipefail

readonly stores=${KAFKALIKE_STORES:-${XDG_CACHE_HOME:-$HOME/.cache}/kafkalike/stores}
readonly bucket=bucket

say() { printf 'demo-s3: %s\n' "$*" >&2; }

programs=("$stores"/versitygw-*/versitygw)
[[ -x ${programs[-1]} ]] || { say "versitygw is not in $stores; 'make setup-stores' fetches it"; exit 1; }
command=$1
shift

work=$(mktemp -d)
server=
# What a server left behind would hold is the bucket's content only.
end() {
    [[ -z $server ]] || { kill "$server" && wait "$server"; } 2>/dev/null || true
    rm -rf "$work"
}
trap end EXIT
mkdir -p "$work/data/$bucket"

answers() { (: >"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

for _ in 1 2 3 4 5; do
    port=$((20000 + RANDOM % 20000))
    answers "$port" && continue
    ROOT_ACCESS_KEY=dummy-key-id ROOT_SECRET_KEY=dummy-secret-key \
        "${programs[-1]}" --port "127.0.0.1:$port" --quiet posix "$work/data" >"$work/server.log" 2>&1 &
    server=$!
    for _ in $(seq 200); do
        answers "$port" && break 2
        kill -0 "$server" 2>/dev/null || break
        sleep 0.05
    done
    server=
done
[[ -n $server ]] || { say "versitygw does not start:"; tail -5 "$work/server.log" >&2; exit 1; }

export AWS_ACCESS_KEY_ID=dummy-key-id AWS_SECRET_ACCESS_KEY=dummy-secret-key AWS_REGION=us-east-1
export AWS_ENDPOINT_URL=http://127.0.0.1:$port AWS_ALLOW_HTTP=true AWS_EC2_METADATA_DISABLED=true
say "an S3 at $AWS_ENDPOINT_URL, for as long as the demo runs"
"$command" demo --root "s3://$bucket/demo" "$@"
say "the S3 stops now, and the cluster with it: make demo leaves one to look at"
