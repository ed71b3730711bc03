package inplace

import (
	"bytes"
	"encoding/binary"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/dormousekv/dormouse/internal/memdir"
)

var update = flag.Bool("update", false, "write the golden file anew")

// The bytes of a ring are what docs/format/ring.md draws.
func TestGolden(t *testing.T) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("SKIPPED: rings have the machine's byte order, and the golden file is little-endian")
	}
	const golden = "testdata/ring-v1"
	s := Shape{Cells: 24, Turns: 4, Layers: 1, RowBytes: 8}
	got := image(t, filepath.Join(memdir.Dir(t), "ring"), s)
	if *update {
		if err := os.WriteFile(golden, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, got) {
		t.Errorf("a new ring is not as %s", golden)
	}
	name := filepath.Join(memdir.Dir(t), "ring")
	if err := os.WriteFile(name, want, 0o600); err != nil {
		t.Fatal(err)
	}
	r, found := openRing(t, name, s)
	if found.Turns != 3 || found.Rows != 3+4+5 || found.Torn != 6 || len(found.Damaged) > 0 {
		t.Errorf("%+v", found)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}
