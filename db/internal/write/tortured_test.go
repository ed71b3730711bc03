package write_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// What tests/crash found, each by itself.

// What is stored after a match does not make it longer: its lease does not hold that. It still gives what it promised.
func TestMatchStaysAsLongAsItWas(t *testing.T) {
	s := storetest.Open(t, t.TempDir(), storetest.Options())
	for _, d := range []kv.Descriptor{crashtest.Opaque(), crashtest.Windowed(40)} {
		m := storetest.Model(t, s, d)
		p := kv.Prompt{Tokens: crashtest.Tokens(3, 120)}
		d = m.Descriptor()
		long, short := p.Prefix(100), p.Prefix(50)
		if d.Name == "opaque" {
			storetest.Put(t, m, short)
			bare := storetest.Filled(d, &long, 0, 100)
			bare[0] = kv.TensorRows{} // tokens without their state
			storetest.Must(m.Put(t.Context(), long, bare, db.PutOptions{}))(t)
		} else {
			storetest.Put(t, m, short)
			late := storetest.Filled(d, &long, 0, 100)
			for i, tensor := range d.Tensors {
				if tensor.Group == 1 { // the window's rows begin late
					late[i] = late[i].Slice(tensor, 90, 100)
				}
			}
			storetest.Must(m.Put(t.Context(), long, late, db.PutOptions{}))(t)
		}
		x := storetest.Match(t, m, p)
		defer x.Close()
		promised, why := x.Tokens(), x.Reason()
		storetest.Put(t, m, long)
		rows := storetest.Empty(d, 120)
		got, err := x.Restore(t.Context(), rows)
		if err != nil || got.Tokens != promised || got.Reason.Code != why.Code {
			t.Fatalf("%s: %+v, %v, expected %d tokens (%v)", d.Name, got, err, promised, why)
		}
		storetest.CheckRows(t, d, &p, rows, promised)
		if n, _ := storetest.Restore(t, m, p); n != 100 {
			t.Errorf("%s: a new match gives %d tokens", d.Name, n)
		}
	}
}

// A restore into memory that ends blocks before the match does gives the rows that there is room for.
func TestRestoreIntoLessMemory(t *testing.T) {
	s := storetest.Open(t, t.TempDir(), storetest.Options())
	for _, d := range []kv.Descriptor{crashtest.Plain(), crashtest.Windowed(40)} {
		m := storetest.Model(t, s, d)
		p := kv.Prompt{Tokens: crashtest.Tokens(4, 150)}
		storetest.Put(t, m, p)
		for _, room := range []int{149, 130, 97, 96, 95, 50, 17} {
			x := storetest.Match(t, m, p)
			rows := storetest.Empty(m.Descriptor(), room)
			got, err := x.Restore(t.Context(), rows)
			if err != nil || got.Tokens != room || got.Reason.Code != db.MemoryShort {
				t.Errorf("%s, room for %d rows: %+v, %v", d.Name, room, got, err)
			} else {
				storetest.CheckRows(t, m.Descriptor(), &p, rows, room)
			}
			x.Close()
		}
	}
}

// What is allocated ahead for several models, the pages that a checkpoint writes anew, and a compaction's copies all fit into
// the budget, of which puts under open matches take all that they may.
func TestBudgetHoldsForManyModels(t *testing.T) {
	o := storetest.Options()
	o.Budget, o.SegmentBytes, o.HighWater, o.LowWater = 5<<20, 128<<10, 1, 1
	s := storetest.Open(t, t.TempDir(), o)
	var models []*db.Model
	for i := range 7 {
		d := crashtest.Plain()
		d.Name = fmt.Sprint("model ", i)
		models = append(models, storetest.Model(t, s, d))
	}
	var held []*db.Match
	for i := range 400 {
		m, p := models[i%len(models)], kv.Prompt{Tokens: crashtest.Tokens(i, 40)}
		_, err := m.Put(t.Context(), p, storetest.Filled(m.Descriptor(), &p, 0, 40), db.PutOptions{})
		if err != nil && !errors.Is(err, db.ErrNoSpace) {
			t.Fatal(err)
		}
		if i%3 == 0 {
			x := storetest.Match(t, m, p)
			defer x.Close()
			held = append(held, x)
		}
		switch {
		case i%40 == 39:
			if _, err := s.Compact(t.Context(), db.CompactOptions{All: true}); err != nil && !errors.Is(err, db.ErrNoSpace) {
				t.Fatal(err)
			}
		case i%10 == 9:
			storetest.OK(t, s.Checkpoint(t.Context()))
		}
		if st, err := s.Stats(); err != nil || st.DiskHighWater > st.Budget {
			t.Fatalf("after put %d: %d bytes were in use, of a budget of %d (%v)", i, st.DiskHighWater, st.Budget, err)
		}
		if len(held) > 12 {
			held[0].Close()
			held = held[1:]
		}
	}
}
