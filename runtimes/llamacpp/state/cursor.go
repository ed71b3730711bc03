package state

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrBlob is returned when a blob does not have the expected layout; the message names offset, field, what was found and
// what was expected.
var ErrBlob = errors.New("llama.cpp state blob")

// trailerMagic begins the checkpoints behind a state.
const trailerMagic = 0x504b4353 // "SCKP", read as a number

// reader walks a blob; after the first error it reads zeros.
type reader struct {
	b   []byte
	at  int
	err error

	sequence int32 // of all cells, if named
	named    bool
}

func (r *reader) left() int { return len(r.b) - r.at }

func (r *reader) fail(what string, found, expected any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: offset %d: %s is %v, expected %v", ErrBlob, r.at, what, found, expected)
	}
}

func (r *reader) bytes(what string, n uint64) []byte {
	if r.err != nil {
		return nil
	}
	if n > uint64(r.left()) {
		r.fail(what, fmt.Sprintf("%d bytes", n), fmt.Sprintf("at most %d", r.left()))
		return nil
	}
	b := r.b[r.at : r.at+int(n) : r.at+int(n)]
	r.at += int(n)
	return b
}

// end is where all must have been read.
func (r *reader) end(what string) {
	if r.err == nil && r.left() > 0 {
		r.fail("end of "+what, r.at, len(r.b))
	}
}

// peek is the next word, or zero.
func (r *reader) peek() int32 {
	if r.err != nil || r.left() < 4 {
		return 0
	}
	return int32(binary.LittleEndian.Uint32(r.b[r.at:]))
}

// atTrailer reports whether checkpoints come next.
func (r *reader) atTrailer() bool { return r.peek() == trailerMagic }

// sequenceOf refuses cells of two sequences: a blob is of one.
func (r *reader) sequenceOf(n int32) {
	if r.err == nil && r.named && n != r.sequence {
		r.fail("sequence of a cell", n, r.sequence)
	}
	r.sequence, r.named = n, true
}

func (r *reader) u32(what string) uint32 {
	if b := r.bytes(what, 4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (r *reader) u64(what string) uint64 {
	if b := r.bytes(what, 8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (r *reader) count(what string, limit int) int {
	n := r.u32(what)
	if r.err == nil && uint64(n) > uint64(limit) {
		r.fail(what, n, fmt.Sprintf("at most %d", limit))
	}
	if r.err != nil {
		return 0
	}
	return int(n)
}

// writer fills memory whose size was computed before.
type writer struct {
	b  []byte
	at int
}

func (w *writer) u32(v uint32) {
	binary.LittleEndian.PutUint32(w.b[w.at:], v)
	w.at += 4
}

func (w *writer) u64(v uint64) {
	binary.LittleEndian.PutUint64(w.b[w.at:], v)
	w.at += 8
}

func (w *writer) skip(n int) []byte {
	b := w.b[w.at : w.at+n : w.at+n]
	w.at += n
	return b
}
