package inplace

import (
	"context"
	"errors"
	"fmt"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/tiny"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
)

// Options are the size of a runtime, and where its ring lies.
type Options struct {
	Ring      string // its file; empty: memory that ends with the process
	Cells     int    // 0: 1024
	Turns     int    // Shape.Turns
	Sequences int    // 0: 16
	Batch     int    // 0: 64

	Tokenizer   kv.Hash     // 0: that of the small transformer
	BlockTokens int         // kv.Descriptor.BlockTokens
	Codec       quant.Codec // of rows in the store; 0: the store's. quant.Raw keeps every bit
}

// Runtime computes a small transformer in one cache that sequences share. It is for one goroutine at a time; others may read its [Ring].
type Runtime struct {
	o      Options
	tiny   *tiny.Model
	model  *db.Model
	ring   *Ring
	cache  *tiny.Cache     // the ring's planes
	seqs   []*tiny.Visible // the rows of each sequence: a bit a position, and its cell
	shares []int           // by cell: how many sequences have it
	whole  []*Turn         // by cell: its turn, if it was committed
	keys   []Key           // by cell: the key of a turn that ends with it; zero if that is not known
	logits [][]float32
	got    Recovered
	stats  Stats
}

// Stats counts rows: computed, loaded from the store, found in the ring instead, stored.
type Stats struct{ Decoded, Restored, Resident, Stored int }

// Describe is the descriptor of a model.
func Describe(m *Model, o Options) kv.Descriptor {
	if o.Tokenizer == (kv.Hash{}) {
		vocabulary := tiny.NewTokenizer().Hash()
		o.Tokenizer = kv.Hash(vocabulary[:16])
	}
	weights := m.Hash()
	d := kv.Descriptor{
		Name: "tiny", Weights: kv.Hash(weights[:16]), Architecture: "tiny", Tokenizer: o.Tokenizer,
		RoPE:        kv.RoPE{Type: "neox", Dims: m.HeadDim, Base: m.RoPEBase, Scale: 1, Scaling: "none"},
		BlockTokens: o.BlockTokens,
	}
	for l := range m.Layers {
		for _, role := range []kv.Role{kv.RoleK, kv.RoleV} {
			d.Tensors = append(d.Tensors, kv.Tensor{Layer: l, Role: role, DType: kv.F16, Width: m.KVWidth()})
		}
	}
	return d
}

// New makes a runtime of a model, whose rows lie in a ring and, as long as anybody wants, in store. Its sequences are empty: turns that a
// process left in the ring are found by Load. Errors are those of [Open] and of db.Store.Register.
func New(ctx context.Context, store *db.Store, m *Model, o Options) (*Runtime, error) {
	for _, f := range []struct {
		field *int
		value int
	}{{&o.Cells, 1024}, {&o.Sequences, 16}, {&o.Batch, 64}} {
		if *f.field == 0 {
			*f.field = f.value
		}
	}
	if o.Sequences < 1 || o.Batch < 1 {
		return nil, fmt.Errorf("inplace: %d sequences and batches of %d, want at least 1", o.Sequences, o.Batch)
	}
	registered, err := store.Register(ctx, Describe(m, o))
	if err != nil {
		return nil, err
	}
	r := &Runtime{o: o, tiny: m, model: registered.Model, shares: make([]int, o.Cells), whole: make([]*Turn, o.Cells), keys: make([]Key, o.Cells)}
	shape := Shape{Cells: o.Cells, Turns: o.Turns, Layers: m.Layers, RowBytes: 2 * m.KVWidth(), Model: r.model.Fingerprint()}
	if o.Ring == "" {
		r.ring, err = NewMemory(shape)
	} else {
		r.ring, r.got, err = Open(o.Ring, shape)
	}
	if err != nil {
		return nil, err
	}
	r.cache = &tiny.Cache{RowBytes: shape.RowBytes, Capacity: o.Cells}
	for l := range m.Layers {
		r.cache.K, r.cache.V = append(r.cache.K, r.ring.K(l)), append(r.cache.V, r.ring.V(l))
	}
	for range o.Sequences {
		r.seqs = append(r.seqs, tiny.NewVisible(0))
	}
	return r, nil
}

// Close unmaps the ring. The runtime cannot be used any more.
func (r *Runtime) Close() error { return r.ring.Close() }

// Model is the runtime's model in the store.
func (r *Runtime) Model() *db.Model { return r.model }

// Ring is where the rows lie.
func (r *Runtime) Ring() *Ring { return r.ring }

// Clear drops the turns of the ring that no sequence has: what an earlier process left there.
func (r *Runtime) Clear() { r.ring.Clear() }

// Recovered says what was in the ring when it was opened.
func (r *Runtime) Recovered() Recovered { return r.got }

// Stats returns what was done since New.
func (r *Runtime) Stats() Stats { return r.stats }

// Limits is what the options say. The model was not trained, so it knows no longest context.
func (r *Runtime) Limits() kv.Limits {
	return kv.Limits{Sequences: r.o.Sequences, Cells: r.o.Cells, Batch: r.o.Batch, Vocabulary: r.tiny.Vocabulary}
}

// Decode computes the steps. Each is at the position after its sequence's last row; the first of an empty sequence may be anywhere.
func (r *Runtime) Decode(ctx context.Context, steps []kv.Step) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(steps) > r.o.Batch {
		return fmt.Errorf("inplace: %d steps, a batch has at most %d", len(steps), r.o.Batch)
	}
	next := map[int]int{}
	for i, s := range steps {
		if err := r.check(s.Seq); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
		if s.Token < 0 || int(s.Token) >= r.tiny.Vocabulary {
			return fmt.Errorf("inplace: step %d: token %d of a vocabulary of %d", i, s.Token, r.tiny.Vocabulary)
		}
		want, known := next[s.Seq]
		if !known {
			want = r.seqs[s.Seq].End()
			known = want > 0
		}
		if s.Pos < 0 || s.Pos >= kv.MaxTokens || known && s.Pos != want {
			return fmt.Errorf("inplace: step %d: position %d of sequence %d, whose next one is %d", i, s.Pos, s.Seq, want)
		}
		next[s.Seq] = s.Pos + 1
	}
	cells, err := r.ring.Claim(len(steps))
	if err != nil {
		return err
	}
	compute := make([]tiny.Step, len(steps))
	for i, s := range steps {
		r.give(s.Seq, s.Pos, cells[i])
		compute[i] = tiny.Step{Token: s.Token, Pos: s.Pos, Row: int(cells[i]), Sees: r.seqs[s.Seq], Logits: s.Logits}
	}
	r.logits = r.tiny.Decode(r.cache, compute)
	r.stats.Decoded += len(steps)
	return nil
}

// Logits returns the scores after a step of the last Decode, nil if it did not ask for them.
func (r *Runtime) Logits(step int) []float32 { return r.logits[step] }

// Copy gives sequence to the rows that from has in the range, in which it must have none.
func (r *Runtime) Copy(from, to int, in kv.Range) error {
	if err := errors.Join(r.check(from), r.check(to)); err != nil {
		return err
	}
	if from == to {
		return nil
	}
	if err := r.empty(to, in); err != nil {
		return err
	}
	for pos, cell := range r.rows(from, in) {
		r.give(to, pos, cell)
	}
	return nil
}

// Remove takes the rows in the range from a sequence. The bytes of rows that no other sequence has are zeroed.
func (r *Runtime) Remove(seq int, in kv.Range) error {
	if err := r.check(seq); err != nil {
		return err
	}
	var free []uint32
	var apart []*Turn
	for pos, cell := range r.rows(seq, in) {
		r.seqs[seq].Clear(pos)
		if r.shares[cell]--; r.shares[cell] > 0 {
			continue
		}
		if t := r.whole[cell]; t != nil { // a turn is whole or none
			r.ring.Dissolve(t)
			for _, c := range t.Cells {
				r.whole[c] = nil
			}
			apart = append(apart, t)
		}
		r.keys[cell] = Key{}
		free = append(free, cell)
	}
	for _, t := range apart { // what is left of it becomes turns
		for i := 0; i < len(t.Cells); i++ {
			first := i
			for i < len(t.Cells) && r.shares[t.Cells[i]] > 0 {
				i++
			}
			r.commit(t.First+first, t.Cells[first:i])
		}
	}
	r.ring.Release(free)
	return nil
}

func (r *Runtime) check(seq int) error {
	if seq < 0 || seq >= len(r.seqs) {
		return fmt.Errorf("inplace: sequence %d of %d", seq, len(r.seqs))
	}
	return nil
}

// empty refuses a range in which a sequence has rows.
func (r *Runtime) empty(seq int, in kv.Range) error {
	for pos := range r.rows(seq, in) {
		return fmt.Errorf("inplace: rows [%d, %d) for sequence %d, which has one at position %d", in.Start, in.End, seq, pos)
	}
	return nil
}

// rows are the positions in the range and their cells, in order. The one at hand may be cleared meanwhile.
func (r *Runtime) rows(seq int, in kv.Range) func(yield func(pos int, cell uint32) bool) {
	return func(yield func(int, uint32) bool) {
		v := r.seqs[seq]
		for pos := v.Next(max(in.Start, 0)); pos >= 0 && pos < in.End; pos = v.Next(pos + 1) {
			if cell, _ := v.Row(pos); !yield(pos, uint32(cell)) {
				return
			}
		}
	}
}

// give shows a sequence a cell.
func (r *Runtime) give(seq, pos int, cell uint32) {
	r.seqs[seq].Set(pos, int(cell))
	r.shares[cell]++
}

// commit makes a turn of cells, whose keys are known. Where the ring has no room for one, the next process loads these rows from the store.
func (r *Runtime) commit(first int, cells []uint32) {
	if len(cells) == 0 || r.keys[cells[len(cells)-1]] == (Key{}) {
		return
	}
	if t := r.ring.Commit(r.keys[cells[len(cells)-1]], first, cells); t != nil {
		for _, c := range cells {
			r.whole[c] = t
		}
	}
}
