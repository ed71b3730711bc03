package segments

import (
	"errors"
	"fmt"
	"math"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// RestoreHeader writes the header of a segment once more that an earlier process began and may not have synced: a power cut can
// have taken it, or torn it, and left records. live are those that must stay readable; what they say of themselves, with the
// descriptor that known has for their model, is all that a header holds. Where the header is sound, or the file sealed, nothing
// is done, and live is not asked; nor is anything where nothing lives there, or no header fits to the records, which is logged. Call it before [Set.SealRecovered],
// which syncs; what an earlier [Set.Scan] returned is to be asked for again if there is a header now.
func (s *Set) RestoreHeader(id uint64, live func() []Loc, known func(kv.Fingerprint) (kv.Descriptor, bool)) (restored bool, err error) {
	if err := s.writable(); err != nil {
		return false, err
	}
	g, err := s.segment(id)
	if err != nil {
		return false, err
	}
	f, err := g.pinFile()
	if err != nil {
		return false, err
	}
	defer g.unpinFile()
	g.mu.Lock()
	lost, size := g.headErr != nil && !g.sealed && !g.own && !errors.Is(g.headErr, ErrVersion) && !g.strange, g.size
	g.mu.Unlock()
	if !lost {
		return false, nil
	}
	locs := live()
	if len(locs) == 0 { // the process was killed while it began the segment: nothing is lost
		s.o.Logger.Debug("a segment that holds nothing has no header", "file", g.path)
		return false, nil
	}
	head, err := s.headerOf(id, size, locs, known)
	if err != nil && !errors.Is(err, errNoHeader) {
		return false, err
	}
	if err != nil {
		s.o.Logger.Warn("the header of a segment cannot be restored", "file", g.path, "err", err)
		return false, nil
	}
	b := encodeSegmentHeader(&head)
	if again, bad := decodeSegmentHeader(b, s.o.UUID, id); bad != nil || again.end() != head.end() {
		return false, nil
	}
	g.wipe.Lock()
	defer g.wipe.Unlock()
	_, err = f.WriteAt(b, 0)
	g.markDirty()
	if errors.Is(err, vfs.ErrNoSpace) { // no reason to stop what makes room
		s.o.Logger.Warn("the header of a segment cannot be restored", "file", g.path, "err", err)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	g.mu.Lock()
	g.head, g.headErr = head, nil
	g.mu.Unlock()
	s.o.Logger.Warn("the header of a segment, which a power cut took, is restored", "file", g.path)
	return true, nil
}

// errNoHeader says why there is no header that fits to a segment's records.
var errNoHeader = errors.New("no header fits to its records")

// headerOf makes a header that fits to records of one segment of that size. Those that are damaged say nothing.
func (s *Set) headerOf(id uint64, size int64, live []Loc, known func(kv.Fingerprint) (kv.Descriptor, bool)) (head segmentHeader, err error) {
	head = segmentHeader{uuid: s.o.UUID, seed: s.o.Seed, hashID: kv.HashID, id: id, alignment: minAlignment, planned: size}
	sizes := map[Loc]int64{}
	first := int64(math.MaxInt64)
	for _, loc := range live {
		if loc.End() > size { // as long as it is now would then be as long as it was made
			return head, fmt.Errorf("%w: a record ends at %d, the file at %d", errNoHeader, loc.End(), size)
		}
		err := s.Read(loc, func(r *Record) error {
			if len(sizes) > 0 && r.Model() != head.model {
				return fmt.Errorf("%w: records of the models %s and %s", errNoHeader, head.model, r.Model())
			}
			head.model, sizes[loc] = r.Model(), r.Size()
			return nil
		})
		if err != nil && !errors.Is(err, damage.ErrCorrupt) && !errors.Is(err, ErrDestroyed) {
			return head, err
		}
		first = min(first, loc.Offset)
	}
	if len(sizes) == 0 {
		return head, fmt.Errorf("%w: nothing whole lives there", errNoHeader)
	}
	// The least alignment that all agree with: with a larger one, a walk could step over records.
	fits := func(a int64) bool {
		for loc, size := range sizes {
			if loc.Offset%a != 0 || loc.Length != alignUp(size, a) {
				return false
			}
		}
		return true
	}
	for !fits(head.alignment) {
		if head.alignment *= 2; head.alignment > maxAlignment {
			return head, fmt.Errorf("%w: no alignment does", errNoHeader)
		}
	}
	d, ok := known(head.model)
	if !ok || d.Fingerprint() != head.model {
		return head, fmt.Errorf("%w: nobody knows their model %s", errNoHeader, head.model)
	}
	if head.descriptor, err = encodeDescriptor(&d); err == nil && head.end() > first {
		err = fmt.Errorf("%w: the first is at %d, the header would end at %d", errNoHeader, first, head.end())
	}
	return head, err
}
