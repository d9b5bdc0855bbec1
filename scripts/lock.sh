#!/usr/bin/env bash
# Resolves pyproject.toml, extras included, for every Python from 3.11 on, into requirements.lock.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

pins=$(.venv/bin/uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 \
    --generate-hashes --no-header --quiet --upgrade)
{
    echo "# Every package of a development set-up, pinned and hashed. Made by 'make lock' from pyproject.toml."
    echo "# Names no index on purpose: each machine uses its own."
    printf '%s\n' "$pins"
} >requirements.lock
