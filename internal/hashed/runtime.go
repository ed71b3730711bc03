package hashed

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// Runtime computes hashes in one cache that sequences share. It is for one goroutine at a time.
type Runtime struct {
	o      Options
	model  *db.Model
	seqs   [][]*cell // each in order of position
	used   int       // cells
	logits [][]float32
	fails  [3]failure
	stats  Stats
	mu     sync.Mutex // a call, or a look
	busy   atomic.Bool
}

// cell is a row in the cache. Sequences share it; none changes it.
type cell struct {
	Seen
	token  kv.Token
	shares int // sequences that have it
}

// Call is a kind of call that can be told to fail.
type Call int

// The calls that can fail.
const (
	Decode Call = iota
	Load
	Store
)

type failure struct {
	err   error
	after int
}

// Stats counts the calls that went well, and their rows.
type Stats struct {
	Decodes, Steps int
	Loads, Loaded  int
	Stores, Stored int
	Copies         int
	Removes        int
	MostCells      int // that were ever in use at once
}

// New makes an empty runtime over its model in store, which is registered if it is new.
func New(ctx context.Context, store *db.Store, o Options) (*Runtime, error) {
	o = o.filled()
	if o.RowBytes%len(Row{}) != 0 {
		return nil, fmt.Errorf("hashed: RowBytes is %d, want a multiple of %d", o.RowBytes, len(Row{}))
	}
	m, err := store.Register(ctx, o.Descriptor())
	if err != nil {
		return nil, err
	}
	return &Runtime{o: o, model: m.Model, seqs: make([][]*cell, o.Sequences)}, nil
}

// Model is the runtime's model in the store.
func (r *Runtime) Model() *db.Model { return r.model }

// Limits is what the options say.
func (r *Runtime) Limits() kv.Limits {
	return kv.Limits{Sequences: r.o.Sequences, Cells: r.o.Cells, Batch: r.o.Batch, Trained: r.o.Trained, Window: r.o.Window, Vocabulary: r.o.Vocabulary, Missing: r.o.Missing}
}

// enter begins a call and returns what ends it.
func (r *Runtime) enter() func() {
	if !r.busy.CompareAndSwap(false, true) {
		panic("hashed: two goroutines use the runtime at once")
	}
	r.mu.Lock()
	return func() { r.mu.Unlock(); r.busy.Store(false) }
}

// look begins a look of a test, which may come while a call is under way, and returns what ends it.
func (r *Runtime) look() func() {
	r.mu.Lock()
	return r.mu.Unlock
}

// Decode computes the steps. Each is at the position after its sequence's last row; the first of an empty sequence may be anywhere.
func (r *Runtime) Decode(ctx context.Context, steps []kv.Step) error {
	defer r.enter()()
	if err := r.fail(Decode, ctx); err != nil {
		return err
	}
	if len(steps) > r.o.Batch {
		return fmt.Errorf("hashed: %d steps, a batch has at most %d", len(steps), r.o.Batch)
	}
	next := map[int]int{}
	for i, s := range steps {
		if err := r.check(s.Seq); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
		if s.Token < 0 || int(s.Token) >= r.o.Vocabulary {
			return fmt.Errorf("hashed: step %d: token %d of a vocabulary of %d", i, s.Token, r.o.Vocabulary)
		}
		want, known := next[s.Seq]
		if have := r.seqs[s.Seq]; !known && len(have) > 0 {
			want, known = have[len(have)-1].Pos+1, true
		}
		if s.Pos < 0 || known && s.Pos != want {
			return fmt.Errorf("hashed: step %d: position %d of sequence %d, whose next one is %d", i, s.Pos, s.Seq, want)
		}
		next[s.Seq] = s.Pos + 1
	}
	if free := r.o.Cells - r.used; len(steps) > free {
		return fmt.Errorf("%w: %d steps, %d of %d cells are free", kv.ErrFull, len(steps), free, r.o.Cells)
	}

	for _, old := range r.logits { // whoever still reads them notices
		for i := range old {
			old[i] = float32(math.NaN())
		}
	}
	r.logits = make([][]float32, len(steps))
	for i, s := range steps {
		have := r.seqs[s.Seq]
		visible := make([]Seen, len(have))
		for j, c := range have {
			visible[j] = c.Seen
		}
		c := &cell{Seen{s.Pos, r.o.Next(s.Token, s.Pos, visible)}, s.Token, 1}
		r.seqs[s.Seq] = append(have, c)
		r.used++
		if s.Logits {
			r.logits[i] = r.o.Logits(c.Row)
		}
	}
	r.stats.Decodes++
	r.stats.Steps += len(steps)
	r.stats.MostCells = max(r.stats.MostCells, r.used)
	return nil
}

// Logits returns the scores after a step of the last Decode, nil if it did not ask for them. The next Decode makes NaN of them.
func (r *Runtime) Logits(step int) []float32 {
	defer r.enter()()
	return r.logits[step]
}

// Copy gives sequence to the rows that from has in the range. In the range, to must have none.
func (r *Runtime) Copy(from, to int, in kv.Range) error {
	defer r.enter()()
	for _, s := range []int{from, to} {
		if err := r.check(s); err != nil {
			return err
		}
	}
	if from == to {
		return nil
	}
	if i, j := find(r.seqs[to], in); i < j {
		return fmt.Errorf("hashed: copy of [%d, %d) to sequence %d, which has a row at position %d", in.Start, in.End, to, r.seqs[to][i].Pos)
	}
	i, j := find(r.seqs[from], in)
	for _, c := range r.seqs[from][i:j] {
		c.shares++
	}
	r.insert(to, in, r.seqs[from][i:j])
	r.stats.Copies++
	return nil
}

// Remove takes the rows in the range from a sequence.
func (r *Runtime) Remove(seq int, in kv.Range) error {
	defer r.enter()()
	if err := r.check(seq); err != nil {
		return err
	}
	i, j := find(r.seqs[seq], in)
	for _, c := range r.seqs[seq][i:j] {
		if c.shares--; c.shares == 0 {
			r.used--
		}
	}
	r.seqs[seq] = slices.Concat(r.seqs[seq][:i], r.seqs[seq][j:])
	r.stats.Removes++
	return nil
}

func (r *Runtime) check(seq int) error {
	if seq < 0 || seq >= len(r.seqs) {
		return fmt.Errorf("hashed: sequence %d of %d", seq, len(r.seqs))
	}
	return nil
}

// insert puts rows of the range, in which seq has none, where they belong.
func (r *Runtime) insert(seq int, in kv.Range, cells []*cell) {
	i, _ := find(r.seqs[seq], in)
	r.seqs[seq] = slices.Concat(r.seqs[seq][:i], cells, r.seqs[seq][i:])
}

// find returns which rows of a sequence lie in the range.
func find(have []*cell, in kv.Range) (i, j int) {
	at := func(pos int) int {
		n, _ := slices.BinarySearchFunc(have, pos, func(c *cell, pos int) int { return c.Pos - pos })
		return n
	}
	i = at(in.Start)
	return i, max(i, at(in.End))
}

// fail is what the call has to return before it does anything.
func (r *Runtime) fail(c Call, ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	f := &r.fails[c]
	if f.err == nil {
		return nil
	}
	if f.after > 0 {
		f.after--
		return nil
	}
	err := f.err
	f.err = nil
	return err
}
