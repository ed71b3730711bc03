package segments

import (
	"errors"
	"io"
	"io/fs"
	"sync/atomic"
	"time"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/lock"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// segment is one file. It is opened and mapped when somebody needs it. The map covers the whole planned size from the
// start and is never moved; a file that is no longer written is mapped without keeping it open.
type segment struct {
	files *files // those that it is one of
	id    uint64
	path  string

	// wipe keeps whoever walks over the file (Scan, Verify) apart from whoever destroys or cuts it (Reclaim, sealing).
	wipe  lock.RWMutex[lock.SegmentWipe]
	walks atomic.Int32 // that are under way, or wait for wipe

	// space serializes the reservation of disk blocks; held during fallocate.
	space     lock.Mutex[lock.SegmentSpace]
	allocated int64 // guarded by space: blocks up to here were reserved

	// fsync is held while the file is synced, so that nobody takes a sync that is under way for one that is done.
	fsync lock.Mutex[lock.SegmentSync]

	own bool // made by this Set, or resumed before anybody used it, and appended to until it is full; never changes then

	mu       lock.Mutex[lock.SegmentFile] // guards all below
	known    bool                         // head and size are those of the file; head does not change any more
	head     segmentHeader
	headErr  *damage.Error // the header is damaged: head holds an alignment and nothing else
	strange  bool          // nothing at its beginning says that the file is this store's
	size     int64         // of the file, when it was opened or cut
	f        *vfs.Handle
	m        vfs.Mapping
	mapped   int64
	touched  bool          // the map was used since unmapIdle came by
	pins     int           // readers and writers that hold f or m
	old      []vfs.Mapping // of before it was resumed, for who has them pinned
	full     bool          // nothing more is appended
	sealed   bool          // full, and cut behind its last record
	resting  bool          // own, not full, and cut behind its last record, or to be cut: take gives it its planned size again
	gone     bool          // unlinked
	end      int64
	inflight []int64 // offsets that were reserved and are not yet written
	dirty    bool    // written since the last fsync
	left     bool    // by an earlier process, perhaps without one
	syncing  bool    // an fsync is under way
	stale    bool    // info must be read again
	info     vfs.Info
}

// tryChange takes g.wipe for Reclaim. If somebody walks over the segment, it puts the segment off until the walk is over, and returns false. For whoever
// cuts the segment, it waits.
func (g *segment) tryChange() bool {
	for !g.wipe.TryLock() {
		if g.walks.Load() > 0 {
			g.files.queue.postpone(g.id)
			return g.wipe.TryLock() // it may have been given back before the note
		}
		time.Sleep(50 * time.Microsecond)
	}
	return true
}

// walk takes g.wipe to read all of the segment, until walked.
func (g *segment) walk() {
	g.walks.Add(1)
	g.wipe.RLock()
}

// changed gives g.wipe back that was taken to destroy or cut.
func (g *segment) changed() {
	g.wipe.Unlock()
	g.files.queue.resume(g.id)
}

// walked gives g.wipe back that was taken to walk.
func (g *segment) walked() {
	g.wipe.RUnlock()
	g.walks.Add(-1)
	g.files.queue.resume(g.id)
}

// at is the place that a record at off must name.
func (g *segment) at(off int64) place { return place{g.files.o.UUID, g.id, off} }

// inFile fills in the file's name.
func (g *segment) inFile(e *damage.Error) *damage.Error {
	e.File = g.path
	return e
}

func (g *segment) missing(err error) error {
	return g.files.missing(g.path, err)
}

// openLocked opens the file and, the first time, reads its header. Who calls it holds g.f then, and gives it back. g.mu is held.
func (g *segment) openLocked() error {
	if err := g.openFileLocked(); err != nil {
		return err
	}
	if g.known {
		return nil
	}
	err := g.readHeaderLocked()
	if err != nil {
		g.f.Release()
	}
	return err
}

func (g *segment) readHeaderLocked() error {
	info, err := g.f.Stat()
	if err != nil {
		return err
	}
	b, err := readSegmentHeader(g.f, info.Size)
	if err != nil {
		return err
	}
	head, bad := decodeSegmentHeader(b, g.files.o.UUID, g.id)
	if bad != nil {
		head = segmentHeader{alignment: minAlignment}
		g.headErr = g.inFile(bad)
	}
	if bad == nil && info.Size < head.planned && !g.own {
		g.end, g.sealed = info.Size, true
	}
	g.strange = bad != nil && !marked(b, g.files.o.UUID)
	g.head, g.size, g.info, g.known = head, info.Size, info, true
	return nil
}

// knowLocked reads the header of a file that nobody has opened yet, and leaves it closed. g.mu is held.
func (g *segment) knowLocked() error {
	if g.known {
		return nil
	}
	defer g.releaseFileLocked()
	err := g.openLocked()
	if err == nil {
		g.f.Release()
	}
	return err
}

// openFileLocked opens the file, whatever is in it, and holds it. g.mu is held.
func (g *segment) openFileLocked() error {
	if g.gone {
		return g.missing(fs.ErrNotExist)
	}
	if g.f != nil {
		return g.f.Hold()
	}
	f, err := vfs.OpenHandle(g.files.o.FS, g.path, g.files.o.ReadOnly, g.files.poisoned)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, vfs.ErrNotRegular) {
		return g.missing(err)
	}
	if err == nil {
		if err = g.stillOursLocked(f); err != nil {
			f.Close()
			f.Release()
		}
	}
	if err != nil {
		return err
	}
	f.Again = g.stillOursLocked
	g.f = f
	return nil
}

// stillOursLocked refuses another store's file that has come to this one's place while it was not open: somebody removed the folder, and made a
// store there. What cannot be read, or is damaged, proves nothing. g.mu is held.
func (g *segment) stillOursLocked(f vfs.File) error {
	if !g.known || g.headErr != nil || g.files.o.ReadOnly { // a reader changes nothing
		return nil
	}
	info, err := f.Stat()
	if err != nil {
		return nil
	}
	b, err := readSegmentHeader(f, info.Size)
	if err != nil {
		return nil
	}
	if _, bad := decodeSegmentHeader(b, g.files.o.UUID, g.id); bad != nil && errors.Is(bad, ErrForeign) {
		return g.missing(g.inFile(bad))
	}
	return nil
}

// readSegmentHeader reads the header with its descriptor, or as much of it as there is.
func readSegmentHeader(f vfs.File, size int64) ([]byte, error) {
	b, err := readUpTo(f, 0, segmentHeaderBytes, size)
	if err != nil || len(b) < segmentHeaderBytes {
		return b, err
	}
	return readUpTo(f, 0, segmentHeaderBytes+claimedDescriptor(b), size)
}

// readUpTo reads n bytes at off, or as many as the file has.
func readUpTo(f vfs.File, off, n, size int64) ([]byte, error) {
	n = max(min(n, size-off), 0)
	b := make([]byte, n)
	k, err := f.ReadAt(b, off)
	if err == io.EOF || int64(k) == n {
		err = nil
	}
	return b[:k], err
}

// pinFile opens the file for writing, until unpinFile.
func (g *segment) pinFile() (vfs.File, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.openLocked(); err != nil {
		return nil, err
	}
	g.pins++
	return g.f, nil
}

// unpinFile is unpin for a file that pinFile opened, and that nobody may need again soon.
func (g *segment) unpinFile() {
	g.mu.Lock()
	f := g.f
	g.unpinLocked()
	g.releaseFileLocked()
	g.mu.Unlock()
	f.Release()
}

// releaseFileLocked closes the file if nobody needs it soon. One with unsynced bytes, or that is appended to, stays, as far as there are handles
// for it ([vfs.Handle]).
func (g *segment) releaseFileLocked() {
	if g.f == nil || g.pins > 0 || g.dirty || g.own && !g.sealed && !g.resting {
		return
	}
	g.f.Close()
	g.f = nil
}

// drop unmaps and closes what is not in use, and reports whether that was all.
func (g *segment) drop() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pins > 0 {
		return false
	}
	g.dropLocked()
	return g.f == nil
}

func (g *segment) dropLocked() {
	g.unmapLocked()
	if g.f != nil && (!g.dirty || g.gone) {
		g.f.Close()
		g.f = nil
	}
}

// identity is what the header says about every record of the file. With a damaged header, ok is false and the alignment
// is the smallest there is, which every other one is a multiple of. Only after the file was opened.
func (g *segment) identity() (model kv.Fingerprint, alignment int64, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.head.model, g.head.alignment, g.headErr == nil
}

// settledLocked is the offset up to which everything that was reserved has been written.
func (g *segment) settledLocked() int64 {
	end := g.end
	for _, off := range g.inflight {
		end = min(end, off)
	}
	return end
}

// markDirty notes that the file must be synced. It is called after a write and before its caller is told.
func (g *segment) markDirty() {
	g.mu.Lock()
	g.dirty, g.stale = true, true
	g.mu.Unlock()
	g.files.noteDirty(g) // even if it was marked: who marked it may not have come to this line yet
}

// statLocked returns the file's size and blocks, asking the system only if they may have changed.
func (g *segment) statLocked() vfs.Info {
	if g.stale || g.info.Size == 0 {
		info, err := g.files.o.FS.Stat(g.path)
		if err == nil {
			g.info, g.stale = info, g.dirty
		}
	}
	return g.info
}

// lookAgainLocked opens the file, which nobody has open, and closes it. The error says whose it is, if it is known to be another store's.
func (g *segment) lookAgainLocked() error {
	if g.foreignLocked() {
		return g.headErr
	}
	err := g.openFileLocked()
	if err == nil {
		g.f.Close()
		g.f.Release()
		g.f = nil
	}
	return err
}

// foreignLocked reports whether the file is known to be another store's: it must not be changed. Only after it was opened.
func (g *segment) foreignLocked() bool { return g.headErr != nil && errors.Is(g.headErr, ErrForeign) }

// foreign is foreignLocked for a file that need not be open yet; one that cannot be opened says nothing.
func (g *segment) foreign() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.knowLocked()
	return g.foreignLocked()
}

// descriptor decodes the header's descriptor.
func (g *segment) descriptor() (kv.Descriptor, error) {
	g.mu.Lock()
	err := g.knowLocked()
	head, bad := g.head, g.headErr
	g.mu.Unlock()
	if err != nil {
		return kv.Descriptor{}, err
	}
	if bad != nil {
		return kv.Descriptor{}, bad
	}
	d, err := decodeDescriptor(head.descriptor)
	if err == nil && d.Fingerprint() != head.model {
		return kv.Descriptor{}, damage.New(g.path, 48, "model fingerprint", head.model, d.Fingerprint())
	}
	if err != nil {
		return kv.Descriptor{}, damage.Wrap(g.path, segmentHeaderBytes, "model descriptor", err)
	}
	return d, nil
}
