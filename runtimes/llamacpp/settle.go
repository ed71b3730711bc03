package llamacpp

import (
	"bytes"
	"errors"
	"fmt"
	"unsafe"

	"github.com/cespare/xxhash/v2"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/state"
)

// llama.cpp puts two things off until the next llama_decode, which does them before it looks for room: llama_memory_seq_cp into another stream copies the rows
// then, and llama_memory_seq_add and llama_memory_seq_div rotate the keys. Positions are changed at once, so until then a state has the new positions and the old
// rows, and what is written into a sequence is overwritten afterwards. Nothing tells that something was put off. So the session has it done before it reads rows that it did
// not see come, and before it writes into a stream.

// decode evaluates tokens. What was put off is done then.
func (s *Session) decode(tokens []kv.Token, first, sequence int) error {
	err := s.o.Decode(tokens, first, sequence)
	if err == nil || errors.Is(err, kv.ErrFull) {
		for _, l := range s.lines {
			l.unsettled, l.moved = false, false
		}
	}
	return err
}

// streams reports whether sequences may have cells of their own, between which rows are copied late.
func (s *Session) streams() bool {
	if s.lib.Sequences(s.lctx) <= 1 || s.lib.IsRecurrent(s.lib.GetModel(s.lctx)) { // a recurrent state is copied in no other way than rows of one buffer
		return false
	}
	for _, section := range s.canaryFormat.Sections {
		if section.Streams != 1 {
			return true
		}
	}
	return len(s.canaryFormat.Sections) == 0
}

// putsOff reports whether anything can be put off in this context.
func (s *Session) putsOff() bool {
	shifts := s.lib.CanShift == nil || s.lib.CanShift(s.memory)
	return s.streams() || shifts && !s.lib.IsRecurrent(s.lib.GetModel(s.lctx))
}

// settle has llama.cpp do what it has put off: it evaluates a token in an empty sequence and removes it again. If no sequence is empty, that is done behind the end of
// the given one. then, which may be nil, is called in between. The logits of the last decode stay where the program looks for them, if it asked for one token's.
func (s *Session) settle(sequence int, then func() error) (err error) {
	if !s.putsOff() {
		return nil
	}
	if s.o.Decode == nil {
		return fmt.Errorf("%w: one token is evaluated, to have llama.cpp do what it has put off", ErrNeedDecode)
	}
	n := int(s.lib.Sequences(s.lctx))
	into, at := sequence, s.tokens(sequence)
	for i := 0; i < n && at > 0; i++ {
		if s.tokens(i) == 0 {
			into, at = i, 0
		}
	}
	var recurrent []byte
	switch {
	case at == 0:
		s.clear(into) // as Prefill from position 0 does
	case s.recurs(): // it cannot go back by a token, but alone it can be put back
		if recurrent, err = s.get(into, FlagPartial); err != nil {
			return err
		}
		recurrent = bytes.Clone(recurrent)
	}
	back := s.keepLogits()
	err = s.decode([]kv.Token{s.lib.canaryTokens(s.lib.GetModel(s.lctx))[0]}, at, into)
	back()
	switch {
	case errors.Is(err, kv.ErrFull): // it was done, and there was no room for the token
		err = nil
	case err != nil:
		err = fmt.Errorf("llamacpp: evaluate a token, to have llama.cpp do what it has put off: %w", err)
	}
	if err == nil && then != nil {
		err = then()
	}
	if at == 0 {
		s.clear(into)
		return err
	}
	if recurrent != nil {
		s.lib.Synchronize(s.lctx)
		if n := s.lib.StateSet(s.lctx, &recurrent[0], uintptr(len(recurrent)), int32(into), FlagPartial); int(n) != len(recurrent) {
			return errors.Join(err, fmt.Errorf("%w: llama.cpp took %d of %d bytes of a recurrent state into sequence %d", ErrState, n, len(recurrent), into))
		}
	}
	if !s.lib.SequenceRemove(s.memory, int32(into), int32(at), -1) || s.tokens(into) != at {
		err = errors.Join(err, fmt.Errorf("%w: llama.cpp does not take back a token of sequence %d", ErrState, into))
	}
	return err
}

// keepLogits returns a function that puts the logits back that are the first ones now: those of the last decode, if that was asked for the logits of one token.
func (s *Session) keepLogits() func() {
	if s.lib.Logits == nil || s.lib.Vocabulary == nil || s.lib.VocabularyTokens == nil {
		return func() {}
	}
	n := int(s.lib.VocabularyTokens(s.lib.Vocabulary(s.lib.GetModel(s.lctx))))
	was := s.lib.Logits(s.lctx)
	if was == nil || n <= 0 {
		return func() {}
	}
	kept := bytes.Clone(unsafe.Slice((*byte)(unsafe.Pointer(was)), 4*n))
	return func() {
		if now := s.lib.Logits(s.lctx); now != nil {
			copy(unsafe.Slice((*byte)(unsafe.Pointer(now)), 4*n), kept)
		}
	}
}

// look has llama.cpp do what it has put off, and finds out whether that changed a sequence's rows from position known on. Then positions were shifted, or
// the sequence is a copy of another one that the session was not told of: neither is stored. A copy is taken if Reset said so. But one decode makes the copy and rotates
// its keys. All rows are others then, so they do not tell whether the copy was shifted, too. The number of positions tells it: a shift leaves fewer than there were at Reset.
func (s *Session) look(l *lineage, known, sequence int) error {
	n := s.tokens(sequence)
	if !s.putsOff() || s.lib.Sequences(s.lctx) == 1 && n >= s.room() { // a shift leaves cells free
		return nil
	}
	var before, after []digest
	before, err := s.digests(sequence, known, n)
	if errors.Is(err, errNotParsed) { // cells that two sequences share were shifted for both
		l.off = &LineageError{sequence, 0, err.Error()}
		return l.off
	}
	if err != nil {
		return err
	}
	return s.settle(sequence, func() error {
		if after, err = s.digests(sequence, known, n); err != nil {
			return err
		}
		at, copied := n, false
		for i := range min(len(before), len(after)) {
			from, other := before[i].differs(&after[i])
			at, copied = min(at, from), copied || other
		}
		if at == n || copied && l.trusted && n == l.told {
			return nil
		}
		why := "positions were shifted, and llama.cpp had not rotated their keys yet"
		switch {
		case copied && l.trusted:
			why = fmt.Sprintf("it is a copy of another sequence (llama_memory_seq_cp) and has %d positions, %d when Reset told of it: they were shifted, perhaps. If you shifted none, call Reset", n, l.told)
		case copied:
			why = "it was copied from another sequence (llama_memory_seq_cp), of which the session was not told: if you filled it yourself, and shifted no positions, call Reset"
		}
		if l.off == nil || at < l.off.From {
			l.off = &LineageError{sequence, at, why}
		}
		return l.off
	})
}

// errNotParsed says that a state is not made as those of the context are.
var errNotParsed = fmt.Errorf("%w: not understood", ErrState)

// digest is what is compared of a section: the bits of the first layer's K, which a shift changes, and some values of the last layer's V, which only other rows do.
type digest struct {
	first int
	k, v  []sketch
}

// digests are those of the positions [from, n) of a sequence.
func (s *Session) digests(sequence, from, n int) (out []digest, err error) {
	format, rest := s.canaryFormat, s.rest
	blob, err := s.readFrom(sequence, from)
	if err != nil {
		return nil, err
	}
	defer s.giveBack()
	if len(format.Sections) == 0 {
		if s.tokens(sequence) > n {
			return nil, fmt.Errorf("%w: the layout of a state is not known, and no sequence is empty: whether llama.cpp has put off a copy or a shift of sequence %d is not known, either", ErrRefused, sequence)
		}
		return []digest{{k: []sketch{{bits: xxhash.Sum64(blob)}}, v: make([]sketch, 1)}}, nil
	}
	if len(blob) < rest {
		return nil, fmt.Errorf("%w: %d bytes, the recurrent part alone has %d", ErrState, len(blob), rest)
	}
	st, err := format.Parse(blob[:len(blob)-rest])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotParsed, err)
	}
	for i, section := range format.Sections {
		layers := section.Layers
		if len(layers) == 0 {
			continue
		}
		last, role := len(layers)-1, kv.RoleV
		if layers[last].V.RowBytes == 0 {
			role = kv.RoleK
		}
		k, err := sketchesAt(&st.Sections[i], 0, kv.RoleK, layers[0].K, n)
		if err != nil {
			return nil, err
		}
		row := layers[last].V
		if role == kv.RoleK {
			row = layers[last].K
		}
		v, err := sketchesAt(&st.Sections[i], last, role, row, n)
		if err != nil {
			return nil, err
		}
		out = append(out, digest{st.Sections[i].Rows(0, kv.RoleK).First, k, v})
	}
	return out, nil
}

// sketchesAt are those of a layer's rows of the positions below n.
func sketchesAt(section *state.Section, layer int, role kv.Role, row state.TensorFormat, n int) ([]sketch, error) {
	t, err := tensorOf(layer, role, row, 0)
	if err != nil {
		return nil, err
	}
	rows := section.Rows(layer, role)
	return sketchOf(t, rows.Slice(t, rows.First, max(rows.First, min(rows.End(), n)))), nil
}

// differs returns the first position that is not what it was, and whether most values of any are others.
func (d *digest) differs(now *digest) (at int, copied bool) {
	at = int(^uint(0) >> 1)
	for p := max(d.first, now.first); p < min(d.first+len(d.k), now.first+len(now.k)); p++ {
		a, b := p-d.first, p-now.first
		other := 0
		for i, x := range d.v[a].values {
			if x != now.v[b].values[i] {
				other++
			}
		}
		if d.k[a].bits != now.k[b].bits || other > 0 {
			at = min(at, p)
		}
		copied = copied || other > sketchValues*3/4 // of latents, a shift changes the part that has a position
	}
	return at, copied
}

// settled looks at what was put off in a sequence, if there are rows among the first n that the session did not see come, or positions went and nobody said so.
func (s *Session) settled(l *lineage, n, sequence int) error {
	known := len(l.prompt.Tokens)
	if l.moved {
		known = 0
	}
	if n <= known {
		return nil
	}
	err := s.look(l, known, sequence)
	if err == nil && l.off != nil && n > l.off.From {
		err = l.off
	}
	return err
}

// ownCells reports whether a sequence shares its cells with no other.
func (s *Session) ownCells() bool { return s.lib.Sequences(s.lctx) == 1 || s.streams() }

// settleHeld has done what was put off in a sequence that is about to be taken out.
func (s *Session) settleHeld(sequence int) error {
	if len(s.canaryFormat.Sections) == 0 { // the first Attach to learn it: whether there are streams is seen here
		blob, err := s.get(sequence, 0)
		if err != nil {
			return err
		}
		blob = bytes.Clone(blob)
		var tail []byte
		if s.recurs() {
			if tail, err = s.get(sequence, FlagPartial); err != nil {
				return err
			}
		}
		s.canaryFormat, s.rest = s.formatOf(blob, tail)
	}
	return s.settle(sequence, nil)
}
