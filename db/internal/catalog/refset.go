package catalog

import (
	"cmp"
	"slices"
	"sync/atomic"

	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/kv"
)

// refSet has all refs, by name and by block.
type refSet struct {
	of    map[string]*ref
	bytes int64 // of all, as oplog.Ref.Bytes counts
	// blocks has the refs on each block. pins counts the pinned ones. classes counts those of each priority but 0, the highest last, so that a
	// priority costs no look at the other refs of its block.
	blocks  map[kv.Key][]*ref
	pins    map[kv.Key]int
	classes map[kv.Key][]classCount
	former  oplog.FormerRefs
	formers uint64 // counts the refs that went, or were set anew, since this catalog was made

	pinChanges atomic.Uint64 // counts pinned refs that were set or went; read without the lock
	walks      atomic.Uint64 // as well
}

func (s *refSet) reset() {
	s.of, s.bytes = map[string]*ref{}, 0
	s.blocks, s.pins, s.classes = map[kv.Key][]*ref{}, map[kv.Key]int{}, map[kv.Key][]classCount{}
	s.former, s.formers = oplog.FormerNone, 0
}

// dropModel drops the refs of a model.
func (s *refSet) dropModel(fp kv.Fingerprint) {
	for name, r := range s.of {
		if r.Model == fp {
			s.drop(name)
		}
	}
}

// deleted notes that something was deleted.
func (s *refSet) deleted() {
	if s.former == oplog.FormerSet {
		s.former = oplog.FormerDeleted
	}
}

// ref is a ref among those on its block. What it says never changes: who lists refs reads it without the lock.
type ref struct {
	oplog.Ref
	at int // its place among them
}

// classCount is how many refs of one block have a priority.
type classCount struct {
	priority uint8
	refs     int
}

func (s *refSet) set(r oplog.Ref) {
	if old := s.of[r.Name]; old != nil {
		s.take(old)
		s.former = max(s.former, oplog.FormerSet)
		s.formers++
	}
	x := &ref{Ref: r, at: len(s.blocks[r.Block])}
	s.of[x.Name] = x
	s.blocks[x.Block] = append(s.blocks[x.Block], x)
	s.count(x, 1)
}

func (s *refSet) drop(name string) {
	if r := s.of[name]; r != nil {
		s.take(r)
		s.former = oplog.FormerDeleted
		s.formers++
	}
}

// take takes a ref out. The last one on its block gets its place.
func (s *refSet) take(r *ref) {
	delete(s.of, r.Name)
	on := s.blocks[r.Block]
	last := len(on) - 1
	on[r.at] = on[last]
	on[r.at].at = r.at
	on[last] = nil
	if s.blocks[r.Block] = on[:last]; last == 0 {
		delete(s.blocks, r.Block)
	}
	s.count(r, -1)
}

func (s *refSet) count(r *ref, delta int) {
	s.bytes += int64(delta) * r.Bytes()
	if r.Pinned {
		if s.pins[r.Block] += delta; s.pins[r.Block] == 0 {
			delete(s.pins, r.Block)
		}
		s.pinChanges.Add(1)
	}
	if r.Priority > 0 {
		s.countClass(r, delta)
	}
}

func (s *refSet) countClass(r *ref, delta int) {
	counts := s.classes[r.Block]
	i, ok := slices.BinarySearchFunc(counts, r.Priority, func(x classCount, p uint8) int { return cmp.Compare(x.priority, p) })
	if !ok {
		counts = slices.Insert(counts, i, classCount{priority: r.Priority})
	}
	if counts[i].refs += delta; counts[i].refs == 0 {
		counts = slices.Delete(counts, i, i+1)
	}
	if len(counts) == 0 {
		delete(s.classes, r.Block)
		return
	}
	s.classes[r.Block] = counts
}
