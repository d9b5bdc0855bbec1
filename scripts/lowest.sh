#!/usr/bin/env bash
# Installs the oldest versions that pyproject.toml allows into build/lowest and runs the fast tests with them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly uv=.venv/bin/uv home=build/lowest
mkdir -p build
"$uv" pip compile pyproject.toml --extra spark --extra schemas --extra registry --extra ui --extra gateway \
    --resolution lowest-direct --python-version 3.11 --no-header --quiet --output-file build/lowest.txt
[[ -x $home/bin/python ]] || "$uv" venv --quiet --python .venv/bin/python "$home"
# What tests need besides, in versions of today.
"$uv" pip install --quiet --python "$home/bin/python" -r build/lowest.txt \
    aiokafka 'avro>=1.12' chispa 'confluent-kafka[avro,json,protobuf,schemaregistry]' 'deltalake>=1.6,<2' grpcio-tools \
    hypothesis kafka-python polars psutil python-schema-registry-client 'pytest>=9' pytest-randomly pytest-timeout pytest-xdist pyyaml
KAFKALIKE_TESTS=quick "$home/bin/python" -m pytest -n 2 -q -W ignore::DeprecationWarning \
    -m "not (slow or soak or objects or full or spark or processes or e2e)" tests/unit tests/contract
