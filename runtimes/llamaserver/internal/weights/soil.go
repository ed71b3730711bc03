package weights

// Soil notes that the server holds rows that its files do not compute for their tokens: shifted rows, those of a slot file of a client, or those of bytes
// that were in a file for a while. Asked for these tokens, the server goes on with them. So the contents of slots are doubtful from now on.
func (l *Files) Soil() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drops++
	l.foul++
}

// Soils notes that a request is at work that may bring such rows, until ended is called.
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

// Soiled returns how often such rows came, and whether more may be coming now.
func (l *Files) Soiled() (times int, now bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.foul, l.soiling > 0
}
