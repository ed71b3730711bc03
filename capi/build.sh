#!/usr/bin/env bash
# Builds the C library: capi/build.sh [FOLDER], by default .cache/capi. Needs Go and a C compiler. TARGET says for which machine:
#
#   linux-amd64    (default) gcc or clang
#   linux-arm64    CC="python3 -m ziglang cc -target aarch64-linux-gnu.2.17" (PyPI ziglang) if CC is not set
#   windows-amd64  x86_64-w64-mingw32-gcc (Debian gcc-mingw-w64-x86-64) if CC is not set
#
# FOLDER gets include/, lib/ with the shared and the static library, lib/pkgconfig and lib/cmake.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
out=${1:-$root/.cache/capi}
mkdir -p "$out"
out=$(cd "$out" && pwd)
target=${TARGET:-linux-amd64}
export CGO_ENABLED=1 GOOS=${target%-*} GOARCH=${target#*-}

shared=libdormouse.so
hide="-Wl,--version-script=$root/capi/exports.map -Wl,-soname,libdormouse.so.1 -Wl,-z,nodelete"
case $target in
linux-amd64) ;;
linux-arm64) export CC=${CC:-python3 -m ziglang cc -target aarch64-linux-gnu.2.17} ;;
windows-amd64)
  export CC=${CC:-x86_64-w64-mingw32-gcc}
  shared=dormouse.dll hide="-Wl,$root/capi/exports.def"
  ;;
*) echo "build.sh: $target is none of linux-amd64, linux-arm64, windows-amd64" >&2; exit 2 ;;
esac

# What a program may call is what the header says, and nothing else.
functions=$(sed -nE 's/^DORMOUSE_API [^(]*\b(dormouse_[a-z_]+)\(.*/\1/p' "$root"/capi/dormouse*.h | sort -u)
listed=$(grep -oE '\bdormouse_[a-z_]+' "$root/capi/exports.map" | sort -u)
[ "$functions" = "$listed" ] || { echo "build.sh: exports.map and the headers differ:"; diff <(echo "$functions") <(echo "$listed"); exit 1; } >&2

mkdir -p "$out/include" "$out/lib/pkgconfig" "$out/lib/cmake/dormouse"
cp "$root"/capi/dormouse*.h "$root"/capi/dormouse*.hpp "$out/include/"
cd "$root"
go build -trimpath -buildmode=c-shared -ldflags "-s -w -extldflags '$hide'" -o "$out/lib/$shared" ./capi
go build -trimpath -buildmode=c-archive -o "$out/lib/libdormouse.a" ./capi
rm -f "$out/lib/"libdormouse.h "$out/lib/"dormouse.h # cgo's own
[ "$GOOS" = windows ] || ln -sf libdormouse.so "$out/lib/libdormouse.so.1"

version=$(sed -n 's/^const Version = "\(.*\)"/\1/p' internal/version/version.go)
cat >"$out/lib/pkgconfig/dormouse.pc" <<PC
prefix=\${pcfiledir}/../..
Name: dormouse
Description: A store on disk for the KV cache of language models
Version: $version
Cflags: -I\${prefix}/include
Libs: -L\${prefix}/lib -ldormouse
Libs.private: -lpthread -lresolv -ldl
PC
cat >"$out/lib/cmake/dormouse/dormouse-config.cmake" <<CMAKE
if(TARGET dormouse::dormouse) # found before in this directory, or in one above
  return()
endif()
get_filename_component(_dormouse "\${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
add_library(dormouse::dormouse SHARED IMPORTED)
set_target_properties(dormouse::dormouse PROPERTIES IMPORTED_LOCATION "\${_dormouse}/lib/$shared" INTERFACE_INCLUDE_DIRECTORIES "\${_dormouse}/include")
add_library(dormouse::static STATIC IMPORTED)
set_target_properties(dormouse::static PROPERTIES IMPORTED_LOCATION "\${_dormouse}/lib/libdormouse.a" INTERFACE_INCLUDE_DIRECTORIES "\${_dormouse}/include"
  INTERFACE_LINK_LIBRARIES "pthread;resolv;\${CMAKE_DL_LIBS}")
unset(_dormouse)
CMAKE
# Who asks for 0.1 is served by any release 0.1.x (docs/compatibility.md), who asks for a range by what is in it.
IFS=.- read -r major minor _ <<<"$version"
cat >"$out/lib/cmake/dormouse/dormouse-config-version.cmake" <<CMAKE
set(PACKAGE_VERSION "${version%%-*}")
set(PACKAGE_VERSION_COMPATIBLE FALSE)
if(PACKAGE_FIND_VERSION_RANGE)
  if(NOT PACKAGE_VERSION VERSION_LESS PACKAGE_FIND_VERSION_MIN AND NOT PACKAGE_VERSION VERSION_GREATER PACKAGE_FIND_VERSION_MAX)
    set(PACKAGE_VERSION_COMPATIBLE TRUE)
  endif()
elseif(NOT PACKAGE_VERSION VERSION_LESS PACKAGE_FIND_VERSION AND PACKAGE_FIND_VERSION_MAJOR EQUAL $major
    AND (PACKAGE_FIND_VERSION_COUNT EQUAL 1 OR PACKAGE_FIND_VERSION_MINOR EQUAL $minor))
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
endif()
if(PACKAGE_VERSION VERSION_EQUAL PACKAGE_FIND_VERSION)
  set(PACKAGE_VERSION_EXACT TRUE)
endif()
CMAKE
ls -l "$out/lib/$shared" "$out/lib/libdormouse.a" | awk '{print $5, $9}'
