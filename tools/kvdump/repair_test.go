package main

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/db"
)

// An interrupted repair leaves nothing of the new store.
func TestRepairInterrupted(t *testing.T) {
	dir, to := filepath.Join(t.TempDir(), "st"), filepath.Join(t.TempDir(), "new")
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
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errs bytes.Buffer
	code := run(stopped, []string{"repair", dir, to}, strings.NewReader(""), &out, &errs)
	if code != exitInterrupted || out.Len() > 0 || errs.String() != "kvdump: interrupted\n" {
		t.Errorf("exit code %d, %q, %q", code, &out, &errs)
	}
	if _, err := os.Lstat(to); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something is left: %v", err)
	}
}
