//go:build !android || cgo

package llama

import (
	"os"
	"slices"
	"strings"
)

// resident lists the files that are mapped into the process: shared libraries among them, by whomever they were loaded.
func resident() ([]string, error) {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return nil, err
	}
	var files []string
	for line := range strings.Lines(string(maps)) {
		// 7f2c00000000-7f2c00021000 r-xp 00000000 08:01 1234   /usr/lib/libllama.so.0
		if at := strings.IndexByte(line, '/'); at >= 0 {
			files = append(files, strings.TrimSuffix(line[at:], "\n"))
		}
	}
	return slices.Compact(files), nil
}
