package llamacpp

import (
	"fmt"
	"slices"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/sample"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/window"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/state"
)

// lineage is what a session knows of a sequence: what it restored, evaluated, captured or saved there. llama.cpp keeps no
// tokens, and after a shift the positions look as they always did.
type lineage struct {
	sequence int
	prompt   kv.Prompt       // the tokens of the first positions, in memory of its own
	rows     sample.Seen     // of the first positions, as far as rows were seen
	captured window.Captured // window rows that are not stored yet
	states   []checkpoint    // that Prefill took and are not stored yet, the first one first
	stored   int             // at this position, the window rows before are in the store
	trusted  bool            // since Reset, the caller's word is taken for the order of cells, too
	told     int             // how many tokens the sequence had at Reset, or fewer if Truncate said so since
	unseen   bool            // the first tokens are the caller's word
	shrunk   bool            // a recurrent state that went back: its positions were shifted, or llama.cpp took an older state

	wrong *LineageError // from that position on, the sequence has other rows than its tokens have; nil: it has not
	off   *LineageError // from that position on, positions were shifted, or rows copied that the session knows nothing of

	// Until the next decode, llama.cpp may have something put off here: after Reset, and where positions went and nobody said so.
	unsettled, moved bool
}

// checkpoint is a state on the way of a prompt, in memory of its own.
type checkpoint struct {
	prompt kv.Prompt // up to it
	state  []byte
}

// of reports whether it is the state after the first tokens of that prompt.
func (c checkpoint) of(p kv.Prompt) bool {
	n := len(c.prompt.Tokens)
	return n <= len(p.Tokens) && parting(c.prompt, p, n) < 0
}

// statesBytes is the memory of the states on the way.
func (l *lineage) statesBytes() (bytes int64) {
	for _, c := range l.states {
		bytes += int64(len(c.state))
	}
	return bytes
}

// keepStates is how many states stay stored on the way of a prompt, unless Options.Put says otherwise: the first, and the last
// ones. In a chat these are the one after its first part, the end of the turn before, the one near the end of the last
// prompt, and the end.
const keepStates = 4

// takes keeps a state on the way of a prompt, in place of those on the way of others.
func (l *lineage) takes(c checkpoint, prompt kv.Prompt) {
	list := slices.DeleteFunc(l.states, func(c checkpoint) bool { return !c.of(prompt) })
	list = append(list, c)
	if len(list) == keepStates { // one more comes with Save
		list = append(list[:1], list[2:]...)
	}
	l.states = list
}

// forgets drops what only Save needs.
func (l *lineage) forgets() { l.captured, l.states = window.Captured{}, nil }

// cut forgets the positions from n on.
func (l *lineage) cut(n int) {
	n = max(n, 0)
	if n < len(l.prompt.Tokens) {
		l.prompt = until(l.prompt, n)
	}
	l.rows.Cut(n)
	l.captured.Cut(n)
	if l.off != nil && n <= l.off.From {
		l.off = nil
	}
	if n < l.stored {
		l.stored = 0
	}
	l.states = slices.DeleteFunc(l.states, func(c checkpoint) bool { return len(c.prompt.Tokens) > n })
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

// contradiction is an ErrLineage from that position on.
func (l *lineage) contradiction(from int, why string) *LineageError {
	return &LineageError{l.sequence, from, why}
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
func (l *lineage) agrees(prompt kv.Prompt, n int) error {
	at := parting(l.prompt, prompt, min(n, len(l.prompt.Tokens), len(prompt.Tokens)))
	if at < 0 {
		return nil
	}
	return l.contradiction(at, "the prompt is another one from there on than the session restored, evaluated or saved. "+
		"After a shift of positions it must not be saved; if you removed these positions and evaluated others, call Truncate or Reset")
}

// seen refuses a state that cannot be cut and of whose tokens the session saw none, or that went back: it has no rows that could tell
// whether positions were shifted.
func (l *lineage) seen() error {
	switch {
	case l.trusted:
		return nil
	case l.shrunk:
		return l.contradiction(0, "it has fewer positions than it had, and a recurrent state never forgets: positions were shifted or taken back. If you emptied it and filled it anew, call Reset")
	case l.unseen || len(l.prompt.Tokens) == 0:
		return l.contradiction(0, "the session did not see its first tokens, and a state that cannot be cut does not tell whether positions were shifted: "+
			"evaluate with Prefill, or call Capture after every batch from the first on, or Reset if you are sure")
	}
	return nil
}

// same compares rows, from position first on, with what was seen of the first n positions before.
func (l *lineage) same(first int, now []sample.Sketch, n int) error {
	if bad := l.rows.Contradicts(first, now, n); bad != nil {
		return l.contradiction(bad.At, bad.Why)
	}
	return nil
}

// inOrder looks at the cells of a sequence that has them for itself. llama.cpp fills them from the first one on, so the order
// of cells is that of positions. After a shift, the next tokens go into the cells that were freed, before those of lower positions.
func (l *lineage) inOrder(section *state.Section, n int) error {
	if l.trusted {
		return nil
	}
	for i, pos := range section.Pos {
		if int(pos) != i && i < n {
			return l.contradiction(i, fmt.Sprintf("position %d lies in the cell of position %d: positions were shifted; if you gave it a state in another order of cells, call Reset", pos, i))
		}
	}
	return nil
}
