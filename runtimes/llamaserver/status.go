package llamaserver

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/dormousekv/dormouse/obs/figures"
)

// Status is how a front is.
type Status struct {
	Dir   string // of the store
	Store string // "open", or why there is none
	// NotStoring is why nothing is stored though the store is open: "not storing: 3.9 MiB free, 256 MiB are kept free". Empty: it is.
	NotStoring string        `json:",omitempty"`
	SlotFiles  string        // where they are, in words
	Bytes      int64         // that the store takes
	Budget     int64         // that it may take
	Server     string        // in words
	ServerPID  int           `json:",omitempty"`
	Models     []ModelStatus // that the server runs
	Started    int64         // how often the server was started
	Normalized []Normalized  `json:",omitempty"` // by Options.Normalize
	Requests   []Count
	// Tokens of prompts of which it is known what became of them: asked for, which is those not computed and those computed together; of those not computed, those
	// that came out of the store. Unknown are tokens of all other prompts: of cancelled requests, say. Unused were restored from the store, but computed
	// again all the same.
	Asked, Reused, Computed, FromStore, Unknown, Unused int64
	Since                                               time.Time     // this start: all counts and tokens are since then
	Saved                                               time.Duration // of computing, less what lookups and restores took
	// SavedEver is the same of all starts of fronts with this store, since EverSince; the zero time: nothing was counted yet.
	SavedEver  time.Duration
	EverSince  time.Time
	Recent     []figures.Request // the last ones, the newest first
	Goroutines int               // of the front's process
	Rates      []figures.Rate    // how fast prompts are computed, by model, as measured; of earlier starts, too
}

// Count is how many requests ended in one way.
type Count struct {
	Outcome string
	Reason  string // a code: why no more was reused, or why the request passed
	N       int64
}

// Status says how the front is. It asks the file system what is free, and a server that somebody else runs whether it answers.
func (f *Front) Status(ctx context.Context) (Status, error) {
	out := Status{Dir: f.o.Dir, Store: "open", Started: f.started.Load(), SlotFiles: f.folder.String()}
	if f.o.Attach != "" {
		out.Server = "answers at " + f.o.Attach
		if err := f.Reach(ctx, time.Second); err != nil {
			out.Server = "does not answer at " + f.o.Attach + ": " + err.Error()
		}
	}
	out.Normalized = f.rules.counts()
	r := f.ledger.record.Read()
	out.Asked, out.Reused, out.Computed, out.FromStore, out.Unknown, out.Unused, out.Saved, out.Since, out.Rates, out.Recent = r.Asked, r.Reused, r.Computed, r.FromStore, r.Unknown, r.Unused, r.Saved, r.Since, r.Rates, r.Recent
	out.SavedEver, out.EverSince = f.ledger.totals.sum()
	out.Goroutines = runtime.NumGoroutine()
	for kind, n := range r.Requests {
		out.Requests = append(out.Requests, Count{kind.Outcome.String(), kind.Reason, n})
	}
	slices.SortFunc(out.Requests, func(a, b Count) int { return cmp.Or(cmp.Compare(b.N, a.N), strings.Compare(a.Reason, b.Reason)) })
	store, err := f.shelf.store()
	if err != nil {
		out.Store = err.Error()
	} else {
		st, err := store.Stats()
		if err != nil {
			return out, err
		}
		out.Bytes, out.Budget, out.NotStoring = st.DiskBytes, store.Options().Budget, f.shelf.notStoring(st)
	}
	for _, s := range f.models() {
		out.Models = append(out.Models, s.status())
	}
	return out, nil
}

// Explain gives the last 20 requests that parted early from what was stored, the newest first. ErrNotExplained if Options.Explain is not set.
func (f *Front) Explain() ([]Explained, error) {
	if !f.o.Explain {
		return nil, ErrNotExplained
	}
	return f.explained.all(), nil
}

// Askers are the programs that have asked for a block since the start, by name: "claude-code, codex". The block is named by the beginning of its key, as package page does.
func (f *Front) Askers(block string) string { return f.ledger.askers.who(block) }

// Figures says what the front has done, and how it is now, for a page or a scrape.
func (f *Front) Figures() figures.Front {
	out := f.ledger.record.Read()
	out.SavedEver, out.EverSince = f.ledger.totals.sum()
	if store := f.shelf.db.Load(); store != nil {
		if st, err := store.Stats(); err == nil {
			out.NotStoring = f.shelf.notStoring(st)
		}
	}
	out.Restarts = max(0, f.started.Load()-1)
	if _, err := f.shelf.store(); err != nil {
		out.Store = err.Error()
	}
	for _, s := range f.models() {
		m := s.status()
		for _, sl := range m.Slots {
			out.Slots++
			if sl.Busy {
				out.Busy++
			}
		}
		switch {
		case m.Refused != "":
			out.Notes = append(out.Notes, figures.Note{Level: figures.Warn, Text: "Nothing is kept of " + m.Name + ": " + m.Refused})
		}
		for _, r := range m.Resting {
			out.Notes = append(out.Notes, figures.Note{Level: figures.Warn, Text: fmt.Sprintf("Of %s, this is left alone for now: %s, since %s. It is tried again after %d requests, or %s.", m.Name, r.Case, figures.Words(r.Reason), r.Requests, r.Within)})
		}
	}
	return out
}
