package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/internal/version"
)

func TestVersion(t *testing.T) {
	var out, errs bytes.Buffer
	code := run(t.Context(), []string{"--version"}, strings.NewReader(""), &out, &errs)
	if want := "kvdump " + version.Version + "\n"; code != exitOK || out.String() != want || errs.Len() > 0 {
		t.Errorf("exit code %d, %q, %q, expected %q", code, &out, &errs, want)
	}
}
