package weights

// Soil says that rows are in the server that are not those which its files compute of their tokens: shifted ones, those of a slot file of a client, or
// those of other bytes that were in a file for a while. It goes on with them when it is asked for these tokens. What slots hold is doubtful from now on.
func (l *Files) Soil() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drops++
	l.foul++
}

// Soils is told of a request that may bring such rows: they come while it is at work.
func (l *Files) Soils() (ended func()) {
	l.Soil()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.soiling++
	return func() {
		l.Soil()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.soiling--
	}
}

// Soiled counts how often such rows came, and says whether they may be coming now.
func (l *Files) Soiled() (times int, now bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.foul, l.soiling > 0
}
