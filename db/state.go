package db

import (
	"crypto/sha256"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// smallState is what the head of every log file repeats, so that a lost index costs neither models, refs nor deletions.
// Guarded by engine.logMu for writing and engine.stateMu for both.
type smallState struct {
	models map[kv.Fingerprint]*modelState
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

type modelState struct {
	fp   kv.Fingerprint
	desc kv.Descriptor
	// groupTensors are the indexes of each group's tensors, in the order of a record's planes.
	groupTensors [][]int
	// stamp orders the versions of one name: all but the latest are the coldest data in the store.
	stamp uint64
	bytes int64  // in the head of the log
	lsn   uint64 // of the frame by which this process registered it; 0: an earlier one did
	// digest is of desc without its name: a fingerprint can be made to be another model's. Computed when it is first asked for.
	digest     [sha256.Size]byte
	digestOnce sync.Once
}

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
	Models   []opModel
	Refs     []Ref
	Doomed   []opLoc
	Unlinked []uint64
	Flagged  []kv.Key   `msgpack:",omitempty"`
	Notes    []opNote   `msgpack:",omitempty"`
	Former   formerRefs `msgpack:",omitempty"`
}

func (s *smallState) encode(boot string, ends map[uint64]int64, next index.Applied) []byte {
	snap := snapshot{Boot: boot, Ends: ends, Next: next, Former: s.former}
	for _, m := range s.models {
		snap.Models = append(snap.Models, opModel{Descriptor: m.desc, Stamp: m.stamp})
	}
	for _, name := range slices.Sorted(maps.Keys(s.refs)) {
		snap.Refs = append(snap.Refs, s.refs[name])
	}
	snap.Doomed = slices.Collect(maps.Keys(s.doomed))
	snap.Unlinked = slices.Collect(maps.Keys(s.doomedSegments))
	snap.Flagged = slices.Collect(maps.Keys(s.flagged))
	snap.Notes = s.allNotes()
	return encodeOp(snap)
}

func decodeSnapshot(b []byte) (*smallState, snapshot, error) {
	var snap snapshot
	if err := unmarshal(b, &snap); err != nil {
		return nil, snap, err
	}
	s := newSmallState()
	for _, m := range snap.Models {
		s.addModel(m)
	}
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

func (s *smallState) addModel(m opModel) *modelState {
	fp := m.Descriptor.Fingerprint()
	ms := &modelState{fp: fp, desc: m.Descriptor, stamp: m.Stamp, bytes: m.bytes()}
	for g := range ms.desc.Groups {
		ms.groupTensors = append(ms.groupTensors, ms.desc.GroupTensors(g))
	}
	if old := s.models[fp]; old != nil {
		s.modelBytes -= old.bytes
	}
	s.models[fp] = ms
	s.modelBytes += ms.bytes
	return ms
}

// sum returns the model's digest.
func (m *modelState) sum() [sha256.Size]byte {
	m.digestOnce.Do(func() { // for all models, it would take longer than the rest of an Open
		bare := m.desc
		bare.Name = ""
		m.digest = sha256.Sum256(encodeOp(bare))
	})
	return m.digest
}

func (s *smallState) dropModel(fp kv.Fingerprint) {
	if m := s.models[fp]; m != nil {
		s.modelBytes -= m.bytes
		delete(s.models, fp)
	}
	s.dropNotes(fp)
	for name, r := range s.refs {
		if r.Model == fp {
			s.dropRef(name)
		}
	}
}

// latest returns the newest version of each name.
func (s *smallState) latest() map[string]*modelState {
	out := map[string]*modelState{}
	for _, m := range s.models {
		if old := out[m.desc.Name]; old == nil || old.stamp < m.stamp {
			out[m.desc.Name] = m
		}
	}
	return out
}

func (s *smallState) setRef(r Ref) {
	if old, ok := s.refs[r.Name]; ok {
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
		delete(s.doomed, toOpLoc(indexLoc(l)))
	}
}
