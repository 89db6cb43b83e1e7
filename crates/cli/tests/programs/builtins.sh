#!/usr/bin/env bash
# Bash that runs only its own builtins: nothing here forks.
#
# Indexed and associative arrays beside a second copy, arithmetic, patterns, printf, reading a file line
# by line, mapfile, here-strings, redirections in and out of files in the current directory, a trap.
# Usage: builtins.sh [ROUNDS]
set -u
LC_ALL=C
rounds=${1:-150}
state=42

fail() {
    printf 'builtins.sh: does not hold: %s\n' "$1" >&2
    kill -ABRT $$
}

# Sets `r` to a number below $1.
below() {
    state=$(((state * 1103515245 + 12345) & 0x7fffffff))
    r=$(((state >> 8) % $1))
}

declare -A value=()
declare -a order=()
keys=0
table_step() {
    below 400
    local key="k$r"
    if [[ -n ${value[$key]+set} ]]; then
        [[ ${value[$key]} == "$key-"+([0-9]) ]] || fail "the value of $key is ${value[$key]}"
        unset "value[$key]"
        keys=$((keys - 1))
    else
        below 1000
        value[$key]="$key-$r"
        keys=$((keys + 1))
    fi
    order+=("$key")
    ((${#value[@]} == keys)) || fail "the table has ${#value[@]} keys, not $keys"
}

# Writes lines to a file, reads them back two ways, and compares with what is in memory.
file_step() {
    local name="lines.$1" i sum=0 again=0 line
    local -a lines=() read_back=()
    for ((i = 0; i < 40; i++)); do
        below 100000
        lines+=("line $i $r")
        sum=$((sum + r))
    done
    printf '%s\n' "${lines[@]:0:20}" >"$name"
    printf '%s\n' "${lines[@]:20}" >>"$name"
    mapfile -t read_back <"$name"
    [[ ${read_back[*]} == "${lines[*]}" ]] || fail "$name holds other lines"
    while IFS=' ' read -r _ _ line; do again=$((again + line)); done <"$name"
    ((again == sum)) || fail "$name sums to $again, not $sum"
}

fibonacci_mod() { # in a loop of arithmetic only: F(n) and F(2n) must agree with the doubling law
    local n=$1 m=1000003 a=0 b=1 i t
    for ((i = 0; i < n; i++)); do t=$(((a + b) % m)) a=$b b=$t; done
    local fn=$a fn1=$b
    for ((; i < 2 * n; i++)); do t=$(((a + b) % m)) a=$b b=$t; done
    ((a == fn * ((2 * fn1 - fn + m) % m) % m)) || fail "F($((2 * n)))"
    fib=$a
}

shopt -s extglob
hups=0
trap 'hups=$((hups + 1))' HUP
log=builtins.log
exec 7>"$log"
for ((round = 1; round <= rounds; round++)); do
    for ((step = 0; step < 150; step++)); do table_step; done
    file_step $((round % 4))
    below 900
    fibonacci_mod $((600 + r))
    read -r first rest <<<"$round ${order[*]: -3}"
    ((first == round)) || fail "a here-string gave $first"
    kill -HUP $$
    ((hups == round)) || fail "the trap ran $hups times in $round rounds"
    ((${#order[@]} == round * 150)) || fail "the order has ${#order[@]} entries"
    text=${order[*]: -40}
    replaced=${text//k/q}
    [[ ${replaced//q/k} == "$text" ]] || fail 'a replacement did not come back'
    printf -v line 'round %d of %d: %d keys, fib %06d, last %s' "$round" "$rounds" "$keys" "$fib" "${rest//k/}"
    printf '%s\n' "$line"
    printf '%s\n' "$line" >&7
done
exec 7>&-
count=0
while read -r line; do count=$((count + 1)); done <"$log"
((count == rounds)) || fail "$log has $count lines"
sum=0
for key in "${!value[@]}"; do sum=$((sum + ${value[$key]#*-})); done
printf 'digest %d %d\n' "$sum" "$state"
