package db_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/internal/vfs"
)

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
	whole := storetest.Must(os.ReadFile(pathA))(t)
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
					if f := saved.Files[0]; f.Path != path || f.Offset != c.at || f.LostBytes != int64(len(c.b))-c.at || !errors.Is(f.Err, db.ErrCorrupt) {
						t.Errorf("lost: %+v", f)
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
		storetest.Must(s.DeleteScope(t.Context(), "bob"))(t)
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
