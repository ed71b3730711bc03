package index

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// Verify reads all of index.db and compares every row with those it follows from. It calls report for each damage found,
// and progress with the number of bytes read since the last call. The error is ctx's, or [ErrClosed]; damage is none, but
// after damage in a page the index refuses further use as after any other.
//
// It looks at the last checkpoint's pages, and at the rows of the current version, what is only in memory included. Other
// work goes on meanwhile.
func (ix *Index) Verify(ctx context.Context, report func(*damage.Error), progress func(bytes int64)) error {
	v := ix.View()
	defer v.Release()
	if v.err != nil {
		return v.err
	}
	found := 0
	note := func(err error) {
		var bad *damage.Error
		if !errors.As(err, &bad) {
			bad = damage.Wrap(ix.o.Path, 0, "index", err)
		}
		found++
		report(bad)
	}
	if v.base != nil {
		w := walk{ctx: ctx, s: v.base, note: note, progress: progress, seen: make([]bool, v.base.meta.pages)}
		if err := w.run(); err != nil {
			return err
		}
	}
	if found > 0 {
		return nil // rows that cannot be read cannot be compared
	}
	return v.verifyRows(ctx, note)
}

// walk visits every page that a snapshot uses. Damage ends a branch of it, not the walk. bbolt's own check is not used: it
// follows damaged pages in a goroutine of its own, where a panic ends the process.
type walk struct {
	ctx      context.Context
	s        *snapshot
	note     func(error)
	progress func(int64)
	seen     []bool
	cur      treeCursor // reads the rows of one leaf
	key      []byte     // the last row's
}

func (w *walk) run() error {
	s := w.s
	for id := range uint64(2) {
		b, err := w.read(id)
		if err != nil {
			w.note(err)
			continue
		}
		if _, bad := parseMeta(s.file.path, b, id); bad != nil {
			w.note(bad)
		}
		if !vfs.Blank(b[10:pageHeaderBytes]) || !vfs.Blank(b[metaEnd:]) {
			w.bad(id, "unused bytes of a meta page", "")
		}
		w.progress(pageBytes)
	}
	var free bitset
	err := s.file.contain("read", func() (err error) {
		free, err = s.checkFree()
		return err
	})
	listed := err == nil // else it is not known which pages are in use, but for the tree's
	if !listed {
		w.note(err)
	}
	for id := s.list.at; id < s.list.at+s.list.own; id++ {
		w.seen[id] = true
		w.progress(pageBytes)
	}

	// The list of buckets was checked for holding ours alone.
	if b, err := w.read(s.meta.root); err != nil {
		w.note(err)
	} else {
		w.seen[s.meta.root] = true
		w.progress(pageBytes)
		if p, what := parsePage(b, s.meta.root); what != "" {
			w.bad(s.meta.root, "bbolt's list of buckets", what)
		} else if rest, what := p.check(); what != "" || !vfs.Blank(rest) {
			w.bad(s.meta.root, "bbolt's list of buckets", what)
		}
	}
	if err := w.page(s.root, nil, nil, 0); err != nil {
		return err
	}
	for id := uint64(2); id < s.meta.pages; id++ {
		if listed && !w.seen[id] && !free.has(id) {
			w.bad(id, "page", "neither in the tree nor free")
		}
	}
	return nil
}

func (w *walk) bad(id uint64, what, found string) {
	w.note(&damage.Error{File: w.s.file.path, Offset: int64(id * pageBytes), What: what, Expected: "a valid one", Found: found})
}

// read copies a page out of the map.
func (w *walk) read(id uint64) (b []byte, err error) {
	err = w.s.file.contain("read", func() error {
		b = bytes.Clone(w.s.file.data[id*pageBytes : (id+1)*pageBytes])
		return nil
	})
	return b, err
}

// page checks a page and what hangs below it. A branch repeats the first key of each child.
func (w *walk) page(id uint64, first, hi []byte, depth int) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	if depth == maxDepth {
		w.bad(id, "tree", fmt.Sprintf("more than %d levels", maxDepth))
		return nil
	}
	var p page
	err := w.s.file.contain("read", func() (err error) {
		p, err = w.s.page(id)
		p.b = bytes.Clone(p.b)
		return err
	})
	if err != nil {
		w.note(err)
		return nil
	}
	if id != 0 { // not an inline bucket
		if w.seen[id] {
			w.bad(id, "page", "in the tree twice")
			return nil
		}
		w.seen[id] = true
		w.progress(pageBytes)
	}
	rest, what := p.check()
	if what != "" || !vfs.Blank(rest) {
		w.bad(id, "page", what+" or its unused bytes are not zero")
		return nil
	}
	k, _ := p.row(0)
	last, _ := p.row(p.count - 1)
	if (first != nil && !bytes.Equal(k, first)) || (hi != nil && bytes.Compare(last, hi) >= 0) {
		w.bad(id, "page", "its keys do not belong below its parent's")
	}
	for i := range p.count {
		if !p.leaf {
			child, lo, hi := fence(&p, i, hi)
			if err := w.page(child, lo, hi, depth+1); err != nil {
				return err
			}
			continue
		}
		c := &w.cur
		c.s, c.depth = w.s, 1
		c.stack[0] = step{page: p, i: i}
		if _, err := c.current(); err != nil {
			w.note(err)
			continue
		}
		if w.key != nil && bytes.Compare(w.key, c.key) >= 0 {
			w.bad(id, fmt.Sprintf("row %d of the page", i), "not above the row before it")
		}
		w.key = append(w.key[:0], c.key...)
	}
	return nil
}

// verifyRows compares the rows with the entries that they follow from: each entry has its rows, and there are as many rows
// as that makes.
func (v *View) verifyRows(ctx context.Context, note func(error)) error {
	bad := func(what string, key any, expected, found string) {
		file := ""
		if v.base != nil {
			file = v.base.file.path
		}
		note(&damage.Error{File: file, What: fmt.Sprintf("%s of %v", what, key), Expected: expected, Found: found})
	}
	c, err := v.begin()
	if err != nil {
		note(err)
		return nil
	}
	defer c.release()
	var have, want struct{ child, leaf, scope int }
	var total Counts
	models, segments := map[kv.Fingerprint]Counts{}, map[uint64]SegmentCounts{}
	must := func(what string, k kv.Key, row []byte) error {
		_, ok, err := c.get(row)
		if err == nil && !ok {
			bad(what, k, "a row", "none")
		}
		return err
	}
	err = v.scan([]byte{tableBlock}, []byte{tableBlock}, func(key, val []byte) (bool, error) {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		var e Entry
		hashes, ok := decodeEntry(&e, key, val)
		if !ok {
			bad("block row", fmt.Sprintf("%x", key), "an entry", "other bytes")
			return true, nil
		}
		m, s := models[e.Model], segments[e.Loc.Segment]
		m, s = Counts{m.Blocks, m.Records + 1, m.Bytes + e.Loc.Length}, SegmentCounts{s.Records + 1, s.Bytes + e.Loc.Length}
		total = Counts{total.Blocks, total.Records + 1, total.Bytes + e.Loc.Length}
		if e.Group == 0 {
			m.Blocks++
			total.Blocks++
		}
		models[e.Model], segments[e.Loc.Segment] = m, s
		if e.Group != 0 {
			return true, nil
		}

		want.child++
		if err := must("child row", e.Key, appendChildKey(nil, e.Parent, e.Scope, hashes, e.Key)); err != nil {
			return false, err
		}
		if e.Flags&FlagScopeRoot != 0 {
			want.scope++
			if err := must("scope row", e.Key, appendScopeKey(nil, e.Scope, e.Key)); err != nil {
				return false, err
			}
		}
		q := appendChildPrefix(nil, e.Key)
		if ok, err := c.seek(q, q); err != nil || ok {
			return err == nil, err
		}
		want.leaf++
		return true, must("leaf row", e.Key, appendLeafKey(nil, e.Model, e.Rank, e.Key))
	})
	for table, n := range map[byte]*int{tableChild: &have.child, tableLeaf: &have.leaf, tableScope: &have.scope} {
		if err == nil {
			err = v.scan([]byte{table}, []byte{table}, func(_, _ []byte) (bool, error) {
				*n++
				return true, ctx.Err()
			})
		}
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		note(err)
		return nil
	case have != want:
		bad("number of rows", "the tables child, leaf and scope", fmt.Sprint(want), fmt.Sprint(have))
	}

	haveModels, haveSegments := map[kv.Fingerprint]Counts{}, map[uint64]SegmentCounts{}
	v.Models(func(fp kv.Fingerprint, c Counts) bool { haveModels[fp] = c; return true })
	v.Segments(func(id uint64, c SegmentCounts) bool { haveSegments[id] = c; return true })
	if v.Counts() != total || !maps.Equal(haveModels, models) || !maps.Equal(haveSegments, segments) {
		bad("counts", "all entries", fmt.Sprint(total, models, segments), fmt.Sprint(v.Counts(), haveModels, haveSegments))
	}
	return nil
}
