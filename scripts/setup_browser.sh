#!/usr/bin/env bash
# Makes ready what tests of the web console need: Debian's Chromium, and axe-core, which judges whether everybody can use
# a page, in a cache folder. Tests that need one are skipped, with a line that says so, where it is not there.
set -euo pipefail

readonly axe=4.14.1
readonly browser=${KAFKALIKE_BROWSER:-${XDG_CACHE_HOME:-$HOME/.cache}/kafkalike/browser}

say() { printf 'setup-browser: %s\n' "$*" >&2; }

get_chromium() {
    local as_root=()
    command -v chromium >/dev/null && return
    command -v apt-get >/dev/null || { say "no apt-get here: install chromium by hand"; return 1; }
    if [[ $(id -u) != 0 ]]; then
        command -v sudo >/dev/null || { say "not root and no sudo: have chromium installed"; return 1; }
        as_root=(sudo)
    fi
    say "installing chromium (apt-get)"
    "${as_root[@]}" apt-get update -qq >&2
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >&2
}

get_axe() {
    local target=$browser/axe-core-$axe work
    [[ -f $target/axe.min.js ]] && return
    command -v npm >/dev/null || { say "no npm here: without it nothing judges the pages"; return 1; }
    mkdir -p "$browser"
    work=$(mktemp -d "$browser/.axe.XXXXXX")
    (cd "$work" && npm pack --silent "axe-core@$axe" >/dev/null && tar -xzf "axe-core-$axe.tgz" --strip-components=1) \
        && mv -T "$work" "$target"
}

missing=0
get_chromium || missing=1
get_axe || missing=1
exit "$missing"
