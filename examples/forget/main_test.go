package main

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/examples/command"
	"github.com/dormousekv/dormouse/kv"
)

func TestWhatItClaims(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), nil, &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, want := range []string{"deleted    0 pieces of her text and 0 of her rows are in the files (", "Anna       53 of 103 ", "Ben        84 of 84 "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	for _, args := range [][]string{{"anna"}, {"-dir", "x"}} {
		if err := run(t.Context(), args, &out); command.Code(err) != 2 {
			t.Errorf("%q: %v, expected exit code 2", args, err)
		}
	}
}

// What is left in a file is found, wherever it is.
func TestTracesAreFound(t *testing.T) {
	dir := t.TempDir()
	b := []byte("something else")
	for _, id := range []kv.Token{1, 2, 3, 4, 5, 6} {
		b = binary.LittleEndian.AppendUint32(b, uint32(id))
	}
	if err := os.MkdirAll(filepath.Join(dir, "segments"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "segments", "x"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	pieces := traces{tokens: [][]byte{b[len(b)-16:], []byte("never")}, rows: [][]byte{[]byte("some")}}
	if f, err := pieces.find(dir); err != nil || f.tokens != 1 || f.rows != 1 || f.files != 1 {
		t.Errorf("%v, %v", f, err)
	}
}
