#!/usr/bin/env bash
# Fetches the object stores that tests start: versitygw (S3), Azurite (Azure Blob) and fake-gcs-server (stands for
# Google), once, into a cache folder; and Hadoop's client for S3, 13 MB of jars, into Spark's Ivy folder. Tests that need
# one are skipped, with a line that says so, where it is not there.
set -euo pipefail

readonly versitygw=v1.8.0 azurite=3.37.0 fake_gcs=v1.56.1
readonly stores=${KAFKALIKE_STORES:-${XDG_CACHE_HOME:-$HOME/.cache}/kafkalike/stores}

say() { printf 'setup-stores: %s\n' "$*" >&2; }

# Each is made in a folder of its own and renamed when it is whole: a script that was killed leaves nothing half done.
# Arguments: name and version of a program of Go's, the module it is in, what it is for.
get_of_go() {
    local target=$stores/$1-$2 work
    [[ -x $target/$1 ]] && return
    command -v go >/dev/null || { say "no go here: without it there is no $4 to test against"; return 1; }
    say "building $1 $2, some minutes"
    work=$(mktemp -d "$stores/.$1.XXXXXX")
    GOBIN=$work go install "$3@$2" && mv -T "$work" "$target"
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
get_of_go versitygw "$versitygw" github.com/versity/versitygw/cmd/versitygw S3 || missing=1
get_of_go fake-gcs-server "$fake_gcs" github.com/fsouza/fake-gcs-server "server for Google" || missing=1
get_azurite || missing=1
get_s3_jars || missing=1
exit "$missing"
