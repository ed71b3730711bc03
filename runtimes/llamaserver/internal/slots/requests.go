package slots

import (
	"slices"
	"time"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/trial"
)

// An eighth of a request may be new: more may be stored, and takes so long to compute that making its tokens first makes no difference.
const newPart = 8

// What a template may write around a message, in tokens, beside the message's bytes.
const aroundMessage = 64

// Next is a request whose tokens are not known yet.
type Next struct {
	Shape  *request.Shape
	Kind   string
	Pins   bool      // it can name its slot
	Prompt kv.Prompt // all of it but its tokens
	Room   int       // tokens that a slot has room for
	Rolls  bool      // a slot can go back to any place of what it holds
}

// Continued leases the slot whose last request a request goes on with; nil: there is none. Kinds of requests that rest get none.
func (t *Table) Continued(r Next, overtaken *trial.Cases[string]) (best *Slot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.foreign > 0 || t.server.ByKey && !r.Pins && len(t.list) > 1 { // in another slot there may be more of it, of another key
		return nil
	}
	for _, sl := range t.list {
		if sl.Busy || sl.ID >= t.usable || sl.last == nil || len(sl.Prompt.Tokens) < trial.FewTokens || sl.Unsaved && !sl.kept {
			continue
		}
		// Where a slot cannot go back to any place, it needs checkpoints that the server has made.
		if !r.Rolls && (sl.restored || r.Shape.IsText()) {
			continue
		}
		if sl.Prompt.Scope != r.Prompt.Scope || !slices.Equal(sl.Prompt.Adapters, r.Prompt.Adapters) {
			continue
		}
		more, messages, ok := r.Shape.Extends(sl.last)
		if !ok || more > r.Shape.Bytes()/newPart || len(sl.Prompt.Tokens)+more+aroundMessage*(messages+2) >= r.Room {
			continue
		}
		if best == nil || len(sl.Prompt.Tokens) > len(best.Prompt.Tokens) {
			best = sl
		}
	}
	if best == nil || overtaken.Resting(r.Kind) {
		return nil
	}
	best.Busy, best.used = true, time.Now()
	return best
}

// Unchanged corrects the table by the server's list, as [Table.Believe] does. It reports whether a leased slot is as its last request has left it, as
// far as the server says.
func (t *Table) Unchanged(list []api.Slot, sl *Slot) (same, slept bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	held := len(sl.Prompt.Tokens)
	slept = t.believe(list, sl)
	for _, st := range list {
		n, known := st.Holds()
		same = same || st.ID == sl.ID && !st.Processing && st.Last != nil && known && n >= held && (!t.server.Watched || st.Task() == sl.task)
	}
	return same && held >= trial.FewTokens && len(sl.Prompt.Tokens) == held && !slept && sl.last != nil, slept
}

// Begun notes what a slot holds once a prompt has begun in it. It returns what the slot was, for [Table.Failed].
func (t *Table) Begun(sl *Slot, prompt kv.Prompt, req *request.Request) (before Slot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before = *sl
	sl.Prompt, sl.Endpoint, sl.Kind, sl.foreign = prompt, req.Endpoint, req.Kind(), t.passages
	sl.Unsaved, sl.Working, sl.Left = true, true, false
	sl.adapters, sl.adapted = prompt.Adapters, true
	sl.last, sl.task, sl.coming, sl.empty = nil, -1, len(prompt.Tokens) == 0, false
	return before
}

// Failed notes that the server has answered a slot's request with an error. If that was the request's fault, the slot holds what it held before.
func (t *Table) Failed(sl *Slot, before Slot, status int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if status >= 400 && status < 500 {
		sl.Prompt, sl.Unsaved, sl.Endpoint, sl.Kind, sl.foreign = before.Prompt, before.Unsaved, before.Endpoint, before.Kind, before.foreign
		sl.last, sl.task, sl.kept, sl.coming = before.last, -1, before.kept, false
	} else {
		sl.forget()
	}
}

// Answered notes what a slot's last request was, once it has been answered. kept says that the slot has kept all that it had before, restored that what
// it had was restored.
func (t *Table) Answered(sl *Slot, shape *request.Shape, kept, restored bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if sl.last = nil; len(sl.Prompt.Tokens) > 0 {
		sl.last = shape
	}
	sl.kept, sl.restored = kept, restored
}

// Comes gives a slot the tokens of a request that was sent before they were known. A slot that was forgotten meanwhile stays so.
func (t *Table) Comes(sl *Slot, prompt kv.Prompt) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if sl.coming {
		sl.Prompt, sl.coming = prompt, false
	}
}

// Restored notes what was restored into a slot, and how often the server was soiled before.
func (t *Table) Restored(sl *Slot, prompt kv.Prompt, soiled int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	sl.Prompt, sl.Unsaved, sl.Pure, sl.empty = prompt, false, soiled, false
}

// Leaves notes that the client of a slot went before the end.
func (t *Table) Leaves(sl *Slot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	sl.Left = true
}

// Soil forgets a slot that may hold rows which are none of the model's.
func (t *Table) Soil(sl *Slot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	sl.forget()
	sl.Pure = -1
}

// Purified notes that a slot was emptied of rows which may not be the model's.
func (t *Table) Purified(sl *Slot, soiled int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	sl.Prompt, sl.Unsaved, sl.Pure = kv.Prompt{}, false, soiled
}

// Adapted reports whether the last request in a slot had these adapters.
func (t *Table) Adapted(sl *Slot, adapters []kv.Adapter) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return sl.adapted && slices.Equal(sl.adapters, adapters)
}

// Adapt notes that nothing is in a slot but that it has these adapters.
func (t *Table) Adapt(sl *Slot, adapters []kv.Adapter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	sl.forget()
	sl.adapters, sl.adapted = adapters, true
}

// Unadapted notes that nobody knows which adapters the last request in a slot had.
func (t *Table) Unadapted(sl *Slot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	sl.adapted = false
}

// Nearest is the prompt of a slot that has most in common with another one.
type Nearest struct {
	Common int        // leading tokens that both have
	Theirs []kv.Token // of the slot's prompt from there on; none: one of both ends there
	At     time.Time  // when it was last in its slot; zero: not known
}

// Nearest finds the slot's prompt that has most in common with another one, and up to most tokens of it. Of what belongs to another API key it sees what
// all share.
func (t *Table) Nearest(prompt kv.Prompt, most int) (best Nearest) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, sl := range t.list {
		theirs := sl.Prompt.Tokens
		if sl.Prompt.Scope != prompt.Scope {
			theirs = theirs[:min(open(sl.Prompt), open(prompt))]
		}
		n := Alike(theirs, prompt.Tokens)
		if len(theirs) == 0 || !slices.Equal(sl.Prompt.Adapters, prompt.Adapters) || n < best.Common || n == best.Common && best.Theirs != nil {
			continue
		}
		best = Nearest{Common: n, At: sl.Ended}
		if n < min(len(theirs), len(prompt.Tokens)) {
			best.Theirs = slices.Clone(theirs[n:min(n+most, len(theirs))])
		}
	}
	return best
}
