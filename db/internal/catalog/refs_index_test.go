package catalog

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/kv"
)

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
	if c.HeadBytes() != bytes || len(c.Refs()) != len(refs) || len(c.classes) > len(named) {
		t.Fatalf("%d refs of %d bytes, %d blocks with a priority; expected %d of %d", len(c.Refs()), c.HeadBytes(), len(c.classes), len(refs), bytes)
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
	if got := len(c.classes[k]); got != 254 {
		t.Errorf("%d priorities are counted", got)
	}
	for i := range n {
		c.Apply(oplog.Unref{Name: fmt.Sprint(i)}, Place{})
		if i%1000 == 0 && c.Class(k) != 254 {
			t.Fatalf("class %d after %d refs have gone", c.Class(k), i+1)
		}
	}
	if c.IsNamed(k) || c.Class(k) != 0 || len(c.classes) != 0 || c.HeadBytes() != 0 {
		t.Errorf("class %d, %d bytes are left", c.Class(k), c.HeadBytes())
	}
}
