package slots

import (
	"slices"
	"time"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
)

// Slot is a sequence of the server, as far as the front knows it. Its fields are guarded by the lock of the [Table]. Whoever has leased a slot may read
// them without the lock.
type Slot struct {
	ID      int
	Busy    bool // leased
	Working bool // leased, and its request was sent: the server does not clear it
	slow    bool // the server was done with it, but its client reads slowly: nobody waits for it again
	used    time.Time
	Prompt  kv.Prompt // what it holds at least: the last prompt that was computed in it. A save shows what was decoded behind it
	// Unsaved says that it holds rows which the store may lack. It is saved before another request takes the slot.
	Unsaved  bool
	Endpoint request.Endpoint // of the request that filled it
	Kind     string           // what kind of request that was, in words
	foreign  int              // Table.passages when that began
	Drops    int              // weights.Files.Dropped when that began
	Pure     int              // weights.Files.Soiled when the slot was known to hold only what the model has computed
	// adapters are those of the last request that began in the slot, if adapted says that they are known. When the next request names others, the server
	// throws away what the slot holds, restored rows too.
	adapters []kv.Adapter
	adapted  bool
	Left     bool // its client went before the end: nobody knows how far the server came, or whether it began
	Ended    time.Time

	// Of the slot's last request, if it was answered and nothing has changed since.
	last     *request.Shape // what it said
	task     int            // the server's number of it, -1 if that was not seen
	kept     bool           // the slot kept all that it had before
	restored bool           // and that was restored
	empty    bool           // the slot was emptied, and nothing has begun in it since
	coming   bool           // a request was sent whose tokens are not known yet
}

// forget says that nothing is known of the slot any more. The caller holds the table's lock, or has a copy.
func (s *Slot) forget() {
	s.Prompt, s.Unsaved, s.adapted = kv.Prompt{}, false, false
	s.last, s.kept, s.coming, s.empty = nil, false, false, false
}

// Forgotten is a copy of which nothing is known any more.
func (s Slot) Forgotten() Slot {
	s.forget()
	return s
}

// Common returns how many leading tokens of b a slot that holds a can reuse.
func Common(a, b kv.Prompt) int {
	if !slices.Equal(a.Adapters, b.Adapters) {
		return 0
	}
	n := Alike(a.Tokens, b.Tokens)
	if a.Scope != b.Scope {
		n = min(n, bothHave(a, b))
	}
	return n
}

// Alike returns how many leading tokens are the same.
func Alike(a, b []kv.Token) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// bothHave is how many leading tokens two prompts of different keys may share.
func bothHave(a, b kv.Prompt) int { return min(a.ScopeStart, b.ScopeStart) }

// open is how many leading tokens of a prompt everybody may reuse.
func open(p kv.Prompt) int {
	if p.Scope == "" {
		return len(p.Tokens)
	}
	return min(p.ScopeStart, len(p.Tokens))
}
