package oplog

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/fuzzkit"
	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// What is encoded comes back, whatever it is.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		op := drawOp(t)
		b := Encode(op)
		got, err := Decode(op.Kind(), b)
		if err != nil || !reflect.DeepEqual(got, op) {
			t.Fatalf("%#v\nbecame\n%#v: %v", op, got, err)
		}
		if again := Encode(got); !bytes.Equal(again, b) {
			t.Fatalf("%x was written again as %x", b, again)
		}
		if bar, ok := op.(Barrier); ok && len(b) != BarrierBytes {
			t.Fatalf("%s takes %d bytes", bar, len(b))
		}
	})
}

func drawOp(t *rapid.T) Op {
	id := func() (id [16]byte) {
		copy(id[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		return id
	}
	size := rapid.Int64Range(0, math.MaxInt64/2)
	place := func() loc.Loc {
		return loc.Loc{Segment: rapid.Uint64().Draw(t, "segment"), Offset: size.Draw(t, "offset"), Length: size.Draw(t, "length")}
	}
	data := func(most int) []byte {
		return append([]byte(nil), rapid.SliceOfN(rapid.Byte(), 0, most).Draw(t, "bytes")...)
	}
	dead := func() []Dead {
		return some(t, func() Dead { return Dead{Key: id(), Group: rapid.Byte().Draw(t, "group"), Loc: place()} })
	}
	number := func() uint64 { return rapid.Uint64().Draw(t, "number") }
	when := func() time.Time {
		if rapid.Bool().Draw(t, "never") {
			return time.Time{}
		}
		return time.Unix(rapid.Int64Range(-1<<40, 1<<40).Draw(t, "seconds"), rapid.Int64Range(0, 1e9-1).Draw(t, "nanoseconds")).UTC()
	}
	flags := func() uint8 { return rapid.Byte().Draw(t, "flags") & 7 }
	ref := func() Ref {
		return Ref{
			Name: rapid.String().Draw(t, "name"), Model: id(), Block: id(), Tokens: rapid.IntRange(0, kv.MaxTokens).Draw(t, "tokens"),
			Pinned: rapid.Bool().Draw(t, "pinned"), Priority: rapid.Byte().Draw(t, "priority"), Expires: when(), Set: when(), Meta: data(9), Trail: data(9),
		}
	}
	note := func() Note {
		return Note{Model: id(), Name: rapid.StringMatching("[a-z]{1,64}").Draw(t, "name"), Value: data(9)}
	}
	model := func() Model {
		return Model{Fingerprint: id(), Name: rapid.String().Draw(t, "name"), Stamp: number(), Packed: data(9)}
	}
	remove := func() Remove {
		return Remove{Deleted: rapid.Bool().Draw(t, "deleted"), Dead: dead(), Refs: some(t, func() string { return rapid.String().Draw(t, "name") }), Seq: number()}
	}
	switch rapid.Uint8Range(1, uint8(len(Kinds()))).Draw(t, "kind") {
	case KindSnapshot:
		s := Snapshot{
			Next: Counters{number(), number(), number()}, Ends: map[uint64]int64{},
			Models: some(t, model), Refs: some(t, ref), Tombstones: some(t, place), Unlinked: some(t, number), Flagged: some(t, func() kv.Key { return id() }),
			Notes: some(t, note), FormerRefs: FormerRefs(rapid.Uint8Range(0, 2).Draw(t, "former")),
		}
		for range rapid.IntRange(0, 3).Draw(t, "ends") {
			s.Ends[number()] = size.Draw(t, "end")
		}
		return s
	case KindPut:
		return Put{Records: some(t, func() index.Entry {
			x := index.Entry{
				Key: id(), Group: rapid.Byte().Draw(t, "group"), Parent: id(), Model: id(), Scope: id(), Loc: place(),
				First: rapid.Uint32().Draw(t, "first"), Tokens: rapid.Uint16().Draw(t, "tokens"), RowFirst: rapid.Uint16().Draw(t, "row"),
				RowCount: rapid.Uint16().Draw(t, "rows"), Flags: flags(), Seq: number(), Created: size.Draw(t, "created"), Hashes: data(9),
			}
			x.Hashes = x.Hashes[:len(x.Hashes)/kv.TokenHashBytes*kv.TokenHashBytes]
			if len(x.Hashes) == 0 {
				x.Hashes = nil
			}
			return x
		}), Dead: dead()}
	case KindRemove:
		return remove()
	case KindMove:
		return Move{Key: id(), Group: rapid.Byte().Draw(t, "group"), From: place(), To: place(), Seq: number()}
	case KindModel:
		return model()
	case KindRetire:
		return Retire{Model: id(), Segments: some(t, number)}
	case KindRef:
		return ref()
	case KindUnref:
		return Unref{Name: rapid.String().Draw(t, "name")}
	case KindFlag:
		return Flag{Key: id(), Group: rapid.Byte().Draw(t, "group"), Loc: place(), Flags: flags()}
	case KindNote:
		return note()
	}
	return Barrier{LSN: number()}
}

// some is none to three of them.
func some[T any](t *rapid.T, one func() T) (all []T) {
	for range rapid.IntRange(0, 3).Draw(t, "count") {
		all = append(all, one())
	}
	return all
}

// A payload that is cut anywhere, or goes on behind its end, is refused. So is one of a kind that there is not.
func TestCut(t *testing.T) {
	for _, op := range samples() {
		b := Encode(op)
		for n := range len(b) {
			if got, err := Decode(op.Kind(), b[:n]); !errors.Is(err, ErrPayload) {
				t.Errorf("%s of %d bytes, cut at %d: %#v, %v", op, len(b), n, got, err)
			}
		}
		if got, err := Decode(op.Kind(), append(b, 0)); !errors.Is(err, ErrPayload) {
			t.Errorf("%s and a byte more: %#v, %v", op, got, err)
		}
	}
	for _, kind := range []uint8{0, uint8(len(Kinds()) + 1), 255} {
		if op, err := Decode(kind, nil); !errors.Is(err, vfs.ErrVersion) {
			t.Errorf("kind %d: %#v, %v", kind, op, err)
		}
	}
}

// What only another release can have a meaning for is refused as another version.
func TestReserved(t *testing.T) {
	record := func(x index.Entry) []byte { return Encode(Put{Records: []index.Entry{x}}) }
	set := func(b []byte, at int, to byte) []byte {
		b = bytes.Clone(b)
		b[at] = to
		return b
	}
	const first = 4 // behind the list's count
	for name, x := range map[string]struct {
		kind    uint8
		payload []byte
	}{
		"tier":          {KindPut, record(index.Entry{Loc: loc.Loc{Tier: 1}})},
		"flags":         {KindPut, record(index.Entry{Flags: 8})},
		"runtime's key": {KindPut, set(record(index.Entry{}), first+79, 1)},
		"record kind":   {KindPut, set(record(index.Entry{}), first+105, 2)},
		"former refs":   {KindSnapshot, Encode(Snapshot{FormerRefs: 3})},
		"flag's flags":  {KindFlag, Encode(Flag{Flags: 0x80})},
	} {
		if op, err := Decode(x.kind, x.payload); !errors.Is(err, vfs.ErrVersion) {
			t.Errorf("%s: %#v, %v", name, op, err)
		}
	}
}

// What cannot be is refused, and nothing is allocated for what a length claims.
func TestHostile(t *testing.T) {
	long := []byte("\xff\xff\xff\xff")
	zeros := make([]byte, 64)
	for name, x := range map[string]struct {
		kind    uint8
		payload []byte
	}{
		"records":         {KindPut, append(bytes.Clone(long), make([]byte, recordBytes)...)},
		"dead":            {KindPut, append(zeros[:4:4], long...)},
		"names":           {KindRemove, append(zeros[:13:13], long...)},
		"segments":        {KindRetire, append(zeros[:16:16], long...)},
		"name":            {KindUnref, long},
		"offset":          {KindFlag, Encode(Flag{Loc: loc.Loc{Offset: -1}})},
		"length":          {KindFlag, Encode(Flag{Loc: loc.Loc{Length: -1}})},
		"end":             {KindFlag, Encode(Flag{Loc: loc.Loc{Offset: math.MaxInt64, Length: 1}})},
		"hashes":          {KindPut, Encode(Put{Records: []index.Entry{{Hashes: []byte{1}}}})},
		"bool":            {KindRemove, append([]byte{2}, zeros[:16]...)},
		"tokens":          {KindRef, Encode(Ref{Tokens: -1})},
		"nanoseconds":     {KindRef, append(append(zeros[:46:46], long...), zeros[:28]...)},
		"nameless note":   {KindNote, Encode(Note{})},
		"long note":       {KindNote, Encode(Note{Name: "x", Value: make([]byte, MaxNoteBytes+1)})},
		"end of segment":  {KindSnapshot, Encode(Snapshot{Ends: map[uint64]int64{1: -1}})},
		"snapshot's refs": {KindSnapshot, append(append(zeros[:37:37], long...), zeros...)},
	} {
		fuzzkit.Bounded(t, 1<<16, func() {
			if op, err := Decode(x.kind, x.payload); !errors.Is(err, ErrPayload) {
				t.Errorf("%s: %#v, %v", name, op, err)
			}
		})
	}
}

// FuzzPayload decodes the payload of a log frame of any kind: it takes no more memory than its bytes account for, and what is
// accepted is written as the same bytes.
func FuzzPayload(f *testing.F) {
	var seeds [][]any
	for _, op := range samples() {
		seeds = append(seeds, []any{op.Kind(), Encode(op)})
	}
	seeds = append(seeds,
		[]any{KindPut, append([]byte("\xff\xff\xff\xff"), make([]byte, recordBytes)...)},
		[]any{KindSnapshot, append(make([]byte, 41), 0xff, 0xff, 0xff, 0x7f)},
		[]any{KindRetire, []byte{}},
	)
	fuzzkit.Seeds(f, seeds...)
	f.Fuzz(func(t *testing.T, kind uint8, payload []byte) {
		kind = (kind-1)%uint8(len(Kinds())) + 1
		if len(payload) > 1<<16 {
			return
		}
		fuzzkit.Bounded(t, 1<<16+64*uint64(len(payload)), func() {
			op, err := Decode(kind, payload)
			switch {
			case err != nil && !errors.Is(err, ErrPayload) && !errors.Is(err, vfs.ErrVersion):
				t.Fatal(err)
			case err != nil || kind == KindSnapshot: // whose ends are sorted, and each is one
			default:
				if again := Encode(op); !bytes.Equal(again, payload) {
					t.Fatalf("%x\nread as %#v\nwas written as %x", payload, op, again)
				}
			}
			if err != nil {
				return
			}
			if same, err := Decode(kind, Encode(op)); err != nil || !reflect.DeepEqual(same, op) {
				t.Fatalf("%#v became %#v: %v", op, same, err)
			}
		})
	})
}
