//go:build !darwin

package db

import (
	"os"
	"strings"
)

// readBootID reads what Linux and Android say; other systems have no such file.
func readBootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
