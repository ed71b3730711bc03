package llamacpp

import (
	"errors"
	"fmt"
	"slices"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/layout"
)

// limitsOf are those of a Runtime in a context whose sequences are all empty.
func limitsOf(c *cells, f *form, d kv.Descriptor) (kv.Limits, error) {
	l := kv.Limits{
		Cells: c.count(), Batch: int(c.lib.Batch(c.lctx)), Vocabulary: c.lib.vocabulary(c.model()),
		Trained: c.lib.trained(c.model(), d.Architecture), Window: max(0, int(c.lib.Window(c.model()))),
	}
	if f.lay != nil && f.lay.Window == 0 { // said, but no layer has it
		l.Window = 0
	}
	l.Sequences = c.sequences() - 1
	if l.Window > 0 {
		l.Sequences /= 2
	}
	var err error
	l.Missing, err = missing(c, f, d, l)
	if l.Missing != "" {
		l.Sequences = 0
	}
	return l, err
}

// missing says what keeps conversations from being held in the context.
func missing(c *cells, f *form, d kv.Descriptor, l kv.Limits) (string, error) {
	switch {
	case f.mode != Rows:
		return fmt.Sprintf("its states cannot be cut into rows, they are kept as %v (%s)", f.mode, f.why), nil
	case c.lib.SequenceCopy == nil:
		return "the library has no llama_memory_seq_cp", nil
	case !f.lay.OneBuffer(): // llama_memory_seq_cp of a range would abort the process
		return "each sequence has a cache of its own: make the context with kv_unified", nil
	case l.Sequences < 1:
		return fmt.Sprintf("it has %d sequences, and needs one more for each conversation and view, one for rows on their way, and of a model with windows twice as many: "+
			"make the context with a larger n_seq_max", c.sequences()), nil
	}
	defer c.giveBack()
	t := trial{c, f, f.lay, c.sequences() - 1}
	if what, err := t.cuts(l); what != "" || err != nil {
		return what, err
	}
	if l.Window > 0 {
		return t.keepsWindows(l, f.lay.RowsAtOnce(4<<20, d))
	}
	return "", nil
}

// trial tries with rows of zeros whether llama.cpp does what a Runtime needs.
type trial struct {
	cells   *cells
	form    *form
	lay     *layout.Layout
	scratch int // a sequence
}

// cuts tries whether ranges of a sequence can be copied and removed. On recurrent models llama_memory_seq_rm of a range in the middle
// returns true and does nothing.
func (t trial) cuts(l kv.Limits) (missing string, err error) {
	const rows = 4
	if err := t.zeros(0, min(rows, l.Cells)); err != nil {
		return "", err
	}
	defer t.cells.clear(0)
	defer t.cells.clear(t.scratch)
	t.cells.share(t.scratch, 0, 1, 3)
	removed := t.cells.remove(t.scratch, 1, 2)
	for _, x := range []struct {
		seq  int
		want []int32
		what string
	}{
		{0, []int32{1, 2}, "llama_memory_seq_cp does not copy a range"},
		{t.scratch, []int32{0, 2, 3}, "llama_memory_seq_rm does not remove a range in the middle"},
	} {
		blob, err := t.cells.get(x.seq, 0)
		if err != nil {
			return "", err
		}
		st, err := t.form.parse(blob)
		if err != nil {
			return "", err
		}
		for i, section := range st.Sections {
			if len(t.lay.Format.Sections[i].Layers) == 0 || i == layout.Window && l.Window < rows {
				continue
			}
			if pos := slices.Sorted(slices.Values(section.Pos)); !removed || !slices.Equal(pos, x.want) {
				return fmt.Sprintf("%s: sequence %d has the positions %v, expected %v", x.what, x.seq, pos, x.want), nil
			}
		}
	}
	return "", nil
}

// keepsWindows tries whether the window layers have room for as many cells as the others, so many rows at a time. llama.cpp does not
// tell whether a context was made with swa_full, and without it a conversation would find the cache full where it is not.
func (t trial) keepsWindows(l kv.Limits, step int) (missing string, err error) {
	defer t.cells.clear(0)
	defer t.cells.clear(1)
	for from := 0; from < l.Cells; {
		to := min(l.Cells, from+step)
		err := t.zeros(from, to)
		if errors.Is(err, errNotTaken) {
			return fmt.Sprintf("the window layers have no room for %d cells beside %d others, of the %d of the context: make it with swa_full", to-from, from, l.Cells), nil
		}
		if err != nil {
			return "", err
		}
		for seq := range 2 { // cells of one sequence alone are taken from it
			t.cells.share(t.scratch, seq, from, to)
		}
		t.cells.clear(t.scratch)
		from = to
	}
	return "", nil
}

// zeros gives the scratch sequence, which is empty, rows of zeros at the positions [from, to).
func (t trial) zeros(from, to int) error {
	p := layout.Alone(from, to, t.scratch)
	room := t.cells.roomFor(t.lay.PartBytes(p))
	clear(room)
	_, _, blob := t.lay.Build(room, p)
	return t.cells.set(t.scratch, blob)
}
