package llamacpp

import (
	"errors"
	"fmt"
	"slices"

	"github.com/dormousekv/dormouse/kv"
)

// ErrLineage is returned by Save and Capture when a sequence cannot hold what it is said to hold. The error is a
// [*LineageError].
var ErrLineage = errors.New("llamacpp: the sequence does not hold the prompt")

// LineageError says from which position on a sequence contradicts a prompt. Nothing was stored; what lies before can be, if it
// stands the same checks: Save(ctx, prompt.Prefix(From), sequence).
//
// Either positions were shifted or divided (llama_memory_seq_add, llama_memory_seq_div): such rows are approximations, and never become
// those of the tokens at their new positions, however many are evaluated behind them. Or the prompt is not that of the
// sequence. Or the caller changed the sequence in honest ways and did not say so: [Session.Reset], [Session.Truncate].
type LineageError struct {
	Sequence int
	From     int // the first position that contradicts
	Why      string
}

func (e *LineageError) Error() string {
	return fmt.Sprintf("%v from position %d on: sequence %d: %s", ErrLineage, e.From, e.Sequence, e.Why)
}

// Is makes errors.Is(err, ErrLineage) true.
func (e *LineageError) Is(target error) bool { return target == ErrLineage }

// lineage is what a session knows of a sequence: what it restored, evaluated, captured or saved there. llama.cpp keeps no
// tokens, and after a shift the positions look as they always did.
type lineage struct {
	prompt   kv.Prompt    // the tokens of the first positions, in memory of its own
	sketches []sketch     // of the first positions, as far as rows were seen
	captured captured     // window rows that are not stored yet
	states   []checkpoint // that Prefill took and are not stored yet, the first one first
	stored   int          // at this position, the window rows before are in the store
	trusted  bool         // since Reset, the caller's word is taken for the order of cells, too
	told     int          // how many tokens the sequence had at Reset, or fewer if Truncate said so since
	unseen   bool         // the first tokens are the caller's word
	shrunk   bool         // a recurrent state that went back: its positions were shifted, or llama.cpp took an older state

	wrong *LineageError // from that position on, the sequence has other rows than its tokens have; nil: it has not
	off   *LineageError // from that position on, positions were shifted, or rows copied that the session knows nothing of

	// Until the next decode, llama.cpp may have something put off here: after Reset, and where positions went and nobody said so.
	unsettled, moved bool
}

// line returns what is known of a sequence. What was known of positions that it does not have any more is forgotten.
func (s *Session) line(sequence int) *lineage {
	l := s.lines[sequence]
	if l == nil {
		l = &lineage{}
		s.lines[sequence] = l
	}
	n := s.tokens(sequence)
	if n == 0 && len(l.prompt.Tokens) > 0 && s.window() > 0 {
		// Where no row of a window is left, llama.cpp says that the sequence is empty, and takes tokens at any position; its other layers may have rows.
		s.clear(sequence)
	}
	if n > 0 && n < len(l.prompt.Tokens) && s.recurs() {
		l.shrunk, l.trusted = true, false // what the caller's word was taken for is not this state
	}
	if n < len(l.prompt.Tokens) {
		l.moved = n > 0
		s.back(l, n, sequence)
	}
	l.cut(n)
	if n == 0 { // whatever comes next begins anew
		l.wrong, l.off, l.shrunk, l.unseen = nil, nil, false, false
	}
	return l
}

// back forgets what was known of the positions from n on, from where the sequence goes on. The error says that what is evaluated there is not
// what the tokens are: l.wrong.
func (s *Session) back(l *lineage, n, sequence int) error {
	gone := s.windowGone(l, n, sequence)
	l.cut(n)
	if l.wrong != nil && n < l.wrong.From && !s.stops() {
		l.wrong = nil
	}
	if l.wrong == nil || gone != nil && gone.From < l.wrong.From {
		l.wrong = gone
	}
	if l.wrong == nil || n < l.wrong.From {
		return nil
	}
	return l.wrong
}

// window is how many rows the window layers look back, besides the token itself; 0: there are none, or, beside recurrent layers, none that could go back alone.
func (s *Session) window() int {
	switch {
	case s.lay != nil:
		return s.lay.window
	case s.recurs():
		return 0
	}
	return max(0, int(s.lib.Window(s.lib.GetModel(s.lctx)))-1)
}

// recurs reports whether some layers keep a state that never forgets, in place of rows.
func (s *Session) recurs() bool {
	model := s.lib.GetModel(s.lctx)
	return s.mode == Hybrid || s.lib.IsRecurrent(model) || s.lib.IsHybrid != nil && s.lib.IsHybrid(model)
}

// windowGone says why tokens from position n on would see a part of their window only. llama.cpp keeps rows behind the window for as long as nobody needs the cells,
// and Restore brings none of them.
func (s *Session) windowGone(l *lineage, n, sequence int) *LineageError {
	window := s.window()
	if window == 0 || n <= 0 {
		return nil
	}
	const then = "empty the sequence and call Restore"
	if have := s.tokens(sequence); have == 0 {
		return &LineageError{sequence, 0, fmt.Sprintf("it is said to go on from position %d, and no row of its window layers is left: %s", n, then)}
	} else if have < n {
		n = have
	}
	if s.lib.SequenceMin == nil {
		if n < len(l.prompt.Tokens) {
			return &LineageError{sequence, n, "positions were removed, and whether the window before them is there is not known (llama_memory_seq_pos_min is missing): " + then}
		}
		return nil
	}
	first, need := int(s.lib.SequenceMin(s.memory, int32(sequence))), max(0, n-window)
	if first < 0 {
		return &LineageError{sequence, n, fmt.Sprintf("tokens there see the rows from position %d on, and the window layers have none: %s", need, then)}
	}
	if first > need {
		return &LineageError{sequence, n, fmt.Sprintf("tokens there see the rows from position %d on, and the window layers have them from position %d on only: %s", need, first, then)}
	}
	return nil
}

// Reset tells the session that the caller has emptied a sequence and filled it again without it: by a decode loop of
// his own, llama_memory_seq_cp or llama_state_seq_set_data. The next Save takes his word for what is in it. It is not for
// sequences whose positions were shifted: their rows must never be saved. Call it after the sequence was filled: llama.cpp copies rows late, and a copy that is still
// due is stored only if the sequence has the positions that it had at Reset.
//
// Restore, and Prefill from position 0, need no Reset.
func (s *Session) Reset(sequence int) error {
	if err := s.check(sequence); err != nil {
		return err
	}
	s.lines[sequence] = &lineage{trusted: true, unsettled: true, told: s.tokens(sequence)}
	s.ended(sequence)
	return nil
}

// Truncate tells the session that the caller has removed the positions from n on (llama_memory_seq_rm) and evaluates others there
// without it. Prefill from position n needs no Truncate. In a sliding-window model call it whenever you removed positions, whatever you evaluate there, also
// the same tokens, and before you do: ErrLineage says that the rows of the window before n are not there any more, or were not restored. What is evaluated
// there is then refused by Save, which without this call may not see it.
func (s *Session) Truncate(sequence, n int) error {
	if err := s.check(sequence); err != nil {
		return err
	}
	l := s.line(sequence)
	l.told = min(l.told, max(n, 0))
	return s.back(l, max(n, 0), sequence)
}

// cut forgets the positions from n on.
func (l *lineage) cut(n int) {
	n = max(n, 0)
	if n < len(l.prompt.Tokens) {
		l.prompt = until(l.prompt, n)
	}
	l.sketches = l.sketches[:min(n, len(l.sketches))]
	l.captured.cut(n)
	if l.off != nil && n <= l.off.From {
		l.off = nil
	}
	if n < l.stored {
		l.stored = 0
	}
	l.states = slices.DeleteFunc(l.states, func(c checkpoint) bool { return len(c.prompt.Tokens) > n })
}

// refuses returns l.off or l.wrong, if the first n positions are not all before it.
func (l *lineage) refuses(n int) error {
	for _, bad := range []*LineageError{l.off, l.wrong} {
		if bad != nil && n > bad.From {
			return bad
		}
	}
	return nil
}

// agrees compares the first n tokens of a prompt with what is known of the sequence.
func (l *lineage) agrees(prompt kv.Prompt, n, sequence int) error {
	at := parting(l.prompt, prompt, min(n, len(l.prompt.Tokens), len(prompt.Tokens)))
	if at < 0 {
		return nil
	}
	return &LineageError{sequence, at, "the prompt is another one from there on than the session restored, evaluated or saved. " +
		"After a shift of positions it must not be saved; if you removed these positions and evaluated others, call Truncate or Reset"}
}

// seen refuses a state that cannot be cut and of whose tokens the session saw none, or that went back: it has no rows that could tell
// whether positions were shifted.
func (l *lineage) seen(sequence int) error {
	switch {
	case l.trusted:
		return nil
	case l.shrunk:
		return &LineageError{sequence, 0, "it has fewer positions than it had, and a recurrent state never forgets: positions were shifted or taken back. If you emptied it and filled it anew, call Reset"}
	case l.unseen || len(l.prompt.Tokens) == 0:
		return &LineageError{sequence, 0, "the session did not see its first tokens, and a state that cannot be cut does not tell whether positions were shifted: " +
			"evaluate with Prefill, or call Capture after every batch from the first on, or Reset if you are sure"}
	}
	return nil
}

// parting is the first position, before n, at which two prompts part; -1 if they do not. What adapters, spans and tokens
// say goes into rows, whose data it is does not.
func parting(a, b kv.Prompt, n int) int {
	if n == 0 {
		return -1
	}
	if !slices.Equal(a.Adapters, b.Adapters) {
		return 0
	}
	at := n
	for i := range n {
		if a.Tokens[i] != b.Tokens[i] {
			at = i
			break
		}
	}
	for i := range max(len(a.Spans), len(b.Spans)) {
		switch {
		case i >= len(a.Spans):
			at = min(at, b.Spans[i].Start)
		case i >= len(b.Spans):
			at = min(at, a.Spans[i].Start)
		case a.Spans[i] == b.Spans[i]:
			continue
		default:
			at = min(at, a.Spans[i].Start, b.Spans[i].Start)
		}
	}
	if at == n {
		return -1
	}
	return at
}

// holds notes that the sequence holds a prompt that agrees with what was known.
func (l *lineage) holds(prompt kv.Prompt) {
	have := len(l.prompt.Tokens)
	if n := len(prompt.Tokens); n >= have {
		l.prompt.Tokens = append(l.prompt.Tokens, prompt.Tokens[have:]...)
		l.prompt.Spans, l.prompt.Adapters = slices.Clone(prompt.Spans), slices.Clone(prompt.Adapters)
	}
}

// rests notes that the sequence holds a prompt, and that the store does.
func (l *lineage) rests(prompt kv.Prompt) {
	l.holds(prompt)
	l.stored = len(prompt.Tokens)
}
