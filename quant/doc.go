// Package quant turns rows of a tensor in the caller's memory into the bytes of a plane, and back.
//
// It owns the codecs ([Raw], [Q8_0], [ByteSplit], [Q4R]), the compressions that can follow one ([Zstd], [S2], [Huff0]), the
// layout of a plane (format.go, docs/format/plane.md) and the kernels: in plain Go (kernels.go, q4r.go), which is the reference,
// and in assembly that asm/ generates. One is chosen at start (kernel.go, [Kernel]).
//
// It promises
//
//   - that [Raw] and [ByteSplit] give back every bit, and that [Q8_0] and [Q4R] give back within [Plane].MaxError what
//     their codes can hold, and every bit of what they cannot: NaN, infinities, scales outside of f16's normal range;
//   - that the codes of a Q8_0 plane are byte for byte what ggml's quantize_row_q8_0_ref writes, on every machine;
//   - that no stored byte, and no [Plane] field, makes [Decode] panic, write outside of dst, or allocate more than the
//     plane's own decoded size;
//   - that uncompressed Raw, Q8_0 and Q4R planes are encoded and decoded without allocating, and that [DecodeVerified] reads
//     their stored bytes once;
//   - that all kernels give the same bits.
//
// A new codec needs a number, a name, Supports and For (codec.go), a layout (format.go), a case in plane.go; if it works on groups of values, also
// groups.go, a reference in plain Go, kernels, and their check (kernel.go); golden planes, docs/format/plane.md and docs/compatibility.md. Its name
// also stands in tools/dormouse/options.go, capi/dormouse.h and python/. One that does not work on groups needs verified.go, too. Tests list the codecs
// by hand: golden, plane, codec, fuzz and bench here, tests/crash and tests/together.
//
// Values in the caller's memory are little-endian. All functions are safe for concurrent use.
//
// It must not know where a plane is stored, nor keep its checksum: the caller gives it, and adds the file's name to an
// error. It imports kv, and internal/damage for its errors.
package quant
