package db

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// notesOf are a model's notes.
func notesOf(t *testing.T, m *Model) map[string]string {
	t.Helper()
	names, err := Collect(m.Notes())
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, name := range names {
		value, err := m.Note(name)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = string(value)
	}
	return out
}

// A note stays with its version of the model until it is set anew, removed, or the model is retired: through another name of the
// model, eviction, deletion, a kill, a lost index and a repair.
func TestNotes(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	m, other := model(t, s, plain()), model(t, s, opaque())
	if _, err := m.Note("canary"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	set := func(m *Model, name, value string) {
		t.Helper()
		if err := m.SetNote(ctx, name, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	set(m, "canary", "first")
	set(m, "canary", "second")
	set(m, "gone", "x")
	set(m, "gone", "")
	set(m, "largest", string(make([]byte, MaxNoteBytes)))
	set(other, "canary", "of another model")
	want := map[string]string{"canary": "second", "largest": string(make([]byte, MaxNoteBytes))}
	check := func(when string) {
		t.Helper()
		if got := notesOf(t, model(t, s, plain())); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %d notes, canary %q", when, len(got), got["canary"])
		}
		if got := notesOf(t, model(t, s, opaque())); got["canary"] != "of another model" {
			t.Errorf("%s: the other model's notes are %v", when, got)
		}
	}
	check("set")
	p := kv.Prompt{Tokens: tokens(1, 64)}
	put(t, m, p)
	if _, err := m.Delete(ctx, p); err != nil {
		t.Fatal(err)
	}
	renamed := plain()
	renamed.Name = "another name"
	model(t, s, renamed)
	model(t, s, plain())
	check("deleted and renamed")
	for _, lost := range []string{"", indexName} {
		crash(s)
		if lost != "" {
			os.Remove(filepath.Join(dir, lost))
		}
		s = open(t, dir, options())
		check("killed, without " + lost)
	}
	if err := s.Suspend(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.Resume(ctx); err != nil {
		t.Fatal(err)
	}
	check("suspended")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "repaired")
	if _, err := Repair(ctx, dir, to, RepairOptions{}); err != nil {
		t.Fatal(err)
	}
	s = open(t, to, options())
	check("repaired")
	m = model(t, s, plain())
	if err := s.Retire(ctx, m.Fingerprint()); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Note("canary"); !errors.Is(err, ErrRetired) {
		t.Error(err)
	}
	if err := m.SetNote(ctx, "canary", []byte("x")); !errors.Is(err, ErrRetired) {
		t.Error(err)
	}
	want = map[string]string{}
	check("retired")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, to, options())
	check("retired, opened again")
}

// Every log file repeats the notes, so they are few and small. A value is the caller's to change before and after.
func TestNotesAreBounded(t *testing.T) {
	o := options()
	dir := t.TempDir()
	s := open(t, dir, o)
	m := model(t, s, plain())
	for name, value := range map[string]int{"": 1, string(make([]byte, MaxNoteName+1)): 1, "too long": MaxNoteBytes + 1} {
		if err := m.SetNote(ctx, name, make([]byte, value)); !errors.Is(err, ErrLimit) {
			t.Errorf("a note of %d bytes, its name of %d", value, len(name))
		}
	}
	mine := []byte("mine")
	if err := m.SetNote(ctx, "0", mine); err != nil {
		t.Fatal(err)
	}
	mine[0] = 'x'
	got, err := m.Note("0")
	if err != nil || string(got) != "mine" {
		t.Fatalf("%q, %v", got, err)
	}
	got[0] = 'x'
	if got, _ := m.Note("0"); string(got) != "mine" {
		t.Fatalf("%q", got)
	}
	for i := 1; i < MaxNotes; i++ {
		if err := m.SetNote(ctx, fmt.Sprint(i), []byte{1}); err != nil {
			t.Fatal(i, err)
		}
	}
	if err := m.SetNote(ctx, "one more", []byte{1}); !errors.Is(err, ErrLimit) {
		t.Errorf("one more note than there may be: %v", err)
	}
	if err := m.SetNote(ctx, "0", []byte("another value")); err != nil {
		t.Error(err)
	}
	if err := m.SetNote(ctx, "0", nil); err != nil {
		t.Error(err)
	}
	if err := m.SetNote(ctx, "one more", []byte{1}); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	o.ReadOnly = true
	s = open(t, dir, o)
	m = model(t, s, plain())
	if got, err := m.Note("one more"); err != nil || !bytes.Equal(got, []byte{1}) {
		t.Error(got, err)
	}
	if err := m.SetNote(ctx, "0", []byte{1}); !errors.Is(err, ErrReadOnly) {
		t.Error(err)
	}
}
