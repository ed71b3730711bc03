#!/usr/bin/env bash
# Kills the store as a program of Go for linux/arm64, under qemu-user, and compares what is left with what was acknowledged: tests/capi/arm64.sh TEMPORARY-FOLDER [-long].
# run.sh calls it. Phones have such processors; the kernel is this machine's.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
printf '\n-- arm64 under qemu: kills\n'
if ! command -v qemu-aarch64 >/dev/null; then
  echo "SKIPPED: no qemu-aarch64 here (Debian: qemu-user); the store was not killed on arm64"
  exit 0
fi
loops=3
[ "${2:-}" != -long ] || loops=100
cd "$root"
CGO_ENABLED=0 GOARCH=arm64 go build -o "$1/crash.arm64" ./tests/crash
go run ./tests/crash -loops $loops -span 2s -lines 800 -dir "$1" -stead "qemu-aarch64 $1/crash.arm64" 2>"$1/crash.err" || { cat "$1/crash.err"; exit 1; }
