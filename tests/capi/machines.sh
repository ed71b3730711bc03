#!/usr/bin/env bash
# Builds the C library for other machines, and runs its tests on arm64 as far as an emulator can: tests/capi/machines.sh. Needs pip, apt-get and some
# 500 MB: ziglang (PyPI) as compiler for arm64, Debian's libc6-arm64-cross and qemu-user, gcc-mingw-w64-x86-64.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
here=$root/tests/capi
out=$root/.cache/capi-machines
mkdir -p "$out"
say() { printf '\n-- %s\n' "$*"; }

say "what is needed"
[ -x "$out/zig/bin/python" ] || python3 -m venv "$out/zig"
"$out/zig/bin/pip" install -q ziglang==0.17.1
need="libc6-arm64-cross qemu-user gcc-mingw-w64-x86-64"
dpkg -s $need >/dev/null 2>&1 || apt-get install -y -q $need >/dev/null || { apt-get update -q && apt-get install -y -q $need; } >/dev/null

say "linux/arm64"
zig="$out/zig/bin/python -m ziglang cc -target aarch64-linux-gnu.2.28"
CC=$zig TARGET=linux-arm64 bash "$root/capi/build.sh" "$out/arm64"
run() { QEMU_LD_PREFIX=/usr/aarch64-linux-gnu qemu-aarch64 -E LD_LIBRARY_PATH="$out/arm64/lib" "$@"; }
for f in functions fuzz kill; do
  $zig -std=c11 -D_GNU_SOURCE -g -I"$out/arm64/include" "$here/$f.c" -o "$out/arm64/$f" -L"$out/arm64/lib" -ldormouse -lpthread
done
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
run "$out/arm64/functions" "$tmp/s1"
mkdir "$tmp/s2"
run "$out/arm64/fuzz" "$tmp/s2" 1500 5

say "windows/amd64: built, and the functions that it exports counted; not run"
TARGET=windows-amd64 bash "$root/capi/build.sh" "$out/windows"
exported=$(x86_64-w64-mingw32-objdump -p "$out/windows/lib/dormouse.dll" | grep -oE '\bdormouse_[a-z_]+' | sort -u)
[ "$exported" = "$(grep -oE '\bdormouse_[a-z_]+' "$root/capi/exports.def" | sort -u)" ] || { echo "machines.sh: dormouse.dll exports other functions than the header has"; exit 1; }

printf '\nmachines: all passed\n'
