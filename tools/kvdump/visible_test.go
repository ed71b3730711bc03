package main

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// What a stranger named his model does not command the terminal.
func TestControlCharacters(t *testing.T) {
	dir := t.TempDir()
	s, err := db.Open(context.Background(), dir, db.Options{CheckpointInterval: -1, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"one \x1b]0;title\a", "two \u009b2J\rnothing"} {
		d := tiny()
		d.Name, d.Weights = name, kv.Hash{name[0]}
		if _, err := s.Register(context.Background(), d); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"inspect", dir}, {"inspect", "--json", dir}, {"explain", dir, "--tokens", "1"}, {"explain", dir, "--tokens", "1", "--model", "x"}} {
		var out, errs bytes.Buffer
		run(context.Background(), args, strings.NewReader(""), &out, &errs)
		if text := out.String() + errs.String(); strings.ContainsAny(text, "\x1b\a\r\u009b") || !strings.Contains(text, "one ") {
			t.Errorf("%v: %q", args, text)
		}
	}
}

// A report that could not be written is no "all is well".
func TestOutputThatCannotBeWritten(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("SKIPPED: there is no file here that is always full: %v", err)
	}
	defer full.Close()
	dir := t.TempDir()
	s, err := db.Open(context.Background(), dir, db.Options{CheckpointInterval: -1, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"verify", dir}, {"verify", "--json", dir}, {"inspect", dir}, {"repair", dir, t.TempDir()}} {
		var errs bytes.Buffer
		if code := run(context.Background(), args, strings.NewReader(""), full, &errs); code != exitDamage || !strings.Contains(errs.String(), "could not be written") {
			t.Errorf("%v: exit code %d, %q", args, code, &errs)
		}
	}
}
