//go:build !linux

package vfs

// Fetch can only ask here: nothing says when the bytes are there.
func (m *osMapping) Fetch(off, n int64) { m.WillNeed(off, n) }
