#!/usr/bin/env bash
# Watch a program survive: the word count, killed with SIGKILL three times and resumed each time.
#
# Usage: examples/kill-and-resume.sh, after cargo build --release
set -uo pipefail
cd "$(dirname "$0")/.." || exit
PATH=$PWD/target/release:$PATH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

command -v twinpage >/dev/null || { echo "build it first: cargo build --release" >&2; exit 1; }
run=(twinpage run --state "$work/state" -- python3 examples/wordcount.py --out "$work/counts")
for life in 1 2 3; do
    timeout --signal=KILL 1.5 "${run[@]}"
    echo "--- killed ($life); going on from the last checkpoint ---"
    run=(twinpage resume "$work/state")
done
"${run[@]}"
