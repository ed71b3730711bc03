package chat

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// out writes the fields of a frame: numbers as varints, strings and lists with their length before them.
type out struct{ b []byte }

func (w *out) uint(n uint64) { w.b = binary.AppendUvarint(w.b, n) }

func (w *out) int(n int) { w.uint(uint64(n)) }

func (w *out) bytes(b []byte) { w.int(len(b)); w.b = append(w.b, b...) }

func (w *out) raw(b []byte) { w.b = append(w.b, b...) }

func (w *out) time(t time.Time) { w.b = binary.AppendVarint(w.b, t.UnixMilli()) }

func (w *out) tokens(t []kv.Token) { list(w, t, func(t kv.Token) { w.uint(uint64(uint32(t))) }) }

func (w *out) view(v []kv.Range) { list(w, v, func(r kv.Range) { w.int(r.Start); w.int(r.Len()) }) }

func list[T any](w *out, l []T, each func(T)) {
	w.int(len(l))
	for _, x := range l {
		each(x)
	}
}

// in reads the fields of a frame. It keeps the first error, and reads zeros after it.
type in struct {
	b   []byte
	err error
}

func (r *in) fail(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", errFrame, what)
	}
	r.b = nil
}

func (r *in) uint() uint64 {
	n, k := binary.Uvarint(r.b)
	if k <= 0 {
		r.fail("number expected")
		return 0
	}
	r.b = r.b[k:]
	return n
}

func (r *in) int() int {
	n := r.uint()
	if n > math.MaxInt32 {
		r.fail(fmt.Sprintf("number %d is too large", n))
		return 0
	}
	return int(n)
}

// count reads the length of a list whose items take at least one byte each.
func (r *in) count() int {
	n := r.int()
	if n > len(r.b) {
		r.fail(fmt.Sprintf("%d items in %d bytes", n, len(r.b)))
		return 0
	}
	return n
}

func (r *in) raw(b []byte) {
	if len(r.b) < len(b) {
		r.fail("too short")
		return
	}
	r.b = r.b[copy(b, r.b):]
}

func (r *in) bytes() []byte {
	b := make([]byte, r.count())
	r.raw(b)
	if len(b) == 0 {
		return nil
	}
	return b
}

func (r *in) time() time.Time {
	n, k := binary.Varint(r.b)
	if k <= 0 {
		r.fail("time expected")
		return time.Time{}
	}
	r.b = r.b[k:]
	return time.UnixMilli(n).UTC()
}

func (r *in) tokens() []kv.Token {
	return items(r, func() kv.Token {
		n := r.uint()
		if n > math.MaxUint32 {
			r.fail(fmt.Sprintf("token %d", n))
		}
		return kv.Token(uint32(n))
	})
}

func (r *in) view() []kv.Range {
	return items(r, func() kv.Range {
		start := r.int()
		return kv.Range{Start: start, End: start + r.int()}
	})
}

func items[T any](r *in, each func() T) []T {
	n := r.count()
	if n == 0 {
		return nil
	}
	l := make([]T, 0, n)
	for range n {
		l = append(l, each())
		if r.err != nil {
			return nil
		}
	}
	return l
}

// end returns the first error. Bytes that were not read are one.
func (r *in) end() error {
	if r.err == nil && len(r.b) > 0 {
		r.fail(fmt.Sprintf("%d bytes too many", len(r.b)))
	}
	return r.err
}

var errFrame = fmt.Errorf("%w: frame of a conversation", db.ErrCorrupt)
