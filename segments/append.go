package segments

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/dormousekv/dormouse/internal/lock"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// writer is a model's place to append to. Reserving room in a segment takes its lock for some nanoseconds, and for the
// making of a file when the segment is full.
type writer struct {
	mu         lock.Mutex[lock.Appender]
	descriptor kv.Descriptor
	active     *segment // nil: the next record starts a new one
}

// Append writes the record in b to the model's active segment and returns where it lies. d must be normal and have the
// fingerprint fp. The bytes survive the process when Append returns, and a power loss after the next Sync. Errors:
// vfs.ErrNoSpace when the disk is full (nothing is lost, reads go on), errRecord, ErrClosed, ErrReadOnly, and the
// error of an earlier failed fsync.
func (s *Set) Append(d *kv.Descriptor, fp kv.Fingerprint, b *Builder) (Loc, error) {
	if err := b.check(); err != nil {
		return Loc{}, err
	}
	if b.h.model != fp {
		return Loc{}, fmt.Errorf("%w: it is of model %s, not %s", errRecord, b.h.model, fp)
	}
	w, err := s.writer(d, fp)
	if err != nil {
		return Loc{}, err
	}
	return s.append(w, fp, b)
}

func (s *Set) append(w *writer, fp kv.Fingerprint, b *Builder) (Loc, error) {
	length := alignUp(b.size, s.alignment)
	g, f, off, err := s.reserve(w, fp, length)
	if err != nil {
		return Loc{}, err
	}
	defer g.unpinFile()
	if err := g.allocate(f, off, off+length, s.o.AllocateStep); err != nil {
		g.endWrite(off) // zeros, which occupy nothing
		return Loc{}, err
	}
	if _, err := f.WriteAt(b.stamp(g.at(off), length), off); err != nil {
		// A whole header may have been written, with planes that were not. Nobody knows the place; a scan would.
		_, zerr := f.Punch(off, length)
		g.markDirty()
		g.endWrite(off)
		if zerr != nil { // Reclaim tries again: what a rebuild of the index finds there would be taken for alive
			s.Destroy([]Loc{{Segment: g.id, Offset: off, Length: length}})
		}
		return Loc{}, errors.Join(err, zerr)
	}
	g.markDirty()
	g.endWrite(off)
	return Loc{Segment: g.id, Offset: off, Length: length}, nil
}

// writer returns the writer of a model, making it at the model's first record.
func (s *Set) writer(d *kv.Descriptor, fp kv.Fingerprint) (*writer, error) {
	if err := s.writable(); err != nil {
		return nil, err
	}
	s.mu.RLock()
	w := s.writers[fp]
	s.mu.RUnlock()
	if w != nil {
		return w, nil
	}
	if got := d.Fingerprint(); got != fp {
		return nil, fmt.Errorf("%w: its descriptor has the fingerprint %s, not %s", errRecord, got, fp)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	if w = s.writers[fp]; w == nil {
		own := *d
		own.Groups, own.Tensors = slices.Clone(d.Groups), slices.Clone(d.Tensors)
		w = &writer{descriptor: own}
		s.writers[fp] = w
	}
	return w, nil
}

// reserve takes [off, off+length) of the model's active segment, or of a new one, and pins its file.
func (s *Set) reserve(w *writer, fp kv.Fingerprint, length int64) (*segment, vfs.File, int64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.active != nil {
		if f, off, ok, err := w.active.take(length); ok || err != nil {
			return w.active, f, off, err
		}
	}
	g, f, off, err := s.takeResting(w, fp, length)
	if g != nil || err != nil {
		return g, f, off, err
	}
	if g, err = s.create(&w.descriptor, fp, length); err != nil {
		return nil, nil, 0, err
	}
	f, off, ok, err := g.take(length)
	if err != nil || !ok {
		return nil, nil, 0, errors.Join(err, fmt.Errorf("%s has no room for its first record", g.path))
	}
	if g.head.planned > s.segmentBytes() {
		// A record that is larger than a segment: it lives alone, and the active segment goes on.
		s.fill(g)
		return g, f, off, nil
	}
	if w.active != nil {
		s.fill(w.active)
	}
	w.active = g
	return g, f, off, nil
}

// take reserves length bytes if they fit.
func (g *segment) take(length int64) (f vfs.File, off int64, ok bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.full || g.gone || g.end >= g.head.planned-length {
		return nil, 0, false, nil
	}
	if err := g.openLocked(); err != nil {
		return nil, 0, false, err
	}
	if err := g.wakeLocked(); err != nil {
		g.f.Release()
		return nil, 0, false, err
	}
	off = g.end
	g.end += length
	g.inflight = append(g.inflight, off)
	g.pins++
	return g.f, off, true, nil
}

// endWrite ends the write at off.
func (g *segment) endWrite(off int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.inflight, off)
	g.inflight = slices.Delete(g.inflight, i, i+1)
}

// allocate reserves disk blocks for [off, end), and some more in one step, but none that the segment will not hold. What is refused stays
// a hole in which nothing else is written.
func (g *segment) allocate(f vfs.File, off, end, step int64) error {
	g.space.Lock()
	defer g.space.Unlock()
	if end <= g.allocated {
		return nil
	}
	g.mu.Lock()
	g.allocated = max(g.allocated, min(off, g.settledLocked())) // beyond what was refused out of order
	g.mu.Unlock()
	steps := (end - g.allocated + step - 1) / step
	ahead := min(g.allocated+steps*step, g.head.planned)
	if ask := g.set.o.Ahead; ask != nil && ahead > end {
		if done, ok := ask(ahead - end); ok {
			defer done()
		} else {
			ahead = end
		}
	}
	err := f.Allocate(g.allocated, ahead-g.allocated)
	if errors.Is(err, vfs.ErrNoSpace) {
		from, tried := min(off, g.allocated), ahead // what was reserved before goes back with it
		if ahead = g.allocated; tried > end {
			if err = f.Allocate(g.allocated, end-g.allocated); err == nil {
				ahead, from = end, end
			}
		}
		// Some file systems have allocated a part when they find that the disk is full.
		if _, perr := f.Punch(from, tried-from); err != nil {
			err = errors.Join(err, perr)
		}
		g.mu.Lock()
		g.stale = true
		g.mu.Unlock()
	}
	if err != nil {
		if off <= g.allocated { // else an earlier one still waits for its blocks
			g.allocated = end
		}
		return err
	}
	g.set.extended.Add(ahead - g.allocated)
	g.allocated = ahead
	return nil
}

// GiveBackAhead gives back the disk blocks that segments have reserved behind their last records, but for those that are being written to
// just now, and returns how many bytes that were. The segments are appended to as before. Where holes cannot be punched, nothing comes back.
func (s *Set) GiveBackAhead() (bytes int64, err error) {
	if err := s.writable(); err != nil {
		return 0, err
	}
	for _, g := range s.sorted() {
		if !g.own || s.Solid() {
			continue
		}
		n, gerr := g.giveBackAhead()
		bytes, err = bytes+n, errors.Join(err, gerr)
	}
	return bytes, err
}

// giveBackAhead leaves alone what somebody walks over, cuts, or reserves blocks in. A record that comes meanwhile waits for blocks of its own.
func (g *segment) giveBackAhead() (bytes int64, err error) {
	if bytes := g.cutResting(); bytes > 0 {
		return bytes, nil
	}
	if !g.wipe.TryLock() {
		return 0, nil
	}
	defer g.changed()
	if !g.space.TryLock() {
		return 0, nil
	}
	defer g.space.Unlock()
	g.mu.Lock()
	end, idle := g.end, !g.sealed && !g.gone && len(g.inflight) == 0
	g.mu.Unlock()
	if !idle || g.allocated <= end {
		return 0, nil
	}
	f, err := g.pinFile()
	if err != nil {
		return 0, err
	}
	defer g.unpinFile()
	// One page tells whether holes can be punched. Where they cannot be, zeros are written, and so much of them would take room.
	page := min(end+g.head.alignment, g.allocated)
	freed, err := g.punch(f, end, page-end)
	if err == nil && !freed {
		return 0, nil
	}
	if err == nil {
		_, err = g.punch(f, page, g.allocated-page)
	}
	if err == nil {
		bytes, g.allocated = g.allocated-end, end
	}
	g.mu.Lock()
	g.stale = true
	g.mu.Unlock()
	return bytes, err
}

// RecordBytes is what Append takes of a segment for the record that b holds.
func (s *Set) RecordBytes(b *Builder) int64 { return alignUp(b.size, s.alignment) }

// segmentBytes is the planned size of a segment that holds more than one record.
func (s *Set) segmentBytes() int64 { return alignUp(s.o.SegmentBytes, s.alignment) }

// create makes a segment for a record of length bytes: a sparse file of its planned size with the header in it. Both are durable before
// the first record is written, so that no power cut takes the header of a segment that holds something.
func (s *Set) create(d *kv.Descriptor, fp kv.Fingerprint, length int64) (*segment, error) {
	if err := s.writable(); err != nil {
		return nil, err
	}
	packed, err := encodeDescriptor(d)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	id := s.nextID
	s.nextID++
	s.mu.Unlock()

	head := segmentHeader{
		uuid: s.o.UUID, seed: s.o.Seed, hashID: kv.HashID, model: fp, id: id,
		alignment: s.alignment, descriptor: packed,
	}
	head.planned = max(s.segmentBytes(), head.end()+length+s.alignment) // a sealed file is always shorter
	g := &segment{
		set: s, id: id, path: filepath.Join(s.o.Dir, segmentName(id)),
		known: true, head: head, size: head.planned, own: true, end: head.end(), stale: true,
	}
	if g.f, err = vfs.CreateHandle(s.o.FS, g.path, s.poisoned); err != nil {
		return nil, err
	}
	defer g.f.Release()
	g.f.Again = g.stillOursLocked
	err = g.f.Truncate(head.planned)
	if err == nil {
		err = g.allocate(g.f, 0, head.end(), head.end())
	}
	if err == nil {
		_, err = g.f.WriteAt(encodeSegmentHeader(&head), 0)
	}
	if err == nil {
		if err = g.f.Sync(); err != nil {
			err = s.setPoison(err)
		}
	}
	if err == nil {
		err = s.syncFolder()
	}
	if err != nil {
		return nil, errors.Join(err, g.f.Close(), s.o.FS.Remove(g.path))
	}
	s.mu.Lock()
	s.segs[id] = g
	s.mu.Unlock()
	s.extended.Add(extentBlock)
	return g, nil
}

// fill ends appending to g: the next Sync seals it.
func (s *Set) fill(g *segment) {
	g.mu.Lock()
	already := g.full
	g.full = true
	g.mu.Unlock()
	if already {
		return
	}
	s.mu.Lock()
	s.filling = append(s.filling, g)
	s.mu.Unlock()
}

// endWriters ends appending to what is being appended to: end is told of each segment.
func (s *Set) endWriters(end func(g *segment)) {
	s.mu.RLock()
	all := slices.Collect(maps.Values(s.writers))
	s.mu.RUnlock()
	for _, w := range all {
		s.endWriter(w, end)
	}
}

// endWriter ends appending to the writer's segment: the model's next record begins another, or goes on in one that rests.
func (s *Set) endWriter(w *writer, end func(g *segment)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.active != nil {
		end(w.active)
		w.active = nil
	}
}
