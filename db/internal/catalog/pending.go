package catalog

import (
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/internal/loc"
)

// pending has what is dead, and whose bytes may still be there.
type pending struct {
	tombstones map[loc.Loc]struct{} // records that no index entry names and whose bytes are not yet known to be destroyed
	fresh      []loc.Loc            // those of them that were not yet taken to be destroyed
	unseen     []loc.Loc            // as fresh; no open match can have found them
	behind     bool                 // some of fresh, or of the segments to be unlinked, wait for a barrier
	unlinked   map[uint64]bool      // segments whose files are to go; true: each record in it is a tombstone of its own
}

func (s *pending) bury(dead []oplog.Dead, behind bool) {
	for _, d := range dead {
		if d.Unseen {
			s.tombstones[d.Loc] = struct{}{}
			s.unseen = append(s.unseen, d.Loc)
		} else {
			s.add(d.Loc)
		}
	}
	s.behind = s.behind || behind && len(dead) > 0
}

func (s *pending) add(locs ...loc.Loc) {
	for _, l := range locs {
		s.tombstones[l] = struct{}{}
		s.fresh = append(s.fresh, l)
	}
}

// unlink has the files of segments go with all that lies there.
func (s *pending) unlink(segments []uint64) {
	for _, id := range segments {
		s.unlinked[id] = false
	}
}
