#!/usr/bin/env bash
# The tests of dormouse_llama.h, on a real llama.cpp that is fetched: tests/capi/llama.sh LIBRARY-FOLDER TEMPORARY-FOLDER [-long]. run.sh calls it.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
here=$root/tests/capi
lib=$1 tmp=$2
say() { printf '\n-- %s\n' "$*"; }

if [ "$(uname -s)-$(uname -m)" != Linux-x86_64 ]; then
  echo "SKIPPED: llama.cpp's libraries are fetched for Linux on x86-64 only; dormouse_llama.h was not tested"
  exit 0
fi
bash "$root/tests/llama/fetch.sh" >/dev/null
include=$(bash "$root/tests/llama/headers.sh")
. "$root/.cache/llama/env.sh"
llama=$DORMOUSE_LLAMA_LIB
small=$root/runtimes/llamacpp/testdata/stories260K-f32.gguf

flags="-D_GNU_SOURCE -Wall -Wextra -Werror -g -I$lib/include -isystem $include"
link="-L$lib/lib -ldormouse -lpthread -Wl,-rpath,$lib/lib"
whole="$lib/lib/libdormouse.a -lpthread -lresolv"
its="$(ls "$llama"/libllama.v*.so "$llama"/libggml.v*.so "$llama"/libggml-base.so | tr '\n' ' ') -Wl,-rpath,$llama"

say "llama.cpp from C, and with AddressSanitizer on the C side"
cc -std=c11 $flags "$here/llama.c" -o "$tmp/llama" $link $its
"$tmp/llama" "$tmp/l1" "$small" "$llama" "$DORMOUSE_LLAMA_SMOL"
cc -std=c11 $flags -fsanitize=address,undefined "$here/llama.c" -o "$tmp/llama-asan" $whole $its
ASAN_OPTIONS=detect_leaks=0 "$tmp/llama-asan" "$tmp/l2" "$small" "$llama" "$DORMOUSE_LLAMA_SMOL"

say "LoRA adapters"
cc -std=c11 $flags -fsanitize=address,undefined "$here/llama_lora.c" -o "$tmp/llama_lora" $whole $its -lm
ASAN_OPTIONS=detect_leaks=0 "$tmp/llama_lora" "$tmp/lora" "$small" "$llama"

say "calls of llama.cpp in any order"
cc -std=c11 $flags -fsanitize=address,undefined "$here/llama_fuzz.c" -o "$tmp/llama_fuzz" $whole $its
calls=1000
[ "${3:-}" != -long ] || calls=30000
for seed in 1 2; do
  mkdir "$tmp/lf$seed"
  ASAN_OPTIONS=detect_leaks=0 "$tmp/llama_fuzz" "$tmp/lf$seed" $calls $seed "$small" "$llama"
done

say "Go's race detector under llama.cpp"
[ -e "$tmp/race.a" ] || (cd "$root" && go build -race -buildmode=c-archive -o "$tmp/race.a" ./capi)
cc -std=c11 $flags -no-pie "$here/llama.c" -o "$tmp/llama-race" "$tmp/race.a" -lpthread -lresolv $its
"$tmp/llama-race" "$tmp/l3" "$small" "$llama" "$DORMOUSE_LLAMA_SMOL"

say "llama.cpp from C++: kills"
c++ -std=c++17 $flags "$here/llama_kill.cpp" -o "$tmp/llama_kill" $link $its
kills=12
[ "${3:-}" != -long ] || kills=200
FIRST=0.3 bash "$here/kills.sh" "$tmp/llama_kill" "$tmp/lk" $kills "$small" "$llama"

say "llama.cpp from C++: handles that end in any order"
c++ -std=c++17 $flags "$here/llama_order.cpp" -o "$tmp/llama_order" $link $its
"$tmp/llama_order" "$tmp/lo" "$small" "$llama"

say "llama.cpp from C++: the example, whose process is killed and goes on"
c++ -std=c++17 $flags "$root/examples/llamahost/main.cpp" -o "$tmp/llamahost" $link $its
"$tmp/llamahost" "$DORMOUSE_LLAMA_MODEL" "$tmp/lh" "$root/examples/llamachat/prompt.txt" 1 32 "$llama" 600

c++ -std=c++17 $flags "$here/llama_times.cpp" -o "$tmp/llama_times" $link $its # for times, which run.sh runs
