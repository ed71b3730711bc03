#!/usr/bin/env bash
# Builds what package io.github.dormousekv loads: java/native.sh FOLDER. FOLDER/linux-x86_64 gets libdormouse.so and libdormouse_jni.so. Needs Go, a C
# compiler (CC, CFLAGS), and the headers of a JDK: JAVA_HOME, or that of the javac in PATH. DORMOUSE_CAPI names a folder that capi/build.sh has made; else it is made.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[ "$(uname -sm)" = "Linux x86_64" ] || { echo "native.sh: only linux-x86_64 is built here; docs/android.md says how other machines' libraries are" >&2; exit 1; }
mkdir -p "$1/linux-x86_64"
out=$(cd "$1/linux-x86_64" && pwd)

capi=${DORMOUSE_CAPI:-}
if [ -z "$capi" ]; then
  capi=$here/../.cache/capi
  bash "$here/../capi/build.sh" "$capi" >/dev/null
fi
home=${JAVA_HOME:-$(dirname "$(dirname "$(readlink -f "$(command -v javac)")")")}
[ -f "$home/include/jni.h" ] || { echo "native.sh: $home has no include/jni.h: JAVA_HOME is to name a JDK" >&2; exit 1; }

cp "$capi/lib/libdormouse.so" "$out/"
${CC:-cc} -std=c11 -D_GNU_SOURCE -O2 -Wall -Wextra -Wno-unused-parameter -Werror ${CFLAGS:-} -fPIC -fvisibility=hidden -shared -I"$capi/include" -I"$home/include" \
  -I"$home/include/linux" "$here"/dormouse/src/main/c/*.c -o "$out/libdormouse_jni.so" -L"$out" -ldormouse -ldl -Wl,-z,defs -Wl,-rpath,'$ORIGIN' -s
