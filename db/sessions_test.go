package db_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/kv"
)

func openSession(t *testing.T, s *db.Store, scope string) *db.Session {
	t.Helper()
	return storetest.Must(s.OpenSession(t.Context(), scope))(t)
}

func appendTo(t *testing.T, x *db.Session, bodies ...string) {
	t.Helper()
	for _, b := range bodies {
		storetest.OK(t, x.Append(t.Context(), 7, []byte(b)))
	}
}

func framesOf(t *testing.T, x *db.Session) (out []string) {
	t.Helper()
	for f, err := range x.Frames(t.Context()) {
		if err != nil || f.Kind != 7 {
			t.Fatal(f.Kind, err)
		}
		out = append(out, string(f.Body))
	}
	return out
}

func wantFrames(t *testing.T, when string, x *db.Session, want ...string) {
	t.Helper()
	if got := framesOf(t, x); !slices.Equal(got, want) {
		t.Errorf("%s: frames %q, expected %q", when, got, want)
	}
}

// sessionPath is the file of a scope's session.
func sessionPath(t *testing.T, s *db.Store, scope string) string {
	t.Helper()
	id := storetest.Must(s.ScopeID(scope))(t)
	return filepath.Join(s.Dir(), "sessions", id.String())
}

// What was appended to a session is there in that order: after a close, a kill, a rebuild of the index, a Suspend, and for readers.
func TestSession(t *testing.T) {
	for _, mode := range []db.Durability{db.Process, db.Power} {
		t.Run(mode.String(), func(t *testing.T) {
			dir, o := t.TempDir(), storetest.Options()
			o.Durability = mode
			s := storetest.Open(t, dir, o)
			if _, err := os.Stat(filepath.Join(dir, "sessions")); err == nil {
				t.Error("a store without sessions has a folder for them")
			}
			x := openSession(t, s, "alice")
			if _, err := s.OpenSession(t.Context(), "alice"); !errors.Is(err, db.ErrSessionOpen) {
				t.Errorf("open twice: %v", err)
			}
			if err := x.Append(t.Context(), 0, nil); err == nil {
				t.Error("a frame of kind 0")
			}
			appendTo(t, x, "one", "", "three")
			wantFrames(t, "appended", x, "one", "", "three")
			appendTo(t, openSession(t, s, "bob"), "b")
			info, err := os.Stat(sessionPath(t, s, "alice"))
			if err != nil || info.Size() != x.Bytes() {
				t.Error(info, x.Bytes(), err)
			}

			storetest.OK(t, s.Suspend(t.Context()))
			if err := x.Append(t.Context(), 7, nil); !errors.Is(err, db.ErrSuspended) {
				t.Error(err)
			}
			storetest.OK(t, s.Resume(t.Context()))
			appendTo(t, x, "four")
			wantFrames(t, "resumed", x, "one", "", "three", "four")
			storetest.Crash(s)
			s = storetest.Open(t, dir, o)
			x = openSession(t, s, "alice")
			wantFrames(t, "killed", x, "one", "", "three", "four")
			storetest.OK(t, x.Replace(t.Context(), []db.SessionFrame{{Kind: 7, Body: []byte("new")}}))
			appendTo(t, x, "more")
			storetest.OK(t, x.Close())
			if err := x.Append(t.Context(), 7, nil); !errors.Is(err, db.ErrSessionClosed) {
				t.Error(err)
			}
			bytesClosed := x.Bytes()
			for range 3 { // which writes nothing
				x = openSession(t, s, "alice")
				if err := errors.Join(x.Close(), x.Close()); err != nil || x.Bytes() != bytesClosed {
					t.Errorf("opened and closed: %d bytes, before %d: %v", x.Bytes(), bytesClosed, err)
				}
			}
			r := storetest.Open(t, dir, db.Options{ReadOnly: true, Logger: o.Logger})
			if _, err := r.OpenSession(t.Context(), "alice"); !errors.Is(err, db.ErrReadOnly) {
				t.Error(err)
			}
			for _, s := range []*db.Store{s, r} {
				got, err := db.Collect(s.Sessions(t.Context()))
				if err != nil || len(got) != 2 {
					t.Fatal(got, err)
				}
				for _, i := range got {
					first := "b"
					if i.Scope == x.Scope() {
						first = "new"
					}
					if i.Err != nil || string(i.First.Body) != first || i.Bytes == 0 || i.Modified.IsZero() {
						t.Errorf("%+v", i)
					}
				}
				all, err := db.Collect(s.ReadSession(t.Context(), x.Scope()))
				if err != nil || len(all) != 2 || string(all[1].Body) != "more" {
					t.Error(all, err)
				}
				if _, err := db.Collect(s.ReadSession(t.Context(), kv.ScopeID{1})); !errors.Is(err, db.ErrNotFound) {
					t.Error(err)
				}
				if st := storetest.Stats(t, s); st.Sessions != 2 || st.SessionBytes <= 0 {
					t.Errorf("%d sessions of %d bytes", st.Sessions, st.SessionBytes)
				}
			}
			x = openSession(t, s, "alice")
			storetest.OK(t, s.Close())
			if err := x.Append(t.Context(), 7, nil); !errors.Is(err, db.ErrClosed) {
				t.Error(err)
			}
			storetest.OK(t, x.Close())
		})
	}
}

// A session whose file another process changed, or removed, while the store was suspended says so; another goes on.
func TestSessionStale(t *testing.T) {
	dir := t.TempDir()
	s := storetest.Open(t, dir, storetest.Options())
	var all []*db.Session
	scopes := []string{"same", "appended", "replaced", "deleted", "made anew"}
	for _, scope := range scopes {
		x := openSession(t, s, scope)
		appendTo(t, x, scope)
		all = append(all, x)
	}
	storetest.OK(t, s.Suspend(t.Context()))
	other := storetest.Open(t, dir, storetest.Options())
	storetest.OK(t, openSession(t, other, "same").Close())
	appendTo(t, openSession(t, other, "appended"), "x")
	storetest.OK(t, openSession(t, other, "replaced").Replace(t.Context(), []db.SessionFrame{{Kind: 7, Body: []byte("replaced")}}))
	for _, scope := range scopes[3:] {
		storetest.Must(other.DeleteScope(t.Context(), scope))(t)
	}
	appendTo(t, openSession(t, other, "made anew"), "made anew")
	storetest.OK(t, errors.Join(other.Close(), s.Resume(t.Context())))
	for i, x := range all {
		err := x.Append(t.Context(), 7, []byte("y"))
		if i == 0 && err != nil || i > 0 && !errors.Is(err, db.ErrStale) {
			t.Errorf("%s: %v", scopes[i], err)
		}
		storetest.OK(t, x.Close())
	}
	wantFrames(t, "opened again", openSession(t, s, "appended"), "appended", "x")
	wantFrames(t, "opened again", openSession(t, s, "made anew"), "made anew")
}

// inFiles are the files below a folder that hold a text.
func inFiles(t *testing.T, dir, text string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte(text)) {
			names = append(names, path)
		}
		return err
	})
	storetest.OK(t, err)
	return names
}

// DeleteScope takes a session with the rows, and leaves none of its text in any file. What is made under the same scope afterwards stays,
// also when the log is replayed that has the deletion.
func TestSessionDeleted(t *testing.T) {
	const secret = "something that alice said"
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	dir := s.Dir()
	storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(1, 60), Scope: "alice", ScopeStart: 20})
	x, bob := openSession(t, s, "alice"), openSession(t, s, "bob")
	appendTo(t, x, secret)
	appendTo(t, bob, "b")
	path := sessionPath(t, s, "alice")
	b := storetest.Must(os.ReadFile(path))(t)
	storetest.OK(t, os.WriteFile(path+".tmp", b, 0o600)) // as a kill in the middle of a Replace leaves it
	before := storetest.Stats(t, s)
	took, err := s.DeleteScope(t.Context(), "alice")
	if err != nil || took.Sessions != 1 || took.Blocks == 0 {
		t.Fatalf("%+v, %v", took, err)
	}
	if names := inFiles(t, dir, secret); len(names) > 0 {
		t.Errorf("the text is in %q", names)
	}
	if st := storetest.Stats(t, s); st.Sessions != 1 || st.SessionBytes >= before.SessionBytes {
		t.Errorf("%d sessions of %d bytes, before %d of %d", st.Sessions, st.SessionBytes, before.Sessions, before.SessionBytes)
	}
	for what, err := range map[string]error{
		"append": x.Append(t.Context(), 7, nil), "replace": x.Replace(t.Context(), nil), "frames": errOf(db.Collect(x.Frames(t.Context()))),
	} {
		if !errors.Is(err, db.ErrNotFound) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if x.Bytes() != 0 {
		t.Error(x.Bytes())
	}
	x2 := openSession(t, s, "alice") // though the handle of the old one is not closed
	appendTo(t, x2, "again")
	storetest.OK(t, x.Close())
	appendTo(t, x2, "and more")
	storetest.Crash(s)
	s = storetest.Open(t, dir, storetest.Options())
	storetest.OK(t, s.Sync(t.Context()))
	x2 = openSession(t, s, "alice")
	wantFrames(t, "made anew", x2, "again", "and more")
	storetest.OK(t, x2.Close())
	if took, err := s.DeleteScope(t.Context(), "alice"); err != nil || took.Sessions != 1 {
		t.Errorf("a closed one: %+v, %v", took, err)
	}
	if took, err := s.DeleteScope(t.Context(), "alice"); err != nil || took.Sessions != 0 {
		t.Errorf("once more: %+v, %v", took, err)
	}
	wantFrames(t, "another's", openSession(t, s, "bob"), "b")
}

func errOf[T any](_ T, err error) error { return err }

// Sessions count in the budget. Rows make way for them; they make way for nothing.
func TestSessionBudget(t *testing.T) {
	o := storetest.Options()
	o.Budget, o.SegmentBytes, o.HighWater, o.LowWater = 3<<20, 128<<10, 1, 1
	dir := crashtest.NewDirs(t).Next()
	disk := crashtest.NewDisk(dir) // on which an fsync costs nothing
	s := storetest.OpenOn(t, disk, dir, o)
	m := storetest.Model(t, s, crashtest.Plain())
	x := openSession(t, s, "alice")
	body := strings.Repeat("x", 50<<10)
	put := func(seed int) error {
		p := kv.Tokens(crashtest.Tokens(seed, 400)...)
		_, err := m.Put(t.Context(), p, storetest.Filled(m.Descriptor(), &p, 0, 400), db.PutOptions{})
		return err
	}
	for i := range 60 {
		storetest.OK(t, put(i))
	}
	full := storetest.Stats(t, s)
	n := 0
	for ; n < 200; n++ {
		err := x.Append(t.Context(), 7, []byte(body))
		if errors.Is(err, db.ErrNoSpace) {
			break
		}
		storetest.OK(t, err)
		if st := storetest.Stats(t, s); st.DiskBytes > o.Budget {
			t.Fatalf("%d bytes after %d frames", st.DiskBytes, n)
		}
	}
	st := storetest.Stats(t, s)
	evicted := st.Evicted - full.Evicted
	if n < 20 || n == 200 || evicted == 0 || st.SessionBytes < int64(n*len(body)) {
		t.Errorf("%d frames fit, %d blocks were evicted, sessions have %d bytes", n, evicted, st.SessionBytes)
	}
	if got := framesOf(t, x); len(got) != n {
		t.Errorf("%d frames are there, %d were acknowledged", len(got), n)
	}
	for seed := 1000; seed < 1002; seed++ {
		if err := put(seed); err != nil && !errors.Is(err, db.ErrNoSpace) {
			t.Error(err)
		}
	}
	storetest.Must(s.Shrink(t.Context(), 1))(t)
	if got := framesOf(t, x); len(got) != n {
		t.Errorf("%d frames are there after Shrink, %d were", len(got), n)
	}
	storetest.OK(t, x.Replace(t.Context(), []db.SessionFrame{{Kind: 7, Body: []byte("short")}}))
	if err := put(1002); err != nil {
		t.Error(fmt.Errorf("a put after a session became short: %w", err))
	}
	if st := storetest.Stats(t, s); st.DiskHighWater > o.Budget || disk.Used() > o.Budget {
		t.Errorf("at most %d bytes, now %d", st.DiskHighWater, disk.Used())
	}
}

// Sessions that are written to at once, beside checkpoints, suspensions and deletions of one of them, hold what was acknowledged.
func TestSessionTogether(t *testing.T) {
	dir := crashtest.NewDirs(t).Next()
	s := storetest.OpenOn(t, crashtest.NewDisk(dir), dir, storetest.Options())
	var all []*db.Session
	for _, scope := range []string{"a", "b", "c"} {
		all = append(all, openSession(t, s, scope))
	}
	var wg sync.WaitGroup
	const n = 60
	for i, scope := range []string{"a", "b", "c"} {
		x := all[i]
		wg.Go(func() {
			for i := range n {
				for {
					err := x.Append(t.Context(), 7, []byte(fmt.Sprint(scope, i)))
					if err == nil {
						break
					}
					if !errors.Is(err, db.ErrSuspended) {
						t.Errorf("%s: %v", scope, err)
						return
					}
					runtime.Gosched()
				}
			}
		})
	}
	wg.Go(func() {
		for i := range n {
			x, err := s.OpenSession(t.Context(), "d")
			if errors.Is(err, db.ErrSuspended) {
				continue
			}
			if err == nil {
				err = x.Append(t.Context(), 7, []byte(fmt.Sprint(i)))
			}
			if err == nil {
				_, err = s.DeleteScope(t.Context(), "d")
			}
			if err != nil && !errors.Is(err, db.ErrSuspended) {
				t.Errorf("d: %v", err)
			}
			if x != nil {
				x.Close()
			}
		}
	})
	wg.Go(func() {
		for i := range 10 {
			do := s.Sync
			if i%3 == 0 {
				do = s.Checkpoint
			}
			if err := errors.Join(do(t.Context()), s.Suspend(t.Context()), s.Resume(t.Context())); err != nil {
				t.Error(err)
			}
			if _, err := db.Collect(s.Sessions(t.Context())); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
	for _, scope := range []string{"a", "b", "c"} {
		id := storetest.Must(s.ScopeID(scope))(t)
		got, err := db.Collect(s.ReadSession(t.Context(), id))
		if err != nil || len(got) != n {
			t.Fatalf("%s: %d frames: %v", scope, len(got), err)
		}
		for i, f := range got {
			if string(f.Body) != fmt.Sprint(scope, i) {
				t.Errorf("%s: frame %d is %q", scope, i, f.Body)
			}
		}
	}
}
