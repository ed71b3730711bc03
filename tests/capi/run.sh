#!/usr/bin/env bash
# Builds the C library and runs all tests of it, and of its layers for Python and Java, that this machine can run: tests/capi/run.sh [-long]. Needs Go
# and a C and C++ compiler, and npm and pip to fetch llama.cpp and a model. It exits with 1 if one fails. What cannot run here is said in a line that begins with SKIPPED.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
here=$root/tests/capi
lib=$root/.cache/capi
long=0
[ "${1:-}" != -long ] || long=1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
say() { printf '\n-- %s\n' "$*"; }

say "the library"
bash "$root/capi/build.sh" "$lib"
missing=$(nm -D --defined-only "$lib/lib/libdormouse.so" | awk '$2 == "T" {print $3}' | sed 's/@.*//' | sort -u |
  diff - <(sed -nE 's/^DORMOUSE_API [^(]*\b(dormouse_[a-z_]+)\(.*/\1/p' "$root"/capi/dormouse*.h | sort -u)) || {
  echo "run.sh: the library and its headers differ:"
  echo "$missing"
  exit 1
}

flags="-std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -g -I$lib/include"
link="-L$lib/lib -ldormouse -lpthread -Wl,-rpath,$lib/lib"
for f in functions lists heads fuzz kill; do cc $flags "$here/$f.c" -o "$tmp/$f" $link; done
c++ -std=c++17 -Wall -Wextra -Werror -g -I"$lib/include" "$here/story.cpp" -o "$tmp/story" $link

say "C, C++"
"$tmp/functions" "$tmp/s1"
"$tmp/lists" "$tmp/s9"
"$tmp/heads" "$tmp/s11"
"$tmp/story" "$tmp/s2"

say "the static library, and AddressSanitizer on the C side"
cc $flags -fsanitize=address,undefined "$here/functions.c" -o "$tmp/static" "$lib/lib/libdormouse.a" -lpthread -lresolv
"$tmp/static" "$tmp/s3"
cc $flags -fsanitize=address,undefined "$here/lists.c" -o "$tmp/static_lists" "$lib/lib/libdormouse.a" -lpthread -lresolv
"$tmp/static_lists" "$tmp/s10"
cc $flags -fsanitize=address,undefined "$here/heads.c" -o "$tmp/static_heads" "$lib/lib/libdormouse.a" -lpthread -lresolv
"$tmp/static_heads" "$tmp/s12"
cc $flags -fsanitize=address,undefined "$here/fuzz.c" -o "$tmp/fuzzed" "$lib/lib/libdormouse.a" -lpthread -lresolv

say "valgrind"
if command -v valgrind >/dev/null; then
  # Go's stacks and heap are not those that memcheck knows: what is found in the library itself does not count. AddressSanitizer sees its C side.
  valgrind -q --error-limit=no --child-silent-after-fork=yes --suppressions="$here/valgrind.supp" --leak-check=full --show-leak-kinds=definite "$tmp/functions" "$tmp/s7" 2>"$tmp/valgrind" ||
    { cat "$tmp/valgrind"; exit 1; }
  found=$(awk '/ at 0x/ && !at { at = 1; lib = /libdormouse\.so/ } { text = text $0 "\n" } /^==[0-9]+== *$/ { if (at && !lib || text ~ /definitely lost/) printf "%s", text; text = ""; at = 0 }' "$tmp/valgrind")
  [ -z "$found" ] || { echo "$found"; exit 1; }
  echo "valgrind: nothing lost, nothing wrong outside of Go"
else
  echo "SKIPPED: no valgrind here"
fi

say "calls in any order"
calls=5000
[ $long = 0 ] || calls=200000
for seed in 1 2 3; do
  mkdir "$tmp/f$seed"
  "$tmp/fuzzed" "$tmp/f$seed" $calls $seed
done

say "Go's race detector under the C tests"
(cd "$root" && go build -race -buildmode=c-archive -o "$tmp/race.a" ./capi)
cc $flags -no-pie "$here/functions.c" -o "$tmp/raced" "$tmp/race.a" -lpthread -lresolv
"$tmp/raced" "$tmp/s4"

say "two copies in one process"
cp "$lib/lib/libdormouse.so" "$tmp/other.so"
cc $flags "$here/copies.c" -o "$tmp/copies" -ldl
"$tmp/copies" "$lib/lib/libdormouse.so" "$tmp/other.so"

say "kills"
kills=20
[ $long = 0 ] || kills=300
bash "$here/kills.sh" "$tmp/kill" "$tmp/k" $kills

bash "$here/llama.sh" "$lib" "$tmp" "${1:-}"

say "pkg-config and CMake"
if command -v pkg-config >/dev/null; then
  cc -std=c11 -D_GNU_SOURCE "$here/functions.c" -o "$tmp/pc" $(PKG_CONFIG_PATH=$lib/lib/pkgconfig pkg-config --cflags --libs dormouse) -lpthread -Wl,-rpath,"$lib/lib"
  "$tmp/pc" "$tmp/s5"
else
  echo "SKIPPED: no pkg-config here"
fi
if command -v cmake >/dev/null; then
  mkdir -p "$tmp/cmake/part"
  printf 'find_package(dormouse 0.1 REQUIRED)\nadd_executable(part "%s")\ntarget_link_libraries(part dormouse::static)\n' "$here/story.cpp" >"$tmp/cmake/part/CMakeLists.txt"
  cat >"$tmp/cmake/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.13)
project(story CXX)
find_package(dormouse REQUIRED)
find_package(dormouse 0.1 REQUIRED) # again, as a library that the project takes in does
find_package(dormouse 0.1.0 EXACT REQUIRED)
add_subdirectory(part)
foreach(other 0.0 0.2 0.1.99 1 1.0)
  unset(dormouse_DIR CACHE)
  find_package(dormouse \${other} QUIET)
  if(dormouse_FOUND)
    message(FATAL_ERROR "release \${dormouse_VERSION} is found where \${other} is asked for")
  endif()
endforeach()
unset(dormouse_DIR CACHE)
find_package(dormouse 0 REQUIRED)
add_executable(story "$here/story.cpp")
target_link_libraries(story dormouse::dormouse)
CMAKE
  cmake -S "$tmp/cmake" -B "$tmp/cmake/b" -DCMAKE_PREFIX_PATH="$lib" >/dev/null
  cmake --build "$tmp/cmake/b" >/dev/null
  "$tmp/cmake/b/story" "$tmp/s6"
  "$tmp/cmake/b/part/part" "$tmp/s8"
else
  echo "SKIPPED: no cmake here"
fi

say "docs/c.md"
bash "$here/docs.sh" "$lib" "$tmp/docs"

say "Python"
python=
for p in "${PYTHON:-python3}" python3.13 python3.12 python3.11 python3.10; do
  if "$p" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then python=$p && break; fi
done
if [ -n "$python" ]; then
  "$python" -m venv "$tmp/venv"
  (cd "$root" && "$tmp/venv/bin/pip" install -q --disable-pip-version-check './python[numpy]' pytest mypy)
  (cd "$tmp" && "$tmp/venv/bin/mypy" --strict -p dormouse)
  if [ -e "$root/.cache/llama/env.sh" ]; then # llama.sh has fetched it
    . "$root/.cache/llama/env.sh"
    if LLAMA_CPP_LIB_PATH=$(bash "$root/tests/llama/python.sh" "$tmp/venv" "$tmp/llama_cpp"); then
      export LLAMA_CPP_LIB_PATH
    else
      echo "SKIPPED: llama-cpp-python could not be had"
    fi
  fi
  "$tmp/venv/bin/python" -m pytest -q -p no:cacheprovider --basetemp "$tmp/pytest" -c "$root/python/pyproject.toml" --rootdir "$root/python" "$root/python/tests"
  printf '#!/bin/sh\nexec "%s" "%s" "$@"\n' "$tmp/venv/bin/python" "$here/kill.py" >"$tmp/kill.py"
  chmod +x "$tmp/kill.py"
  [ $long = 0 ] && kills=6 || kills=300
  FIRST=0.6 bash "$here/kills.sh" "$tmp/kill.py" "$tmp/kp" $kills
else
  echo "SKIPPED: no Python 3.10 or later with pip and venv here; package dormouse was not tested"
fi

bash "$here/java.sh" "$lib" "$tmp" "${1:-}"

say "rows, in Go and through the other doors; no time is asserted"
rounds=5
[ $long = 0 ] || rounds=15
py= jvm=
[ -z "$python" ] || py="$tmp/venv/bin/python $here/rows_times.py"
classes=$root/java/dormouse/target
[ ! -d "$classes/test-classes" ] || jvm="java -cp $classes/classes:$classes/test-classes io.github.dormousekv.RowsDoor"
cc $flags -O2 "$here/rows_times.c" -o "$tmp/rows_times" $link
(cd "$root" && go run ./tests/capi/times -rows -rounds $rounds -rows-c "$tmp/rows_times" -rows-python "$py" -rows-java "$jvm")

if [ -x "$tmp/llama_times" ]; then
  say "the doors to llama.cpp beside each other; no time is asserted"
  rounds=5
  [ $long = 0 ] || rounds=15
  py= jvm=
  [ -z "$python" ] || py="$tmp/venv/bin/python $here/llama_times.py"
  [ ! -e "$tmp/libengine.so" ] || jvm="java -Ddormouse.engine=$tmp/libengine.so -cp $root/java/sample/target/classes:$root/java/sample/target/test-classes:$root/java/sample/target/lib/* io.github.dormousekv.sample.Door"
  (cd "$root" && go run ./tests/capi/times -rounds $rounds -cpp "$tmp/llama_times" -python "$py" -java "$jvm" 2>"$tmp/times") || { cat "$tmp/times"; exit 1; }
fi
bash "$here/arm64.sh" "$tmp" "${1:-}"

printf '\ncapi: all tests passed\n'
