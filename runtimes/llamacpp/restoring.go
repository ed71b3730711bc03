package llamacpp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/layout"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/piecesize"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/sample"
)

// Restored says what a Restore gave.
type Restored struct {
	Tokens int       // the sequence holds these leading tokens of the prompt; 0: it is empty
	Reason db.Reason // why not more
	Bytes  int64     // size of the state that llama.cpp was given
}

// restoring is one restore of a prompt into an empty sequence.
type restoring struct {
	cells    *cells
	form     *form
	known    *known
	deferred *deferred
	model    *db.Model
	align    int // Options.Align

	prompt   kv.Prompt
	sequence int
	turn     *turn
}

// most restores as many tokens as the sequence has room for, at most all but the last one.
func (r *restoring) most(ctx context.Context) (Restored, error) {
	limit := r.aligned(min(len(r.prompt.Tokens), r.cells.room()) - 1)
	got, err := r.upTo(ctx, limit)
	other := r.cells.others(r.sequence)
	if !errors.Is(err, errNotTaken) || other <= 0 {
		return got, err
	}
	free := max(0, r.cells.count()-other) // the others may have the cells
	got, err = r.upTo(ctx, min(limit, r.aligned(free-1)))
	if err == nil && (got.Reason.Code == db.Complete || got.Reason.Code == db.TooShort) {
		got.Reason = db.Reason{Code: db.MemoryShort, At: got.Tokens}
	}
	return got, err
}

// aligned is the largest number of tokens up to n that may be restored.
func (r *restoring) aligned(n int) int {
	if r.align > 1 {
		n -= n % r.align
	}
	return n
}

// upTo restores at most so many tokens.
func (r *restoring) upTo(ctx context.Context, limit int) (Restored, error) {
	for {
		if limit <= 0 {
			return Restored{Reason: db.Reason{Code: db.TooShort}}, nil
		}
		got, err := r.try(ctx, limit)
		if got.Tokens > 0 {
			r.known.line(r.sequence).rests(r.prompt.Prefix(got.Tokens))
		}
		var again shorter
		if errors.As(err, &again) {
			limit = int(again)
			continue
		}
		return got, err
	}
}

// shorter asks for another try with that limit.
type shorter int

func (s shorter) Error() string { return fmt.Sprintf("restore at most %d tokens", int(s)) }

// try restores the longest stored prefix up to a limit, or asks for another try.
func (r *restoring) try(ctx context.Context, limit int) (Restored, error) {
	start := time.Now()
	m, err := r.model.Match(ctx, r.prompt, db.MatchOptions{Limit: limit})
	if err != nil {
		return Restored{}, err
	}
	defer m.Close()
	n := m.Tokens()
	r.turn.Found, r.turn.Lookup = max(r.turn.Found, n), r.turn.Lookup+time.Since(start)
	if n == 0 {
		return Restored{Reason: m.Reason()}, nil
	}
	if r.deferred.streams() && r.known.line(r.sequence).unsettled { // a copy into this stream, or out of it, may be due
		if err := r.deferred.settle(r.sequence, nil); err != nil {
			return Restored{}, err
		}
	}
	most := n
	if r.form.mode != Opaque && r.form.lay.OneBuffer() && n+r.cells.others(r.sequence) == r.cells.count() { // no cell would be left for the next token
		most--
	}
	if most = r.aligned(most); most < n {
		return Restored{}, shorter(most)
	}
	switch r.form.mode {
	case Opaque:
		return r.whole(ctx, m)
	case Hybrid:
		want := int64(r.form.lay.Recurrent.Size())
		if size, err := m.StateBytes(len(r.form.lay.Planes)); err != nil || size != want {
			return Restored{}, errors.Join(err, fmt.Errorf("%w: the stored recurrent state has %d bytes, expected %d", ErrState, size, want))
		}
	}
	if window := r.form.lay.Window; r.align > 0 && window > 0 && n > window {
		got, err := r.likeItself(ctx, m, n)
		if err != nil || got.Tokens > 0 {
			return got, err
		}
	}
	return r.stream(n, r.form.lay.Window, func(rows kv.Rows, from, to int) (db.Restored, error) {
		return m.RestoreRange(ctx, rows)
	})
}

// whole restores a state that is not cut.
func (r *restoring) whole(ctx context.Context, m *db.Match) (Restored, error) {
	n := m.Tokens()
	size, err := m.StateBytes(0)
	if err != nil {
		return Restored{}, err
	}
	if size == 0 {
		return Restored{Reason: m.Reason()}, nil
	}
	blob := r.cells.roomFor(int(size))
	got, err := m.Restore(ctx, kv.Rows{kv.Packed(n, 1, blob)})
	switch {
	case err != nil:
		return Restored{}, err
	case got.Tokens == 0:
		return Restored{Reason: got.Reason}, nil
	case got.Tokens < n: // damage: the state at a shorter prefix has another size
		return Restored{}, shorter(got.Tokens)
	}
	if err := r.cells.set(r.sequence, blob); err != nil {
		return Restored{}, err
	}
	restored, err := r.done(n, int64(len(blob)), got.Reason)
	if err == nil {
		r.known.line(r.sequence).rows.See(r.form.sketches(blob))
	}
	return restored, err
}

// likeItself restores one row of the window more than is needed, as llama.cpp does: it hides the oldest row of the
// window only from the next token on. Nobody attends to that row, but it shifts the others by a cell, and where the cells
// lie decides in which order llama.cpp adds up. A prefix shorter by a token needs that row, so that prefix is
// restored as well. No tokens mean that the shorter prefix is not stored.
func (r *restoring) likeItself(ctx context.Context, m *db.Match, n int) (Restored, error) {
	before, err := r.model.Match(ctx, r.prompt, db.MatchOptions{Limit: n - 1})
	if err != nil {
		return Restored{}, err
	}
	defer before.Close()
	if before.Tokens() != n-1 {
		return Restored{}, nil
	}
	lay, d := r.form.lay, r.model.Descriptor()
	got, err := r.stream(n, lay.Window+1, func(rows kv.Rows, from, to int) (db.Restored, error) {
		if first := max(from, n-1-lay.Window); first < to { // the rows of a window before n-1, and then those before n over them
			got, err := before.RestoreRange(ctx, lay.Only(d, rows, first, min(to, n-1), false))
			if err != nil || got.Tokens != n-1 {
				return db.Restored{Reason: got.Reason}, err
			}
		}
		return m.RestoreRange(ctx, lay.Only(d, rows, max(from, n-lay.Window), to, true))
	})
	var again shorter
	if errors.As(err, &again) { // damage, perhaps of that row only
		return Restored{}, nil
	}
	return got, err
}

// fill writes the rows of the positions [from, to) into a state. Fewer tokens than the prefix has mean that some of it is damaged.
type fill func(rows kv.Rows, from, to int) (db.Restored, error)

// stream gives the sequence a prefix of n tokens, with so many rows of the window layers. llama.cpp replaces what a
// sequence holds. So a piece goes into a sequence that is empty, and is then shared with the one that grows. That
// takes one buffer for all sequences, and one more sequence that nobody uses. Without these the whole state is one piece.
// A sequence that did not get all of it is empty afterwards.
func (r *restoring) stream(n, windowRows int, fill fill) (got Restored, err error) {
	c, lay := r.cells, r.form.lay
	step, scratch := r.pieces(n, windowRows)
	defer func() {
		if err != nil {
			c.clear(r.sequence)
		}
	}()
	var bytes int64
	for from := 0; from < n; from += step {
		to, into := min(n, from+step), scratch
		if from == 0 { // the first piece can go where it belongs
			into = r.sequence
		}
		p := layout.Part{From: from, To: to, Tokens: n, WindowRows: windowRows, Sequence: into}
		st, rows, blob := lay.Build(c.roomFor(lay.PartBytes(p)), p)
		part, err := fill(rows, from, to)
		if err != nil {
			return Restored{}, err
		}
		if part.Tokens == 0 {
			c.clear(r.sequence)
			return Restored{Reason: part.Reason}, nil
		}
		if part.Tokens < n { // the window rows of a shorter prefix lie elsewhere
			return Restored{}, shorter(part.Tokens)
		}
		if lay.Recurrent != nil && to == n {
			if err := r.form.checkRecurrent(blob[len(blob)-lay.Recurrent.Size():], n); err != nil {
				return Restored{}, err
			}
		}
		if err := c.set(into, blob); err != nil {
			return Restored{}, err
		}
		if into != r.sequence {
			c.share(into, r.sequence, -1, -1)
			if err := c.empty(into); err != nil {
				return Restored{}, err
			}
		}
		r.known.line(r.sequence).rows.See(sample.Of(lay.Format, st))
		bytes += int64(len(blob))
		got.Reason = part.Reason
	}
	return r.done(n, bytes, got.Reason)
}

// pieces is how many tokens go into a piece, and through which sequence all but the first one go.
func (r *restoring) pieces(n, windowRows int) (step, scratch int) {
	whole := r.form.lay.PartBytes(layout.Part{To: n, Tokens: n, WindowRows: windowRows, Sequence: r.sequence})
	free, ok := 0, false
	if whole > piecesize.Bytes {
		free, ok = r.cells.free(r.sequence, r.form.lay)
	}
	if !ok {
		return n, r.sequence
	}
	pieces := (whole + piecesize.Bytes - 1) / piecesize.Bytes
	step = max(1, (n+pieces-1)/pieces)
	if block := r.model.Descriptor().BlockTokens; step > block { // a block that lies in two pieces is read and checked twice
		step = (step + block/2) / block * block
	}
	return step, free
}

// done checks that the sequence has n tokens, after so many bytes of state.
func (r *restoring) done(n int, bytes int64, reason db.Reason) (Restored, error) {
	if have := r.cells.tokens(r.sequence); have != n {
		r.cells.clear(r.sequence)
		return Restored{}, fmt.Errorf("%w: after a restore of %d tokens sequence %d has %d", ErrState, n, r.sequence, have)
	}
	return Restored{Tokens: n, Reason: reason, Bytes: bytes}, nil
}
