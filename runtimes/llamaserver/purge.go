package llamaserver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

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
	store, err := f.shelf.store()
	if err != nil {
		return out, err
	}
	f.warming.drop(func(j *warmJob) bool { return p.All || p.Model != "" || p.Key == j.keep.Key }) // or it would be computed again
	resume := f.still(ctx)
	defer resume()
	f.reset() // what slots hold of it is not stored again
	f.ledger.keep(ctx)
	out, err = PurgeStore(ctx, store, p)
	f.ledger.recall(store)
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
	a := f.apiOf("")
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
