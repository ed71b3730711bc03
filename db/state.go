package db

import (
	"maps"
	"slices"
	"time"

	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// smallState is what the head of every log file repeats, so that a lost index costs neither models, refs nor deletions.
// Guarded by engine.logMu for writing and engine.stateMu for both.
type smallState struct {
	models map[kv.Fingerprint]*modelState
	origin *placeOfFrame // where the models of the log head were read
	refs   map[string]Ref
	// doomed are records that no index entry names and whose bytes are not yet known to be destroyed.
	doomed map[loc.Loc]struct{}
	// doomedSegments are segments of retired models, to be unlinked.
	doomedSegments map[uint64]struct{}
	// flagged are blocks of which a record was found damaged; some may be whole again since, or gone.
	flagged    map[kv.Key]struct{}
	former     oplog.FormerRefs
	formers    uint64 // counts the refs that went, or were set anew, since the store was opened
	modelBytes int64  // of all models, as oplog.Model.Bytes counts
	refBytes   int64  // of all refs
	// notes are by model and name; noteBytes is what all of them take.
	notes     map[kv.Fingerprint]map[string][]byte
	noteBytes int64
	// blocks counts the refs of a block, pins the pinned ones; classes holds the highest priority among them.
	blocks  map[kv.Key]int
	pins    map[kv.Key]int
	classes map[kv.Key]uint8
}

func newSmallState() *smallState {
	return &smallState{
		models:         map[kv.Fingerprint]*modelState{},
		refs:           map[string]Ref{},
		doomed:         map[loc.Loc]struct{}{},
		doomedSegments: map[uint64]struct{}{},
		flagged:        map[kv.Key]struct{}{},
		notes:          map[kv.Fingerprint]map[string][]byte{},
		blocks:         map[kv.Key]int{},
		pins:           map[kv.Key]int{},
		classes:        map[kv.Key]uint8{},
	}
}

// snapshot is the state as it is now, without its models. Changes do not touch it.
func (s *smallState) snapshot(boot string, ends map[uint64]int64, next index.Applied) oplog.Snapshot {
	snap := oplog.Snapshot{
		Boot: boot, Ends: ends, Next: oplog.Counters{Seq: next.NextBirth, Segment: next.NextSegment, Clock: next.Clock}, FormerRefs: s.former,
	}
	for _, name := range slices.Sorted(maps.Keys(s.refs)) {
		snap.Refs = append(snap.Refs, s.refs[name].op())
	}
	snap.Tombstones = slices.Collect(maps.Keys(s.doomed))
	snap.Unlinked = slices.Collect(maps.Keys(s.doomedSegments))
	snap.Flagged = slices.Collect(maps.Keys(s.flagged))
	snap.Notes = s.allNotes()
	return snap
}

// head encodes the state as it is now when it is called: changes until then do not touch it.
func (s *smallState) head(boot string, ends map[uint64]int64, next index.Applied) func() []byte {
	snap := s.snapshot(boot, ends, next)
	models := make([]*oplog.Model, 0, len(s.models)) // which are never changed
	for _, m := range s.models {
		models = append(models, m.Model)
	}
	return func() []byte {
		snap := snap
		snap.Models = make([]oplog.Model, 0, len(models))
		for _, m := range models {
			snap.Models = append(snap.Models, *m)
		}
		return oplog.Encode(snap)
	}
}

// sizeBound is at least what the snapshot takes when it is encoded.
func (s *smallState) sizeBound(ends map[uint64]int64) int64 {
	return 4096 + s.headBytes() + 64*int64(len(s.doomed)+len(s.doomedSegments)+len(s.flagged)+len(ends))
}

// newStateOf is the small state that a log head says.
func newStateOf(snap *oplog.Snapshot) *smallState {
	s := newSmallState()
	s.addModels(snap.Models)
	for _, r := range snap.Refs {
		s.setRef(refOf(r))
	}
	for _, l := range snap.Tombstones {
		s.doomed[l] = struct{}{}
	}
	for _, id := range snap.Unlinked {
		s.doomedSegments[id] = struct{}{}
	}
	for _, k := range snap.Flagged {
		s.flagged[k] = struct{}{}
	}
	for _, n := range snap.Notes {
		s.setNote(n)
	}
	s.former = snap.FormerRefs
	return s
}

func (s *smallState) setRef(r Ref) {
	if old, ok := s.refs[r.Name]; ok {
		delete(s.refs, r.Name) // count looks at those that stay
		s.count(old, -1)
		s.former = max(s.former, oplog.FormerSet)
		s.formers++
	}
	s.refs[r.Name] = r
	s.count(r, 1)
}

func (s *smallState) dropRef(name string) {
	if r, ok := s.refs[name]; ok {
		delete(s.refs, name)
		s.count(r, -1)
		s.former = oplog.FormerDeleted
		s.formers++
	}
}

// removed drops the refs that go with a removal, and notes that it was a deletion.
func (s *smallState) removed(op oplog.Remove) {
	for _, name := range op.Refs {
		s.dropRef(name)
	}
	if op.Deleted && s.former == oplog.FormerSet {
		s.former = oplog.FormerDeleted
	}
}

func (s *smallState) count(r Ref, delta int) {
	s.refBytes += int64(delta) * r.op().Bytes()
	add := func(m map[kv.Key]int) {
		if m[r.Block] += delta; m[r.Block] == 0 {
			delete(m, r.Block)
		}
	}
	add(s.blocks)
	if r.Pinned {
		add(s.pins)
	}
	if r.Priority == 0 {
		return
	}
	if delta > 0 {
		s.classes[r.Block] = max(s.classes[r.Block], r.Priority)
		return
	}
	delete(s.classes, r.Block)
	for _, other := range s.refs {
		if other.Block == r.Block && other.Priority > 0 {
			s.classes[r.Block] = max(s.classes[r.Block], other.Priority)
		}
	}
}

// expired returns the names of the refs whose time is over.
func (s *smallState) expired(now time.Time) []string {
	var names []string
	for name, r := range s.refs {
		if r.Expired(now) {
			names = append(names, name)
		}
	}
	return names
}

func (s *smallState) doom(dead []oplog.Dead) {
	for _, d := range dead {
		s.doomed[d.Loc] = struct{}{}
	}
}

func (s *smallState) destroyed(locs []segments.Loc) {
	for _, l := range locs {
		delete(s.doomed, l)
	}
}
