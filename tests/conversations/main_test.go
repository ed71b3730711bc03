//go:build (linux && (!android || cgo)) || (darwin && (!ios || cgo)) || windows

package main

import (
	"os"
	"strings"
	"testing"
)

// measure runs a subcommand as a user would.
func measure(t *testing.T, args ...string) string {
	t.Helper()
	if os.Getenv("DORMOUSE_LLAMA_LIB") == "" {
		t.Skip("SKIPPED: no llama.cpp here; run: bash tests/llama/fetch.sh && . .cache/llama/env.sh")
	}
	t.Chdir("../..")
	var out strings.Builder
	if err := run(t.Context(), args, &out); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
	t.Log(out.String())
	return out.String()
}

func TestLaw(t *testing.T)    { measure(t, "law", "-n", "250", "-seed", "2") }
func TestDelete(t *testing.T) { measure(t, "delete") }

func TestUsage(t *testing.T) {
	for _, args := range [][]string{nil, {"what"}, {"law", "-what"}} {
		if err := run(t.Context(), args, &strings.Builder{}); err == nil {
			t.Errorf("%v is taken", args)
		}
	}
}
