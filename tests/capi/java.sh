#!/usr/bin/env bash
# Builds and tests the Java packages, over the real library and a real llama.cpp: tests/capi/java.sh LIBRARY-FOLDER TEMPORARY-FOLDER [-long]. run.sh calls it, after llama.sh.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
lib=$1 tmp=$2
java=$root/java
say() { printf '\n-- %s\n' "$*"; }

say "Java, Android's framework, and the sample"
if ! command -v mvn >/dev/null || ! javac --release 11 -version >/dev/null 2>&1; then
  echo "SKIPPED: no JDK 11 or later with Maven here; the Java packages were not tested"
  exit 0
fi
options=
if [ -e "$root/.cache/llama/env.sh" ]; then
  . "$root/.cache/llama/env.sh"
  home=$(dirname "$(dirname "$(readlink -f "$(command -v javac)")")")
  llama=$DORMOUSE_LLAMA_LIB
  c++ -std=c++17 -Wall -Wextra -Werror -fPIC -shared -isystem "$(bash "$root/tests/llama/headers.sh")" -I"$home/include" -I"$home/include/linux" "$java/sample/src/main/cpp/engine.cpp" "$java/sample/src/test/cpp/lora.cpp" \
    -o "$tmp/libengine.so" "$llama"/libllama.v*.so "$llama"/libggml.v*.so "$llama"/libggml-base.so -Wl,-z,defs -Wl,-rpath,"$llama"
  options=-Ddormouse.engine=$tmp/libengine.so
fi
kills=8
[ "${3:-}" != -long ] || kills=300
DORMOUSE_CAPI=$lib mvn -B -ntp -f "$java/pom.xml" clean package $options -Ddormouse.kills=$kills >"$tmp/maven" 2>&1 || { cat "$tmp/maven"; exit 1; }
grep -E '^(java|kills|SKIPPED): |Tests run: .*[0-9]$' "$tmp/maven"
! grep -A3 'in native method' "$tmp/maven" || { echo "java.sh: the JVM's checks of JNI found something"; exit 1; }

say "the example, from the jar; the AAR"
java -cp "$(ls "$java"/dormouse/target/dormouse-*.jar)" "$java/examples/TinyTransformer.java"
bash "$java/aar.sh" "$tmp/dormouse.aar"
jar --list --file "$tmp/dormouse.aar" | grep -qx classes.jar

classes=$java/dormouse/target
say "AddressSanitizer and UBSan on the JNI side"
mkdir "$tmp/asan"
CFLAGS="-g -fsanitize=address,undefined" DORMOUSE_CAPI=$lib bash "$java/native.sh" "$tmp/asan"
asan=$(${CC:-cc} -print-file-name=libasan.so)
if [ -e "$asan" ]; then
  # The JVM and Go take SIGSEGV, and the JVM's memory is not given back at its end.
  LD_PRELOAD="$asan $(${CC:-cc} -print-file-name=libubsan.so)" ASAN_OPTIONS=handle_segv=0:handle_sigbus=0:handle_sigfpe=0:detect_leaks=0 UBSAN_OPTIONS=halt_on_error=1 \
    java -Ddormouse.library.dir="$tmp/asan/linux-x86_64" -cp "$classes/classes:$classes/test-classes:$classes/lib/*" org.junit.runner.JUnitCore io.github.dormousekv.RoundTest \
    io.github.dormousekv.StoreTest io.github.dormousekv.ThreadsTest >"$tmp/asan.log" 2>&1 || { cat "$tmp/asan.log"; exit 1; }
  ! grep -E 'AddressSanitizer|runtime error' "$tmp/asan.log" || exit 1
  grep '^OK' "$tmp/asan.log"
else
  echo "SKIPPED: no libasan.so here"
fi
