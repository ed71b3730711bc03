package recovery

import (
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/kv"
)

// scan is what a rebuild found in the segments, and what the log says of these places.
type scan struct {
	records map[loc.Loc]bool        // all that can be entered
	partial []index.Entry           // those that no frame names and that are not whole
	logged  map[loc.Loc]index.Entry // those that the log enters
	named   Names                   // what the log says
	dead    map[loc.Loc]bool        // records that the log's newest head lists as dead
	lengths map[loc.Loc]int64       // of records that the log names, by place, where the header of a segment is lost
	seq     uint64                  // the highest sequence number
	models  map[kv.Fingerprint]kv.Descriptor
	// logModels are descriptors that the log has, for segments whose header is lost.
	logModels map[kv.Fingerprint]kv.Descriptor
}

// keepLengths notes the lengths that the log says: where a header is lost, the scan does not know what lengths are multiples of.
func (s *scan) keepLengths() {
	s.lengths = map[loc.Loc]int64{}
	keep := func(l loc.Loc) { s.lengths[loc.Loc{Segment: l.Segment, Offset: l.Offset}] = l.Length }
	for l := range s.dead {
		keep(l)
	}
	for l := range s.named.Dead {
		keep(l)
	}
	for l := range s.named.Put {
		keep(l)
	}
}

// place is that of a record as the log knows it.
func (s *scan) place(at loc.Loc) loc.Loc {
	if n, ok := s.lengths[loc.Loc{Segment: at.Segment, Offset: at.Offset}]; ok {
		at.Length = n
	}
	return at
}

// model returns the descriptor of a model.
func (s *scan) model(fp kv.Fingerprint) (d kv.Descriptor, ok bool) {
	if d, ok = s.models[fp]; !ok {
		d, ok = s.logModels[fp]
	}
	return d, ok
}
