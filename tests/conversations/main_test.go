//go:build (linux && (!android || cgo)) || (darwin && (!ios || cgo)) || windows

package main

import (
	"os"
	"strings"
	"testing"
)

// TestMain lets the tests' program be the process that is killed.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == childFlag {
		main()
		return
	}
	os.Exit(m.Run())
}

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

func TestNeedle(t *testing.T) { measure(t, "needle") }

func TestKill(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED in short mode: loads a model for each kill")
	}
	measure(t, "kill", "-n", "5")
}

func TestFigures(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED in short mode: decodes hundreds of tokens")
	}
	measure(t, "figures", "-n", "500")
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{nil, {"what"}, {"law", "-what"}} {
		if err := run(t.Context(), args, &strings.Builder{}); err == nil {
			t.Errorf("%v is taken", args)
		}
	}
}
