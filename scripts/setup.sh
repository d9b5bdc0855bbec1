#!/usr/bin/env bash
# Makes a bare clone ready to run: .venv, the locked packages, a Java, Delta's jars.
# With the argument `demo`, only what `kafkalike demo` needs; a later run without it adds the rest.
# Run it as often as you like: when nothing changed it is done in milliseconds and asks no network.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly stamp=.venv/setup.stamp demo_stamp=.venv/demo.stamp env_file=.venv/env.sh only=${1:-}
lock=requirements.lock
[[ $only != demo ]] || lock=requirements-demo.lock

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { say "$@"; exit 1; }

inputs() {
    cat requirements.lock requirements-demo.lock pyproject.toml scripts/setup.sh scripts/fetch_jars.py \
        scripts/compile_packages.py | cksum
}

is_current() { [[ -f $1 && $(<"$1") == "$(inputs)" ]]; }

is_ready() {
    is_current "$stamp" || { [[ $only == demo ]] && is_current "$demo_stamp"; } || return 1
    [[ -f $env_file ]] || return 1
    # shellcheck source=/dev/null
    . "$env_file"
    [[ -x ${JAVA_HOME:-}/bin/java && -x .venv/bin/kafkalike ]]
}

apt_install() {
    local as_root=()
    if ! command -v apt-get >/dev/null; then
        fail "no apt-get here: install $1 by hand, then run this again"
    fi
    if [[ $(id -u) != 0 ]]; then
        command -v sudo >/dev/null || fail "not root and no sudo: have an administrator run 'apt-get install $1'"
        as_root=(sudo)
    fi
    say "installing $1 (apt-get)"
    "${as_root[@]}" apt-get update -qq >&2
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "$1" >&2
}

# --- Python ---

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    local candidate
    for candidate in "${PYTHON:-}" python3 python3.{13,12,11,14} /usr/bin/python3; do
        if [[ -n $candidate ]] && new_enough "$candidate"; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    return 1
}

make_venv() {
    local python
    if [[ -x .venv/bin/python ]] && new_enough .venv/bin/python && .venv/bin/python -m pip --version &>/dev/null; then
        return
    fi
    python=$(find_python) || {
        apt_install python3
        python=$(find_python) || fail "Python 3.11 or newer is needed; set PYTHON to one"
    }
    say "creating .venv with $("$python" --version)"
    # Debian splits ensurepip off into python3-venv. A pip outside can stand in for it and needs no root.
    "$python" -m venv --clear .venv &>/dev/null && return
    "$python" -m venv --clear --without-pip .venv &>/dev/null &&
        "$python" -m pip --python .venv/bin/python install --quiet pip &>/dev/null && return
    apt_install python3-venv
    "$python" -m venv --clear .venv || /usr/bin/python3 -m venv --clear .venv
}

# --no-deps: the lock is complete, and a hole in it should show.
install_locked() { "$@" --quiet --require-hashes --no-deps -r "$lock"; }

# PySpark comes as sources, of which uv makes a wheel. To compress that and expand it again took half of the time.
with_uv() {
    local cache=()
    # A machine that has no cache of uv's does not get one of 1.5 GB for a demo.
    [[ $only != demo || -d $("$1" cache dir) ]] || cache=(--cache-dir .venv/uv-cache)
    install_locked "$1" pip install --python .venv/bin/python "${cache[@]}" \
        --config-settings-package 'pyspark:--build-option=--compression=stored'
}

install_packages() {
    local python=.venv/bin/python pip=(.venv/bin/python -m pip --disable-pip-version-check) uv=.venv/uv
    say "installing the locked packages"
    # uv takes a third of pip's time. It does not read pip's settings, so pip has the last word.
    awk '/^[^ ]/ {keep = /^uv==/} keep' requirements.lock >.venv/uv.lock
    "${pip[@]}" install --quiet --require-hashes --no-deps --target "$uv" --upgrade -r .venv/uv.lock
    with_uv "$uv/bin/uv" || install_locked "${pip[@]}" install
    rm -rf "$uv" .venv/uv-cache
    "${pip[@]}" install --quiet --no-deps --no-build-isolation --editable .
    [[ $only != demo ]] || return 0
    # pip compiles what it installs, uv does not; and where PYTHONDONTWRITEBYTECODE is set, each of the many processes
    # would compile everything anew: half a second each.
    env -u PYTHONDONTWRITEBYTECODE "$python" scripts/compile_packages.py kafkalike >/dev/null || true
}

# Parts of packages that the demo never reads, an eighth of all: the Scala shell of Spark Connect, tests, sources in C, and
# the setuptools that Python 3.11 adds to each environment. Later commands of make need none of them either.
trim_packages() {
    .venv/bin/python -m pip uninstall --quiet --yes setuptools 2>/dev/null || true
    rm -rf .venv/lib/python3.*/site-packages/{pyspark/jars/connect-repl,{pandas,numpy,pyarrow,matplotlib}/tests,pyarrow/include}
    find .venv/lib/python3.*/site-packages/ -type f \( -name '*.c' -o -name '*.cc' -o -name '*.pyx' -o -name '*.pxi' \) -delete
    find .venv/lib/python3.*/site-packages/numpy -type d -name tests -prune -exec rm -rf {} +
}

# --- Java ---

# Prints the home of a Java that can run Spark: 17 or newer, with the module that Spark asks for
# (trimmed runtimes lack it).
java_home_of() {
    local about
    about=$("$1" --add-modules=jdk.incubator.vector -XshowSettings:properties -version 2>&1) || return 1
    [[ $about =~ java\.specification\.version\ =\ ([0-9]+) ]] && ((BASH_REMATCH[1] >= 17)) || return 1
    [[ $about =~ java\.home\ =\ ([^$'\n']+) ]] && printf '%s\n' "${BASH_REMATCH[1]}"
}

find_java() {
    local candidate
    for candidate in "${JAVA_HOME:+$JAVA_HOME/bin/java}" "$(command -v java)" /usr/lib/jvm/*/bin/java; do
        [[ -x $candidate ]] && java_home_of "$candidate" && return
    done
    return 1
}

install_java() {
    local package
    # Debian 12 has 17, Debian 13 has 21; Spark 4.2 runs on both.
    for package in openjdk-17-jre-headless openjdk-21-jre-headless; do
        (apt_install "$package") && return
    done
    fail "no Java 17 or newer: install one and set JAVA_HOME"
}

write_env() {
    local java_home
    java_home=$(find_java) || { install_java; java_home=$(find_java); } || fail "the installed Java does not start"
    say "using Java at $java_home"
    {
        printf 'export JAVA_HOME=%q\n' "$java_home"
        # Another Spark on this machine would be started in place of the locked one.
        echo 'unset SPARK_HOME'
        printf 'export PYSPARK_PYTHON=%q PYSPARK_DRIVER_PYTHON=%q\n' "$PWD/.venv/bin/python" "$PWD/.venv/bin/python"
    } >"$env_file"
}

# --- Delta's jars ---

fetch_jars() {
    local output
    say "looking for Delta's jars (fetched once, 14 MB)"
    # shellcheck source=/dev/null
    output=$(. "$env_file" && .venv/bin/python scripts/fetch_jars.py 2>&1) || {
        printf '%s\n' "$output" >&2
        fail "Delta's jars could not be fetched"
    }
}

is_ready && exit
make_venv
install_packages
write_env
if [[ $only == demo ]]; then
    trim_packages
    # The demo's own session fetches Delta's jars.
    inputs >"$demo_stamp"
else
    fetch_jars
    inputs >"$stamp"
fi
say "ready"
