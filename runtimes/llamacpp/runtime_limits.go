package llamacpp

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/dormousekv/dormouse/kv"
)

// limits are those of a Runtime in a context of so many sequences, all of which are empty.
func (s *Session) limits(sequences int) (kv.Limits, error) {
	l := kv.Limits{
		Cells: int(s.lib.ContextTokens(s.lctx)), Batch: int(s.lib.Batch(s.lctx)),
		Trained: s.trained(s.lib.GetModel(s.lctx), s.model.Descriptor().Architecture),
		Window:  max(0, int(s.lib.Window(s.lib.GetModel(s.lctx)))),
	}
	if s.lib.Vocabulary != nil && s.lib.VocabularyTokens != nil {
		l.Vocabulary = int(s.lib.VocabularyTokens(s.lib.Vocabulary(s.lib.GetModel(s.lctx))))
	}
	if s.lay != nil && s.lay.window == 0 { // said, but no layer has it
		l.Window = 0
	}
	l.Sequences = sequences - 1
	if l.Window > 0 {
		l.Sequences /= 2
	}
	var err error
	l.Missing, err = s.missing(l)
	if l.Missing != "" {
		l.Sequences = 0
	}
	return l, err
}

// trained is how many positions the model was trained for; 0 if it does not say that.
func (s *Session) trained(model uintptr, arch string) int {
	text, _ := s.lib.meta(model, arch+".context_length")
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return max(0, n)
}

// missing says what keeps conversations from being held in the context.
func (s *Session) missing(l kv.Limits) (string, error) {
	switch {
	case s.mode != Rows:
		return fmt.Sprintf("its states cannot be cut into rows, they are kept as %v (%s)", s.mode, s.why), nil
	case s.lib.SequenceCopy == nil:
		return "the library has no llama_memory_seq_cp", nil
	case !s.lay.oneBuffer(): // llama_memory_seq_cp of a range would abort the process
		return "each sequence has a cache of its own: make the context with kv_unified", nil
	case l.Sequences < 1:
		return fmt.Sprintf("it has %d sequences, and needs one more for each conversation and view, one for rows on their way, and of a model with windows twice as many: "+
			"make the context with a larger n_seq_max", s.lib.Sequences(s.lctx)), nil
	}
	defer s.giveBack()
	if what, err := s.cuts(l); what != "" || err != nil {
		return what, err
	}
	if l.Window > 0 {
		return s.keepsWindows(l)
	}
	return "", nil
}

// cuts tries whether ranges of a sequence can be copied and removed. On recurrent models llama_memory_seq_rm of a range in the middle
// returns true and does nothing.
func (s *Session) cuts(l kv.Limits) (missing string, err error) {
	const rows = 4
	scratch := int(s.lib.Sequences(s.lctx)) - 1
	if err := s.zeros(scratch, 0, min(rows, l.Cells)); err != nil {
		return "", err
	}
	defer s.clear(0)
	defer s.clear(scratch)
	s.lib.SequenceCopy(s.memory, int32(scratch), 0, 1, 3)
	removed := s.lib.SequenceRemove(s.memory, int32(scratch), 1, 2)
	for _, x := range []struct {
		seq  int
		want []int32
		what string
	}{
		{0, []int32{1, 2}, "llama_memory_seq_cp does not copy a range"},
		{scratch, []int32{0, 2, 3}, "llama_memory_seq_rm does not remove a range in the middle"},
	} {
		st, err := s.parse(x.seq)
		if err != nil {
			return "", err
		}
		for i, section := range st.Sections {
			if len(s.lay.format.Sections[i].Layers) == 0 || i == windowSection && l.Window < rows {
				continue
			}
			if pos := slices.Sorted(slices.Values(section.Pos)); !removed || !slices.Equal(pos, x.want) {
				return fmt.Sprintf("%s: sequence %d has the positions %v, expected %v", x.what, x.seq, pos, x.want), nil
			}
		}
	}
	return "", nil
}

// keepsWindows tries whether the window layers have room for as many cells as the others. llama.cpp does not tell whether a context was
// made with swa_full, and without it a conversation would find the cache full where it is not.
func (s *Session) keepsWindows(l kv.Limits) (missing string, err error) {
	scratch := int(s.lib.Sequences(s.lctx)) - 1
	defer s.clear(0)
	defer s.clear(1)
	for from := 0; from < l.Cells; {
		to := min(l.Cells, from+s.rowsAtOnce(4<<20))
		err := s.zeros(scratch, from, to)
		if errors.Is(err, errNotTaken) {
			return fmt.Sprintf("the window layers have no room for %d cells beside %d others, of the %d of the context: make it with swa_full", to-from, from, l.Cells), nil
		}
		if err != nil {
			return "", err
		}
		for seq := range 2 { // cells of one sequence alone are taken from it
			s.lib.SequenceCopy(s.memory, int32(scratch), int32(seq), int32(from), int32(to))
		}
		s.clear(scratch)
		from = to
	}
	return "", nil
}

// zeros gives an empty sequence rows of zeros at the positions [from, to).
func (s *Session) zeros(sequence, from, to int) error {
	clear(s.roomFor(s.lay.size(s.lay.cells(from, to, to, to-from, sequence), true))) // of which the blob is made
	_, _, blob := s.build(from, to, to, to-from, sequence)
	return s.set(sequence, blob)
}

// rowsAtOnce is how many rows of a sequence are moved in one state: as many as have so many bytes, and, of a model with windows, those that
// the last one of them still sees, as llama.cpp hands out no others.
func (s *Session) rowsAtOnce(most int) int {
	d := s.model.Descriptor()
	n := max(1, most/d.TokenBytes())
	if s.lay.window > 0 {
		n = min(n, s.lay.window)
	}
	return n
}

// export returns the rows of the positions [start, end) of a sequence, all of which it has, by way of an empty one. They are valid until
// the session's next call; with alone, for good.
func (s *Session) export(sequence, scratch, start, end int, alone bool) (kv.Rows, error) {
	s.lib.SequenceCopy(s.memory, int32(sequence), int32(scratch), int32(start), int32(end))
	blob, err := s.get(scratch, 0)
	if !s.clear(scratch) {
		return nil, fmt.Errorf("%w: llama.cpp does not remove sequence %d", ErrState, scratch)
	}
	if err != nil {
		return nil, err
	}
	if alone {
		blob = bytes.Clone(blob)
	}
	st, err := s.lay.format.Parse(blob)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrState, err)
	}
	for i := range st.Sections {
		first, last, whole := st.Sections[i].Range()
		if len(s.lay.format.Sections[i].Layers) > 0 && (!whole || first != start || last != end) {
			return nil, fmt.Errorf("%w: of the positions [%d, %d), sequence %d has %d in [%d, %d) of section %d", ErrPositions, start, end, sequence, st.Sections[i].Count(), first, last, i)
		}
	}
	return s.lay.rows(st), nil
}
