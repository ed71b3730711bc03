package segments

import "github.com/dormousekv/dormouse/internal/vfs"

// Rewrite writes a segment's header and some of its records once more, as they are read. After an fsync that has
// failed, memory may hold bytes for clean that the disk never got: no later fsync would write them. What the disk cannot read is not
// in memory, and is left as the disk has it; but what cannot be read for a reason that passes ([vfs.Passing]) may be, and is an
// error. A failure makes all later writing calls fail, as the failed fsync did.
func (s *Set) Rewrite(id uint64, records []Loc) error {
	if err := s.files.writable(); err != nil {
		return err
	}
	g, err := s.files.segment(id)
	if err == nil {
		err = g.rewrite(records)
	}
	if err != nil {
		return s.files.setPoison(err)
	}
	return nil
}

// Poison makes all later writing calls fail with err, as a failed fsync does.
func (s *Set) Poison(err error) { s.files.setPoison(err) }

func (g *segment) rewrite(records []Loc) error {
	f, err := g.pinFile()
	if err != nil {
		return err
	}
	defer g.unpinFile()
	if g.foreign() || len(records) == 0 && !g.ours() {
		return nil
	}
	g.mu.Lock()
	head, size := g.head.end(), g.size
	g.mu.Unlock()
	parts := append([]Loc{{Length: min(head, size)}}, records...)
	buf := make([]byte, 1<<20)
	for _, p := range parts {
		unread, err := vfs.Rewrite(f, buf, p.Offset, min(p.End(), size))
		if err != nil {
			return err
		}
		if unread != nil {
			g.files.o.Logger.Error("what cannot be read is not written again", "file", g.path, "offset", p.Offset, "length", p.Length, "err", unread)
		}
	}
	g.markDirty()
	return nil
}
