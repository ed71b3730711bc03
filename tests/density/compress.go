package main

import (
	"errors"
	"fmt"

	"github.com/klauspost/compress/huff0"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
)

// compressor is one of those that a plane can go through (quant.Compression), without the store's limit of 5 %.
type compressor struct {
	name     string
	compress func(src []byte) []byte        // nil: src does not get smaller
	fill     func(dst, stored []byte) error // all of dst
}

func compressors() ([]compressor, error) {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false))
	if err != nil {
		return nil, err
	}
	best, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false), zstd.WithEncoderLevel(zstd.SpeedBestCompression))
	if err != nil {
		return nil, err
	}
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	unzstd := func(dst, stored []byte) error {
		out, err := d.DecodeAll(stored, dst[:0:len(dst)])
		return whole(dst, out, err)
	}
	var scratch huff0.Scratch
	return []compressor{
		{"zstd", func(src []byte) []byte { return e.EncodeAll(src, nil) }, unzstd},
		{"zstd, best", func(src []byte) []byte { return best.EncodeAll(src, nil) }, unzstd},
		{"s2", func(src []byte) []byte { return s2.Encode(nil, src) }, func(dst, stored []byte) error {
			out, err := s2.Decode(dst, stored)
			return whole(dst, out, err)
		}},
		{"huff0", func(src []byte) []byte {
			scratch.Reuse = huff0.ReusePolicyNone
			out, _, err := huff0.Compress4X(src, &scratch)
			if err != nil { // nothing to gain
				return nil
			}
			return append([]byte(nil), out...)
		}, func(dst, stored []byte) error {
			s, streams, err := huff0.ReadTable(stored, &scratch)
			if err != nil {
				return err
			}
			out, err := s.Decoder().Decompress4X(dst[:0:len(dst)], streams)
			return whole(dst, out, err)
		}},
	}, nil
}

// whole reports what keeps out, what a decoder returned, from being all of dst.
func whole(dst, out []byte, err error) error {
	switch {
	case err != nil:
		return err
	case len(out) != len(dst):
		return fmt.Errorf("expected %d bytes, found %d", len(dst), len(out))
	case len(out) > 0 && &out[0] != &dst[0]:
		return errors.New("decoded to other memory")
	}
	return nil
}
