package main

import (
	"errors"
	"fmt"

	"github.com/dormousekv/dormouse/db"
)

// noteDemand is the value that a note must have; nothing: there must be none.
type noteDemand struct {
	Model int
	Name  string
	ID    int // of the operation that demands it
	Value []byte
}

// notes says what must hold of each note that no retirement can have raced.
func (h *history) notes(w *world, deletes []*op) (out []noteDemand) {
	type note struct {
		model int
		name  string
	}
	last := map[note]*op{} // the operations on one name come one after the other
	for _, o := range h.ops {
		if o.kind == opNote && !o.failed {
			last[note{w.chats[o.chat].model, o.name}] = o
		}
	}
	for n, o := range last {
		want, known := noteDemand{Model: n.model, Name: n.name, ID: o.id, Value: metaOf(o.id, o.n)}, o.acked && !o.lost
		for _, d := range deletes {
			if d.kind == opRetire && w.chats[d.chat].model == n.model && d.end > o.begin {
				want.ID, want.Value, known = d.id, nil, d.acked && d.begin > o.end
				if known {
					break
				}
			}
		}
		if known {
			out = append(out, want)
		}
	}
	return out
}

func (c *checker) notes(handles []*db.Model) error {
	for _, want := range c.want.Notes {
		var got []byte
		if m := handles[want.Model]; m != nil {
			var err error
			if got, err = m.Note(want.Name); err != nil && !errors.Is(err, db.ErrNotFound) {
				return fmt.Errorf("note %s: %w", want.Name, err)
			}
		}
		kind := findWrong
		switch {
		case string(got) == string(want.Value):
			continue
		case len(got) == 0:
			kind = findLost
		case len(want.Value) == 0:
			kind = findResurrected
		}
		c.find(kind, want.ID, "note %s of model %d has %d bytes, %.8x, expected the %d bytes %.8x of operation %d",
			want.Name, want.Model, len(got), got, len(want.Value), want.Value, want.ID)
	}
	return nil
}
