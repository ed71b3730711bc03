package db_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

func openSession(t *testing.T, s *db.Store, scope string) *db.Session {
	t.Helper()
	x := storetest.Must(s.OpenSession(t.Context(), scope))(t)
	return x
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

// A scope without a name has no session, and nothing that could be deleted as its own: what scopes share stays. By its id, as it is listed, a
// scope goes like by its name.
func TestScopeWithoutName(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 100)}
	own := kv.Prompt{Tokens: p.Tokens, Scope: "alice", ScopeStart: 50}
	storetest.Put(t, m, p)
	storetest.Put(t, m, own)
	appendTo(t, openSession(t, s, "alice"), "one")
	if _, err := s.OpenSession(t.Context(), ""); err == nil {
		t.Error("a session without a scope")
	}
	if took, err := s.DeleteScope(t.Context(), ""); err == nil {
		t.Errorf("the scope without a name is deleted: %+v", took)
	}
	if took, err := s.DeleteScopeID(t.Context(), kv.ScopeID{}); err == nil {
		t.Errorf("what scopes share is deleted: %+v", took)
	}
	storetest.Expect(t, m, own, 100)
	all, err := db.Collect(s.Sessions(t.Context()))
	if err != nil || len(all) != 1 {
		t.Fatalf("sessions %+v, %v", all, err)
	}
	if took, err := s.DeleteScopeID(t.Context(), all[0].Scope); err != nil || took.Sessions != 1 || took.Blocks == 0 {
		t.Errorf("%+v, %v", took, err)
	}
	storetest.Expect(t, m, own, 50)
	storetest.Expect(t, m, p, 100)
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
			if _, err := s.OpenSession(t.Context(), ""); err == nil {
				t.Error("a session without a scope")
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
			if err := x.Close(); err != nil {
				t.Error(err)
			}
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
		if err := x.Close(); err != nil {
			t.Error(err)
		}
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
	dir := t.TempDir()
	s := storetest.Open(t, dir, storetest.Options())
	m := storetest.Model(t, s, crashtest.Plain())
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
	if err := x.Close(); err != nil {
		t.Error(err)
	}
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
	n, evicted := 0, int64(0)
	for ; n < 200; n++ {
		err := x.Append(t.Context(), 7, []byte(body))
		if err == nil {
			if st := storetest.Stats(t, s); st.DiskBytes > o.Budget {
				t.Fatalf("%d bytes after %d frames", st.DiskBytes, n)
			}
			continue
		}
		if !errors.Is(err, db.ErrNoSpace) {
			t.Fatal(err)
		}
		break
	}
	st := storetest.Stats(t, s)
	evicted = st.Evicted - full.Evicted
	if n < 20 || n == 200 || evicted == 0 || st.SessionBytes < int64(n*len(body)) {
		t.Errorf("%d frames fit, %d blocks were evicted, sessions have %d bytes", n, evicted, st.SessionBytes)
	}
	if got := framesOf(t, x); len(got) != n {
		t.Errorf("%d frames are there, %d were acknowledged", len(got), n)
	}
	if err := put(1000); err == nil {
		err = put(1001)
		if err != nil && !errors.Is(err, db.ErrNoSpace) {
			t.Error(err)
		}
	} else if !errors.Is(err, db.ErrNoSpace) {
		t.Error(err)
	}
	if _, err := s.Shrink(t.Context(), 1); err != nil {
		t.Error(err)
	}
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

// Damage of a session is named with file and offset by whoever reads it, and changes nothing; repair saves the frames before it. What is
// somebody else's is noted, and stays.
func TestSessionDamage(t *testing.T) {
	dir := t.TempDir()
	s := storetest.Open(t, dir, storetest.Options())
	alice, bob := openSession(t, s, "alice"), openSession(t, s, "bob")
	appendTo(t, alice, "one", "two", "three")
	appendTo(t, bob, "b")
	report, err := admin.VerifyStore(t.Context(), s, admin.VerifyOptions{})
	if err != nil || len(report.Damage) > 0 || strings.Contains(fmt.Sprint(report.Notes), "session") {
		t.Errorf("open sessions: %v %q %v", report.Damage, report.Notes, err)
	}
	pathA, pathB := sessionPath(t, s, "alice"), sessionPath(t, s, "bob")
	storetest.OK(t, s.Close())
	whole, err := os.ReadFile(pathA)
	storetest.OK(t, err)
	report, err = admin.Verify(t.Context(), dir, admin.VerifyOptions{})
	if err != nil || len(report.Damage)+len(report.Notes) > 0 {
		t.Errorf("a sound store: %v %q %v", report.Damage, report.Notes, err)
	}
	files := report.Files
	const second = 96 + 40 // behind the head and a frame of three bytes
	other := storetest.Open(t, t.TempDir(), storetest.Options())
	appendTo(t, openSession(t, other, "alice"), "another store's")
	foreign := storetest.Must(os.ReadFile(sessionPath(t, other, "alice")))(t)
	version := slices.Clone(whole)
	version[8] = 2
	binary.LittleEndian.PutUint64(version[88:], xxhash.Sum64(version[:88]))
	flip := func(at int) []byte {
		b := slices.Clone(whole)
		b[at] ^= 4
		return b
	}
	for name, c := range map[string]struct {
		b     []byte
		want  error // of OpenSession
		at    int64 // of the damage; -1: none
		saved int   // frames, by repair
		notes int
	}{
		"frame":   {flip(second + 30), db.ErrCorrupt, second, 1, 0},
		"first":   {flip(100), db.ErrCorrupt, 96, 0, 0},
		"head":    {flip(70), db.ErrCorrupt, 0, -1, 0},
		"cut":     {whole[:50], db.ErrCorrupt, 0, -1, 0},
		"torn":    {whole[:second+20], nil, -1, 1, 1},
		"foreign": {foreign, db.ErrForeign, -1, -1, 1},
		"version": {version, db.ErrVersion, -1, -1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir := storetest.Copy(t, dir)
			path := filepath.Join(dir, "sessions", filepath.Base(pathA))
			storetest.OK(t, os.WriteFile(path, c.b, 0o600))
			before := storetest.Tree(t, filepath.Join(dir, "sessions"))
			report, err := admin.Verify(t.Context(), dir, admin.VerifyOptions{})
			switch {
			case c.want == db.ErrVersion:
				if !errors.Is(err, db.ErrVersion) {
					t.Errorf("verify: %v", err)
				}
			case err != nil || len(report.Notes) != c.notes || len(report.Damage) != map[bool]int{c.at >= 0: 1}[true]:
				t.Errorf("verify: %v %q %v", report.Damage, report.Notes, err)
			case c.at >= 0 && (report.Damage[0].File != path || report.Damage[0].Offset != c.at || report.Files != files):
				t.Errorf("verify: %v of %d files", report.Damage[0], report.Files)
			}
			to := filepath.Join(t.TempDir(), "new")
			saved, err := admin.Repair(t.Context(), dir, to, admin.RepairOptions{})
			if c.want == db.ErrVersion {
				if !errors.Is(err, db.ErrVersion) {
					t.Errorf("repair: %v", err)
				}
			} else if err != nil || saved.Whole() != (c.at < 0) || saved.Sessions != 1+map[bool]int{c.saved >= 0: 1}[true] {
				t.Errorf("repair: %+v, %v", saved, err)
			} else {
				if c.at >= 0 {
					l := saved.LostSessions[0]
					if l.File != path || l.Offset != c.at || l.Frames != max(0, c.saved) || !errors.Is(l.Err, db.ErrCorrupt) || l.Scope != alice.Scope() {
						t.Errorf("lost: %+v", l)
					}
				}
				n := storetest.Open(t, to, storetest.Options())
				wantFrames(t, "repaired", openSession(t, n, "bob"), "b")
				if c.saved >= 0 {
					wantFrames(t, "repaired", openSession(t, n, "alice"), []string{"one", "two", "three"}[:c.saved]...)
				}
			}
			s := storetest.Open(t, dir, storetest.Options())
			got, err := db.Collect(s.ReadSession(t.Context(), alice.Scope()))
			if !errors.Is(err, c.want) || c.at >= 0 && len(got) != max(0, c.saved) {
				t.Errorf("read: %d frames, %v", len(got), err)
			}
			for x, err := range s.Sessions(t.Context()) {
				if err != nil || x.Scope == alice.Scope() && (x.Err != nil) != (name == "first" || name == "head" || name == "cut" || name == "version") {
					t.Errorf("listed: %+v, %v", x, err)
				}
			}
			storetest.SameTree(t, before, storetest.Tree(t, filepath.Join(dir, "sessions")), "looking")
			x, err := s.OpenSession(t.Context(), "alice")
			if !errors.Is(err, c.want) {
				t.Fatal(err)
			}
			if err == nil {
				wantFrames(t, "opened", x, "one")
				return
			}
			storetest.SameTree(t, before, storetest.Tree(t, filepath.Join(dir, "sessions")), "opening")
			took, err := s.DeleteScope(t.Context(), "alice")
			_, serr := os.Stat(path)
			switch c.want {
			case db.ErrCorrupt: // what is damaged proves nothing: it is ours
				if err != nil || took.Sessions != 1 || serr == nil {
					t.Errorf("delete: %+v, %v, %v", took, err, serr)
				}
			case db.ErrForeign:
				if err != nil || took.Sessions != 0 || serr != nil {
					t.Errorf("delete: %+v, %v, %v", took, err, serr)
				}
			case db.ErrVersion:
				if !errors.Is(err, db.ErrVersion) || serr != nil {
					t.Errorf("delete: %+v, %v, %v", took, err, serr)
				}
			}
		})
	}
	t.Run("strangers", func(t *testing.T) {
		dir := storetest.Copy(t, dir)
		for _, name := range []string{"a letter", filepath.Base(pathB) + ".tmp", "0123"} {
			storetest.OK(t, os.WriteFile(filepath.Join(dir, "sessions", name), []byte("dear friend"), 0o600))
		}
		report, err := admin.Verify(t.Context(), dir, admin.VerifyOptions{})
		if err != nil || len(report.Damage) > 0 || len(report.Notes) != 3 {
			t.Errorf("%v %q %v", report.Damage, report.Notes, err)
		}
		s := storetest.Open(t, dir, storetest.Options())
		x := openSession(t, s, "bob")
		if err := x.Replace(t.Context(), nil); !errors.Is(err, db.ErrForeign) {
			t.Error(err)
		}
		appendTo(t, x, "more")
		if _, err := s.DeleteScope(t.Context(), "bob"); err != nil {
			t.Error(err)
		}
		names, err := os.ReadDir(filepath.Join(dir, "sessions"))
		if err != nil || len(names) != 4 { // and alice's
			t.Error(names, err)
		}
	})
	t.Run("open to others", func(t *testing.T) {
		if runtime.GOOS == "windows" {
			t.Skip("SKIPPED: Windows has no such mode bits")
		}
		for _, name := range []string{"", filepath.Base(pathB)} {
			dir := storetest.Copy(t, dir)
			storetest.OK(t, os.Chmod(filepath.Join(dir, "sessions", name), 0o722))
			if _, err := storetest.TryOpen(vfs.OS, dir, storetest.Options()); !errors.Is(err, db.ErrUnsafeDir) {
				t.Errorf("%q: %v", name, err)
			}
		}
	})
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
