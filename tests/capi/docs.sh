#!/usr/bin/env bash
# The programs and commands of docs/c.md, as they stand there: tests/capi/docs.sh LIBRARY FOLDER. LIBRARY is what capi/build.sh made, FOLDER an empty one.
# Every block that is a file (its first line names it: "/* app.c */", "// app.cpp", "# CMakeLists.txt") is written; every block that begins with "$ " is run,
# and has to print what the page says.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
lib=$(cd "$1" && pwd)
mkdir -p "$2"
cd "$2"
ln -s "$lib" out

awk -v fence='^```' '
$0 ~ fence { inside = !inside; n = 0; file = ""; next }
!inside { next }
++n == 1 && match($0, /[A-Za-z]+\.(cpp|c|txt)/) && $0 ~ /^(\/\*|\/\/|#) [A-Za-z]+\.(cpp|c|txt)/ { file = substr($0, RSTART, RLENGTH) }
n == 1 && /^\$ / { file = "session" ++sessions }
file != "" { print > file }
' "$root/docs/c.md"

has() { command -v "$1" >/dev/null; }
for session in $(ls | grep '^session' | sort -V); do
  if grep -q 'pkg-config' "$session" && ! has pkg-config || grep -q '^\$ cmake' "$session" && ! has cmake; then
    echo "SKIPPED: $(grep -m1 '^\$' "$session"): no pkg-config or cmake here"
    continue
  fi
  # shellcheck disable=SC2016
  while IFS= read -r line; do
    case $line in
    '$ '*)
      echo "$line"
      bash -euo pipefail -c "${line#??}" >said 2>errors || { cat said errors; echo "docs.sh: the command of docs/c.md fails" >&2; exit 1; }
      case $line in *cmake*) : >said ;; esac # says much, of versions and folders
      cat said
      ;;
    esac
  done <"$session" >printed
  diff "$session" printed || { echo "docs.sh: docs/c.md says the lines with <, and > is printed" >&2; exit 1; }
done
[ "$(ls | grep -c '^session')" -ge 3 ] || { echo "docs.sh: docs/c.md has fewer sessions than three" >&2; exit 1; }
echo "docs/c.md: its programs print what it says"
