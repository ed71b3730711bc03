package llamaserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/obs/figures"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
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

// ModelStatus is a model that the server runs.
type ModelStatus struct {
	Name        string
	Fingerprint string // as the store knows it; empty: nothing is kept
	Refused     string // why nothing is kept
	Storing     bool   // what a slot had is on its way into the store, or a request on its way into a slot
	Slots       []SlotStatus
	Resting     []Resting `json:",omitempty"` // what is left alone for a while
}

// Resting is something that did not work and that the front leaves alone for a while.
type Resting struct {
	Case     string        // what kind of requests: "chat with tools", "restores of 1024 tokens and more"
	Reason   string        // why, as in X-Dormouse
	Requests int           // after so many of them it is tried again
	Within   time.Duration // or after so long
}

// SlotStatus is a slot as the front knows it.
type SlotStatus struct {
	ID      int
	Busy    bool
	Tokens  int // that it holds at least
	Unsaved bool
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
	r := f.record.Read()
	out.Asked, out.Reused, out.Computed, out.FromStore, out.Unknown, out.Unused, out.Saved, out.Since, out.Rates, out.Recent = r.Asked, r.Reused, r.Computed, r.FromStore, r.Unknown, r.Unused, r.Saved, r.Since, r.Rates, r.Recent
	out.SavedEver, out.EverSince = f.totals.sum()
	out.Goroutines = runtime.NumGoroutine()
	for kind, n := range r.Requests {
		out.Requests = append(out.Requests, Count{kind.Outcome.String(), kind.Reason, n})
	}
	slices.SortFunc(out.Requests, func(a, b Count) int { return cmp.Or(cmp.Compare(b.N, a.N), strings.Compare(a.Reason, b.Reason)) })
	store, err := f.store()
	if err != nil {
		out.Store = err.Error()
	} else {
		st, err := store.Stats()
		if err != nil {
			return out, err
		}
		out.Bytes, out.Budget, out.NotStoring = st.DiskBytes, store.Options().Budget, f.notStoring(st)
	}
	for _, s := range f.models() {
		out.Models = append(out.Models, s.status())
	}
	return out, nil
}

func (s *served) status() ModelStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := ModelStatus{Name: s.name, Storing: len(s.pending) > 0 || len(s.turn) > 0}
	if s.model != nil {
		m.Fingerprint = s.model.Fingerprint().String()
	}
	if err := cmp.Or(s.refused, s.doubt); err != nil {
		m.Refused = err.Error()
	}
	itself := func(kind string) string { return kind }
	for _, r := range slices.Concat(s.notReused.List(figures.NotReused, itself), s.differ.List(string(request.PassDiffers), itself), s.costs.Resting()) {
		m.Resting = append(m.Resting, Resting{r.Name, r.Reason, r.Requests, r.Within})
	}
	for _, sl := range s.slots {
		m.Slots = append(m.Slots, SlotStatus{sl.id, sl.busy, len(sl.prompt.Tokens), sl.unsaved})
	}
	return m
}

func (f *Front) models() []*served {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]*served, 0, len(f.served))
	for _, s := range f.served {
		out = append(out, s)
	}
	return out
}

// Unseen is for [Process.Unseen]: a server that has ended before it ever answered is started once more without a folder for slot files, and then nothing is kept.
func (f *Front) Unseen() bool {
	if f.answers.Load() {
		return false
	}
	f.folder.Without(fmt.Errorf("with --slot-save-path %s the server ended before it answered, so it was started without: in a sandbox with mounts of its own it may not see that folder: "+
		"name one that it sees with --slot-dir", f.folder.Path))
	f.log.Warn("the server has ended before it answered: it is started once more without a folder for slot files, which it may not see", "folder", f.folder.Path)
	return true
}

// SlotFolder is the folder that the server needs as its --slot-save-path.
func (f *Front) SlotFolder() string { return f.folder.Path }

// Store is the store, or nil while there is none. It is the front's to close.
func (f *Front) Store() *db.Store { return f.db.Load() }

// Purge says what to delete. Exactly one field is set.
type Purge struct {
	Model string // by name, by fingerprint, or by what one fingerprint alone begins with
	Key   string // what requests with this API key alone have stored (Options.ScopeByKey)
	All   bool
}

// Purged says what a purge deleted.
type Purged struct {
	Models   int
	Sessions int   // files of conversations
	Bytes    int64 // of stored records, and of these files
}

// ErrPurge is returned for a Purge that says nothing, or too much.
var ErrPurge = errors.New("say what to purge: a model, an API key, or all")

// Purge deletes what is stored, for good: it is in no file when Purge returns. A [*NothingError] says that nothing was stored of it.
func (f *Front) Purge(ctx context.Context, p Purge) (out Purged, err error) {
	said := 0
	for _, b := range []bool{p.Model != "", p.Key != "", p.All} {
		if b {
			said++
		}
	}
	if said != 1 {
		return out, ErrPurge
	}
	store, err := f.store()
	if err != nil {
		return out, err
	}
	f.warming.drop(func(j *warmJob) bool { return p.All || p.Model != "" || p.Key == j.keep.Key }) // or it would be computed again
	resume := f.still(ctx)
	defer resume()
	f.reset() // what slots hold of it is not stored again
	f.keepTotals(ctx)
	out, err = PurgeStore(ctx, store, p)
	f.recall(store)
	f.explained.empty()
	f.reset() // who has looked at the model meanwhile
	f.eraseSlots(ctx)
	f.folder.DropSpare()
	return out, err
}

// PurgeStore purges a store that no front has open. It returns a [*NothingError] where nothing is stored of the model or the API key.
func PurgeStore(ctx context.Context, store *db.Store, p Purge) (out Purged, err error) {
	if p.Key != "" {
		took, err := store.DeleteScope(ctx, ScopeOfKey(p.Key))
		out.Sessions, out.Bytes = took.Sessions, took.Bytes
		if err == nil {
			err = store.Sync(ctx)
		}
		if err == nil && took == (db.Deleted{}) {
			err = nothing(ctx, store, "nothing is stored with this API key")
		}
		return out, err
	}
	models, err := db.Collect(store.Models())
	if err != nil {
		return out, err
	}
	chosen, err := p.models(models)
	if err != nil {
		return out, err
	}
	if !p.All && len(chosen) == 0 {
		return out, nothing(ctx, store, "no model %q is stored", p.Model)
	}
	for _, m := range models {
		if chosen[m.Fingerprint] {
			if err := store.Retire(ctx, m.Fingerprint); err != nil {
				return out, err
			}
			out.Models++
			out.Bytes += m.Bytes
		}
	}
	if p.All {
		sessions, err := db.Collect(store.Sessions(ctx))
		if err != nil {
			return out, err
		}
		for _, x := range sessions {
			took, err := store.DeleteScopeID(ctx, x.Scope)
			out.Sessions += took.Sessions
			out.Bytes += took.Bytes
			if err != nil {
				return out, err
			}
		}
	}
	return out, store.Sync(ctx)
}

// models are those of the stored ones that a purge is about.
func (p *Purge) models(stored []db.ModelStats) (map[kv.Fingerprint]bool, error) {
	chosen := map[kv.Fingerprint]bool{}
	for _, m := range stored {
		if p.All || m.Descriptor.Name == p.Model || m.Fingerprint.String() == p.Model {
			chosen[m.Fingerprint] = true
		}
	}
	if p.All || len(chosen) > 0 {
		return chosen, nil
	}
	for _, m := range stored {
		if len(p.Model) >= leastPrefix && strings.HasPrefix(m.Fingerprint.String(), p.Model) {
			chosen[m.Fingerprint] = true
		}
	}
	if len(chosen) <= 1 {
		return chosen, nil
	}
	return nil, fmt.Errorf("%d models have fingerprints that begin with %q: write more of it", len(chosen), p.Model)
}

// leastPrefix is how many letters of a fingerprint name a model, if no other begins so.
const leastPrefix = 4

// eraseSlots empties the idle slots.
func (f *Front) eraseSlots(ctx context.Context) {
	a := f.api("")
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	list, err := a.Slots(ctx)
	if err != nil {
		return
	}
	for _, st := range list {
		if !st.Processing {
			a.Erase(ctx, st.ID)
		}
	}
}
