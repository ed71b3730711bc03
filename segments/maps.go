package segments

import (
	"io/fs"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// maxMaps is how many segments are mapped at a time, beyond those that are in use: a quarter of what Linux lets a process have. A variable for
// tests.
var maxMaps int64 = 16 << 10

// unmapIdle gives back the maps that nobody uses, and of these, unless all are to go, those that were not used since it came by the last time, if
// there are some. It returns how many.
func (f *files) unmapIdle(all bool) (n int) {
	for round := 0; n == 0 && round < 2; round++ { // the first may find that all were used since
		f.each(func(g *segment) {
			if g.m != nil && g.pins == 0 && (all || !g.touched) {
				g.unmapLocked()
				n++
			}
			g.touched = false
		})
	}
	return n
}

// pin makes sure that the file is mapped and stays so until unpin. The bytes go on to the mapped size, which may lie
// beyond the end of the file: read them under vfs.Guard.
func (g *segment) pin() (b []byte, err error) {
	b, mapped, err := g.tryPin()
	if vfs.NoMemory(err) && g.files.unmapIdle(true) > 0 { // a process may have so many maps and no more
		b, mapped, err = g.tryPin()
	}
	if mapped && g.files.maps.Load() > maxMaps {
		g.files.unmapIdle(false)
	}
	return b, err
}

// tryPin is pin, and says whether it made the map.
func (g *segment) tryPin() (b []byte, mapped bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.m == nil:
		if err := g.mapLocked(); err != nil {
			return nil, false, err
		}
		if mapped = g.m != nil; !mapped {
			g.pins++
			return nil, false, nil
		}
	case g.gone:
		return nil, false, g.missing(fs.ErrNotExist)
	}
	g.pins++
	g.touched = true
	return g.m.Bytes()[:min(g.mapped, g.size)], mapped, nil
}

// mapLocked maps the file, unless that is empty. g.mu is held.
func (g *segment) mapLocked() error {
	if err := g.openLocked(); err != nil {
		return err
	}
	defer g.releaseFileLocked()
	defer g.f.Release()
	if g.size == 0 {
		return nil
	}
	m, err := g.f.Map(g.size)
	if err != nil {
		return err
	}
	g.m, g.mapped = m, g.size
	g.files.maps.Add(1)
	return nil
}

func (g *segment) unpin() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unpinLocked()
}

// unpinLocked closes a file that was given up while this was its last reader.
func (g *segment) unpinLocked() {
	g.pins--
	if g.pins > 0 {
		return
	}
	g.unmapOldLocked()
	if g.gone {
		g.dropLocked()
	}
}

// unmap drops the map if nobody but the caller, who holds the file, is using it.
func (g *segment) unmap() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.m == nil && g.old == nil || g.pins > 1 {
		return false
	}
	g.unmapLocked()
	return true
}

func (g *segment) unmapLocked() {
	if g.m != nil {
		g.old, g.m = append(g.old, g.m), nil
	}
	g.unmapOldLocked()
}

func (g *segment) unmapOldLocked() {
	for _, m := range g.old {
		if err := m.Close(); err != nil {
			g.files.o.Logger.Warn("unmapping a segment failed", "file", g.path, "err", err)
		}
		g.files.maps.Add(-1)
	}
	g.old = nil
}
