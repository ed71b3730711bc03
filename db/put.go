package db

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// exactTokens at the start of a prompt are kept exactly: attention sinks take most of every later token's attention.
const exactTokens = 4

// putChunkBytes bounds what one log frame publishes, and so what a put holds back from others.
const putChunkBytes = 32 << 20

// Put stores the rows of prompt. rows may cover any range of positions, as long as the prefix before it is stored or
// included; rows beyond the prompt are not looked at. Blocks that are stored already are left as they are, unless rows
// has more of them (a window group that was missing). A prompt whose rows end early is stored up to there.
//
// When Put returns nil, the rows survive the process. It returns a [*NotStoredError] if rows start behind what is
// stored, [ErrNoSpace] if they do not fit, and an error that wraps kv.ErrRows for rows that do not fit the tensors;
// whole blocks that were stored before the error stay.
func (m *Model) Put(ctx context.Context, prompt kv.Prompt, rows kv.Rows, o PutOptions) (PutResult, error) {
	return m.putOnIndex(ctx, nil, prompt, rows, o)
}

// Extend is Put for a prompt that goes on from this match: its lease keeps the prefix alive meanwhile. Afterwards the
// match rests on what was stored last.
func (x *Match) Extend(ctx context.Context, prompt kv.Prompt, rows kv.Rows, o PutOptions) (PutResult, error) {
	return x.m.putOnIndex(ctx, x, prompt, rows, o)
}

func (m *Model) putOnIndex(ctx context.Context, x *Match, prompt kv.Prompt, rows kv.Rows, o PutOptions) (out PutResult, err error) {
	err = m.s.onIndex(ctx, func() error {
		r, err := m.put(ctx, x, prompt, rows, o)
		out.add(r)
		return err
	})
	return out, err
}

func (m *Model) put(ctx context.Context, x *Match, prompt kv.Prompt, rows kv.Rows, o PutOptions) (PutResult, error) {
	start := time.Now()
	if err := prompt.Validate(); err != nil {
		return PutResult{}, err
	}
	if err := o.Validate(); err != nil {
		return PutResult{}, err
	}
	if err := rows.Validate(&m.ms.desc); err != nil {
		return PutResult{}, err
	}
	e, err := m.enter()
	if err != nil {
		return PutResult{}, err
	}
	defer m.s.leave()
	if x != nil {
		x.mu.Lock()
		defer x.mu.Unlock()
		if err := x.check(e); err != nil {
			return PutResult{}, err
		}
	}
	if err := e.poisoned(); err != nil {
		return PutResult{}, err
	}
	if o.NoStore {
		return PutResult{}, nil
	}
	if o.Codec == 0 {
		o.Codec = e.o.Codec
	}
	if o.Compression == 0 {
		o.Compression = e.o.Compression
	}
	var result PutResult
	for range putAttempts {
		var last *putter // what it has stored stays while room is made for the rest
		err = e.insist(ctx, func() error {
			w := &putter{e: e, m: m, match: x, rows: rows, o: o}
			err := w.run(ctx, &prompt)
			result.add(w.result)
			if last != nil {
				last.unpin()
			}
			last = w
			return err
		})
		last.unpin()
		if way, werr := e.makeWay(ctx, err); way {
			continue
		} else if werr != nil {
			err = werr
			break
		}
		if !isGone(err) || errors.Is(err, ErrNoSpace) { // that would evict again and again
			break
		}
		e.awaitCommit() // of whoever takes the block out
	}
	if err == nil && o.KeepStates > 0 {
		err = m.thinStates(e, &prompt, max(2, o.KeepStates))
	}
	if isIndexDamage(err) {
		m.s.indexDamaged(err)
	}
	e.count.put(result, since(start))
	e.maybeBackground()
	return result, err
}

// putAttempts bounds how often a put starts over because a block that it rests on went meanwhile: it was deleted, evicted, or
// a longer one took its place. What was stored until then stays, and is found.
const putAttempts = 100

func isGone(err error) bool {
	var missing *NotStoredError
	return errors.As(err, &missing) && missing.Reason.Code == Gone
}

// putter is one put under way.
type putter struct {
	e      *engine
	m      *Model
	match  *Match // nil for a plain Put
	rows   kv.Rows
	o      PutOptions
	result PutResult

	p      kv.Prompt // the part of the prompt that has rows
	chain  *kv.Chain
	cover  []coverage         // by group
	pin    kv.Key             // the deepest block that this put rests on
	left   []kv.Key           // marked as being evicted: tails that it takes the place of
	lent   []kv.Key           // pinned: blocks that must still be stored when what is planned is published
	met    map[index.Loc]bool // window records whose rows this put has looked at before it replaces them
	seen   []index.Loc        // by block: where those lie that this put has compared, or written
	unread bool               // not all of them were compared by their tokens
	broken error              // why the record that was compared last could not be read

	planned      []record // not yet written
	plannedBytes int64
	gated        bool          // holds the gate
	batch        []index.Entry // written, not yet published
	batchBytes   int64
	lsn          uint64
}

// coverage is the range of positions for which the caller has every tensor of a group.
type coverage struct{ start, end int }

// run stores block after block, a chunk at a time. Afterwards the put rests on the deepest block that is stored: unpin ends that.
func (w *putter) run(ctx context.Context, prompt *kv.Prompt) error {
	if err := w.plan(prompt); err != nil {
		return err
	}
	defer w.giveBack()
	stored, err := w.known() // blocks of the chain that are known to be stored, or in the batch
	if err != nil {
		return err
	}
	for i := stored; i < w.chain.Len(); i++ {
		if err := ctx.Err(); err != nil {
			return errors.Join(err, w.publish(ctx))
		}
		if err := w.block(ctx, i); err != nil {
			return errors.Join(err, w.publish(ctx))
		}
		stored++
		if w.batchBytes >= putChunkBytes {
			if err := w.publish(ctx); err != nil {
				return err
			}
		}
	}
	if err := w.publish(ctx); err != nil {
		return err
	}
	if stored > 0 {
		_, w.result.Tokens = w.chain.Block(stored - 1)
	}
	if w.e.o.Durability == Power {
		w.lsn = w.e.wal.LastLSN() // some of it may have been stored by another put: wait for that one, too
	}
	return w.e.durable(w.lsn)
}

// plan works out which positions can be stored at all.
func (w *putter) plan(prompt *kv.Prompt) error {
	d := &w.m.ms.desc
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
	w.p = prompt.Prefix(end)
	w.chain = w.e.hasher.Chain(w.m.ms.Fingerprint, d.BlockTokens, &w.p)
	w.seen = make([]index.Loc, w.chain.Len())
	return nil
}

// known returns the number of leading blocks that are stored and to which the caller has nothing to add. Closure makes that
// a binary search: the next turn of a long conversation does not look at every earlier block.
func (w *putter) known() (int, error) {
	d := &w.m.ms.desc
	lease := w.e.glance() // for what is compared
	defer w.e.endGlance(lease)
	v := w.e.view()
	defer v.Release()
	var err error
	n := sort.Search(w.chain.Len(), func(i int) bool {
		k := w.chain.Key(i)
		if err != nil || !w.e.mayHold(k) {
			return true
		}
		var ok bool
		_, ok, err = v.Get(k, 0)
		return !ok
	})
	if err != nil {
		return 0, err
	}
	for g, group := range d.Groups {
		switch c := w.cover[g]; {
		case group.Kind == kv.Window && c.start < c.end:
			n = min(n, w.p.BlockAt(c.start, d.BlockTokens))
		case group.Kind == kv.StateAt && c.end >= 0 && c.start > 0:
			n = min(n, w.p.BlockAt(c.start-1, d.BlockTokens))
		}
	}
	if n, err = w.compareFirst(v, n); err != nil {
		return 0, err
	}
	if n > 0 {
		w.result.Reused += n
		w.rest(w.chain.Key(n - 1))
	}
	return n, nil
}

// block makes sure that every group of block i that the caller has rows for is stored.
func (w *putter) block(ctx context.Context, i int) error {
	d := &w.m.ms.desc
	key := w.chain.Key(i)
	start, end := w.chain.Block(i)
	lease := w.e.glance() // a longer one could keep the room that this put needs
	v := w.e.view()
	defer v.Release()
	base, stored, err := v.Get(key, 0)
	if err == nil && stored {
		if err = w.follows(v, i); err == nil {
			err = w.compare(v, i, base)
		}
	}
	w.e.endGlance(lease)
	if stored && w.broke(base) {
		base.Flags |= index.FlagDamaged
	}
	if err != nil {
		return err
	}
	stored = stored && base.Flags&index.FlagDamaged == 0 // what is below it stays
	head, err := w.head(ctx, i, stored)
	if err != nil {
		return err
	}
	defer head.release(w.e)
	if stored {
		w.result.Reused++
		if w.rest(key); !w.idle() && !w.lend(key) { // another put was faster with what lies below the blocks of this one
			return w.gone(i)
		}
	} else if err := w.base(ctx, i, head); err != nil {
		return err
	}
	for g := 1; g < len(d.Groups); g++ {
		c := w.cover[g]
		var from, to int
		switch d.Groups[g].Kind {
		case kv.Window:
			from, to = max(c.start, start), min(c.end, end)
			if from >= to && head != nil && c.start >= end { // all of a new block's rows come from the store
				from, to = end, end
			} else if from >= to {
				continue
			}
		case kv.StateAt:
			if c.end < 0 || c.start != end {
				if i == w.chain.Len()-1 && c.end >= 0 && c.start > start {
					return fmt.Errorf("%w: the state of group %d is at position %d, the rows end at %d", kv.ErrRows, g, c.start, end)
				}
				continue
			}
			from, to = start, end
		}
		old, ok, err := v.Get(key, uint8(g))
		if err != nil {
			return err
		}
		if ok && old.Flags&index.FlagDamaged == 0 && covers(old, uint16(from-start), uint16(to-start)) {
			lease := w.e.glance()
			whole := w.whole(old)
			w.e.endGlance(lease)
			if whole {
				w.result.Reused++
				continue
			}
			old.Flags |= index.FlagDamaged
		}
		rows := w.rows
		if d.Groups[g].Kind == kv.Window {
			if ok && old.Flags&index.FlagDamaged == 0 {
				if w.met == nil {
					w.met = map[index.Loc]bool{}
				}
				w.met[old.Loc] = true
				o := w.older(i, g, old)
				if o.err != nil {
					o.release(w.e)
					return o.err
				}
				apart := o.from > to || o.to < from // one record has no gap
				if !apart {
					rows, from, to = w.join(o, g, rows, from, to)
				}
				o.release(w.e)
				if passing(o.err) { // what it has would go
					return o.err
				}
				if apart && o.to > to {
					continue // what later prompts look back at is its end
				}
			}
			first := from
			if rows, from, to = w.join(head.window(g), g, rows, from, to); from == to {
				continue
			}
			if from < first && !w.lend(head.hit.key) {
				return w.gone(i)
			}
		}
		if err := w.write(ctx, i, g, from, to, rows); err != nil {
			return err
		}
	}
	return nil
}

// base writes the All record of block i.
func (w *putter) base(ctx context.Context, i int, head *stored) error {
	start, end := w.chain.Block(i)
	rows := w.rows
	if from := min(w.cover[0].start, end); from > start {
		var got int
		if rows, got, _ = w.join(head, 0, rows, from, end); got > start {
			return &NotStoredError{Stored: start, Needed: from, Reason: head.reason(start)}
		}
		if !w.lend(head.hit.key) {
			return w.gone(i)
		}
	}
	if w.idle() {
		if err := w.hold(i); err != nil {
			return err
		}
	}
	w.result.Blocks++
	return w.write(ctx, i, 0, start, end, rows)
}
