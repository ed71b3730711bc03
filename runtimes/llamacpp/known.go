package llamacpp

import (
	"fmt"

	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/sample"
)

// known is what a session knows of all sequences of a context, compared with what their cells have now.
type known struct {
	cells *cells
	form  *form
	lines map[int]*lineage // by sequence
}

// line returns what is known of a sequence. What was known of positions that it does not have any more is forgotten.
func (k *known) line(sequence int) *lineage {
	l := k.lines[sequence]
	if l == nil {
		l = &lineage{}
		k.begin(sequence, l)
	}
	n := k.cells.tokens(sequence)
	if n == 0 && len(l.prompt.Tokens) > 0 && k.form.window > 0 {
		// If no row of a window is left, llama.cpp calls the sequence empty, and takes tokens at any position. Its other layers may have rows.
		k.cells.clear(sequence)
	}
	if n > 0 && n < len(l.prompt.Tokens) && k.form.recurs {
		l.shrunk, l.trusted = true, false // what the caller's word was taken for is not this state
	}
	if n < len(l.prompt.Tokens) {
		l.moved = n > 0
		k.back(l, n)
	}
	l.cut(n)
	if n == 0 { // whatever comes next begins anew
		l.wrong, l.off, l.shrunk, l.unseen = nil, nil, false, false
	}
	return l
}

// begin has what is known of a sequence begin anew.
func (k *known) begin(sequence int, l *lineage) {
	l.sequence = sequence
	k.lines[sequence] = l
}

// forget drops what is known of a sequence.
func (k *known) forget(sequence int) { delete(k.lines, sequence) }

// forgetAll drops all that is known.
func (k *known) forgetAll() { clear(k.lines) }

// back forgets what was known of the positions from n on, where the sequence goes on. The error, l.wrong, says that the rows of what
// is evaluated there are not those of the tokens.
func (k *known) back(l *lineage, n int) error {
	gone := k.windowGone(l, n)
	l.cut(n)
	if l.wrong != nil && n < l.wrong.From && !k.form.stops() {
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

// windowGone says why tokens from position n on would see only a part of their window. llama.cpp keeps rows behind the window as long
// as nobody needs the cells, and Restore brings none of them.
func (k *known) windowGone(l *lineage, n int) *LineageError {
	if k.form.window == 0 || n <= 0 {
		return nil
	}
	const then = "empty the sequence and call Restore"
	if have := k.cells.tokens(l.sequence); have == 0 {
		return l.contradiction(0, fmt.Sprintf("it is said to go on from position %d, and no row of its window layers is left: %s", n, then))
	} else if have < n {
		n = have
	}
	lib := k.cells.lib
	if lib.SequenceMin == nil {
		if n < len(l.prompt.Tokens) {
			return l.contradiction(n, "positions were removed, and whether the window before them is there is not known (llama_memory_seq_pos_min is missing): "+then)
		}
		return nil
	}
	first, need := int(lib.SequenceMin(k.cells.memory, int32(l.sequence))), max(0, n-k.form.window)
	if first < 0 {
		return l.contradiction(n, fmt.Sprintf("tokens there see the rows from position %d on, and the window layers have none: %s", need, then))
	}
	if first > need {
		return l.contradiction(n, fmt.Sprintf("tokens there see the rows from position %d on, and the window layers have them from position %d on only: %s", need, first, then))
	}
	return nil
}

// whole refuses rows below n that were evaluated once more behind removed positions, if a part of their window is gone by now. Their
// tokens are what they were, and what they lack changes them little, so nothing else tells. It is sure if the cache keeps what its
// window layers had. Else it takes rows that went afterwards for rows that were missing.
func (k *known) whole(l *lineage, first int, now []sample.Sketch, n int) error {
	at := l.rows.EvaluatedAgain(first, now, n)
	if at == n {
		return nil
	}
	gone := k.windowGone(l, max(1, at))
	if gone == nil {
		return nil
	}
	gone.Why = "the same tokens were evaluated again behind positions that were removed; " + gone.Why
	l.wrong = gone
	return gone
}

// doubtAll has nothing stored of what the sequences hold now.
func (k *known) doubtAll(why string) {
	for i := range k.cells.sequences() {
		if k.cells.tokens(i) > 0 {
			l := k.line(i)
			l.off = l.contradiction(0, why)
		}
	}
}

// doubtUnseen has nothing stored of what the sequences hold and the session did not see come.
func (k *known) doubtUnseen(why string) {
	for i := range k.cells.sequences() {
		if l := k.line(i); k.cells.tokens(i) > len(l.prompt.Tokens) {
			l.off = l.contradiction(len(l.prompt.Tokens), why)
		}
	}
}

// evaluated notes that llama.cpp has done what it had put off.
func (k *known) evaluated() {
	for _, l := range k.lines {
		l.unsettled, l.moved = false, false
	}
}

// bytes is what is held for Save, of all sequences.
func (k *known) bytes() (n int64) {
	for sequence := range k.lines {
		l := k.line(sequence) // what was emptied holds nothing
		n += l.captured.Bytes + l.statesBytes()
	}
	return n
}

// mostCaptured is the sequence that holds most window rows, the given one of several.
func (k *known) mostCaptured(l *lineage) *lineage {
	most := l
	for _, other := range k.lines {
		if other.captured.Bytes > most.captured.Bytes {
			most = other
		}
	}
	return most
}

// dropStates drops states on the way, the first ones of the sequence that holds most, until no more than so many bytes are held.
func (k *known) dropStates(l *lineage, bytes int64) {
	for k.bytes() > bytes {
		most := l
		for _, other := range k.lines {
			if other.statesBytes() > most.statesBytes() {
				most = other
			}
		}
		if len(most.states) == 0 {
			break
		}
		most.states = most.states[1:]
	}
}

// trim drops what is held for Save.
func (k *known) trim() {
	for _, l := range k.lines {
		l.forgets()
	}
}
