package db

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/dormousekv/dormouse/kv"
)

// msgpack takes lengths at their word: it makes room for as many elements as a list claims to have, and steps over a value
// that it does not know by recursion. So a payload's lengths and depth are looked at before it is decoded: nothing is
// allocated that its own bytes do not account for.

const (
	maxPayloadDepth = 16 // a tensor of a model of a snapshot of an older release lies 6 deep
	// The elements of a list are places, numbers, keys, refs or models, or names; arrays of up to so many elements may be the
	// fields of something, of any size.
	maxPayloadFields = 16
	minElementBytes  = 9 // a number, which is the least of them
	minNameBytes     = 2
)

var errPayload = errors.New("malformed payload")

// unmarshal decodes a payload.
func unmarshal(b []byte, v any) error {
	rest, err := skipValue(b, 0)
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		return fmt.Errorf("%w: %d bytes behind its end", errPayload, len(rest))
	}
	if err := msgpack.Unmarshal(b, v); err != nil {
		return err
	}
	if op, ok := v.(interface{ sound() error }); ok {
		return op.sound()
	}
	return nil
}

// The sound methods say what cannot be in a payload, whose bytes are those that were written: somebody else than us wrote it.
// What they let pass is computed with.

func (l opLoc) sound() error {
	if l.Offset < 0 || l.Length < 0 || l.Offset > math.MaxInt64-l.Length {
		return fmt.Errorf("%w: a record at [%d, +%d)", errPayload, l.Offset, l.Length)
	}
	return nil
}

func (d opDead) sound() error { return d.Loc.sound() }

func (r opRecord) sound() error {
	if len(r.Hashes)%kv.TokenHashBytes != 0 {
		return fmt.Errorf("%w: %d bytes of token hashes", errPayload, len(r.Hashes))
	}
	return r.Loc.sound()
}

func (op opPut) sound() error    { return errors.Join(allSound(op.Records), allSound(op.Dead)) }
func (op opRemove) sound() error { return allSound(op.Dead) }
func (op opMove) sound() error   { return errors.Join(op.From.sound(), op.To.sound()) }
func (op opFlag) sound() error   { return op.Loc.sound() }

func (n opNote) sound() error {
	if n.Name == "" || len(n.Name) > MaxNoteName || len(n.Value) > MaxNoteBytes {
		return fmt.Errorf("%w: a note of %d bytes, its name of %d", errPayload, len(n.Value), len(n.Name))
	}
	return nil
}

func (s snapshot) sound() error {
	for id, end := range s.Ends {
		if end < 0 {
			return fmt.Errorf("%w: segment %d ends at %d", errPayload, id, end)
		}
	}
	return errors.Join(allSound(s.Doomed), allSound(s.Notes))
}

func allSound[T interface{ sound() error }](all []T) error {
	for _, x := range all {
		if err := x.sound(); err != nil {
			return err
		}
	}
	return nil
}

// skipValue returns what follows the value at the start of b.
func skipValue(b []byte, depth int) (rest []byte, err error) {
	if len(b) == 0 {
		return nil, fmt.Errorf("%w: it ends in a value", errPayload)
	}
	if depth > maxPayloadDepth {
		return nil, fmt.Errorf("%w: nested over %d deep", errPayload, maxPayloadDepth)
	}
	c := b[0]
	// A value is a code, a big-endian length or count of size bytes, and fixed more bytes.
	var size, fixed int
	var n uint64
	kind := "value"
	switch {
	case c <= 0x7f, c >= 0xe0, c == 0xc0, c == 0xc2, c == 0xc3: // small numbers, nil, false, true
	case c <= 0x8f:
		kind, n = "map", uint64(c&0x0f)
	case c <= 0x9f:
		kind, n = "array", uint64(c&0x0f)
	case c <= 0xbf:
		kind, n = "bytes", uint64(c&0x1f)
	case c >= 0xc4 && c <= 0xc6: // bin
		kind, size = "bytes", 1<<(c-0xc4)
	case c >= 0xc7 && c <= 0xc9: // ext, its type behind the length
		kind, size, fixed = "bytes", 1<<(c-0xc7), 1
	case c == 0xca, c == 0xcb: // float
		fixed = 4 << (c - 0xca)
	case c >= 0xcc && c <= 0xcf: // uint
		fixed = 1 << (c - 0xcc)
	case c >= 0xd0 && c <= 0xd3: // int
		fixed = 1 << (c - 0xd0)
	case c >= 0xd4 && c <= 0xd8: // ext of a fixed length
		fixed = 1 + 1<<(c-0xd4)
	case c >= 0xd9 && c <= 0xdb: // str
		kind, size = "bytes", 1<<(c-0xd9)
	case c == 0xdc, c == 0xdd:
		kind, size = "array", 2<<(c-0xdc)
	case c == 0xde, c == 0xdf:
		kind, size = "map", 2<<(c-0xde)
	default:
		return nil, fmt.Errorf("%w: code %#x", errPayload, c)
	}
	if b = b[1:]; len(b) < size+fixed {
		return nil, fmt.Errorf("%w: it ends in a value", errPayload)
	}
	switch size {
	case 1:
		n = uint64(b[0])
	case 2:
		n = uint64(binary.BigEndian.Uint16(b))
	case 4:
		n = uint64(binary.BigEndian.Uint32(b))
	}
	b = b[size+fixed:]
	if n > uint64(len(b)) {
		return nil, fmt.Errorf("%w: %s of %d in its last %d bytes", errPayload, kind, n, len(b))
	}
	switch kind {
	case "bytes":
		return b[n:], nil
	case "map":
		n *= 2
	}
	list := kind == "array" && n > maxPayloadFields
	for i := range n {
		from := len(b)
		least := uint64(minElementBytes)
		if from > 0 && isName(b[0]) {
			least = minNameBytes
		}
		if list && (n-i)*least > uint64(from) {
			return nil, fmt.Errorf("%w: %d elements in its last %d bytes", errPayload, n-i, from)
		}
		if b, err = skipValue(b, depth+1); err != nil {
			return nil, err
		}
		if list && uint64(from-len(b)) < least {
			return nil, fmt.Errorf("%w: a list's element of %d bytes", errPayload, from-len(b))
		}
	}
	return b, nil
}

// isName reports whether a string begins with code c.
func isName(c byte) bool { return c >= 0xa0 && c <= 0xbf || c >= 0xd9 && c <= 0xdb }
