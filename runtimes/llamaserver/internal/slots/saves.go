package slots

import (
	"slices"
	"time"

	"github.com/dormousekv/dormouse/kv"
)

// UnsavedBut returns the slots that must be saved before another slot than keep begins to work: the server may clear them. Slots that are leased to who
// waits for the turn are among them.
func (t *Table) UnsavedBut(keep *Slot) (out []*Slot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, sl := range t.list {
		if sl.Unsaved && sl != keep && !sl.Working {
			out = append(out, sl)
		}
	}
	return out
}

// QuickBut returns the slots beside one in which the server works, or was done a moment ago. Those for which somebody has waited in vain are left out.
func (t *Table) QuickBut(beside *Slot) (out []*Slot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, sl := range t.list {
		if sl.Working && sl != beside && !sl.slow {
			out = append(out, sl)
		}
	}
	return out
}

// Slow notes that the clients of some slots read slowly: nobody waits for them again.
func (t *Table) Slow(slots []*Slot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, sl := range slots {
		sl.slow = sl.Working
	}
}

// UnsavedAtEnd reports whether a slot in which the server works no more is to be saved. Such a slot is released soon, unless its client reads slowly:
// until then nobody knows whether its rows may be stored. The caller has the turn.
func (t *Table) UnsavedAtEnd(sl *Slot) bool {
	for range 20 {
		now := t.Of(sl)
		if !now.Unsaved || !now.Working || now.slow {
			return now.Unsaved && !now.Working
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	sl.slow = sl.Working
	return sl.Unsaved && !sl.Working
}

// StillIdle reports whether a slot is to be saved that was given back at a time, and that nobody has taken since.
func (t *Table) StillIdle(sl *Slot, ended time.Time) bool {
	now := t.Of(sl)
	return !now.Busy && now.Unsaved && now.Ended.Equal(ended)
}

// Saving returns what a slot is when its save begins. From then on, it counts as saved.
func (t *Table) Saving(sl *Slot) Slot {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := *sl
	sl.Unsaved = false
	return now
}

// NotSaved notes that a save came to nothing, if the slot holds still what it held then.
func (t *Table) NotSaved(sl *Slot, prompt kv.Prompt) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(sl.Prompt.Tokens) == len(prompt.Tokens) && Common(sl.Prompt, prompt) == len(prompt.Tokens) {
		sl.Unsaved = true
	}
}

// SaveLater notes that a slot is to be saved, if anything is known to be in it.
func (t *Table) SaveLater(sl *Slot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	sl.Unsaved = len(sl.Prompt.Tokens) > 0
}

// SavedTo notes the tokens of a slot as its file has them, if nobody has taken it since.
func (t *Table) SavedTo(sl *Slot, prompt kv.Prompt, tokens []kv.Token) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !sl.Busy && len(sl.Prompt.Tokens) > 0 && Common(sl.Prompt, prompt) == len(prompt.Tokens) && len(sl.Prompt.Tokens) == len(prompt.Tokens) {
		sl.Prompt.Tokens = tokens
	}
}

// SavedOther notes that a slot's file has other tokens than the slot was known to hold.
func (t *Table) SavedOther(sl *Slot, prompt kv.Prompt) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !sl.Busy && Common(sl.Prompt, prompt) == len(prompt.Tokens) {
		sl.forget()
	}
}

// LeftWith notes the tokens of a slot whose client has gone, as its file has them: the beginning of the prompt, or something else.
func (t *Table) LeftWith(sl *Slot, tokens []kv.Token) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := min(len(tokens), len(sl.Prompt.Tokens))
	if !slices.Equal(tokens[:n], sl.Prompt.Tokens[:n]) {
		sl.forget()
		return
	}
	sl.Prompt, sl.Left = sl.Prompt.Prefix(n), false
}

// ForgetLeft forgets a slot whose client has gone, if nobody has seen what it holds.
func (t *Table) ForgetLeft(sl *Slot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if sl.Left {
		sl.forget()
	}
}

// Drop forgets a slot whose rows may be of other files. It returns how many tokens the slot held. Drops is the count that its rows belong to from now on.
func (t *Table) Drop(sl *Slot, drops int) (held int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	held = len(sl.Prompt.Tokens)
	sl.forget()
	sl.Drops = drops
	return held
}
