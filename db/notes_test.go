package db_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// notesOf are a model's notes.
func notesOf(t *testing.T, m *db.Model) map[string]string {
	t.Helper()
	names := storetest.Must(db.Collect(m.Notes()))(t)
	out := map[string]string{}
	for _, name := range names {
		value := storetest.Must(m.Note(name))(t)
		out[name] = string(value)
	}
	return out
}

// A note stays with its version of the model until it is set anew, removed, or the model is retired: through another name of the
// model, eviction, deletion, a kill, a lost index and a repair.
func TestNotes(t *testing.T) {
	dir := t.TempDir()
	s := storetest.Open(t, dir, storetest.Options())
	m, other := storetest.Model(t, s, crashtest.Plain()), storetest.Model(t, s, crashtest.Opaque())
	if _, err := m.Note("canary"); !errors.Is(err, db.ErrNotFound) {
		t.Error(err)
	}
	set := func(m *db.Model, name, value string) {
		t.Helper()
		storetest.OK(t, m.SetNote(t.Context(), name, []byte(value)))
	}
	set(m, "canary", "first")
	set(m, "canary", "second")
	set(m, "gone", "x")
	set(m, "gone", "")
	set(m, "largest", string(make([]byte, db.MaxNoteBytes)))
	set(other, "canary", "of another model")
	want := map[string]string{"canary": "second", "largest": string(make([]byte, db.MaxNoteBytes))}
	check := func(when string) {
		t.Helper()
		if got := notesOf(t, storetest.Model(t, s, crashtest.Plain())); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %d notes, canary %q", when, len(got), got["canary"])
		}
		if got := notesOf(t, storetest.Model(t, s, crashtest.Opaque())); got["canary"] != "of another model" {
			t.Errorf("%s: the other model's notes are %v", when, got)
		}
	}
	check("set")
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 64)}
	storetest.Put(t, m, p)
	storetest.Must(m.Delete(t.Context(), p))(t)
	renamed := crashtest.Plain()
	renamed.Name = "another name"
	storetest.Model(t, s, renamed)
	storetest.Model(t, s, crashtest.Plain())
	check("deleted and renamed")
	for _, lost := range []string{"", storetest.IndexFile} {
		storetest.Crash(s)
		if lost != "" {
			os.Remove(filepath.Join(dir, lost))
		}
		s = storetest.Open(t, dir, storetest.Options())
		check("killed, without " + lost)
	}
	storetest.OK(t, s.Suspend(t.Context()))
	storetest.OK(t, s.Resume(t.Context()))
	check("suspended")
	storetest.OK(t, s.Close())
	to := filepath.Join(t.TempDir(), "repaired")
	storetest.Must(admin.Repair(t.Context(), dir, to, admin.RepairOptions{}))(t)
	s = storetest.Open(t, to, storetest.Options())
	check("repaired")
	m = storetest.Model(t, s, crashtest.Plain())
	storetest.OK(t, s.Retire(t.Context(), m.Fingerprint()))
	if _, err := m.Note("canary"); !errors.Is(err, db.ErrRetired) {
		t.Error(err)
	}
	if err := m.SetNote(t.Context(), "canary", []byte("x")); !errors.Is(err, db.ErrRetired) {
		t.Error(err)
	}
	want = map[string]string{}
	check("retired")
	storetest.OK(t, s.Close())
	s = storetest.Open(t, to, storetest.Options())
	check("retired, opened again")
}

// Every log file repeats the notes, so they are few and small. A value is the caller's to change before and after.
func TestNotesAreBounded(t *testing.T) {
	o := storetest.Options()
	dir := t.TempDir()
	s := storetest.Open(t, dir, o)
	m := storetest.Model(t, s, crashtest.Plain())
	for name, value := range map[string]int{"": 1, string(make([]byte, db.MaxNoteName+1)): 1, "too long": db.MaxNoteBytes + 1} {
		if err := m.SetNote(t.Context(), name, make([]byte, value)); !errors.Is(err, db.ErrLimit) {
			t.Errorf("a note of %d bytes, its name of %d", value, len(name))
		}
	}
	mine := []byte("mine")
	storetest.OK(t, m.SetNote(t.Context(), "0", mine))
	mine[0] = 'x'
	got, err := m.Note("0")
	if err != nil || string(got) != "mine" {
		t.Fatalf("%q, %v", got, err)
	}
	got[0] = 'x'
	if got, _ := m.Note("0"); string(got) != "mine" {
		t.Fatalf("%q", got)
	}
	for i := 1; i < db.MaxNotes; i++ {
		if err := m.SetNote(t.Context(), fmt.Sprint(i), []byte{1}); err != nil {
			t.Fatal(i, err)
		}
	}
	if err := m.SetNote(t.Context(), "one more", []byte{1}); !errors.Is(err, db.ErrLimit) {
		t.Errorf("one more note than there may be: %v", err)
	}
	if err := m.SetNote(t.Context(), "0", []byte("another value")); err != nil {
		t.Error(err)
	}
	if err := m.SetNote(t.Context(), "0", nil); err != nil {
		t.Error(err)
	}
	if err := m.SetNote(t.Context(), "one more", []byte{1}); err != nil {
		t.Error(err)
	}
	storetest.OK(t, s.Close())
	o.ReadOnly = true
	s = storetest.Open(t, dir, o)
	m = storetest.Model(t, s, crashtest.Plain())
	if got, err := m.Note("one more"); err != nil || !bytes.Equal(got, []byte{1}) {
		t.Error(got, err)
	}
	if err := m.SetNote(t.Context(), "0", []byte{1}); !errors.Is(err, db.ErrReadOnly) {
		t.Error(err)
	}
}
