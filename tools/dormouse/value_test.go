package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/dormousekv/dormouse/db"
)

// A wrong value is refused at once, by the flag's name and with what was expected. No name of the library's is in it.
func TestWrongValues(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for flag, values := range map[string][]string{
		"budget":       {"", "0", "-4", "1", "9999999EiB", "2EiB", "much", "NaN", "1e400"},
		"min-free":     {"", "-4", "2EiB", "much", "NONE"},
		"durability":   {"", "0", "Power"},
		"codec":        {"", "0", "zip"},
		"zstd":         {"maybe"},
		"listen":       {"nowhere", "1:2:3", "127.0.0.1:99999", "~bob/x.sock"},
		"attach":       {"nowhere", "127.0.0.1:8080", "/run/x.sock", "ftp://127.0.0.1"},
		"slot-dir":     {"/does/not/exist", file, "~bob/x", "$HOME/x"},
		"save-after":   {"", "0", "-4s", "4", "soon"},
		"log":          {"", "0", "loud"},
		"store":        {file, file + "/x", "~bob/x", "$HOME/x"},
		"page-for-all": {"perhaps"},
	} {
		for _, value := range values {
			args := []string{"serve", "--" + flag + "=" + value}
			if flag != "attach" {
				args = append(args, "--", "false")
			}
			var out, errs bytes.Buffer
			code := run(context.Background(), args, &out, &errs)
			said := errs.String()
			if code == 0 || !strings.Contains(said, "--"+flag) || !strings.Contains(said, value) || strings.Contains(said, "Options") || strings.Contains(said, "db:") {
				t.Errorf("--%s=%q: %d %s", flag, value, code, said)
			}
			if strings.Contains(said, "ended before") {
				t.Errorf("--%s=%q: the server was started", flag, value)
			}
		}
	}
}

// What is left free is said in words, or as a size; 0 is none, and what is not said suits the volume. A variable that is empty says nothing.
func TestMinFree(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	for value, want := range map[string]int64{"auto": 0, "none": -1, "0": -1, "0B": -1, "256MiB": 256 << 20, "1": 1, "1EiB": 1 << 60} {
		if got, err := minFree(value); got != want || err != nil {
			t.Errorf("%q: %d %v, expected %d", value, got, err, want)
		}
	}
	for value, want := range map[string]int64{"": 0, "none": -1, "1MiB": 1 << 20} {
		t.Setenv("DORMOUSE_MIN_FREE", value)
		t.Setenv("DORMOUSE_BUDGET", "")
		o := &options{}
		cmd := &cobra.Command{}
		o.flags(cmd.Flags())
		if err := fromEnvironment(cmd); err != nil {
			t.Fatal(err)
		}
		if f, err := o.front(nil); err != nil || f.DB.MinFree != want || f.DB.Budget != 8<<30 {
			t.Errorf("DORMOUSE_MIN_FREE=%q: %d of %d %v, expected %d", value, f.DB.MinFree, f.DB.Budget, err, want)
		}
	}
	for _, bytes := range []int64{leastBudget, mostBytes} { // what the flags allow, the store does
		if err := (db.Options{Budget: bytes, MinFree: bytes}).Validate(); err != nil {
			t.Error(err)
		}
	}
}

// ~ in quotes, or behind a =, is the user's home.
func TestTilde(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	for value, want := range map[string]string{"~/x": filepath.Join(home, "x"), "~": home, "/a/~/b": "/a/~/b", "./~bob": mustAbs(t, "~bob"), "./$x": mustAbs(t, "$x")} {
		if got, err := storeDir(value); err != nil || got != want {
			t.Errorf("%q: %q %v, expected %q", value, got, err, want)
		}
	}
	t.Setenv("HOME", "")
	if _, err := storeDir("~/x"); err == nil || !strings.Contains(err.Error(), "~") {
		t.Errorf("without a home: %v", err)
	}
}

func mustAbs(t *testing.T, name string) string {
	t.Helper()
	abs, err := filepath.Abs(name)
	if err != nil {
		t.Fatal(err)
	}
	return abs
}
