#!/usr/bin/env bash
# Installs llama-cpp-python (PyPI) into a virtual environment, without compiling llama.cpp, which takes 20 minutes, and makes a folder with the library that fetch.sh
# fetches for it:
#
#   LLAMA_CPP_LIB_PATH=$(tests/llama/python.sh VENV FOLDER) VENV/bin/python …
#
# Its release binds llama.cpp as it was shortly after 0.5.0: the same structs, and some functions more. Those are in FOLDER/libllama.so, where they end the process;
# nothing calls them. It fails, and says why, where the package cannot be had.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
venv=$1 out=$2
package=llama-cpp-python version=0.3.36
sum=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e # of the source archive
. "$root/.cache/llama/env.sh"
wheels=$root/.cache/llama/$package-$version
if [ ! -e "$wheels/.complete" ]; then
  tmp=$(mktemp -d "$root/.cache/llama/fetch.XXXXXX")
  trap 'rm -rf "$tmp"' EXIT
  "$venv/bin/pip" download -q --disable-pip-version-check --no-cache-dir --no-deps --no-binary "$package" --dest "$tmp" "$package==$version" >&2
  found=$(sha256sum "$tmp"/*.tar.gz | cut -d' ' -f1)
  [ "$found" = "$sum" ] || { echo "python.sh: $package==$version: SHA-256 is $found, expected $sum" >&2; exit 1; }
  CMAKE_ARGS="-DLLAMA_BUILD=OFF -DLLAVA_BUILD=OFF" "$venv/bin/pip" wheel -q --disable-pip-version-check --no-cache-dir --no-deps --wheel-dir "$tmp/wheels" "$tmp"/*.tar.gz >&2
  rm -rf "$wheels"
  mv "$tmp/wheels" "$wheels"
  touch "$wheels/.complete"
fi
"$venv/bin/pip" install -q --disable-pip-version-check "$wheels"/*.whl >&2
mkdir -p "$out"
cp -s "$DORMOUSE_LLAMA_LIB"/*.so "$out/"
real=$(cd "$out" && ls libllama.v*.so)
bound=$("$venv/bin/python" -c 'import importlib.util as u; print(u.find_spec("llama_cpp").submodule_search_locations[0])')/llama_cpp.py
comm -23 <(grep -oE '"llama_[a-z0-9_]+"' "$bound" | tr -d '"' | sort -u) <(nm -D --defined-only "$out/$real" | awk '{print $3}' | sort -u) |
  sed 's/.*/void &(void) { __builtin_trap(); }/' >"$out/later.c"
cc -shared -fPIC -w "$out/later.c" -o "$out/libllama.so" -Wl,--no-as-needed "$out/$real" '-Wl,-rpath,$ORIGIN'
echo "$out"
