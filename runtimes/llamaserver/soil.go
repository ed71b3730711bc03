package llamaserver

import (
	"maps"
	"slices"
)

// soil says that rows are in the server that are not those which its files compute of their tokens: shifted ones, those of a slot file of a client, or
// those of other bytes that were in a file for a while. It goes on with them when it is asked for these tokens. What slots hold is doubtful from now on.
func (l *loaded) soil() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drops++
	l.foul++
}

// soils is told of a request that may bring such rows: they come while it is at work.
func (l *loaded) soils() (ended func()) {
	l.soil()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.soiling++
	return func() {
		l.soil()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.soiling--
	}
}

// soiled counts how often such rows came, and says whether they may be coming now.
func (l *loaded) soiled() (times int, now bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.foul, l.soiling > 0
}

// soils is [loaded.soils] of all models.
func (f *Front) soils() (ended func()) {
	f.mu.Lock()
	list := slices.Collect(maps.Values(f.loaded))
	f.mu.Unlock()
	var all []func()
	for _, l := range list { // it may be waiting for the server
		all = append(all, l.soils())
	}
	return func() {
		for _, end := range all {
			end()
		}
	}
}
