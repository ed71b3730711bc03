//go:build unix

package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// try runs a subcommand with the tiny model, as a user would.
func try(t *testing.T, args ...string) {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED in short mode: builds the command, and starts servers")
	}
	if os.Getenv("DORMOUSE_LLAMA_SERVER") == "" {
		t.Skip("SKIPPED, no llama-server is tried: run tests/llama/server.sh and set DORMOUSE_LLAMA_SERVER to what it prints")
	}
	t.Chdir("../..")
	var out, said strings.Builder
	if err := run(t.Context(), append(args, "-quick"), &out, &said); err != nil {
		t.Errorf("%v\n%s", err, said.String())
	}
	t.Log(out.String())
}

func TestMeasure(t *testing.T) {
	if _, err := exec.LookPath("chromium"); err != nil {
		t.Skip("SKIPPED: there is no Chromium here to look at the page with")
	}
	try(t, "measure")
}

func TestTwenty(t *testing.T) { try(t, "twenty") }

func TestLoad(t *testing.T) { try(t, "load", "-for", "5s") }

func TestOverhead(t *testing.T) { try(t, "overhead", "-n", "4") }

func TestUsage(t *testing.T) {
	t.Chdir("../..")
	for _, args := range [][]string{{"what"}, {"-what"}, {"twenty", "-rounds", "0"}, {"load", "-for", "-4s"}, {"measure", "more"}} {
		if err := run(t.Context(), args, &strings.Builder{}, &strings.Builder{}); err == nil {
			t.Errorf("%v is taken", args)
		}
	}
}

func TestStarts(t *testing.T) { try(t, "starts", "-n", "3") }
