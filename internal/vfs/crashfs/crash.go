package crashfs

// CrashAt lets the disk crash before change number n, counted from 0: it and all calls after it fail with [ErrCrashed].
func (d *Disk) CrashAt(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.crashAt = n
}

// Crash lets the disk crash now.
func (d *Disk) Crash() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.crash()
}

func (d *Disk) crash() {
	if !d.crashed {
		d.look()
		d.crashed = true
	}
}

// Crashed reports whether the crash was.
func (d *Disk) Crashed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.crashed
}
