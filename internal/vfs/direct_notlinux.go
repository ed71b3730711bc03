//go:build !linux

package vfs

// Missing does not know: the other systems are not asked what is in memory, so that nothing is read around the page cache.
func (m *osMapping) Missing(off, n int64) (bytes int64, known bool) { return 0, false }
