package llamaserver

import "sync/atomic"

// era is the time in which a server stays what it was when it was looked at. Whoever sees that it is another one ends the era.
type era struct{ over atomic.Bool }

func (e *era) end() { e.over.Store(true) }

// life is how long what was learned of a model holds: until its era ends, or until the model alone is given up.
type life struct {
	era  *era
	over atomic.Bool
}

func (l *life) gone() bool { return l.over.Load() || l.era.over.Load() }

func (l *life) end() { l.over.Store(true) }
