//go:build unix && !linux

package largemem

func huge([]byte) {}
