package llamaserver

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/obs/figures"
)

// totals are the figures that outlive a front: for each model of the store how much time it was spared, and how fast it computes. They are kept with the
// models, as notes.
type totals struct {
	mu sync.Mutex
	of map[kv.Fingerprint]*total
}

// total is the note of a model.
type total struct {
	Since        time.Time     `json:"since"`
	Saved        time.Duration `json:"saved_ns"`
	Name         string        `json:"name"` // of the model, as requests have it
	PerSecond    float64       `json:"prefill_per_second,omitempty"`
	Tokens       int64         `json:"prefill_tokens,omitempty"`
	Measurements int64         `json:"prefill_measurements,omitempty"`

	model   *db.Model
	changed bool
}

const (
	totalsNote  = "figures 1"
	totalsEvery = time.Minute // so that a kill costs that much at most
)

// recall reads what earlier fronts of the store have left, and returns how fast its models compute.
func (t *totals) recall(store *db.Store, log *slog.Logger) (rates []figures.Rate) {
	models, err := db.Collect(store.Models())
	if err != nil {
		log.Warn("reading the figures of earlier starts", "err", err)
		return nil
	}
	of := map[kv.Fingerprint]*total{}
	for _, ms := range models {
		m, err := store.Model(ms.Fingerprint)
		if err != nil {
			continue
		}
		b, err := m.Note(totalsNote)
		if err != nil {
			continue
		}
		x := &total{model: m}
		if err := json.Unmarshal(b, x); err != nil || x.Saved < 0 || x.Since.IsZero() {
			log.Warn("figures of earlier starts are not understood: they begin anew", "model", ms.Descriptor.Name, "err", err)
			continue
		}
		of[ms.Fingerprint] = x
		if x.PerSecond > 0 && !math.IsInf(x.PerSecond, 0) && x.Tokens > 0 && x.Measurements > 0 {
			rates = append(rates, figures.Rate{Model: x.Name, PerSecond: x.PerSecond, Tokens: x.Tokens, Measurements: x.Measurements})
		}
	}
	t.mu.Lock()
	t.of = of
	t.mu.Unlock()
	return rates
}

// add adds a request of a model.
func (t *totals) add(m *db.Model, q figures.Request) {
	if !q.Known() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil {
		t.of = map[kv.Fingerprint]*total{}
	}
	x := t.of[m.Fingerprint()]
	if x == nil {
		x = &total{Since: q.Ended.UTC()}
		t.of[m.Fingerprint()] = x
	}
	x.Saved += q.Saved
	x.model, x.Name, x.changed = m, q.Model, true
}

// sum is the time saved of all models, and since when that was counted; the zero time: nothing was yet.
func (t *totals) sum() (saved time.Duration, since time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, x := range t.of {
		saved += x.Saved
		if since.IsZero() || x.Since.Before(since) {
			since = x.Since
		}
	}
	return saved, since
}

// keep writes the notes of models that have changed since, with how fast they compute now.
func (t *totals) keep(ctx context.Context, now []figures.Rate, log *slog.Logger) {
	rates := map[string]figures.Rate{}
	for _, r := range now {
		rates[r.Model] = r
	}
	t.mu.Lock()
	var changed []total
	for _, x := range t.of {
		if x.changed {
			if r, ok := rates[x.Name]; ok {
				x.PerSecond, x.Tokens, x.Measurements = r.PerSecond, r.Tokens, r.Measurements
			}
			x.changed = false
			changed = append(changed, *x)
		}
	}
	t.mu.Unlock()
	for _, x := range changed {
		b, err := json.Marshal(x)
		if err == nil {
			err = x.model.SetNote(ctx, totalsNote, b)
		}
		if err == nil {
			continue
		}
		log.Debug("keeping figures", "model", x.Name, "err", err)
		t.mu.Lock()
		if y := t.of[x.model.Fingerprint()]; y != nil {
			if y.changed = true; errors.Is(err, db.ErrRetired) {
				delete(t.of, x.model.Fingerprint())
			}
		}
		t.mu.Unlock()
	}
}
