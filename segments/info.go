package segments

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// Info is what is known about a segment without reading its records.
type Info struct {
	ID        uint64
	Path      string
	Model     kv.Fingerprint // zero if the header cannot be read
	Active    bool           // records may still be appended
	Sealed    bool           // the file ends with its last record; if it rests, it may be appended to again
	Size      int64          // of the file; much of it may be a hole
	Allocated int64          // bytes of the disk blocks it occupies

	// Begin is where the first record lies; 0 if the header cannot be read.
	Begin int64
	// End is where the next record would go, or the file ends. It is 0 for an unsealed file that this Set did not make: Scan finds its end.
	End int64

	// Err says why the header could not be read: a *damage.Error, or an error of the system.
	Err error
}

// Segments lists all files by id. The header of a file that was not opened before is read, once; sizes are asked for again
// only where they may have changed.
func (s *Set) Segments() []Info {
	all := s.files.sorted()
	out := make([]Info, 0, len(all))
	for _, g := range all {
		out = append(out, g.describe())
	}
	return out
}

func (g *segment) describe() Info {
	g.mu.Lock()
	defer g.mu.Unlock()
	err := g.knowLocked()
	if err == nil && g.headErr != nil {
		err = g.headErr
	}
	st := g.statLocked()
	begin := int64(0)
	if err == nil {
		begin = g.head.end()
	}
	return Info{
		ID: g.id, Path: g.path, Model: g.head.model, Active: g.own && !g.full && !g.resting, Sealed: g.sealed || g.resting && st.Size == g.end,
		Size: st.Size, Allocated: st.Allocated, Begin: begin, End: g.end, Err: err,
	}
}

// Finished lists the segments to which nothing is appended just now: those that rest are among them, and [Set.Finish] ends that. It touches
// no file.
func (s *Set) Finished() []uint64 {
	var ids []uint64
	s.files.each(func(g *segment) {
		if !g.own || g.full || g.resting {
			ids = append(ids, g.id)
		}
	})
	return ids
}

// OpenEnds returns, for each segment that this Set has begun or resumed, and not sealed, where its next record would go. It touches
// no file.
func (s *Set) OpenEnds() map[uint64]int64 {
	ends := map[uint64]int64{}
	s.files.each(func(g *segment) {
		if g.own && !g.sealed && g.end > 0 {
			ends[g.id] = g.end
		}
	})
	return ends
}

// Ours reports whether a segment's file shows that it is this store's: its header does, or there are zeros in the place of
// the header, as a power cut leaves them. What only has the name of a segment is nobody's to remove who has no other reason to.
func (s *Set) Ours(id uint64) bool {
	g, err := s.files.segment(id)
	return err != nil || g.ours() // or there is no such file
}

func (g *segment) ours() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.knowLocked(); err != nil {
		return errors.Is(err, ErrMissing) // a folder or a link: unlinking it leaves it alone
	}
	return !g.strange
}

// Has reports whether a segment's file was there when it was last looked for.
func (s *Set) Has(id uint64) bool { return s.files.has(id) }

// Allocated is the sum of Info.Allocated over all segments. It reads no headers.
func (s *Set) Allocated() int64 {
	total := int64(0)
	s.files.each(func(g *segment) { total += g.statLocked().Allocated })
	return total
}

// extentBlock is what a file system may take for the list of a segment's extents when it writes out what was reserved: ext4 does from the
// fifth on.
const extentBlock = 4 << 10

// Extents is what the segments may still grow by though nothing more is appended: a block each for the extents of those that are not
// complete, or not synced.
func (s *Set) Extents() int64 {
	n := int64(0)
	s.files.each(func(g *segment) {
		if g.own && !g.sealed && !g.resting || g.dirty || g.left || g.syncing {
			n++
		}
	})
	return n * extentBlock
}

// Extended is by how many bytes the files have grown since Open, what was reserved ahead included, and what their extents may take. It
// costs nothing.
func (s *Set) Extended() int64 { return s.files.extended.Load() }

// Identify reads the UUID and the hash seed of the store whose segments lie in dir, so that a lost FORMAT can be restored.
// found is false if there is no segment. It takes the first header that is sound; if there are segments and none has one,
// the error is that of the last. Headers that name different stores are an error.
func Identify(fsys vfs.FS, dir string) (uuid kv.UUID, seed kv.Seed, found bool, err error) {
	names, err := fsys.List(dir)
	if err != nil {
		return uuid, seed, false, err
	}
	var last error
	for _, name := range names {
		id, ok := parseSegmentName(name)
		if !ok || id == 0 {
			continue
		}
		h, err := readHeader(fsys, filepath.Join(dir, name), id)
		switch {
		case err != nil:
			last = err
		case !found:
			uuid, seed, found = h.uuid, h.seed, true
		case h.uuid != uuid:
			return kv.UUID{}, kv.Seed{}, false, fmt.Errorf("%s: segments of two stores: %s and %s", filepath.Join(dir, name), uuid, h.uuid)
		}
	}
	if found {
		last = nil
	}
	return uuid, seed, found, last
}

// readHeader reads the header of a segment file, of whatever store it is.
func readHeader(fsys vfs.FS, path string, id uint64) (segmentHeader, error) {
	f, err := fsys.Open(path, true)
	if err != nil {
		return segmentHeader{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return segmentHeader{}, err
	}
	b, err := readSegmentHeader(f, info.Size)
	if err != nil {
		return segmentHeader{}, err
	}
	h, bad := decodeSegmentHeader(b, uuidOfHeader(b), id)
	if bad != nil {
		bad.File = path
		return segmentHeader{}, bad
	}
	return h, nil
}
