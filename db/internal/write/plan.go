package write

import (
	"fmt"
	"sort"

	"github.com/dormousekv/dormouse/kv"
)

// coverage is the range of positions for which the caller has every tensor of a group.
type coverage struct{ start, end int }

// Plan works out which positions of the prompt can be stored at all.
func (w *Put) Plan(prompt *kv.Prompt) error {
	d := w.model.Desc
	w.cover = make([]coverage, len(d.Groups))
	for g := range w.cover {
		w.cover[g] = coverage{0, len(prompt.Tokens)}
	}
	given := make([]bool, len(d.Groups)) // a state of the group
	for i, t := range d.Tensors {
		c := &w.cover[t.Group]
		r := w.rows[i]
		if d.Groups[t.Group].Kind == kv.StateAt {
			// A state is valid at one position; none given is none stored.
			if r.Count() == 0 {
				c.end = -1
			} else if !given[t.Group] {
				c.start, given[t.Group] = r.First, true
			} else if c.start != r.First {
				return fmt.Errorf("%w: states of group %d at positions %d and %d", kv.ErrRows, t.Group, c.start, r.First)
			}
			continue
		}
		if len(r.Pieces) == 0 || r.Count() == 0 {
			*c = coverage{}
			continue
		}
		c.start, c.end = max(c.start, r.First), min(c.end, r.End())
	}
	end := w.cover[0].end
	if end <= w.cover[0].start { // no rows of the All group: only what is stored can be added to
		end = len(prompt.Tokens)
		w.cover[0] = coverage{end, end}
	}
	if clipped := prompt.Clip(end); clipped < end {
		return fmt.Errorf("%w: rows end at %d, inside the span that starts at %d", kv.ErrRows, end, clipped)
	}
	w.prompt = prompt.Prefix(end)
	w.Chain = w.store.Search.Hasher.Chain(w.model.Fingerprint, d.BlockTokens, &w.prompt)
	return nil
}

// Known returns the number of leading blocks that are stored and to which the caller has nothing to add. Closure makes that
// a binary search in the index; then the header of each record is looked at (firstWhole).
func (w *Put) Known() (int, error) {
	d := w.model.Desc
	v := w.store.Search.Index.View()
	defer v.Release()
	var err error
	n := sort.Search(w.Chain.Len(), func(i int) bool {
		k := w.Chain.Key(i)
		if err != nil || !w.store.Search.MayHold(k) {
			return true
		}
		var ok bool
		_, ok, err = v.Get(k, 0)
		return !ok
	})
	if err != nil {
		return 0, err
	}
	w.had = n
	for g, group := range d.Groups {
		switch c := w.cover[g]; {
		case group.Kind == kv.Window && c.start < c.end:
			n = min(n, w.prompt.BlockAt(c.start, d.BlockTokens))
		case group.Kind == kv.StateAt && c.end >= 0 && c.start > 0:
			n = min(n, w.prompt.BlockAt(c.start-1, d.BlockTokens))
		}
	}
	if n, err = w.firstWhole(n); err != nil {
		return 0, err
	}
	if n > 0 {
		w.Result.Reused += n
		w.rest(w.Chain.Key(n - 1))
	}
	return n, nil
}

// firstWhole returns how many of the first n blocks of the chain come before one that may have to be stored anew.
func (w *Put) firstWhole(n int) (int, error) {
	for i := range n {
		k := w.Chain.Key(i)
		if w.store.Ledger.Catalog.IsFlagged(k) {
			return i, nil
		}
		if ok, err := w.store.Judge.Whole(k, 0); err != nil || !ok {
			return i, err
		}
	}
	return n, nil
}
