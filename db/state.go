package db

import (
	"maps"
	"slices"
	"time"

	"github.com/dormousekv/dormouse/index"
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
	doomed map[opLoc]struct{}
	// doomedSegments are segments of retired models, to be unlinked.
	doomedSegments map[uint64]struct{}
	// flagged are blocks of which a record was found damaged; some may be whole again since, or gone.
	flagged    map[kv.Key]struct{}
	former     formerRefs
	formers    uint64 // counts the refs that went, or were set anew, since the store was opened
	modelBytes int64  // of all models, as opModel.bytes counts
	refBytes   int64  // of all refs
	// notes are by model and name; noteBytes is what all of them take.
	notes     map[kv.Fingerprint]map[string][]byte
	noteBytes int64
	// blocks counts the refs of a block, pins the pinned ones; classes holds the highest priority among them.
	blocks  map[kv.Key]int
	pins    map[kv.Key]int
	classes map[kv.Key]uint8
}

// formerRefs says whether log and index may hold what refs said that are gone. The numbers are stored.
type formerRefs uint8

const (
	formerNone    formerRefs = iota
	formerSet                // of refs that were set anew: it goes in time
	formerDeleted            // something was deleted since: the next Sync sees to it
)

func newSmallState() *smallState {
	return &smallState{
		models:         map[kv.Fingerprint]*modelState{},
		refs:           map[string]Ref{},
		doomed:         map[opLoc]struct{}{},
		doomedSegments: map[uint64]struct{}{},
		flagged:        map[kv.Key]struct{}{},
		notes:          map[kv.Fingerprint]map[string][]byte{},
		blocks:         map[kv.Key]int{},
		pins:           map[kv.Key]int{},
		classes:        map[kv.Key]uint8{},
	}
}

// snapshot is a smallState as the log's head frames hold it.
type snapshot struct {
	Boot     string // of the running system: after another boot, unsynced bytes may be gone
	Ends     map[uint64]int64
	Next     index.Applied // counters as of this frame; LSN and WALFile unused
	Models   opModels
	Refs     []Ref
	Doomed   []opLoc
	Unlinked []uint64
	Flagged  []kv.Key   `msgpack:",omitempty"`
	Notes    []opNote   `msgpack:",omitempty"`
	Former   formerRefs `msgpack:",omitempty"`
}

// snapshot is the state as it is now, without its models. Changes do not touch it.
func (s *smallState) snapshot(boot string, ends map[uint64]int64, next index.Applied) snapshot {
	snap := snapshot{Boot: boot, Ends: ends, Next: next, Former: s.former}
	for _, name := range slices.Sorted(maps.Keys(s.refs)) {
		snap.Refs = append(snap.Refs, s.refs[name])
	}
	snap.Doomed = slices.Collect(maps.Keys(s.doomed))
	snap.Unlinked = slices.Collect(maps.Keys(s.doomedSegments))
	snap.Flagged = slices.Collect(maps.Keys(s.flagged))
	snap.Notes = s.allNotes()
	return snap
}

// head encodes the state as it is now when it is called: changes until then do not touch it.
func (s *smallState) head(boot string, ends map[uint64]int64, next index.Applied) func() []byte {
	snap := s.snapshot(boot, ends, next)
	models := make([]*opModel, 0, len(s.models)) // which are never changed
	for _, m := range s.models {
		models = append(models, m.opModel)
	}
	return func() []byte {
		snap := snap
		snap.Models = make(opModels, 0, len(models))
		for _, m := range models {
			snap.Models = append(snap.Models, *m)
		}
		return encodeOp(snap)
	}
}

// sizeBound is at least what the snapshot takes when it is encoded.
func (s *smallState) sizeBound(ends map[uint64]int64) int64 {
	return 4096 + s.headBytes() + 64*int64(len(s.doomed)+len(s.doomedSegments)+len(s.flagged)+len(ends))
}

// decodeSnapshot reads a log head, but for its models' descriptors.
func decodeSnapshot(b []byte) (*smallState, snapshot, error) {
	var snap snapshot
	if err := unmarshal(b, &snap); err != nil {
		return nil, snap, err
	}
	s := newSmallState()
	s.addModels(snap.Models)
	for _, r := range snap.Refs {
		s.setRef(r)
	}
	for _, l := range snap.Doomed {
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
	s.former = snap.Former
	return s, snap, nil
}

func (s *smallState) setRef(r Ref) {
	if old, ok := s.refs[r.Name]; ok {
		delete(s.refs, r.Name) // count looks at those that stay
		s.count(old, -1)
		s.former = max(s.former, formerSet)
		s.formers++
	}
	s.refs[r.Name] = r
	s.count(r, 1)
}

func (s *smallState) dropRef(name string) {
	if r, ok := s.refs[name]; ok {
		delete(s.refs, name)
		s.count(r, -1)
		s.former = formerDeleted
		s.formers++
	}
}

// removed drops the refs that go with a removal, and notes that it was a deletion.
func (s *smallState) removed(op opRemove) {
	for _, name := range op.Refs {
		s.dropRef(name)
	}
	if op.Deleted && s.former == formerSet {
		s.former = formerDeleted
	}
}

func (s *smallState) count(r Ref, delta int) {
	s.refBytes += int64(delta) * r.bytes()
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

func (s *smallState) doom(dead []opDead) {
	for _, d := range dead {
		s.doomed[d.Loc] = struct{}{}
	}
}

func (s *smallState) destroyed(locs []segments.Loc) {
	for _, l := range locs {
		delete(s.doomed, toOpLoc(l))
	}
}
