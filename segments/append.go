package segments

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"

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

// appender says where the next record of each model goes.
type appender struct {
	files   *files
	writers sync.Map // *writer by kv.Fingerprint
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
	w, err := s.appender.writer(d, fp)
	if err != nil {
		return Loc{}, err
	}
	return s.appender.append(w, fp, b)
}

func (a *appender) append(w *writer, fp kv.Fingerprint, b *Builder) (Loc, error) {
	length := alignUp(b.size, a.files.alignment)
	g, f, off, err := a.reserve(w, fp, length)
	if err != nil {
		return Loc{}, err
	}
	defer g.unpinFile()
	if err := g.allocate(f, off, off+length, a.files.o.AllocateStep); err != nil {
		g.endWrite(off) // zeros, which occupy nothing
		return Loc{}, err
	}
	if _, err := f.WriteAt(b.stamp(g.at(off), length), off); err != nil {
		// A whole header may have been written, with planes that were not. Nobody knows the place; a scan would.
		_, zerr := f.Punch(off, length)
		g.markDirty()
		g.endWrite(off)
		if zerr != nil { // Reclaim tries again: what a rebuild of the index finds there would be taken for alive
			a.files.queue.destroy([]Loc{{Segment: g.id, Offset: off, Length: length}}, false)
		}
		return Loc{}, errors.Join(err, zerr)
	}
	g.markDirty()
	g.endWrite(off)
	return Loc{Segment: g.id, Offset: off, Length: length}, nil
}

// writer returns the writer of a model, making it at the model's first record.
func (a *appender) writer(d *kv.Descriptor, fp kv.Fingerprint) (*writer, error) {
	if err := a.files.writable(); err != nil {
		return nil, err
	}
	if w := a.known(fp); w != nil {
		return w, nil
	}
	if got := d.Fingerprint(); got != fp {
		return nil, fmt.Errorf("%w: its descriptor has the fingerprint %s, not %s", errRecord, got, fp)
	}
	own := *d
	own.Groups, own.Tensors = slices.Clone(d.Groups), slices.Clone(d.Tensors)
	w, _ := a.writers.LoadOrStore(fp, &writer{descriptor: own})
	return w.(*writer), a.files.writable() // Close may have ended those there were, and not this one
}

// known returns the writer of a model that has one; nil otherwise.
func (a *appender) known(fp kv.Fingerprint) *writer {
	w, _ := a.writers.Load(fp)
	known, _ := w.(*writer)
	return known
}

// reserve takes [off, off+length) of the model's active segment, or of a new one, and pins its file.
func (a *appender) reserve(w *writer, fp kv.Fingerprint, length int64) (*segment, vfs.File, int64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.active != nil {
		if f, off, ok, err := w.active.take(length); ok || err != nil {
			return w.active, f, off, err
		}
	}
	g, f, off, err := a.takeResting(w, fp, length)
	if g != nil || err != nil {
		return g, f, off, err
	}
	if g, err = a.create(&w.descriptor, fp, length); err != nil {
		return nil, nil, 0, err
	}
	f, off, ok, err := g.take(length)
	if err != nil || !ok {
		return nil, nil, 0, errors.Join(err, fmt.Errorf("%s has no room for its first record", g.path))
	}
	if g.head.planned > a.files.segmentBytes {
		// A record that is larger than a segment: it lives alone, and the active segment goes on.
		g.fill()
		return g, f, off, nil
	}
	if w.active != nil {
		w.active.fill()
	}
	w.active = g
	return g, f, off, nil
}

// takeResting is take in a segment of the model that rests, which becomes the active one; nil if there is none with so much room. w.mu is held.
func (a *appender) takeResting(w *writer, fp kv.Fingerprint, length int64) (*segment, vfs.File, int64, error) {
	var packed []byte
	for _, g := range a.files.restingOnes() {
		if length >= a.files.segmentBytes { // it gets one to itself
			break
		}
		var err error
		if packed == nil {
			if packed, err = encodeDescriptor(&w.descriptor); err != nil {
				return nil, nil, 0, err
			}
		}
		if mine, err := g.restsFor(fp, packed); err != nil {
			return nil, nil, 0, err
		} else if !mine {
			continue
		}
		f, off, ok, err := g.take(length)
		if vfs.Passing(err) {
			return nil, nil, 0, err
		}
		if err != nil || !ok {
			a.files.o.Logger.Info("a segment is not gone on with", "file", g.path, "err", err)
			g.finish()
			continue
		}
		if w.active != nil {
			w.active.fill()
		}
		w.active = g
		return g, f, off, nil
	}
	return nil, nil, 0, nil
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

// RecordBytes is what Append takes of a segment for the record that b holds.
func (s *Set) RecordBytes(b *Builder) int64 { return alignUp(b.size, s.files.alignment) }

// create makes a segment for a record of length bytes: a sparse file of its planned size with the header in it. Both are durable before
// the first record is written, so that no power cut takes the header of a segment that holds something.
func (a *appender) create(d *kv.Descriptor, fp kv.Fingerprint, length int64) (*segment, error) {
	if err := a.files.writable(); err != nil {
		return nil, err
	}
	packed, err := encodeDescriptor(d)
	if err != nil {
		return nil, err
	}
	id := a.files.newID()
	head := segmentHeader{
		uuid: a.files.o.UUID, seed: a.files.o.Seed, hashID: kv.HashID, model: fp, id: id,
		alignment: a.files.alignment, descriptor: packed,
	}
	head.planned = max(a.files.segmentBytes, head.end()+length+a.files.alignment) // a sealed file is always shorter
	g := &segment{
		files: a.files, id: id, path: filepath.Join(a.files.o.Dir, segmentName(id)),
		known: true, head: head, size: head.planned, own: true, end: head.end(), stale: true,
	}
	if g.f, err = vfs.CreateHandle(a.files.o.FS, g.path, a.files.poisoned); err != nil {
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
			err = a.files.setPoison(err)
		}
	}
	if err == nil {
		err = a.files.syncFolder()
	}
	if err != nil {
		return nil, errors.Join(err, g.f.Close(), a.files.o.FS.Remove(g.path))
	}
	a.files.add(g)
	return g, nil
}

// fill ends appending to g: the next Sync seals it.
func (g *segment) fill() {
	g.mu.Lock()
	already := g.full
	g.full = true
	g.mu.Unlock()
	if !already {
		g.files.noteUncut(g)
	}
}

// endWriters ends appending to what is being appended to: end is told of each segment.
func (a *appender) endWriters(end func(g *segment)) {
	for _, w := range a.writers.Range {
		w.(*writer).end(end)
	}
}

// end ends appending to the writer's segment: the model's next record begins another, or goes on in one that rests.
func (w *writer) end(end func(g *segment)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.active != nil {
		end(w.active)
		w.active = nil
	}
}
