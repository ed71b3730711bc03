package catalog

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

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
	op, err := oplog.Decode(oplog.KindSnapshot, c.Head(nil, oplog.Counters{})())
	if err != nil {
		t.Fatal(err)
	}
	head := op.(oplog.Snapshot)
	return Of(&head, Place{})
}

// A head takes the place of all that a catalog had, and an operation of each kind can be applied to it.
func TestHeadReplacesAll(t *testing.T) {
	m, other := aModel(t, "toy", 1), aModel(t, "other", 2)
	at := func(n uint64) []oplog.Dead { return []oplog.Dead{{Loc: loc.Loc{Segment: n, Length: 1}}} }
	c, want := New(), New()
	for _, op := range []oplog.Op{
		m, oplog.Ref{Name: "a", Model: m.Fingerprint, Block: kv.Key{1}, Pinned: true, Priority: 3}, oplog.Note{Model: m.Fingerprint, Name: "n", Value: []byte{1}},
		oplog.Remove{Deleted: true, Dead: at(1)}, oplog.Flag{Key: kv.Key{1}}, oplog.Retire{Segments: []uint64{4}}, oplog.Unref{Name: "none"},
		oplog.Put{Dead: at(2)}, oplog.Move{From: at(3)[0].Loc}, oplog.Barrier{},
	} {
		c.Apply(op, Place{})
	}
	for _, op := range []oplog.Op{other, oplog.Ref{Name: "b", Model: other.Fingerprint, Block: kv.Key{2}}, oplog.Remove{Dead: at(9)}} {
		want.Apply(op, Place{})
	}
	head := want.Head(nil, oplog.Counters{})()
	op, err := oplog.Decode(oplog.KindSnapshot, head)
	if err != nil {
		t.Fatal(err)
	}
	c.Apply(op, Place{})
	if again := c.Head(nil, oplog.Counters{})(); !bytes.Equal(again, head) || c.HeadBytes() != want.HeadBytes() {
		t.Errorf("a head of %x was applied, and the catalog has %x", head, again)
	}
	if d := c.Take(); c.IsNamed(kv.Key{1}) || c.Pinned() != 0 || c.IsFlagged(kv.Key{1}) || len(d.Records) != 1 || len(d.Segments) != 0 || d.Behind {
		t.Errorf("something is left of before: %+v", d)
	}
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
	if n := int64(len(c.Head(nil, oplog.Counters{})())); n > c.HeadBound(0) {
		t.Errorf("a head of %d bytes, at most %d", n, c.HeadBound(0))
	}
	again := through(t, c)
	if !reflect.DeepEqual(again.Notes(), c.Notes()) || again.HeadBytes() != c.HeadBytes() {
		t.Errorf("%d bytes of notes came back", again.notes.bytes)
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
	again.Restore(map[loc.Loc]bool{at(1): true})
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

// What a catalog says of the refs on a block is what a look at all refs says, in whatever order they come and go.
func TestRefsOfBlocks(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c, refs := New(), map[string]oplog.Ref{}
		name := rapid.Map(rapid.IntRange(0, 15), func(i int) string { return fmt.Sprint("ref ", i) })
		for range rapid.IntRange(1, 60).Draw(rt, "operations") {
			op := refOp(rt, name)
			c.Apply(op, Place{})
			applyNaively(refs, op)
			compareRefs(rt, c, refs)
		}
		compareRefs(rt, through(t, c), refs)
	})
}

func refOp(t *rapid.T, name *rapid.Generator[string]) oplog.Op {
	model := func() kv.Fingerprint { return kv.Fingerprint{rapid.ByteRange(1, 3).Draw(t, "model")} }
	switch rapid.IntRange(0, 9).Draw(t, "kind") {
	case 0, 1:
		return oplog.Unref{Name: name.Draw(t, "name")}
	case 2:
		return oplog.Remove{Refs: rapid.SliceOfN(name, 0, 4).Draw(t, "names")}
	case 3:
		return oplog.Retire{Model: model()}
	}
	priority := rapid.SampledFrom([]uint8{0, 0, 1, 2, 3, 254}).Draw(t, "priority")
	return oplog.Ref{
		Name: name.Draw(t, "name"), Model: model(), Block: kv.Key{rapid.ByteRange(1, 4).Draw(t, "block")},
		Priority: priority, Pinned: rapid.IntRange(0, 3).Draw(t, "pinned") == 0,
	}
}

func applyNaively(refs map[string]oplog.Ref, op oplog.Op) {
	switch op := op.(type) {
	case oplog.Ref:
		refs[op.Name] = op
	case oplog.Unref:
		delete(refs, op.Name)
	case oplog.Remove:
		for _, name := range op.Refs {
			delete(refs, name)
		}
	case oplog.Retire:
		maps.DeleteFunc(refs, func(_ string, r oplog.Ref) bool { return r.Model == op.Model })
	}
}

func compareRefs(t *rapid.T, c *Catalog, refs map[string]oplog.Ref) {
	var named, pinned []kv.Key
	for b := range byte(6) {
		k := kv.Key{b}
		var names []string
		class, pins := uint64(0), 0
		for name, r := range refs {
			if r.Block != k {
				continue
			}
			names = append(names, name)
			class = max(class, uint64(r.Priority))
			if r.Pinned {
				pins++
			}
		}
		if pins > 0 {
			class, pinned = ClassPinned, append(pinned, k)
		}
		if len(names) > 0 {
			named = append(named, k)
		}
		slices.Sort(names)
		got := c.RefsOn(k)
		slices.Sort(got)
		if !slices.Equal(got, names) || c.Class(k) != class || c.IsNamed(k) != (len(names) > 0) {
			t.Fatalf("block %d: %v, class %d, expected %v, %d", b, got, c.Class(k), names, class)
		}
	}
	if !slices.Equal(sortedKeys(c.Named()), named) || !slices.Equal(sortedKeys(c.PinnedBlocks()), pinned) || c.Pinned() != len(pinned) {
		t.Fatalf("%v are named and %v pinned, expected %v and %v", c.Named(), c.PinnedBlocks(), named, pinned)
	}
	bytes := int64(0)
	for _, r := range refs {
		bytes += r.Bytes()
	}
	if c.HeadBytes() != bytes || len(c.Refs()) != len(refs) || len(c.refs.classes) > len(named) {
		t.Fatalf("%d refs of %d bytes, %d blocks with a priority; expected %d of %d", len(c.Refs()), c.HeadBytes(), len(c.refs.classes), len(refs), bytes)
	}
}

func sortedKeys(keys []kv.Key) []kv.Key {
	slices.SortFunc(keys, func(a, b kv.Key) int { return bytes.Compare(a[:], b[:]) })
	return keys
}

// A ref with a priority comes and goes without a look at the others, however many are on its block. With one, this test takes most of an hour.
func TestManyRefsWithPriority(t *testing.T) {
	const n = 200_000
	c, k := New(), kv.Key{1}
	set := func(i int) {
		c.Apply(oplog.Ref{Name: fmt.Sprint(i), Block: k, Priority: uint8(1 + i%254)}, Place{})
	}
	for range 2 {
		for i := range n {
			set(i)
		}
	}
	if got := len(c.refs.classes[k]); got != 254 {
		t.Errorf("%d priorities are counted", got)
	}
	for i := range n {
		c.Apply(oplog.Unref{Name: fmt.Sprint(i)}, Place{})
		if i%1000 == 0 && c.Class(k) != 254 {
			t.Fatalf("class %d after %d refs have gone", c.Class(k), i+1)
		}
	}
	if c.IsNamed(k) || c.Class(k) != 0 || len(c.refs.classes) != 0 || c.HeadBytes() != 0 {
		t.Errorf("class %d, %d bytes are left", c.Class(k), c.HeadBytes())
	}
}
