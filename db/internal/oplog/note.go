package oplog

import (
	"fmt"

	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/internal/packed"
	"github.com/dormousekv/dormouse/kv"
)

// Note sets a small value on a model. An empty one removes it.
type Note struct {
	Model kv.Fingerprint
	Name  string
	Value []byte
}

// Limits of notes.
const (
	MaxNoteName  = 64      // bytes
	MaxNoteBytes = 8 << 10 // of a value
)

// Bytes is what a note takes in the head of the log, generously.
func (op Note) Bytes() int64 { return int64(64 + len(op.Name) + len(op.Value)) }

func (Note) Kind() uint8 { return KindNote }

func (op Note) String() string {
	return fmt.Sprintf("note %.40q of %s on model %s", op.Name, count(len(op.Value), "byte"), op.Model)
}

func (Note) Room() Room { return Ordinary }

func (Note) Numbers() Counters { return Counters{} }

func (Note) Places(func(loc.Loc, Use)) {}

func (Note) Replay(Index) error { return nil }

func (op Note) Change(c Catalog) { c.SetNote(op) }

// noteBytes is the least length of a note.
const noteBytes = 24

// note = fingerprint 16 | string name | bytes value
func (op Note) append(b []byte) []byte {
	return packed.AppendBytes(packed.AppendBytes(append(b, op.Model[:]...), op.Name), op.Value)
}

func (Note) read(r *reader) Op { return readNote(r) }

func readNote(r *reader) Note {
	n := Note{Model: r.ID(), Name: r.Text(), Value: r.Bytes()}
	if n.Name == "" || len(n.Name) > MaxNoteName || len(n.Value) > MaxNoteBytes {
		r.Fail(ErrPayload, "a note of %d bytes, its name of %d", len(n.Value), len(n.Name))
	}
	return n
}
