package segments

import (
	"errors"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// GiveBackAhead gives back the disk blocks that segments have reserved behind their last records, but for those that are being written to
// just now, and returns how many bytes that were. The segments are appended to as before. Where holes cannot be punched, nothing comes back.
func (s *Set) GiveBackAhead() (bytes int64, err error) {
	if err := s.files.writable(); err != nil {
		return 0, err
	}
	for _, g := range s.files.sorted() {
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
	if ask := g.files.o.Ahead; ask != nil && ahead > end {
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
	g.files.extended.Add(ahead - g.allocated)
	g.allocated = ahead
	return nil
}
