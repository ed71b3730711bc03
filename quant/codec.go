package quant

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dormousekv/dormouse/kv"
)

// ErrCodec is returned when a codec or compression is unknown, is reserved for a later release, or cannot hold the
// tensor. It is not damage: a newer release may have written the plane. The store flags the record all the same, so that a put stores it anew.
var ErrCodec = errors.New("quant: codec not supported")

// Codec says how values become bytes. The numbers are stored; they never change. The zero Codec means that none is
// chosen.
type Codec uint8

const (
	// Raw keeps the bytes as they are.
	Raw Codec = 1
	// Q8_0 keeps groups of 32 values as one f16 scale and 32 int8, 1.0625 bytes a value: ggml's block_q8_0.
	Q8_0 Codec = 2
	// ByteSplit keeps f32, f16 and bf16 exactly: one plane for each byte of an element, each entropy-coded.
	ByteSplit Codec = 3
	// Q8C is reserved: int8 with a scale per channel for keys, per token for values.
	Q8C Codec = 4
	// Q4R turns groups of 64 values by a Walsh-Hadamard transform and keeps them as one f16 scale, one f16 minimum and 64
	// codes of 4 bits, 0.5625 bytes a value. It is for values (V): keys of 4 bits ruin small models, so that [Codec.For]
	// gives everything else its [Default].
	Q4R Codec = 5
)

// codecs are those that this release can encode and decode.
var codecs = []Codec{Raw, Q8_0, ByteSplit, Q4R}

// Valid reports whether this release can encode and decode c.
func (c Codec) Valid() bool { return slices.Contains(codecs, c) }

func (c Codec) String() string {
	switch c {
	case Raw:
		return "raw"
	case Q8_0:
		return "q8_0"
	case ByteSplit:
		return "bytesplit"
	case Q8C:
		return "q8c"
	case Q4R:
		return "q4r"
	}
	return fmt.Sprintf("codec(%d)", uint8(c))
}

// ParseCodec reads the name that [Codec.String] prints. The error of an unknown or reserved name wraps [ErrCodec].
func ParseCodec(name string) (Codec, error) {
	for _, c := range codecs {
		if c.String() == name {
			return c, nil
		}
	}
	if name == Q8C.String() {
		return 0, Q8C.Check()
	}
	return 0, fmt.Errorf("%w: %q is none of %s", ErrCodec, name, names(codecs))
}

// Check returns an error that says why this release cannot encode and decode c, and what it can, or nil. It wraps [ErrCodec].
func (c Codec) Check() error {
	switch {
	case c == Q8C:
		return fmt.Errorf("%w: codec %s is reserved for a later release", ErrCodec, c)
	case !c.Valid():
		return fmt.Errorf("%w: unknown codec %d: expected %s", ErrCodec, uint8(c), names(codecs))
	}
	return nil
}

func names[T fmt.Stringer](all []T) string {
	var out []string
	for _, x := range all {
		out = append(out, x.String())
	}
	return strings.Join(out, ", ")
}

// Default is the codec for tensors of t's kind when nothing else is asked for: [Q8_0] where it fits, else [Raw].
func Default(t kv.Tensor) Codec {
	if Q8_0.Supports(t) {
		return Q8_0
	}
	return Raw
}

// For is the codec that rows of t are stored in where c is asked for: c itself, as far as it is for such rows and can hold
// them. [Q4R] is for values only; everything else gets its [Default], as where c is 0. Where another c cannot hold t, it is
// [Raw].
func (c Codec) For(t kv.Tensor) Codec {
	switch {
	case c == 0, c == Q4R && (t.Role != kv.RoleV || !c.Supports(t)):
		return Default(t)
	case c.Supports(t):
		return c
	}
	return Raw
}

// Supports reports whether c can hold rows of t.
func (c Codec) Supports(t kv.Tensor) bool {
	if !t.DType.Valid() || t.Width < 0 || t.Width > kv.MaxWidth || t.Width%t.DType.Group() != 0 {
		return false
	}
	switch c {
	case Raw:
		return t.Width > 0 || t.DType == kv.Bytes
	case Q8_0:
		return t.DType.IsFloat() && t.Width > 0 && t.Width%groupValues == 0
	case ByteSplit:
		return t.DType.IsFloat() && t.Width > 0
	case Q4R:
		return t.DType.IsFloat() && t.Width > 0 && t.Width%groupValuesQ4R == 0
	}
	return false
}

// check returns the error that says why c cannot hold rows of t, or nil.
func (c Codec) check(t kv.Tensor) error {
	if err := c.Check(); err != nil {
		return err
	}
	if !c.Supports(t) {
		return fmt.Errorf("%w: %s cannot hold %s rows of %d values", ErrCodec, c, t.DType, t.Width)
	}
	return nil
}

// Compression is what a plane went through after its codec. The numbers are stored; they never change.
type Compression uint8

const (
	None  Compression = 0
	Zstd  Compression = 1
	S2    Compression = 2
	Huff0 Compression = 3 // entropy coding only: no matches are looked for
)

// compressions are those that this release knows.
var compressions = []Compression{None, Zstd, S2, Huff0}

// Valid reports whether this release knows c.
func (c Compression) Valid() bool { return slices.Contains(compressions, c) }

func (c Compression) String() string {
	switch c {
	case None:
		return "none"
	case Zstd:
		return "zstd"
	case S2:
		return "s2"
	case Huff0:
		return "huff0"
	}
	return fmt.Sprintf("compression(%d)", uint8(c))
}

// ParseCompression reads the name that [Compression.String] prints. The error of an unknown name wraps [ErrCodec].
func ParseCompression(name string) (Compression, error) {
	for _, c := range compressions {
		if c.String() == name {
			return c, nil
		}
	}
	return 0, fmt.Errorf("%w: %q is none of %s", ErrCodec, name, names(compressions))
}

// Check returns an error that says that this release does not know c, and what it knows, or nil. It wraps [ErrCodec].
func (c Compression) Check() error {
	if !c.Valid() {
		return fmt.Errorf("%w: unknown compression %d: expected %s", ErrCodec, uint8(c), names(compressions))
	}
	return nil
}
