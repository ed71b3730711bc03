#!/usr/bin/env bash
# Zips dormouse-android as an AAR: java/aar.sh OUT.aar [JNI]. JNI is a folder with arm64-v8a/libdormouse.so and arm64-v8a/libdormouse_jni.so, and others as there are;
# docs/android.md says how the NDK makes them. Without it the AAR has classes only. Needs mvn -f java/pom.xml package before.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[ $# -ge 1 ] || { echo "usage: aar.sh OUT.aar [JNI]" >&2; exit 2; }
out=$(realpath -m "$1")
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir "$tmp/classes" "$tmp/aar"
for m in dormouse dormouse-android; do
  [ -d "$here/$m/target/classes" ] || { echo "aar.sh: $m is not built: mvn -f $here/pom.xml package" >&2; exit 1; }
  cp -r "$here/$m/target/classes/." "$tmp/classes/"
done
rm -rf "$tmp/classes/io/github/dormousekv/native" # the JVM's
jar --create --no-manifest --file "$tmp/aar/classes.jar" -C "$tmp/classes" .
cp "$here"/dormouse-android/aar/* "$tmp/aar/"
: >"$tmp/aar/R.txt"
if [ $# -ge 2 ]; then
  for abi in "$2"/*/; do
    for lib in libdormouse.so libdormouse_jni.so; do
      [ -f "$abi$lib" ] || { echo "aar.sh: there is no $abi$lib" >&2; exit 1; }
    done
  done
  mkdir "$tmp/aar/jni"
  cp -r "$2"/* "$tmp/aar/jni/"
fi
rm -f "$out"
jar --create --no-manifest --file "$out" -C "$tmp/aar" .
