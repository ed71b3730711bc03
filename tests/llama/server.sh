#!/usr/bin/env bash
# Fetches real llama-servers for the tests that put something before one: that of Debian unstable (package llama.cpp-tools, with
# all that it needs, down to the C library), and the one inside the PyPI wheel xllamacpp, which is started by xserver.py. Nothing is
# installed: each lies in a folder of its own, with a script "llama-server" that becomes the server (same process id).
#
#   tests/llama/server.sh [FOLDER]    default folder: .cache/llama in the repository, which git ignores
#   . .cache/llama/env.sh             DORMOUSE_LLAMA_SERVER, and DORMOUSE_LLAMA_SERVER_OTHER if both could be had
#
# The wheel is pinned by its SHA-256 sum. Debian unstable moves: its packages are what its signed lists name on the day of the first
# run, and the script says which. What cannot be had is left out, loudly; without any server the script fails. Running it again
# costs nothing; remove FOLDER/server-* to fetch anew. The system's apt is not touched: configuration, lists and status are in FOLDER.
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
dir=${1:-$root/.cache/llama}
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
tmp=$(mktemp -d "$dir/fetch.XXXXXX")
trap 'rm -rf "$tmp"' EXIT

say() { echo "server.sh: $*" >&2; }
skipped() { say "SKIPPED: $*"; return 1; }

[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || { say "the servers are for Linux on x86-64, this is $(uname -s) on $(uname -m)"; exit 1; }

# keep NEW FOLDER ORIGIN: makes NEW the folder, if its server runs at all.
keep() {
  local said
  said=$("$1/llama-server" --version 2>&1) || skipped "$3: it does not run: $said" || return 1
  echo "$3, $(grep -m1 '^version' <<<"$said")" >"$1/origin"
  rm -rf "$2"
  mv "$1" "$2"
}

debian_unstable() {
  local server=$dir/server-debian-unstable new=$tmp/debian keys=/usr/share/keyrings/debian-archive-keyring.gpg
  [ ! -e "$server/origin" ] || return 0
  command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || skipped "Debian unstable: no apt-get here" || return 1
  [ -e $keys ] || skipped "Debian unstable: no $keys" || return 1
  mkdir -p "$tmp/apt/lists/partial" "$tmp/apt/cache/archives/partial" "$tmp/apt/parts" "$tmp/root" "$new"
  local mirror # the one that this machine uses
  # shellcheck disable=SC2016 # apt expands it
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 2>/dev/null | grep -m1 '/debian/\?$' || true)
  printf 'Types: deb\nURIs: %s\nSuites: unstable\nComponents: main\nArchitectures: amd64\nSigned-By: %s\n' "${mirror:-http://deb.debian.org/debian}" $keys >"$tmp/apt/unstable.sources"
  : >"$tmp/apt/status" # nothing is installed: the C library is fetched, too
  local apt=(apt-get -qq -o "Dir::Etc::sourcelist=$tmp/apt/unstable.sources" -o "Dir::Etc::sourceparts=/dev/null" -o "Dir::Etc::preferencesparts=/dev/null"
    -o "Dir::Etc::preferences=/dev/null" -o "Dir::State=$tmp/apt" -o "Dir::State::lists=$tmp/apt/lists" -o "Dir::State::status=$tmp/apt/status"
    -o "Dir::Cache=$tmp/apt/cache" -o APT::Sandbox::User=root -o APT::Architecture=amd64 -o Debug::NoLocking=1 -o Acquire::Retries=3
    -o APT::Keep-Downloaded-Packages=1 -o DPkg::Pre-Install-Pkgs::= -o APT::Update::Post-Invoke::= -o DPkg::Post-Invoke::=)
  say "apt-get download llama.cpp-tools and what it needs, of Debian unstable"
  "${apt[@]}" update >&2 || skipped "Debian unstable: its lists cannot be had" || return 1
  "${apt[@]}" install --download-only --no-install-recommends -y llama.cpp-tools >&2 || skipped "Debian unstable: llama.cpp-tools cannot be had" || return 1
  local p
  for p in "$tmp"/apt/cache/archives/*.deb; do dpkg-deb -x "$p" "$tmp/root"; done
  # All in one folder: ggml looks for the backends, one for each processor, beside the running program, which is the loader.
  local from=$tmp/root/usr/lib/x86_64-linux-gnu
  find "$from" "$from/llama" "$from"/ggml/* -maxdepth 1 -name '*.so*' -exec cp -L -t "$new" {} +
  cp "$tmp/root/usr/bin/llama-server" "$new/llama-server.bin"
  cat >"$new/llama-server" <<'SH'
#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
if [ "$(cat "$here/interpreter" 2>/dev/null)" = "$here" ]; then # a program of its own, that a router can start again
  LD_LIBRARY_PATH=$here exec "$here/llama-server.bin" "$@"
fi
exec "$here/ld-linux-x86-64.so.2" --argv0 llama-server --library-path "$here" "$here/llama-server.bin" "$@"
SH
  chmod +x "$new/llama-server"
  keep "$new" "$server" "Debian unstable $(dpkg-deb -f "$tmp"/apt/cache/archives/llama.cpp-tools_*.deb Version)"
}

xllamacpp() {
  local server=$dir/server-xllamacpp new=$tmp/xllamacpp name=xllamacpp version=2026.10.11549 python
  if [ -e "$server/origin" ]; then
    cp "$root/tests/llama/xserver.py" "$server/"
    return 0
  fi
  python=$(python3 -c 'import sys; assert sys.version_info >= (3, 10); print(sys.executable)') || skipped "PyPI $name: no Python 3.10 here" || return 1
  say "pip download $name==$version"
  pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$tmp" "$name==$version" >&2 || skipped "PyPI $name $version cannot be had" || return 1
  local sum
  sum=$(sha256sum "$tmp/$name"-*.whl | cut -d' ' -f1)
  [ "$sum" = c54e7d13520ecc989c63dc99d55de3065e2f343a91f43f053d16b5e62077c261 ] || skipped "PyPI $name $version: SHA-256 is $sum" || return 1
  mkdir "$new"
  (cd "$new" && python3 -m zipfile -e "$tmp/$name"-*.whl .)
  cp "$root/tests/llama/xserver.py" "$new/"
  cat >"$new/llama-server" <<SH
#!/bin/sh
exec $(printf %q "$python") "\$(dirname "\$(readlink -f "\$0")")/xserver.py" "\$@"
SH
  chmod +x "$new/llama-server"
  keep "$new" "$server" "PyPI $name $version"
}

# A router starts servers by its own program, which is the loader unless the program names it.
names_its_loader() {
  local server=$1
  [ "$(cat "$server/interpreter" 2>/dev/null)" != "$server" ] || return 0
  command -v patchelf >/dev/null || apt-get install -y -q patchelf >/dev/null 2>&1 || { apt-get update -q && apt-get install -y -q patchelf; } >/dev/null 2>&1 ||
    skipped "no patchelf: this llama-server cannot be a router" || return 0
  patchelf --set-interpreter "$server/ld-linux-x86-64.so.2" "$server/llama-server.bin"
  echo "$server" >"$server/interpreter"
}

servers=()
# "if" keeps -e from ending the script; the functions say themselves what went wrong.
if debian_unstable; then
  names_its_loader "$dir/server-debian-unstable"
  servers+=("$dir/server-debian-unstable")
fi
if xllamacpp; then servers+=("$dir/server-xllamacpp"); fi
[ ${#servers[@]} -gt 0 ] || { say "no real llama-server could be had"; exit 1; }
for s in "${servers[@]}"; do say "$s: $(cat "$s/origin")"; done

{
  printf 'export DORMOUSE_LLAMA_SERVER=%q\n' "${servers[0]}/llama-server"
  if [ ${#servers[@]} -gt 1 ]; then
    printf 'export DORMOUSE_LLAMA_SERVER_OTHER=%q\n' "${servers[1]}/llama-server"
  else
    echo 'unset DORMOUSE_LLAMA_SERVER_OTHER'
  fi
} | tee "$dir/server.env"
line=$(printf '[ ! -e %q ] || . %q' "$dir/server.env" "$dir/server.env") # as fetch.sh writes it
grep -qsxF "$line" "$dir/env.sh" || echo "$line" >>"$dir/env.sh"
