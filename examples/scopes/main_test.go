package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/examples/command"
)

func TestWhatItClaims(t *testing.T) {
	var out bytes.Buffer
	dir := filepath.Join(t.TempDir(), "kept")
	if err := run(t.Context(), []string{"-dir", dir}, &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, want := range []string{`anna +124 +0 +124 `, `ben +117 +103 +14 `, `anna +144 +131 +13 `, `ben +135 +124 +11 `, `carl +152 +103 +49 `, `anna +152 +151 +1 `} {
		if !regexp.MustCompile(`(?m)^` + want).MatchString(out.String()) {
			t.Errorf("no line %q in\n%s", want, &out)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "FORMAT")); err != nil {
		t.Error(err)
	}
	// On a store that has everything already, the first turn is no first turn.
	if err := run(t.Context(), []string{"-dir", dir}, &out); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("again: %v", err)
	}
	for _, args := range [][]string{{"anna"}, {"-dir", dir}, {"-dir", filepath.Join(dir, "FORMAT")}, {"-nope"}} {
		if err := run(t.Context(), args, &out); command.Code(err) != 2 {
			t.Errorf("%q: %v, expected exit code 2", args, err)
		}
	}
}
