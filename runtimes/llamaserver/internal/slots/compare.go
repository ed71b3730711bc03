package slots

import (
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/trial"
)

// Believe corrects what idle slots hold, and the leased one, by the server's list: the server empties slots when it sleeps, and idle ones when a cache that
// they share is full. It reports whether the server has loaded its model again: a slot in which a task had begun knows of none.
func (t *Table) Believe(list []api.Slot, leased *Slot) (slept bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.believe(list, leased)
}

func (t *Table) believe(list []api.Slot, leased *Slot) (slept bool) {
	for _, st := range list {
		if st.ID < 0 || st.ID >= len(t.list) {
			continue
		}
		had := t.list[st.ID]
		if had.Busy && had != leased || len(had.Prompt.Tokens) == 0 {
			continue
		}
		n, known := st.Holds()
		switch {
		case st.Processing, known && n < trial.FewTokens, known && n < len(had.Prompt.Tokens) && t.server.Watched: // somebody else's prompt may be in it
			had.forget()
		case known && n < len(had.Prompt.Tokens):
			had.Prompt = had.Prompt.Prefix(n)
		}
		slept = slept || st.Last == nil
	}
	return slept
}

// avoid exchanges a leased slot at which somebody else is at work for an idle one, if there is one.
func (t *Table) avoid(list []api.Slot, leased *Slot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	working := map[int]bool{}
	for _, st := range list {
		working[st.ID] = st.Processing
	}
	t.believe(list, leased)
	if !working[leased.ID] {
		return
	}
	leased.forget()
	for _, other := range t.list {
		if !other.Busy && other.ID < t.usable && !working[other.ID] {
			*leased, *other = *other, *leased
			leased.Busy, other.Busy, leased.used = true, false, other.used
			t.list[leased.ID], t.list[other.ID] = leased, other
			return
		}
	}
}

// move makes another slot the leased one, if nobody has leased it.
func (t *Table) move(leased *Slot, id, task int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if id != leased.ID {
		if id < 0 || id >= len(t.list) || t.list[id].Busy {
			return false
		}
		other := t.list[id]
		leased.ID, other.ID, leased.Pure, other.Pure = other.ID, leased.ID, other.Pure, leased.Pure
		t.list[leased.ID], t.list[other.ID] = leased, other
		other.forget()
	}
	leased.task = task
	return true
}

// began notes the server's number of a slot's request.
func (t *Table) began(sl *Slot, task int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	sl.task = task
}

// forgetEmptied forgets the slots of which the server's list does not say that their tokens are there. A leased one may have fewer than its prompt, since
// its client went: who has leased it sees to that.
func (t *Table) forgetEmptied(list []api.Slot, begun *Slot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, sl := range t.list {
		has := sl == begun || sl.Working && len(list) == 0
		for _, st := range list {
			if n, known := st.Holds(); st.ID == sl.ID {
				has = has || st.Processing && sl.Working || known && n >= trial.FewTokens && (n >= len(sl.Prompt.Tokens) || sl.Working)
			}
		}
		if !has {
			sl.forget()
		}
	}
}

// ForgetToMakeRoom forgets the idle slots beside one, and returns those that held something.
func (t *Table) ForgetToMakeRoom(beside *Slot) (emptied []*Slot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, other := range t.list {
		if other != beside && !other.Busy && len(other.Prompt.Tokens) > 0 {
			emptied = append(emptied, other)
			other.forget()
		}
	}
	return emptied
}

// Empty notes that a slot was emptied.
func (t *Table) Empty(sl *Slot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	sl.forget()
	sl.empty = true
}

// Others returns the slots that hold what a request may not reuse, since another API key has computed it: of one slot, or, with only nil, of all. working
// says that requests of other keys are at work in slots that nobody knows.
func (t *Table) Others(only *Slot, prompt kv.Prompt) (others []*Slot, working bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for scope, n := range t.passing {
		working = working || n > 0 && scope != prompt.Scope
	}
	for _, sl := range t.list {
		if (only == nil || sl == only) && !mayReuse(sl, prompt) {
			others = append(others, sl)
		}
	}
	return others, working
}

// mayReuse reports whether a request may find what a slot holds. A prompt without tokens is one that is not known.
func mayReuse(sl *Slot, prompt kv.Prompt) bool {
	switch held := sl.Prompt; {
	case sl.empty:
		return true
	case sl.coming && held.Scope == prompt.Scope: // its tokens are not known yet, but whose they are
		return true
	case len(held.Tokens) == 0: // nobody knows whose it is
		return false
	case held.Scope == prompt.Scope:
		return true
	case len(prompt.Tokens) == 0:
		return false
	default: // what was decoded behind the prompt is of the same key, and not known
		n := Alike(held.Tokens, prompt.Tokens)
		return n < len(held.Tokens) && n <= bothHave(held, prompt)
	}
}
