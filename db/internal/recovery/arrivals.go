package recovery

import (
	"cmp"
	"slices"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/loc"
)

// arrivals has the records that the replay entered, by place, and what each of them stands in the place of.
type arrivals struct {
	at  map[loc.Loc]*arrival
	lsn uint64 // of the frame that is being replayed
}

// arrival is a record that the replay has entered.
type arrival struct {
	id     ID
	lsn    uint64      // of the frame that did
	before []*replaced // what it stands in the place of
	synced bool        // it is older than the frames that were replayed
}

// replaced is an entry that a frame gave up for others.
type replaced struct {
	entry index.Entry
	back  bool // one of those is taken out
}

// instead notes that a frame put the record id at l, in the place of others.
func (s *arrivals) instead(l loc.Loc, id ID, others ...*replaced) {
	if s.at == nil {
		s.at = map[loc.Loc]*arrival{}
	}
	p := s.at[l]
	if p == nil {
		p = &arrival{id: id, lsn: s.lsn}
		s.at[l] = p
	}
	for _, x := range others {
		if x != nil {
			p.before = append(p.before, x)
		}
	}
}

// back notes that a record is there again which is older than the frames.
func (s *arrivals) back(x index.Entry) {
	if s.at[x.Loc] == nil {
		s.at[x.Loc] = &arrival{id: IDOf(&x), synced: true}
	}
}

// covered reports whether what the replay entered at l was durable by the frame that this barrier covers: what is wrong there is damage.
func (s *arrivals) covered(l loc.Loc, barrier uint64) bool {
	p := s.at[l]
	return p != nil && !p.synced && p.lsn <= barrier
}

// entered lists what the replay entered and is there, each record behind the block that it hangs on.
func (s *arrivals) entered(t *index.Txn) (entries []index.Entry, err error) {
	for l, p := range s.at {
		x, ok, err := t.Get(p.id.Key, p.id.Group)
		if err != nil {
			return nil, err
		}
		if ok && x.Loc == l {
			entries = append(entries, x)
		}
	}
	slices.SortFunc(entries, func(a, b index.Entry) int {
		return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Seq, b.Seq))
	})
	return entries, nil
}

// upwards are the names of entries, each before that of the block that it hangs on.
func upwards(entries []index.Entry) []ID {
	ids := make([]ID, 0, len(entries))
	for _, x := range slices.Backward(entries) {
		ids = append(ids, IDOf(&x))
	}
	return ids
}
