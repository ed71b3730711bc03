package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// asCommand in the environment makes the test binary be the command, so that it can start itself as a child.
const asCommand = "CONVERSATION_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		return
	}
	os.Setenv(asCommand, "1")
	os.Exit(m.Run())
}

func program(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out, bad bytes.Buffer
	c := exec.CommandContext(t.Context(), self, args...)
	c.Stdout, c.Stderr = &out, &bad
	err = c.Run()
	return out.String(), bad.String(), err
}

func TestTheWholeConversation(t *testing.T) {
	out, stderr, err := program(t, "-json", "-dir", filepath.Join(t.TempDir(), "kept"))
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, stderr)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	var got map[string]any
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &got); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	for field, want := range map[string]any{
		"kills": 2.0, "facts_kept": true, "half_turns": 0.0, "views_as_model": true, "branch_equals_plain": true, "approximate_rows_stored": 0.0,
		"continuation_identical": true, "control_differs": true, "rewrites": 1.0,
	} {
		if got[field] != want {
			t.Errorf("%s is %v, want %v", field, got[field], want)
		}
	}
	for field, least := range map[string]float64{"turns": 30, "evicted_turns": 5, "masked_turns": 5, "exact_rows_stored": 100} {
		if n, _ := got[field].(float64); n < least {
			t.Errorf("%s is %v, want at least %v", field, got[field], least)
		}
	}
	for _, field := range []string{"switch_ms", "reload_ms", "swap_ms"} {
		if _, ok := got[field].(float64); !ok {
			t.Errorf("%s is %v", field, got[field])
		}
	}
}

func TestThePicture(t *testing.T) {
	out, stderr, err := program(t)
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, stderr)
	}
	for _, want := range []string{"in the middle of a turn", "between two turns", "taken back", "merged, and the log is rewritten", "SSSSS", "FFF", "xx", "···", "###", ">>>", "to the last bit"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	// The page shows lines of it.
	page, err := os.ReadFile("../../docs/conversations.md")
	if err != nil {
		t.Fatal(err)
	}
	drawn := strings.Split(out, "\n")
	shown := regexp.MustCompile(`(?m)^ +\d+  SSS.*$`).FindAllString(string(page), -1)
	for _, line := range shown {
		if !slices.Contains(drawn, line) {
			t.Errorf("docs/conversations.md shows\n%s\nwhich is not drawn in\n%s", line, out)
		}
	}
	if len(shown) < 4 {
		t.Errorf("docs/conversations.md shows %d lines of the picture", len(shown))
	}
}

func TestUsage(t *testing.T) {
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "mine"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"-what"}, {"more"}, {"-dir", full}} {
		out, stderr, err := program(t, args...)
		if e, ok := err.(*exec.ExitError); !ok || e.ExitCode() != 2 || out != "" || stderr == "" {
			t.Errorf("%v: %v, %q, %q", args, err, out, stderr)
		}
	}
	if out, _, err := program(t, "-h"); err != nil || !strings.Contains(out, "-json") {
		t.Errorf("-h: %v, %s", err, out)
	}
}
