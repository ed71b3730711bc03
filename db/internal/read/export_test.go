package read

// Waiting reports whether something is being read, or waits for it.
func (a *Again) Waiting() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ended != nil
}
