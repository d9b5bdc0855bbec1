#!/usr/bin/env bash
# Fetches the object stores that tests start: versitygw (S3) and Azurite (Azure Blob), once, into a cache folder; and
# Hadoop's client for S3, 13 MB of jars, into Spark's Ivy folder. Tests that need one are skipped, with a line that says
# so, where it is not there.
set -euo pipefail

readonly versitygw=v1.8.0 azurite=3.37.0
readonly stores=${KAFKALIKE_STORES:-${XDG_CACHE_HOME:-$HOME/.cache}/kafkalike/stores}

say() { printf 'setup-stores: %s\n' "$*" >&2; }

# Each is made in a folder of its own and renamed when it is whole: a script that was killed leaves nothing half done.
get_versitygw() {
    local target=$stores/versitygw-$versitygw work
    [[ -x $target/versitygw ]] && return
    command -v go >/dev/null || { say "no go here: without it there is no S3 to test against"; return 1; }
    say "building versitygw $versitygw, some minutes"
    work=$(mktemp -d "$stores/.versitygw.XXXXXX")
    GOBIN=$work go install "github.com/versity/versitygw/cmd/versitygw@$versitygw" && mv -T "$work" "$target"
}

get_azurite() {
    local target=$stores/azurite-$azurite work
    [[ -x $target/node_modules/.bin/azurite-blob ]] && return
    command -v npm >/dev/null || { say "no npm here: without it there is no Azure to test against"; return 1; }
    say "installing azurite $azurite"
    work=$(mktemp -d "$stores/.azurite.XXXXXX")
    npm install --prefix "$work" --no-audit --no-fund --silent --no-save "azurite@$azurite" && mv -T "$work" "$target"
}

# What a session that reads tables in S3 would fetch by itself.
get_s3_jars() {
    [[ -f .venv/env.sh ]] || { say "no .venv here: run scripts/setup.sh first, for SQL in S3"; return 1; }
    # shellcheck source=/dev/null
    (. .venv/env.sh && .venv/bin/python scripts/fetch_jars.py --s3) >&2
}

cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p "$stores"
missing=0
get_versitygw || missing=1
get_azurite || missing=1
get_s3_jars || missing=1
exit "$missing"
