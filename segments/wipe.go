package segments

import (
	"errors"
	"slices"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// wipe destroys records of one segment, in their order, until stop says so, and returns those that are durably gone, those that could not be
// destroyed, with the error that tells of these, and how many were tried or are left for later. It does nothing while somebody walks over the segment.
func (f *files) wipe(wipes []deadRecord, stop func(next Loc) bool) (done, failed []Loc, tried int, err error) {
	g, err := f.segment(wipes[0].loc.Segment)
	if err != nil {
		return places(wipes), nil, len(wipes), nil // the file is gone, and the bytes with it
	}
	if !g.tryChange() {
		return nil, nil, len(wipes), nil
	}
	defer g.changed()
	return g.wipeLocked(wipes, stop)
}

// wipeLocked is wipe. The caller holds g.wipe.
func (g *segment) wipeLocked(wipes []deadRecord, stop func(next Loc) bool) (done, failed []Loc, tried int, err error) {
	f, err := g.pinFile()
	if errors.Is(err, ErrMissing) {
		return places(wipes), nil, len(wipes), nil
	}
	if err != nil {
		return nil, places(wipes), len(wipes), err
	}
	defer g.unpinFile()
	if g.foreign() {
		return places(wipes), nil, len(wipes), nil // what was ours is not there any more
	}
	info, err := f.Stat()
	if err != nil {
		return nil, places(wipes), len(wipes), err
	}
	zeros := make([]byte, 4<<10)
	var run []Loc // of records one behind the other, in [from, to), that lost their headers
	var from, to int64
	punch := func() {
		if len(run) == 0 {
			return
		}
		_, perr := g.punch(f, from, to-from)
		g.markDirty() // after the last of it: a Sync of somebody else takes the mark away
		if perr != nil {
			failed, err = append(failed, run...), tell(err, perr)
		} else {
			done = append(done, run...)
		}
		run = nil
	}
	for _, d := range wipes {
		loc := d.loc
		if stop(loc) {
			break
		}
		tried++
		n, merr := g.extent(loc, info.Size)
		if merr != nil { // no map can be had just now
			failed, err = append(failed, places(wipes[tried-1:])...), tell(err, merr)
			tried = len(wipes)
			break
		}
		if n <= 0 {
			done = append(done, loc)
			continue
		}
		if len(run) > 0 && loc.Offset != to {
			punch()
		}
		// Headers first: a crash in between must not leave a record that still parses.
		head := min(n, int64(len(zeros)))
		_, werr := f.WriteAt(zeros[:head], loc.Offset)
		if errors.Is(werr, vfs.ErrNoSpace) { // on a full disk not even the page of one that was punched before a crash
			_, werr = f.Punch(loc.Offset, head)
		}
		g.markDirty()
		if werr != nil {
			failed, err = append(failed, loc), tell(err, werr)
			punch()
		} else {
			if len(run) == 0 {
				from = loc.Offset
			}
			run, to = append(run, loc), loc.Offset+n
		}
		if d.hasFailed() {
			if punch(); slices.Contains(failed, loc) {
				tried = len(wipes) // thousands may fail like this one, each time
				break
			}
		}
	}
	punch()
	if len(done) == 0 {
		return nil, failed, tried, err
	}
	if serr := g.sync(); serr != nil {
		return nil, append(failed, done...), tried, tell(err, serr)
	}
	return done, failed, tried, err
}

func places(wipes []deadRecord) (locs []Loc) {
	for _, d := range wipes {
		locs = append(locs, d.loc)
	}
	return locs
}

// punch makes [off, off+n) a hole, or zeros where the file system punches none: Solid knows that then. The caller has pinned the file, and
// not its map.
func (g *segment) punch(f vfs.File, off, n int64) (freed bool, err error) {
	if !holesUnderMaps {
		g.unmap() // if somebody reads there just now, the range becomes zeros
	}
	freed, err = f.Punch(off, n)
	if err == nil && !freed {
		g.files.solid.Store(true)
	}
	return freed, err
}

// holesUnderMaps is [vfs.HolesUnderMaps]. A variable for tests.
var holesUnderMaps = vfs.HolesUnderMaps

// extent is how many bytes at loc may be destroyed in a file of that size: none outside of that record, and none of the header. A header that is
// zero or broken says nothing, then loc is believed.
func (g *segment) extent(loc Loc, size int64) (n int64, err error) {
	b, err := g.pin()
	if err != nil {
		return 0, err
	}
	defer g.unpin()
	return g.extentIn(b[:min(int64(len(b)), size)], loc), nil // writing behind the end of a file that somebody cut would lengthen it
}

func (g *segment) extentIn(b []byte, loc Loc) (n int64) {
	_, alignment, known := g.identity()
	limit := int64(len(b))
	g.mu.Lock()
	head := known && loc.Offset >= minAlignment && loc.Offset < g.head.end()
	g.mu.Unlock()
	if head {
		return 0 // what was taken for rubbish when the header could not be read
	}
	if loc.Offset >= limit && loc.Length > 0 {
		return 0 // it was lost before the file was that long, or it was cut away
	}
	if loc.Offset < minAlignment || loc.Length <= 0 || known && loc.Offset%alignment != 0 {
		g.files.o.Logger.Error("a record to destroy lies outside of its segment", "file", g.path, "offset", loc.Offset, "length", loc.Length)
		return 0
	}
	n = min(loc.Length, limit-loc.Offset)
	verr := vfs.Guard(func() error {
		h, v, _ := decodeRecordHead(b[loc.Offset:limit], limit-loc.Offset, g.at(loc.Offset))
		if own := alignUp(h.total, alignment); v == isRecord && own != loc.Length {
			g.files.o.Logger.Error("a record to destroy has another length", "file", g.path, "offset", loc.Offset, "length", own, "expected", loc.Length)
			n = min(n, own)
		}
		return nil
	})
	if verr != nil {
		g.files.o.Logger.Warn("a record to destroy cannot be read", "file", g.path, "offset", loc.Offset, "err", verr)
	}
	return n
}
