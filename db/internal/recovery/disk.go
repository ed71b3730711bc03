package recovery

import (
	"errors"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/segments"
)

// disk looks at what the segments hold of single records.
type disk struct {
	segments *segments.Set
	files    map[uint64]segments.Info // once something is lost
}

// harmed reports whether the segment at l has lost what was durable before its first record was written: its name, its header, or its
// length, which nobody cuts but behind the last record that lives.
func (d *disk) harmed(l loc.Loc) bool {
	if d.files == nil {
		d.files = map[uint64]segments.Info{}
		for _, f := range d.segments.Segments() {
			d.files[f.ID] = f
		}
	}
	f, ok := d.files[l.Segment]
	return !ok || errors.Is(f.Err, damage.ErrCorrupt) || l.End() > f.Size
}

// intact reports whether every byte of a record is as it was written. An error says nothing about the bytes (too many open files, no
// memory) and ends the Open: nothing is given up for that. Several goroutines may call it at once.
func (d *disk) intact(x *index.Entry) (bool, error) {
	err := d.segments.Read(x.Loc, func(rec *segments.Record) error {
		if err := IsRecord(rec, x); err != nil {
			return err
		}
		return rec.Verify()
	})
	if errors.Is(err, damage.ErrCorrupt) || errors.Is(err, segments.ErrDestroyed) || errors.Is(err, segments.ErrMissing) {
		return false, nil
	}
	return err == nil, err
}
