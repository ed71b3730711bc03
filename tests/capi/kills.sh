#!/usr/bin/env bash
# Kills a program that puts through the C library, again and again, and has the next one restore all that it acknowledged:
# kills.sh PROGRAM FOLDER N [ARGUMENT…]. The program is given its folder, "write" or "read", and the arguments.
# FIRST is how many seconds it needs to begin.
set -euo pipefail
program=$1 dir=$2 kills=$3
shift 3
mkdir -p "$dir"
pid=
trap '[ -z "$pid" ] || kill -9 "$pid" 2>/dev/null || true' EXIT
: >"$dir/said"
for ((k = 0; k < kills; k++)); do
  FROM=$((k * 1000)) "$program" "$dir/store" write "$@" >"$dir/now" 2>"$dir/err" &
  pid=$!
  sleep "${FIRST:-0}" "0.$((RANDOM % 4))$((RANDOM % 10))"
  if ((k == kills - 1)); then # the last one says something, however slow the machine is
    for ((i = 0; i < 600 && $(wc -l <"$dir/now") < 2; i++)); do sleep 0.1; done
  fi
  kill -9 $pid 2>/dev/null || { cat "$dir/err" >&2; echo "kills.sh: the writer ended by itself" >&2; exit 1; }
  wait $pid 2>/dev/null || true
  pid=
  # The last line may be cut.
  head -c "$(($(wc -c <"$dir/now")))" "$dir/now" | sed -n '$!p' >>"$dir/said"
done
said=$(wc -l <"$dir/said")
found=$("$program" "$dir/store" read "$@" <"$dir/said")
echo "kills: $kills kills, $said prompts acknowledged, $found restored and equal"
[ "$said" -gt 0 ] && [ "$said" = "$found" ]
