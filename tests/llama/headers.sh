#!/usr/bin/env bash
# Fetches the headers of the llama.cpp that fetch.sh fetches: llama.h and ggml's, for programs in C and C++ that are linked with it. They are in the npm package
# node-llama-cpp, whose libraries fetch.sh takes, as a git bundle of the very source that those were built from. It is checked against a pinned SHA-256 sum.
#
#   tests/llama/headers.sh [FOLDER]     default folder: .cache/llama in the repository, which git ignores
#
# Running it again costs nothing. It prints the folder of the headers.
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
dir=${1:-$root/.cache/llama}
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)

package=node-llama-cpp
version=3.22.1 # llama.cpp v0.5.0, as npm_version in fetch.sh
sum=a0d9dd80eacd2ab1cfe71aee57ac8a806487fd70b3d2a38fbec637752d9e5c5f

include=$dir/include-$version
if [ ! -e "$include/.complete" ]; then
  tmp=$(mktemp -d "$dir/fetch.XXXXXX")
  trap 'rm -rf "$tmp"' EXIT
  echo "headers.sh: npm pack $package@$version" >&2
  (cd "$tmp" && npm pack --silent "$package@$version" >/dev/null)
  found=$(sha256sum "$tmp"/*.tgz | cut -d' ' -f1)
  [ "$found" = "$sum" ] || { echo "headers.sh: $package@$version: SHA-256 is $found, expected $sum" >&2; exit 1; }
  tar -xzf "$tmp"/*.tgz -C "$tmp" package/llama/gitRelease.bundle
  git clone -q --bare "$tmp/package/llama/gitRelease.bundle" "$tmp/git" 2>/dev/null
  rm -rf "$include"
  mkdir "$include"
  git -C "$tmp/git" archive "$(git -C "$tmp/git" rev-list -1 --all)" include ggml/include LICENSE | tar -x -C "$tmp"
  cp "$tmp"/include/*.h "$tmp"/ggml/include/*.h "$tmp/LICENSE" "$include/"
  touch "$include/.complete"
fi
echo "$include"
