//go:build !linux

package largemem

func huge([]byte) {}

func reclaimable([]byte) bool { return false }
