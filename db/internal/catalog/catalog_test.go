package catalog

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/kv"
)

// aModel is one of many, which differ in their weights.
func aModel(t *testing.T, name string, i int) oplog.Model {
	t.Helper()
	d, err := kv.Descriptor{
		Name: name, Weights: kv.Hash{byte(i), byte(i >> 8), 1}, Tensors: []kv.Tensor{{Role: kv.RoleK, DType: kv.F16, Width: 32}},
	}.Normal()
	if err != nil {
		t.Fatal(err)
	}
	return oplog.NewModel(&d, uint64(i))
}

// through is the catalog as a log head gives it back.
func through(t *testing.T, c *Catalog) *Catalog {
	t.Helper()
	op, err := oplog.Decode(oplog.KindSnapshot, c.Head("boot", nil, oplog.Counters{})())
	if err != nil {
		t.Fatal(err)
	}
	head := op.(oplog.Snapshot)
	return Of(&head, Place{})
}

// All notes of all models have a bound together, which a head of the log holds.
func TestAllNotesAreBounded(t *testing.T) {
	c := New()
	var refused error
	for i := 0; refused == nil; i++ {
		m := aModel(t, "toy", i)
		c.Apply(m, Place{})
		for n := range 8 {
			note := oplog.Note{Model: m.Fingerprint, Name: fmt.Sprint(n), Value: make([]byte, oplog.MaxNoteBytes)}
			if refused = c.NoteFits(note); refused != nil {
				break
			}
			c.Apply(note, Place{})
		}
	}
	if n := c.HeadBytes(); n < MaxHeadBytes-2*oplog.MaxNoteBytes || n > MaxHeadBytes {
		t.Errorf("%d bytes of models and notes: %v", n, refused)
	}
	if n := int64(len(c.Head("", nil, oplog.Counters{})())); n > c.HeadBound(0) {
		t.Errorf("a head of %d bytes, at most %d", n, c.HeadBound(0))
	}
	again := through(t, c)
	if !reflect.DeepEqual(again.Notes(), c.Notes()) || again.HeadBytes() != c.HeadBytes() {
		t.Errorf("%d bytes of notes came back", again.noteBytes)
	}
	for _, m := range again.Models() {
		again.Apply(oplog.Retire{Model: m.Fingerprint}, Place{})
	}
	if again.HeadBytes() != 0 || len(again.Notes()) != 0 {
		t.Errorf("%d bytes of %d notes are left", again.HeadBytes(), len(again.Notes()))
	}
}

// What refs said that are gone is known to be in files until it is scrubbed, and nothing went since.
func TestFormerRefs(t *testing.T) {
	c := New()
	r := oplog.Ref{Name: "a", Block: kv.Key{1}, Expires: time.Unix(10, 0)}
	c.Apply(r, Place{})
	c.Apply(r, Place{})
	if is, _ := c.FormerDeleted(); is {
		t.Error("a ref that was set anew is no deletion")
	}
	c.Apply(oplog.Remove{Deleted: true, Dead: []oplog.Dead{{}}}, Place{})
	is, asOf := c.FormerDeleted()
	if again, _ := through(t, c).FormerDeleted(); !is || !again {
		t.Error("something was deleted since")
	}
	if names := c.Expired(time.Unix(11, 0)); !slices.Equal(names, []string{"a"}) || len(c.Expired(time.Unix(9, 0))) != 0 {
		t.Error(names)
	}
	c.Apply(oplog.Unref{Name: "a"}, Place{})
	if c.ForgetFormer(asOf) {
		t.Error("another one went since")
	}
	_, asOf = c.FormerDeleted()
	if is, _ := c.FormerDeleted(); !c.ForgetFormer(asOf) || !is {
		t.Error("nothing went since")
	}
	if is, _ := c.FormerDeleted(); is {
		t.Error("it was scrubbed")
	}
}

// Tombstones are taken to be destroyed once, given back if that fails, and forgotten when their bytes are gone; what is deleted,
// replaced or moved waits for a barrier, what is evicted does not.
func TestTombstones(t *testing.T) {
	at := func(n uint64) loc.Loc { return loc.Loc{Segment: n, Offset: 4096, Length: 10} }
	dead := func(n uint64) []oplog.Dead { return []oplog.Dead{{Loc: at(n)}} }
	c := New()
	c.Apply(oplog.Remove{Dead: dead(1)}, Place{})
	if d := c.Take(); d.Behind || !slices.Equal(d.Records, []loc.Loc{at(1)}) {
		t.Errorf("evicted: %+v", d)
	}
	for _, op := range []oplog.Op{
		oplog.Remove{Deleted: true, Dead: dead(2)}, oplog.Put{Dead: dead(2)}, oplog.Move{From: at(2), To: at(3)}, oplog.Retire{Segments: []uint64{9}},
	} {
		c.Apply(op, Place{})
		d := c.Take()
		if !d.Behind {
			t.Errorf("%T: %+v", op, d)
		}
		c.GiveBack(d)
		if again := c.Take(); !again.Behind || !slices.Equal(again.Records, d.Records) {
			t.Errorf("%T given back: %+v", op, again)
		}
	}
	if d := c.Take(); d.Behind || len(d.Records) != 0 || !slices.Equal(d.Segments, []uint64{9}) {
		t.Errorf("taken twice: %+v", d)
	}
	again := through(t, c)
	if n, bytes := again.Waiting(); n != 2 || bytes != 20 || !again.IsDead(at(1)) || !again.IsDead(at(9)) || again.IsDead(at(3)) {
		t.Errorf("%d records of %d bytes came back: %v", n, bytes, again.Tombstones())
	}
	again.Exhume(map[loc.Loc]bool{at(1): true})
	if n, _ := again.Waiting(); n != 1 || again.IsTombstone(at(1)) {
		t.Errorf("%v", again.Tombstones())
	}
	c.Destroyed([]loc.Loc{at(1)})
	c.DropUnlinked(func(id uint64) bool { return id == 2 })
	if got := c.Tombstones(); !slices.Equal(got, []loc.Loc{at(2)}) || len(c.Unlinked()) != 0 {
		t.Errorf("%v, %v", got, c.Unlinked())
	}
}

// The newest version of a name is the one that was registered last; a model that comes back is the one that was there.
func TestVersions(t *testing.T) {
	c := New()
	first, second := aModel(t, "chat", 1), aModel(t, "chat", 2)
	c.Apply(first, Place{LSN: 5})
	was := c.Model(first.Fingerprint)
	c.Apply(second, Place{})
	if m := c.Newest("chat"); m.Fingerprint != second.Fingerprint || was.LSN() != 5 || c.Latest()[first.Fingerprint] || !c.Latest()[second.Fingerprint] {
		t.Errorf("%s is the newest: %v", m.Fingerprint, c.Latest())
	}
	first.Stamp = 3
	c.Apply(first, Place{})
	if m := c.Newest("chat"); m.Fingerprint != first.Fingerprint || !c.Has(was) || len(c.Models()) != 2 {
		t.Errorf("%s is the newest", m.Fingerprint)
	}
	c.Apply(oplog.Retire{Model: first.Fingerprint}, Place{})
	if c.Has(was) || c.Model(first.Fingerprint) != nil {
		t.Error("a retired model is there")
	}
}
