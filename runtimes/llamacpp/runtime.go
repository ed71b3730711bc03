package llamacpp

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/held"
)

// RuntimeOptions are the two functions of llama.cpp that a [Runtime] cannot call by itself: a batch is passed by value. Both must be set;
// those of a llama.Context are DecodeSteps and Logits.
type RuntimeOptions struct {
	// Decode evaluates at most n_batch steps in one llama_decode, each in its own sequence and with logits where they are wanted. It returns
	// an error that wraps kv.ErrFull where llama_decode returned 1 (no room), another one for all else but 0. It must not keep steps.
	Decode func(steps []kv.Step) error
	// Logits returns the logits of steps[i] of the last Decode, which asked for them (llama_get_logits_ith).
	Logits func(i int) []float32
}

// Runtime holds several sequences that share their cells, as package chat wants it. It is used by one goroutine at a time.
//
// From [Session.Runtime] on, all sequences of the context are the Runtime's. Its caller numbers those below Limits().Sequences, and the
// others are its own. The last one is empty between two calls; rows go through it on their way to the store and back. A model with
// windows has another one beside each of the caller's, with the same cells. Without it llama.cpp takes a cell from the window layers
// as soon as only one sequence has the cell and its position is out of the window, with swa_full, too.
//
// It knows the token of each row, and refuses to store rows as those of other tokens (ErrLineage). Positions are never shifted.
type Runtime struct {
	o        RuntimeOptions
	attached attachment
	files    *files // that the context's model was loaded from; nil: not known
	cells    *cells // its scratch is the sequence that rows go through
	form     *form
	identity *identity
	model    *db.Model
	put      db.PutOptions // Options.Put

	limits kv.Limits
	held   []held.Sequence // by sequence of the caller
	off    []*LineageError // by sequence of the caller: why its rows may be those of another model; nil: they are not
	steps  []kv.Step       // of the last Decode
	kept   [][]float32     // logits of those of its steps that were not in its last batch
}

// Limits is what there is room for. Sequences are those that the caller may number: n_seq_max but one, and of a model with windows half of that.
func (r *Runtime) Limits() kv.Limits { return r.limits }

// able refuses what cannot be done here, and sequences that are not the caller's.
func (r *Runtime) able(sequences ...int) error {
	if err := r.attached.over(); err != nil {
		return err
	}
	if r.limits.Missing != "" {
		return fmt.Errorf("%w: a conversation in this context of %s: %s", kv.ErrUnsupported, r.model.Descriptor().Name, r.limits.Missing)
	}
	for _, seq := range sequences {
		if seq < 0 || seq >= len(r.held) {
			return fmt.Errorf("%w: %d of %d", ErrSequence, seq, len(r.held))
		}
	}
	return nil
}

// unchanged refuses a context whose model's files are not what they were.
func (r *Runtime) unchanged(ctx context.Context) error {
	doubt, err := r.files.unchanged(ctx)
	for i := range r.off {
		if doubt != "" && r.cells.tokens(i) > 0 {
			r.off[i] = &LineageError{i, 0, doubt}
		}
	}
	return err
}

// hasNone refuses a Runtime that has rows.
func (r *Runtime) hasNone() error {
	for i := range r.held {
		if r.held[i].End() > 0 {
			return fmt.Errorf("%w: sequence %d of the Runtime has rows that were computed with other adapters: remove them first", ErrNotEmpty, i)
		}
	}
	return nil
}

// each calls f with the sequences of llama.cpp that stand for one of the caller's.
func (r *Runtime) each(seq int, f func(seq int)) {
	f(seq)
	if r.limits.Window > 0 {
		f(len(r.held) + seq)
	}
}

// Decode evaluates steps, of any sequences, in order of position within each; more than n_batch in several calls of llama_decode. The first
// step of a sequence that has rows comes right after its last row. After an error, kv.ErrFull among them, all sequences have what they had.
func (r *Runtime) Decode(ctx context.Context, steps []kv.Step) error {
	if ctx == nil {
		return errNoContext
	}
	if err := r.able(); err != nil {
		return err
	}
	first, err := r.follow(steps)
	if err != nil {
		return err
	}
	r.steps, r.kept = append(r.steps[:0], steps...), nil
	most := r.limits.Batch
	if r.limits.Window > 0 { // until a call returns, the cells of what it has evaluated have one sequence only
		most = min(most, max(r.limits.Window, int(r.cells.lib.MicroBatch(r.cells.lctx))))
	}
	for from := 0; from < len(steps); {
		part := r.steps[from:min(len(steps), from+most)]
		if err = ctx.Err(); err == nil {
			err = r.decode(part)
		}
		if err != nil {
			r.steps = nil
			for seq, pos := range first {
				r.remove(seq, kv.Range{Start: pos, End: math.MaxInt32})
			}
			return err
		}
		if from += len(part); from == len(steps) {
			break
		}
		for i, step := range part { // the next llama_decode overwrites them
			var scores []float32
			if step.Logits {
				scores = slices.Clone(r.o.Logits(i))
			}
			r.kept = append(r.kept, scores)
		}
	}
	return nil
}

// follow checks that steps go on from what their sequences have, and returns the position of the first one of each.
func (r *Runtime) follow(steps []kv.Step) (first map[int]int, err error) {
	first, next := map[int]int{}, map[int]int{}
	for i, step := range steps {
		if err := r.able(step.Seq); err != nil {
			return nil, err
		}
		want, known := next[step.Seq]
		if !known {
			first[step.Seq] = step.Pos
			want = r.held[step.Seq].End()
			if have := r.cells.tokens(step.Seq); have != want {
				return nil, fmt.Errorf("%w: sequence %d of llama.cpp ends at %d, not at %d: it was changed beside the Runtime", ErrState, step.Seq, have, want)
			}
			if want == 0 { // an empty one begins anywhere
				want = max(0, step.Pos)
			}
		}
		if step.Pos >= held.Positions {
			return nil, fmt.Errorf("%w: step %d is at position %d, the last one is %d", ErrPositions, i, step.Pos, held.Positions-1)
		}
		if step.Pos != want {
			return nil, fmt.Errorf("%w: step %d is at position %d of sequence %d, whose next one is %d", ErrPositions, i, step.Pos, step.Seq, want)
		}
		next[step.Seq] = step.Pos + 1
	}
	return first, nil
}

// decode evaluates steps in one batch.
func (r *Runtime) decode(steps []kv.Step) error {
	if err := r.o.Decode(steps); err != nil {
		return fmt.Errorf("llamacpp: evaluate %d steps: %w", len(steps), err)
	}
	evaluated := map[int]kv.Range{}
	for _, step := range steps {
		r.held[step.Seq].Set(step.Pos, step.Token)
		rg, known := evaluated[step.Seq]
		if !known {
			rg.Start = step.Pos
		}
		evaluated[step.Seq] = kv.Range{Start: rg.Start, End: step.Pos + 1}
	}
	for seq, rg := range evaluated {
		r.share(seq, seq, rg)
	}
	return nil
}

// Logits returns the scores of all tokens to come after a step of the last Decode; nil if that did not ask for them. They are valid until
// the next Decode.
func (r *Runtime) Logits(step int) []float32 {
	switch {
	case step < 0 || step >= len(r.steps) || !r.steps[step].Logits:
		return nil
	case step < len(r.kept):
		return r.kept[step]
	}
	return r.o.Logits(step - len(r.kept))
}

// Copy gives sequence to the rows that from has in the range; the cells are shared. It refuses a range in which to has rows (ErrNotEmpty).
func (r *Runtime) Copy(from, to int, rg kv.Range) error {
	if err := r.able(from, to); err != nil {
		return err
	}
	rg = r.held[from].Clip(rg)
	if from == to || !r.held[from].Any(rg) {
		return nil
	}
	if r.held[to].Any(rg) {
		return fmt.Errorf("%w: sequence %d has rows in [%d, %d)", ErrNotEmpty, to, rg.Start, rg.End)
	}
	r.share(from, to, rg)
	r.held[to].Copy(&r.held[from], rg)
	if r.off[from] != nil {
		r.off[to] = r.off[from]
	}
	return nil
}

// share has llama.cpp give rows of one of its sequences to one of the caller's, and to the one beside that.
func (r *Runtime) share(from, to int, rg kv.Range) {
	r.each(to, func(to int) {
		if to != from {
			r.cells.share(from, to, rg.Start, rg.End)
		}
	})
}

// Remove takes the rows in the range from a sequence. A cell that no other sequence has is free then.
func (r *Runtime) Remove(seq int, rg kv.Range) error {
	if err := r.able(seq); err != nil {
		return err
	}
	if rg = r.held[seq].Clip(rg); !r.held[seq].Any(rg) {
		return nil
	}
	if !r.remove(seq, rg) {
		return fmt.Errorf("%w: llama.cpp does not remove [%d, %d) of sequence %d", ErrState, rg.Start, rg.End, seq)
	}
	return nil
}

func (r *Runtime) remove(seq int, rg kv.Range) bool {
	ok := true
	r.each(seq, func(seq int) {
		ok = r.cells.remove(seq, rg.Start, rg.End) && ok
	})
	if r.held[seq].Remove(rg); r.held[seq].End() == 0 {
		r.off[seq] = nil
	}
	return ok
}
