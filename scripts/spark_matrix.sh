#!/usr/bin/env bash
# Runs Spark's tests on other versions of Spark than the locked one: each in an environment below build/ that has its own
# PySpark and Delta, and everything else from this one. The environments stay for the next run: `make clean` removes them.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

read -ra versions <<<"${SPARKS:-4.0.5 4.1.4 4.3.0}"
read -ra arguments <<<"${ARGS:-tests/spark}"
delta=$(.venv/bin/python -c "from kafkalike.spark.jvm.jars import DELTA_VERSION; print(DELTA_VERSION)")
beside=$(.venv/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")
failed=0

for version in "${versions[@]}"; do
    home=build/spark-$version
    python=$PWD/$home/bin/python
    if [[ ! -x $python ]]; then
        .venv/bin/python -m venv "$home" || exit 1
        "$python" -m pip install --quiet "pyspark==$version" || { rm -rf "$home"; exit 1; }
        # Its requirement excludes patches of Spark that were published later, with which it works.
        "$python" -m pip install --quiet --no-deps "delta-spark==$delta" || { rm -rf "$home"; exit 1; }
        echo "$beside" >"$("$python" -c "import sysconfig; print(sysconfig.get_path('purelib'))")/beside.pth"
    fi
    echo "== Spark $version, Delta $delta"
    PYTHONPATH=$PWD PYSPARK_PYTHON=$python PYSPARK_DRIVER_PYTHON=$python \
        "$python" -m pytest -n 0 -q -p no:cacheprovider --ignore=tests/spark/test_connect.py "${arguments[@]}" || failed=1
done
exit $failed
