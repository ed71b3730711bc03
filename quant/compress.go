package quant

import (
	"errors"
	"fmt"
	"sync"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"

	"github.com/dormousekv/dormouse/internal/damage"
)

// Compression of whole planes. Encoders and decoders are pooled; none of them starts goroutines.

const zstdWindowBytes = 1 << 20

var zstdEncoders = sync.Pool{New: func() any {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true),
		zstd.WithWindowSize(zstdWindowBytes), zstd.WithEncoderCRC(false)) // the record has a checksum
	if err != nil {
		panic("quant: zstd encoder: " + err.Error()) // only wrong options do that
	}
	return e
}}

var zstdDecoders = sync.Pool{New: func() any {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		panic("quant: zstd decoder: " + err.Error())
	}
	return d
}}

// compressTail compresses dst[start:] in place if that is worth it, and returns dst and what is there now.
func compressTail(dst []byte, start int, c Compression) ([]byte, Compression) {
	plane := dst[start:]
	if len(plane) < minCompressible {
		return dst, None
	}
	buf := getBuffer(0)
	defer buf.release()
	buf.b = appendCompressedHeader(buf.b, len(plane))
	switch c {
	case Zstd:
		e := zstdEncoders.Get().(*zstd.Encoder)
		buf.b = e.EncodeAll(plane, buf.b)
		zstdEncoders.Put(e)
	case S2:
		buf.b = appendS2(buf.b, plane)
	case Huff0:
		buf.b = appendCoded(buf.b, plane)
	}
	if len(buf.b) <= compressedHeaderBytes || !worthwhile(uint64(len(buf.b)), uint64(len(plane))) {
		return dst, None
	}
	return append(dst[:start], buf.b...), c
}

// appendS2 appends src as an s2 block, or returns dst as it is if src is too large for one.
func appendS2(dst, src []byte) []byte {
	bound := s2.MaxEncodedLen(len(src))
	if bound < 0 {
		return dst
	}
	n := len(dst)
	if cap(dst)-n < bound {
		dst = append(make([]byte, 0, n+bound), dst...)
	}
	out := s2.Encode(dst[n:n+bound], src)
	return dst[:n+len(out)]
}

// checkStream reports whether the stream says of itself that it holds length bytes, so that nothing is allocated for
// one that cannot.
func checkStream(c Compression, stream []byte, length int) error {
	var found uint64
	var err error
	switch c {
	case Zstd:
		var head zstd.Header
		if err = head.Decode(stream); err == nil && !head.HasFCS {
			err = errors.New("frame without its content's size")
		}
		found = head.FrameContentSize
	case S2:
		var n int
		n, err = s2.DecodedLen(stream)
		found = uint64(n)
	case Huff0:
		var rest []byte
		rest, err = skipCoded(stream, length)
		found = uint64(length)
		if len(rest) != 0 {
			err = fmt.Errorf("%d bytes behind its end", len(rest))
		}
	}
	if err == nil && found != uint64(length) {
		err = fmt.Errorf("expected %d bytes, found %d", length, found)
	}
	return streamError(c, err)
}

// decompress fills dst from a stream that [checkStream] has passed. It allocates no output: each decoder is held to dst.
func decompress(dst []byte, c Compression, stream []byte) error {
	var out []byte
	var err error
	if c != Huff0 { // decodeChunk does the same
		mem := getBuffer(len(stream)) // a fault in the decoders' assembly ends the process if the garbage collector runs then
		defer mem.release()
		copy(mem.b, stream)
		stream = mem.b
	}
	switch c {
	case Zstd:
		d := zstdDecoders.Get().(*zstd.Decoder)
		out, err = d.DecodeAll(stream, dst[:0:len(dst)])
		zstdDecoders.Put(d)
	case S2:
		out, err = s2.Decode(dst[:len(dst):len(dst)], stream)
	case Huff0:
		out = dst
		_, err = decodeCoded(dst, stream)
	}
	if err == nil && len(out) != len(dst) {
		err = fmt.Errorf("expected %d bytes, found %d", len(dst), len(out))
	}
	if err == nil && len(dst) > 0 && &out[0] != &dst[0] {
		copy(dst, out)
	}
	return streamError(c, err)
}

func streamError(c Compression, err error) error {
	if err == nil {
		return nil
	}
	return damage.Wrap("", compressedHeaderBytes, c.String()+" stream", err)
}
