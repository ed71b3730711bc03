package quant

import (
	"errors"
	"fmt"
	"sync"

	"github.com/klauspost/compress/huff0"
)

// Coded streams: bytes in chunks, each as small as huff0 makes it.

// scratches go back only from where nothing panicked: huff0 leaves one half changed by a read fault, and what is encoded with that is wrong.
var scratches = sync.Pool{New: func() any { return new(huff0.Scratch) }}

// appendCoded appends src as a coded stream.
func appendCoded(dst, src []byte) []byte {
	s := scratches.Get().(*huff0.Scratch)
	for len(src) > 0 {
		chunk := src[:min(len(src), chunkBytes)]
		src = src[len(chunk):]
		s.Reuse = huff0.ReusePolicyNone // the pooled scratch remembers another stream's table
		out, _, err := huff0.Compress4X(chunk, s)
		switch {
		case err == nil && len(out) < len(chunk):
			dst = appendChunk(dst, modeHuff0, out)
		case errors.Is(err, huff0.ErrUseRLE):
			dst = appendChunk(dst, modeRepeats, chunk[:1])
		default: // not compressible
			dst = appendChunk(dst, modeStored, chunk)
		}
	}
	scratches.Put(s)
	return dst
}

// skipCoded steps over a coded stream of n bytes.
func skipCoded(stream []byte, n int) (rest []byte, err error) {
	for n > 0 {
		chunk := min(n, chunkBytes)
		if _, _, stream, err = cutChunk(stream, chunk); err != nil {
			return nil, err
		}
		n -= chunk
	}
	return stream, nil
}

// decodeCoded fills dst from the coded stream and returns what is behind it.
func decodeCoded(dst, stream []byte) (rest []byte, err error) {
	for len(dst) > 0 {
		n := min(len(dst), chunkBytes)
		var mode uint8
		var body []byte
		if mode, body, stream, err = cutChunk(stream, n); err != nil {
			return nil, err
		}
		if err := decodeChunk(dst[:n:n], mode, body); err != nil {
			return nil, err
		}
		dst = dst[n:]
	}
	return stream, nil
}

// decodeChunk fills dst from the body of a chunk that [cutChunk] has checked.
func decodeChunk(dst []byte, mode uint8, body []byte) error {
	switch mode {
	case modeStored:
		copy(dst, body)
		return nil
	case modeRepeats:
		for i := range dst {
			dst[i] = body[0]
		}
		return nil
	}
	mem := getBuffer(len(body)) // as in decompress
	defer mem.release()
	copy(mem.b, body)
	s := scratches.Get().(*huff0.Scratch)
	err := decodeHuff0(dst, mem.b, s)
	scratches.Put(s)
	return err
}

func decodeHuff0(dst, body []byte, s *huff0.Scratch) error {
	s, streams, err := huff0.ReadTable(body, s)
	if err != nil {
		return fmt.Errorf("huff0 table: %w", err)
	}
	out, err := s.Decoder().Decompress4X(dst[:0:len(dst)], streams)
	if err != nil {
		return fmt.Errorf("huff0 streams: %w", err)
	}
	if len(out) != len(dst) {
		return fmt.Errorf("huff0 chunk: expected %d bytes, found %d", len(dst), len(out))
	}
	return nil
}
