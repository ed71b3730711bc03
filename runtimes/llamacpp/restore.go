package llamacpp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// Restored says what a Restore gave.
type Restored struct {
	Tokens int       // the sequence holds these leading tokens of the prompt; 0: it is empty
	Reason db.Reason // why not more
	Bytes  int64     // size of the state that llama.cpp was given
}

// Restore brings the longest stored prefix of prompt that the context has room for into an empty sequence, at most all but
// its last token: a state carries no logits, so one token at least has to be evaluated. The caller evaluates prompt[Tokens:] at the positions from
// Tokens on ([Session.Prefill]). Where other sequences occupy cells of the same buffer, what is left is used but for one cell;
// cells that several of them share are taken to be as many, if the whole prefix does not fit.
//
// The state is handed over in pieces of a few MiB where sequences share one buffer and one more of them is empty; else
// the session builds all of it in memory, which waits for the next restore if it is no more than 64 MiB, until [Session.Trim] or until the system wants it,
// and else is given back at the end. Damage that is met on the way, or ctx being cancelled,
// never leaves a part: the sequence is emptied, and after damage a shorter prefix restored.
//
// Where sequences have streams of their own, it evaluates one token first, so that no copy that llama.cpp has put off overwrites what is restored.
//
// The first time after the prompt's adapters are others than before, it evaluates a few tokens to see that the context has them; adapters
// with which nothing is stored yet are refused with ErrIdentity: [Session.Recheck] takes the first look.
//
// An error leaves the sequence empty, but for ErrNotEmpty, which leaves it as it was.
func (s *Session) Restore(ctx context.Context, prompt kv.Prompt, sequence int) (Restored, error) {
	if err := s.begin(ctx, sequence); err != nil {
		return Restored{}, err
	}
	prompt = ordered(prompt)
	if n := s.tokens(sequence); n > 0 {
		return Restored{}, fmt.Errorf("%w: sequence %d has %d tokens", ErrNotEmpty, sequence, n)
	}
	s.clear(sequence) // as Prefill from position 0 does
	err := s.identified(prompt)
	if errors.Is(err, ErrIdentity) { // other adapters
		err = s.recheckIn(ctx, sequence, prompt.Adapters, false)
	}
	if err != nil {
		return Restored{}, err
	}
	s.lines[sequence] = &lineage{unsettled: true}
	defer s.giveBack()
	s.ended(sequence)
	turn, start := &turn{Observation: db.Observation{Asked: len(prompt.Tokens)}}, time.Now()
	s.turns[sequence] = turn
	limit := s.aligned(min(len(prompt.Tokens), s.room()) - 1)
	got, err := s.restoreUpTo(ctx, prompt, sequence, limit)
	if other := s.otherTokens(sequence); errors.Is(err, errNotTaken) && other > 0 { // they may have the cells
		free := max(0, int(s.lib.ContextTokens(s.lctx))-other)
		got, err = s.restoreUpTo(ctx, prompt, sequence, min(limit, s.aligned(free-1)))
		if err == nil && (got.Reason.Code == db.Complete || got.Reason.Code == db.TooShort) {
			got.Reason = db.Reason{Code: db.MemoryShort, At: got.Tokens}
		}
	}
	turn.Loaded, turn.Reason, turn.Load = got.Tokens, got.Reason, time.Since(start)-turn.Lookup
	return got, err
}

// aligned is the largest number of tokens up to n that may be restored.
func (s *Session) aligned(n int) int {
	if s.o.Align > 1 {
		n -= n % s.o.Align
	}
	return n
}

// restoreUpTo restores at most so many tokens.
func (s *Session) restoreUpTo(ctx context.Context, prompt kv.Prompt, sequence, limit int) (Restored, error) {
	for {
		if limit <= 0 {
			return Restored{Reason: db.Reason{Code: db.TooShort}}, nil
		}
		got, err := s.restore(ctx, prompt, sequence, limit)
		if got.Tokens > 0 {
			s.line(sequence).rests(prompt.Prefix(got.Tokens))
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

func (s *Session) restore(ctx context.Context, prompt kv.Prompt, sequence, limit int) (Restored, error) {
	start, turn := time.Now(), s.turns[sequence]
	m, err := s.model.Match(ctx, prompt, db.MatchOptions{Limit: limit})
	if err != nil {
		return Restored{}, err
	}
	defer m.Close()
	n := m.Tokens()
	turn.Found, turn.Lookup = max(turn.Found, n), turn.Lookup+time.Since(start)
	if n == 0 {
		return Restored{Reason: m.Reason()}, nil
	}
	if s.streams() && s.line(sequence).unsettled { // a copy into this stream, or out of it, may be due
		if err := s.settle(sequence, nil); err != nil {
			return Restored{}, err
		}
	}
	most := n
	if s.mode != Opaque && s.lay.oneBuffer() && n+s.otherTokens(sequence) == int(s.lib.ContextTokens(s.lctx)) { // no cell would be left for the next token
		most--
	}
	if most = s.aligned(most); most < n {
		return Restored{}, shorter(most)
	}
	if s.mode == Opaque {
		return s.restoreOpaque(ctx, m, sequence)
	}
	if s.mode == Hybrid {
		if size, err := m.StateBytes(len(s.lay.planes)); err != nil || size != int64(s.lay.recurrent.Size()) {
			return Restored{}, errors.Join(err, fmt.Errorf("%w: the stored recurrent state has %d bytes, expected %d", ErrState, size, s.lay.recurrent.Size()))
		}
	}
	window := s.lay.window
	if s.o.Align > 0 && window > 0 && n > window {
		got, err := s.restoreLikeItself(ctx, m, prompt, sequence, n)
		if err != nil || got.Tokens > 0 {
			return got, err
		}
	}
	return s.stream(sequence, n, window, func(rows kv.Rows, from, to int) (db.Restored, error) {
		return m.RestoreRange(ctx, rows)
	})
}

// restoreLikeItself restores one row of the window more than is needed, as llama.cpp does: it hides the oldest row of the
// window only from the next token on. Nobody attends to that row, but it shifts the others by a cell, and where the cells
// lie decides in which order llama.cpp adds up. The row is one that a prefix shorter by a token needs, so that prefix is
// restored as well. No tokens mean that it is not stored.
func (s *Session) restoreLikeItself(ctx context.Context, m *db.Match, prompt kv.Prompt, sequence, n int) (Restored, error) {
	before, err := s.model.Match(ctx, prompt, db.MatchOptions{Limit: n - 1})
	if err != nil {
		return Restored{}, err
	}
	defer before.Close()
	if before.Tokens() != n-1 {
		return Restored{}, nil
	}
	window, d := s.lay.window, s.model.Descriptor()
	got, err := s.stream(sequence, n, window+1, func(rows kv.Rows, from, to int) (db.Restored, error) {
		if first := max(from, n-1-window); first < to { // the rows of a window before n-1, and then those before n over them
			got, err := before.RestoreRange(ctx, s.lay.only(d, rows, first, min(to, n-1), false))
			if err != nil || got.Tokens != n-1 {
				return db.Restored{Reason: got.Reason}, err
			}
		}
		return m.RestoreRange(ctx, s.lay.only(d, rows, max(from, n-window), to, true))
	})
	var again shorter
	if errors.As(err, &again) { // damage, perhaps of that row only
		return Restored{}, nil
	}
	return got, err
}

func (s *Session) restoreOpaque(ctx context.Context, m *db.Match, sequence int) (Restored, error) {
	n := m.Tokens()
	size, err := m.StateBytes(0)
	if err != nil {
		return Restored{}, err
	}
	if size == 0 {
		return Restored{Reason: m.Reason()}, nil
	}
	blob := s.roomFor(int(size))
	got, err := m.Restore(ctx, kv.Rows{kv.Packed(n, 1, blob)})
	switch {
	case err != nil:
		return Restored{}, err
	case got.Tokens == 0:
		return Restored{Reason: got.Reason}, nil
	case got.Tokens < n: // damage: the state at a shorter prefix has another size
		return Restored{}, shorter(got.Tokens)
	}
	restored, err := s.install(sequence, n, blob, got.Reason)
	if err == nil {
		s.line(sequence).see(s.sketchesOfWhole(blob))
	}
	return restored, err
}

// install hands a blob of n tokens to llama.cpp and checks what became of it.
func (s *Session) install(sequence, n int, blob []byte, reason db.Reason) (Restored, error) {
	if err := s.set(sequence, blob); err != nil {
		return Restored{}, err
	}
	return s.installed(sequence, n, int64(len(blob)), reason)
}

// installed checks that the sequence has n tokens, after so many bytes of state.
func (s *Session) installed(sequence, n int, bytes int64, reason db.Reason) (Restored, error) {
	if have := s.tokens(sequence); have != n {
		s.clear(sequence)
		return Restored{}, fmt.Errorf("%w: after a restore of %d tokens sequence %d has %d", ErrState, n, sequence, have)
	}
	return Restored{Tokens: n, Reason: reason, Bytes: bytes}, nil
}
