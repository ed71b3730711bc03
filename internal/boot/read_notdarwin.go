//go:build !darwin

package boot

import (
	"os"
	"strings"
)

// read reads what Linux and Android say; other systems have no such file.
func read() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
