package fuzzkit

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update-seeds", false, "write the seeds of fuzz targets anew")

// maxSeedBytes bounds what the seeds of one target take in the tree.
const maxSeedBytes = 32 << 10

// Updating reports whether the seeds are to be made anew: a target whose seeds are costly to make does so only then.
func Updating() bool { return *update }

// Seeds writes the seeds of a target, each a list of the arguments that its function takes, if -update-seeds asks for it, and
// otherwise only sees to it that there are some.
func Seeds(f *testing.F, seeds ...[]any) {
	f.Helper()
	dir := filepath.Join("testdata", "fuzz", f.Name())
	old, err := filepath.Glob(filepath.Join(dir, "seed-*"))
	if err != nil {
		f.Fatal(err)
	}
	if !*update {
		if len(old) == 0 {
			f.Fatalf("%s has no seeds; -update-seeds makes them", dir)
		}
		return
	}
	for _, name := range old {
		if err := os.Remove(name); err != nil {
			f.Fatal(err)
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		f.Fatal(err)
	}
	total := 0
	for i, args := range seeds {
		text := Text(args...)
		if total += len(text); total > maxSeedBytes {
			f.Fatalf("the seeds of %s take over %d bytes", f.Name(), maxSeedBytes)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("seed-%02d", i)), []byte(text), 0o644); err != nil {
			f.Fatal(err)
		}
		f.Add(args...) // those that were read before this ran are the old ones
	}
}

// Text is a seed as the files of testdata/fuzz spell it.
func Text(args ...any) string {
	var b strings.Builder
	b.WriteString("go test fuzz v1\n")
	for _, x := range args {
		switch x := x.(type) {
		case []byte:
			fmt.Fprintf(&b, "[]byte(%q)\n", x)
		case string:
			fmt.Fprintf(&b, "string(%q)\n", x)
		default:
			fmt.Fprintf(&b, "%T(%v)\n", x, x)
		}
	}
	return b.String()
}
