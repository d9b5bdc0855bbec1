#!/usr/bin/env bash
# Resolves pyproject.toml for every Python from 3.11 on: with all extras into requirements.lock, and what `make demo`
# needs of these into requirements-demo.lock. With `--keep`, versions stay as far as pyproject.toml allows.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mkdir -p build
if [[ ${1:-} == --keep ]]; then
    # uv prefers the versions that it finds in its output.
    cp requirements.lock build/all.lock
    versions=()
else
    versions=(--upgrade)
fi

compile() {
    .venv/bin/uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --no-header --quiet \
        "$@"
}

write() {
    {
        echo "# $2, pinned and hashed. Made by 'make lock' from pyproject.toml."
        echo "# Names no index on purpose: each machine uses its own."
        cat "$3"
    } >"$1"
}

compile --extra dev "${versions[@]}" --output-file build/all.lock
write requirements.lock "Every package of a development set-up" build/all.lock
# A new folder has no package of the build yet, and installs this one without building elsewhere.
printf '%s\n' editables hatch-fancy-pypi-readme hatchling | compile - --extra demo --no-annotate \
    --constraint build/all.lock --upgrade --output-file build/demo.lock
write requirements-demo.lock "What 'make demo' installs" build/demo.lock
