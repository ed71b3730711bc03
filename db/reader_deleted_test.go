package db_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// What was deleted is gone for a process that opens the store afterwards, though the writer has made no checkpoint, and cannot destroy the bytes
// because its own matches see them.

// deletion is what a writer does in a process of its own. It has stored alice's prompt and bob's by then, and a checkpoint has them.
type deletion struct {
	name string
	desc kv.Descriptor
	do   func(t *testing.T, s *db.Store, m *db.Model)
	left int // of alice's prompt, for readers; -1: the model has gone, too
}

const sharedByBoth = 50

var alices, bobs = ofUser("alice", 2), ofUser("bob", 3)

func ofUser(name string, seed int) kv.Prompt {
	return kv.Prompt{Tokens: crashtest.Concat(crashtest.Tokens(1, sharedByBoth), crashtest.Tokens(seed, 230)), Scope: name, ScopeStart: sharedByBoth}
}

// atCheckpoint is what is stored of alice's prompt at the checkpoint: it ends in a partial block.
var atCheckpoint = alices.Prefix(sharedByBoth + 105)

func deletions() []deletion {
	scope := func(t *testing.T, s *db.Store) { storetest.Must(s.DeleteScope(t.Context(), "alice"))(t) }
	longer := func(t *testing.T, m *db.Model) { storetest.Put(t, m, alices.Prefix(sharedByBoth+112)) } // the partial block's, whole
	evict := func(t *testing.T, s *db.Store, m *db.Model) {
		for i := range 1000 { // others put, until room is made for them, without a checkpoint
			storetest.Put(t, m, ofUser("carol", 1000+i))
			if n, _, err := m.Probe(t.Context(), alices, db.MatchOptions{}); err != nil || n <= sharedByBoth {
				storetest.OK(t, err)
				return
			}
		}
		t.Fatal("nothing is evicted")
	}
	return []deletion{
		{"a scope", crashtest.Plain(), func(t *testing.T, s *db.Store, m *db.Model) { scope(t, s) }, sharedByBoth},
		{"a scope, with windows", crashtest.Windowed(40), func(t *testing.T, s *db.Store, m *db.Model) { scope(t, s) }, sharedByBoth},
		{"a prefix", crashtest.Plain(), func(t *testing.T, s *db.Store, m *db.Model) {
			storetest.Must(m.Delete(t.Context(), alices.Prefix(sharedByBoth+17)))(t)
		}, sharedByBoth + 16},
		{"what two users share", crashtest.Plain(), func(t *testing.T, s *db.Store, m *db.Model) {
			storetest.Must(m.Delete(t.Context(), alices.Prefix(1)))(t)
		}, 0},
		{"a model", crashtest.Plain(), func(t *testing.T, s *db.Store, m *db.Model) { storetest.OK(t, s.Retire(t.Context(), m.Fingerprint())) }, -1},
		{"what a longer block had replaced", crashtest.Plain(), func(t *testing.T, s *db.Store, m *db.Model) {
			longer(t, m)
			scope(t, s)
		}, sharedByBoth},
		{"what a longer block had replaced, which was evicted then", crashtest.Plain(), func(t *testing.T, s *db.Store, m *db.Model) {
			longer(t, m)
			evict(t, s, m)
			scope(t, s)
		}, sharedByBoth},
		{"what was evicted", crashtest.Plain(), func(t *testing.T, s *db.Store, m *db.Model) {
			evict(t, s, m)
			scope(t, s)
		}, sharedByBoth},
		{"what was moved", crashtest.Plain(), func(t *testing.T, s *db.Store, m *db.Model) {
			storetest.Must(s.Compact(t.Context(), db.CompactOptions{All: true}))(t)
			scope(t, s)
		}, sharedByBoth},
		{"what was put again since", crashtest.Plain(), func(t *testing.T, s *db.Store, m *db.Model) {
			scope(t, s)
			storetest.Put(t, m, alices)
			scope(t, s)
			storetest.Put(t, m, alices.Prefix(sharedByBoth+40))
		}, sharedByBoth},
		{"many, in the middle of it", crashtest.Plain(), func(t *testing.T, s *db.Store, m *db.Model) {
			for i := range 40 {
				p := ofUser("alice", 100+i)
				storetest.Put(t, m, p)
				if i%7 == 0 {
					storetest.Must(s.DeleteScope(t.Context(), "alice"))(t)
				}
			}
			scope(t, s)
		}, sharedByBoth},
	}
}

// TestWriterThatDeletes is what the other process does: it deletes, says so, and goes on living with a match on what it deleted.
func TestWriterThatDeletes(t *testing.T) {
	dir, name := os.Getenv("DORMOUSE_CHILD_DIR"), os.Getenv("DORMOUSE_CHILD_DELETES")
	if name == "" {
		t.Skip("SKIPPED: runs in a child process only, which other tests start")
	}
	for _, d := range deletions() {
		if d.name != name {
			continue
		}
		o := storetest.Options()
		o.MaxBlocks = 400
		s := storetest.Open(t, dir, o)
		m := storetest.Model(t, s, d.desc)
		storetest.Put(t, m, atCheckpoint)
		storetest.Put(t, m, bobs)
		storetest.OK(t, m.SetRef(t.Context(), "alice's", atCheckpoint, db.RefOptions{Meta: []byte("secret")}))
		storetest.OK(t, m.SetRef(t.Context(), "bob's", bobs, db.RefOptions{Pinned: true}))
		storetest.OK(t, m.SetNote(t.Context(), "note", []byte("secret")))
		storetest.OK(t, s.Checkpoint(t.Context()))
		say := func(what string) {
			fmt.Println("child:", what)
			if _, err := bufio.NewReaderSize(os.Stdin, 16).ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		x := storetest.Match(t, m, atCheckpoint) // its lease keeps the bytes
		say("stored")
		storetest.OK(t, m.SetNote(t.Context(), "note", nil))
		if d.name != "what a longer block had replaced" && d.name != "what a longer block had replaced, which was evicted then" {
			defer x.Close()
		} else {
			storetest.OK(t, x.Close()) // no other match may rest on a block that is replaced
			storetest.OK(t, s.DeleteRef(t.Context(), "alice's"))
		}
		if d.name == "what was evicted" {
			storetest.OK(t, errors.Join(x.Close(), s.DeleteRef(t.Context(), "alice's")))
		}
		d.do(t, s, m)
		say("deleted")
	}
}

// child is a process that says lines, and goes on when it is told to.
type child struct {
	t     *testing.T
	lines *bufio.Scanner
	in    io.WriteCloser
}

func startChild(t *testing.T, test string, env ...string) *child {
	t.Helper()
	c := exec.Command(os.Args[0], "-test.run=^"+test+"$")
	c.Env = append(os.Environ(), env...)
	in := storetest.Must(c.StdinPipe())(t)
	out := storetest.Must(c.StdoutPipe())(t)
	c.Stderr = os.Stderr
	storetest.OK(t, c.Start())
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
	})
	return &child{t, bufio.NewScanner(out), in}
}

func (c *child) wait(for_ string) {
	c.t.Helper()
	all := ""
	for c.lines.Scan() {
		if c.lines.Text() == "child: "+for_ {
			return
		}
		all += c.lines.Text() + "\n"
	}
	c.t.Fatalf("the child ended before it was %s:\n%s", for_, all)
}

func (c *child) goOn() {
	c.t.Helper()
	storetest.Must(io.WriteString(c.in, "\n"))(c.t)
}

func TestReaderThatOpensAfterADeletion(t *testing.T) {
	for _, d := range deletions() {
		t.Run(d.name, func(t *testing.T) {
			dir := t.TempDir()
			c := startChild(t, "TestWriterThatDeletes", "DORMOUSE_CHILD_DIR="+dir, "DORMOUSE_CHILD_DELETES="+d.name)
			c.wait("stored")
			before := storetest.Open(t, dir, readOnly())
			mb := storetest.Model(t, before, d.desc)
			storetest.Expect(t, mb, alices, len(atCheckpoint.Tokens))
			st := storetest.Stats(t, before)
			if _, err := before.Ref("alice's"); err != nil || !st.BesideWriter || st.AsOf.IsZero() {
				t.Fatal(err, st.AsOf, st.BesideWriter)
			}
			c.goOn()
			c.wait("deleted")

			left := func(what string, s *db.Store) {
				t.Helper()
				m, err := s.Model(mb.Fingerprint())
				if d.left < 0 {
					if !errors.Is(err, db.ErrNotFound) {
						t.Errorf("%s: the model that was retired: %v", what, err)
					}
					return
				}
				storetest.OK(t, err)
				if n, reason := storetest.Restore(t, m, alices); n > d.left {
					t.Errorf("%s: %d tokens restored (%v), %d are not deleted", what, n, reason, d.left)
				}
				if n, _ := storetest.Restore(t, m, bobs); d.left > 0 && n != len(bobs.Tokens) {
					t.Errorf("%s: %d tokens of bob's", what, n)
				}
				if _, err := s.Ref("alice's"); d.left <= sharedByBoth && !errors.Is(err, db.ErrNotFound) {
					t.Errorf("%s: alice's ref: %v", what, err)
				}
				if v, err := m.Note("note"); !errors.Is(err, db.ErrNotFound) {
					t.Errorf("%s: the note that was removed: %q, %v", what, v, err)
				}
				if now := storetest.Stats(t, s); !now.AsOf.Equal(st.AsOf) && d.name != "what was moved" { // Compact makes a checkpoint
					t.Errorf("%s: as of %v, the checkpoint was at %v", what, now.AsOf, st.AsOf)
				}
			}
			after := storetest.Open(t, dir, readOnly())
			left("opened after it", after)
			if err := errors.Join(before.Suspend(t.Context()), before.Resume(t.Context())); err != nil {
				t.Fatal(err)
			}
			left("resumed after it", before)
			storetest.OK(t, errors.Join(before.Close(), after.Close()))
		})
	}
}

// Readers open all the time beside a writer that puts, deletes and makes checkpoints. Whatever was deleted before a reader began to open is not there for
// it, and none takes a log that is being written for a damaged one.
func TestReadersOpenWhileOthersAreDeleted(t *testing.T) {
	dir := t.TempDir()
	o := storetest.Options()
	o.CheckpointInterval = 7 * time.Millisecond
	w := storetest.Open(t, dir, o)
	m := storetest.Model(t, w, crashtest.Plain())
	prompt := func(i int) kv.Prompt {
		return kv.Prompt{Tokens: crashtest.Tokens(i+1, 100), Scope: fmt.Sprint("user ", i)}
	}
	storetest.Put(t, m, prompt(0))
	storetest.OK(t, w.Checkpoint(t.Context()))
	n := 300
	if testing.Short() {
		n = 100
	}
	var deleted atomic.Int64
	var wait sync.WaitGroup
	var held []*db.Match
	wait.Go(func() {
		defer deleted.Store(-1)
		for i := range n {
			storetest.Put(t, m, prompt(i+1))
			if i%3 == 0 {
				time.Sleep(3 * time.Millisecond)
			}
			held = append(held, storetest.Match(t, m, prompt(i)))
			if _, err := w.DeleteScope(t.Context(), prompt(i).Scope); err != nil {
				t.Error(err)
				return
			}
			deleted.Store(int64(i + 1))
		}
	})
	opens := 0
	for {
		gone := int(deleted.Load())
		if gone < 0 {
			break
		}
		r, err := db.Open(t.Context(), dir, readOnly())
		if err != nil {
			t.Errorf("reader: %v", err)
			break
		}
		opens++
		rm := storetest.Model(t, r, crashtest.Plain())
		for i := range gone {
			if n, reason := storetest.Restore(t, rm, prompt(i)); n > 0 {
				t.Errorf("%d tokens of prompt %d are restored (%v), and %d were deleted before", n, i, reason, gone)
			}
		}
		if st := storetest.Stats(t, r); st.Damaged != 0 {
			t.Errorf("%d damaged records", st.Damaged)
		}
		storetest.OK(t, r.Close())
	}
	wait.Wait()
	for _, x := range held {
		x.Close()
	}
	t.Logf("%d readers opened", opens)
	if opens < 3 {
		t.Error("hardly a reader opened: this shows nothing")
	}
}

// A longer block that came since the checkpoint takes nothing of what a reader is shown: the shorter one that it replaced is still there.
func TestReaderSeesWhatALongerBlockReplaced(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	storetest.Put(t, m, atCheckpoint)
	storetest.OK(t, s.Checkpoint(t.Context()))
	storetest.Put(t, m, alices.Prefix(sharedByBoth+112))
	r := storetest.Open(t, s.Dir(), readOnly())
	storetest.Expect(t, storetest.Model(t, r, crashtest.Plain()), alices, len(atCheckpoint.Tokens))
}
