package main

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/db"
)

// An interrupted command says so, with an exit code of its own, and leaves the store whole.
func TestInterrupted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "st")
	s, err := db.Open(t.Context(), dir, db.Options{CheckpointInterval: -1, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Register(t.Context(), tiny()); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	command := func(ctx context.Context, args ...string) (int, string, string) {
		var out, errs bytes.Buffer
		code := run(ctx, args, strings.NewReader(""), &out, &errs)
		return code, out.String(), errs.String()
	}
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	for _, name := range []string{"verify", "compact"} {
		if code, out, errs := command(stopped, name, dir); code != exitInterrupted || out != "" || errs != "kvdump: interrupted\n" {
			t.Errorf("%s: exit code %d, %q, %q", name, code, out, errs)
		}
		if code, out, errs := command(t.Context(), "verify", dir); code != exitOK {
			t.Errorf("after %s: exit code %d, %s%s", name, code, out, errs)
		}
	}
}
