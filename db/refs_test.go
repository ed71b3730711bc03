package db_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// Refs are in the log, in the head of every log file and in the index: the budget holds for them too.
func TestBudgetHoldsWithRefs(t *testing.T) {
	for _, c := range []struct {
		name  string
		names int // refs that there are in the end
		sets  int
	}{{"one ref, set often", 1, 3000}, {"many refs", 120, 120}} {
		t.Run(c.name, func(t *testing.T) {
			o := storetest.Options()
			o.Budget, o.SegmentBytes = 8<<20, 256<<10
			o.HighWater, o.LowWater = 1, 1
			s, m := storetest.Fresh(t, o, crashtest.Plain())
			dir := s.Dir()
			fill := func(from, n int) {
				for i := range n {
					storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(from+i, 640)})
				}
			}
			most := int64(0)
			check := func(what string) {
				total, _, parts := storetest.Occupied(t, dir)
				if total > most && total > o.Budget {
					t.Errorf("%s: %d bytes are occupied of a budget of %d: %v", what, total, o.Budget, parts)
				}
				most = max(most, total)
			}
			p := kv.Prompt{Tokens: crashtest.Tokens(1, 64)}
			storetest.Put(t, m, p)
			storetest.OK(t, m.SetRef(t.Context(), "keep", p, db.RefOptions{Pinned: true}))
			fill(10, 24)
			check("filled")
			for i := range c.sets {
				storetest.OK(t, m.SetRef(t.Context(), fmt.Sprint("ref ", i%c.names), p, db.RefOptions{Pinned: true, Meta: make([]byte, db.MaxRefMeta)}))
				if i%500 == 0 {
					check(fmt.Sprint("ref ", i))
				}
			}
			check("refs are set")
			fill(500, 6) // makes room for what the next checkpoint writes
			for i := range 3 {
				storetest.OK(t, s.Checkpoint(t.Context()))
				check("checkpoint")
				fill(1000*i+1000, 6)
				check("filled again")
			}
			t.Logf("at most %d bytes", most)
		})
	}
}

// A ref makes the room that it takes: in a full store blocks go for it, and where none may go it is refused.
func TestRefsMakeRoom(t *testing.T) {
	o := storetest.Options()
	o.Budget, o.SegmentBytes = 8<<20, 256<<10
	o.HighWater, o.LowWater = 1, 1
	s, m := storetest.Fresh(t, o, crashtest.Plain())
	dir := s.Dir()
	for i := range 24 {
		storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(10+i, 640)})
	}
	keep := kv.Prompt{Tokens: crashtest.Tokens(1, 64)}
	storetest.Put(t, m, keep)
	before := storetest.Stats(t, s).Blocks
	refused := false
	for i := 0; i < 1500 && !refused; i++ {
		err := m.SetRef(t.Context(), fmt.Sprint("ref ", i), keep, db.RefOptions{Pinned: true, Meta: make([]byte, db.MaxRefMeta)})
		if refused = errors.Is(err, db.ErrNoSpace); err != nil && !refused {
			t.Fatal(i, err)
		}
		if i%50 == 0 {
			storetest.OK(t, s.Checkpoint(t.Context()))
		}
		if total, _, parts := storetest.Occupied(t, dir); total > o.Budget {
			t.Fatalf("%d refs: %d bytes are occupied of a budget of %d: %v", i, total, o.Budget, parts)
		}
	}
	if n := storetest.Stats(t, s).Blocks; n >= before {
		t.Errorf("%d blocks of %d stay", n, before)
	}
	if !refused {
		t.Error("refs of 6 MB with their copies fit into 8 MB")
	}
	storetest.Expect(t, m, keep, 64)
	if err := s.DeleteRef(t.Context(), "ref 0"); err != nil {
		t.Error(err)
	}
}

// A ref outlives what it names, unless it pins that: it says so.
func TestRefsSayWhatIsStored(t *testing.T) {
	o := storetest.Options()
	o.Budget, o.SegmentBytes = 8<<20, 256<<10
	s, m := storetest.Fresh(t, o, crashtest.Plain())
	for i, name := range []string{"named", "pinned"} {
		p := kv.Prompt{Tokens: crashtest.Tokens(1+i, 64)}
		storetest.Put(t, m, p)
		storetest.OK(t, m.SetRef(t.Context(), name, p, db.RefOptions{Pinned: name == "pinned"}))
	}
	stored := func() (named, pinned bool) {
		return storetest.Must(s.Ref("named"))(t).Stored, storetest.Must(s.Ref("pinned"))(t).Stored
	}
	if named, pinned := stored(); !named || !pinned {
		t.Errorf("of what was put, the refs say %v and %v", named, pinned)
	}
	for i := 0; storetest.Stats(t, s).Evicted < 40; i++ {
		storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(10+i, 640)})
	}
	if named, pinned := stored(); named || !pinned {
		t.Errorf("after evictions the refs say %v, expected false, and %v, expected true", named, pinned)
	}
}

// After a kill, what has a higher priority still goes later.
func TestPriorityAfterAKill(t *testing.T) {
	dir := t.TempDir()
	o := storetest.Options()
	o.MaxBlocks, o.HighWater, o.LowWater = 2, 1, 1 // only a put evicts
	s := storetest.Open(t, dir, o)
	m := storetest.Model(t, s, crashtest.Plain())
	first, second := kv.Prompt{Tokens: crashtest.Tokens(1, 16)}, kv.Prompt{Tokens: crashtest.Tokens(2, 16)}
	storetest.Put(t, m, first)
	storetest.Put(t, m, second)
	storetest.OK(t, m.SetRef(t.Context(), "second", second, db.RefOptions{Priority: 9}))
	storetest.OK(t, s.Checkpoint(t.Context()))
	storetest.OK(t, s.DeleteRef(t.Context(), "second"))
	storetest.OK(t, m.SetRef(t.Context(), "first", first, db.RefOptions{Priority: 9}))
	again := storetest.Open(t, storetest.Copy(t, dir), o)
	for name, s := range map[string]*db.Store{"after a kill": again, "still open": s} {
		m := storetest.Model(t, s, crashtest.Plain())
		storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(3, 16)}) // in the place of one of them
		if n, _ := storetest.Restore(t, m, first); n != 16 {
			t.Errorf("%s: what has a priority was evicted before what has none", name)
		}
	}
}

// Every list is asked for in one way: it ends with its error, its loop body may call the store, and what reads the disk can be cancelled.
func TestLists(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	for i := range 3 {
		p := kv.Tokens(crashtest.Tokens(i+1, 32)...)
		storetest.Put(t, m, p)
		storetest.OK(t, errors.Join(m.SetRef(t.Context(), fmt.Sprint("ref ", i), p, db.RefOptions{}), m.SetNote(t.Context(), fmt.Sprint("note ", i), []byte{1})))
	}
	blocks, err := db.Collect(s.Blocks(t.Context()))
	if err != nil || len(blocks) != 6 {
		t.Fatalf("%d blocks, %v", len(blocks), err)
	}
	lists := func(ctx context.Context) map[string]func() (int, error) {
		return map[string]func() (int, error){
			"Models": walk(s, s.Models()), "Refs": walk(s, s.Refs()), "Notes": walk(s, m.Notes()), "Tombstones": walk(s, admin.Tombstones(s)),
			"Blocks": walk(s, s.Blocks(ctx)), "Planes": walk(s, admin.Planes(ctx, s, blocks[0])), "Segments": walk(s, admin.Segments(ctx, s)), "Log": walk(s, admin.Log(ctx, s)),
		}
	}
	want := map[string]int{"Models": 1, "Refs": 3, "Notes": 3, "Blocks": 6, "Planes": len(crashtest.Plain().Tensors), "Segments": 1, "Log": 1}
	for name, list := range lists(t.Context()) {
		if n, err := list(); n != want[name] || err != nil {
			t.Errorf("%s: %d, %v, expected %d", name, n, err, want[name])
		}
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, list := range lists(cancelled) {
		reads := slices.Contains([]string{"Blocks", "Planes", "Segments", "Log"}, name)
		if n, err := list(); errors.Is(err, context.Canceled) != reads || reads && n > 0 {
			t.Errorf("%s, cancelled: %d, %v", name, n, err)
		}
	}
	for ref, err := range s.Refs() {
		storetest.OK(t, errors.Join(err, s.DeleteRef(t.Context(), ref.Name)))
		if ref.Name == "ref 1" {
			break
		}
	}
	if left, err := db.Collect(s.Refs()); err != nil || len(left) != 1 || left[0].Name != "ref 2" {
		t.Errorf("refs %v, %v", left, err)
	}
	storetest.OK(t, s.Close())
	for name, list := range lists(t.Context()) {
		if n, err := list(); n > 0 || !errors.Is(err, db.ErrClosed) {
			t.Errorf("%s of a closed store: %d, %v", name, n, err)
		}
	}
}

// walk counts a list, and calls the store from within.
func walk[T any](s *db.Store, list iter.Seq2[T, error]) func() (int, error) {
	return func() (n int, err error) {
		for _, err := range list {
			if err != nil {
				return n, err
			}
			if _, err := s.Stats(); err != nil {
				return n, err
			}
			n++
		}
		return n, nil
	}
}

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
	s, m := storetest.Fresh(t, o, crashtest.Plain())
	dir := s.Dir()
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
