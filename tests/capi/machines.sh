#!/usr/bin/env bash
# Builds the C library for other machines, and runs its tests on arm64 as far as an emulator can: tests/capi/machines.sh. Needs pip, apt-get and some
# 500 MB: ziglang (PyPI) as compiler for arm64, Debian's libc6-arm64-cross and qemu-user, gcc-mingw-w64-x86-64. It builds the wheels for Python, too, and imports that for arm64.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
here=$root/tests/capi
out=$root/.cache/capi-machines
mkdir -p "$out"
say() { printf '\n-- %s\n' "$*"; }

say "what is needed"
[ -x "$out/zig/bin/python" ] || python3 -m venv "$out/zig"
"$out/zig/bin/pip" install -q ziglang==0.17.1
need="libc6-arm64-cross qemu-user gcc-mingw-w64-x86-64"
dpkg -s $need >/dev/null 2>&1 || apt-get install -y -q $need >/dev/null || { apt-get update -q && apt-get install -y -q $need; } >/dev/null

say "linux/arm64"
zig="$out/zig/bin/python -m ziglang cc -target aarch64-linux-gnu.2.28"
CC=$zig TARGET=linux-arm64 bash "$root/capi/build.sh" "$out/arm64"
run() { QEMU_LD_PREFIX=/usr/aarch64-linux-gnu qemu-aarch64 -E LD_LIBRARY_PATH="$out/arm64/lib" "$@"; }
for f in functions fuzz kill; do
  $zig -std=c11 -D_GNU_SOURCE -g -I"$out/arm64/include" "$here/$f.c" -o "$out/arm64/$f" -L"$out/arm64/lib" -ldormouse -lpthread
done
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
run "$out/arm64/functions" "$tmp/s1"
mkdir "$tmp/s2"
run "$out/arm64/fuzz" "$tmp/s2" 1500 5

say "wheels for linux on arm64 and x86-64, of glibc 2.28 and later"
"$out/zig/bin/pip" install -q auditwheel==6.8.2
CC="$out/zig/bin/python -m ziglang cc -target x86_64-linux-gnu.2.28" bash "$root/capi/build.sh" "$out/amd64"
rm -rf "$out/wheels"
for m in arm64-aarch64 amd64-x86_64; do
  DORMOUSE_LIBRARY=$out/${m%-*}/lib/libdormouse.so "$out/zig/bin/pip" wheel -q --disable-pip-version-check --no-deps -w "$out/wheels" \
    --config-settings=--build-option=--plat-name=manylinux_2_28_${m#*-} "$root/python"
  wheel=$(ls "$out"/wheels/*_"${m#*-}".whl)
  said=$("$out/zig/bin/auditwheel" show "$wheel" | tr '\n' ' ')
  tag=$(sed -nE 's/.*tag: "manylinux_([0-9_]+)_'"${m#*-}"'".*/\1/p' <<<"$said")
  echo "$(basename "$wheel"): auditwheel says manylinux_$tag, $(wc -c <"$wheel") bytes"
  [ -n "$tag" ] && [ "$(printf '%s\n2_28\n' "$tag" | sort -t_ -k1n -k2n | tail -1)" = 2_28 ] || { echo "machines.sh: $said"; exit 1; }
done

say "the arm64 wheel in a Python for arm64, Debian's, under qemu"
py=$out/python
mkdir -p "$py/lists/partial" "$py/cache/archives/partial" "$py/debs" "$py/root"
mirror=$(apt-get indextargets --format '$(REPO_URI)' 2>/dev/null | grep -m1 '/debian/\?$' || true)
printf 'Types: deb\nURIs: %s\nSuites: bookworm\nComponents: main\nArchitectures: arm64\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg\n' "${mirror:-http://deb.debian.org/debian}" >"$py/arm64.sources"
apt=(apt-get -qq -o "Dir::Etc::sourcelist=$py/arm64.sources" -o Dir::Etc::sourceparts=/dev/null -o "Dir::State::lists=$py/lists" -o "Dir::Cache=$py/cache"
  -o APT::Sandbox::User=root -o APT::Architecture=arm64 -o APT::Architectures=arm64)
"${apt[@]}" update
(cd "$py/debs" && "${apt[@]}" download libpython3.11-minimal libpython3.11-stdlib python3.11-minimal libc6 zlib1g libexpat1 libffi8)
for p in "$py"/debs/*.deb; do dpkg-deb -x "$p" "$py/root"; done
rm -rf "$py/site"
python3 -m zipfile -e "$out"/wheels/*_aarch64.whl "$py/site"
PYTHONPATH=$py/site PYTHONHOME=$py/root/usr QEMU_LD_PREFIX=$py/root qemu-aarch64 -E LD_LIBRARY_PATH="$py/root/usr/lib/aarch64-linux-gnu:$py/root/lib/aarch64-linux-gnu" \
  "$py/root/usr/bin/python3.11" "$here/wheel.py"

say "windows/amd64: built, and the functions that it exports counted; not run"
TARGET=windows-amd64 bash "$root/capi/build.sh" "$out/windows"
exported=$(x86_64-w64-mingw32-objdump -p "$out/windows/lib/dormouse.dll" | grep -oE '\bdormouse_[a-z_]+' | sort -u)
[ "$exported" = "$(grep -oE '\bdormouse_[a-z_]+' "$root/capi/exports.def" | sort -u)" ] || { echo "machines.sh: dormouse.dll exports other functions than the header has"; exit 1; }

printf '\nmachines: all passed\n'
