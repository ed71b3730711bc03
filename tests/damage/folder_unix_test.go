//go:build unix

package damage

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/internal/memdir"
)

// Whatever the process's mask allows, nobody else may read what a store writes.
func TestModes(t *testing.T) {
	old := unix.Umask(0)
	defer unix.Umask(old)
	parent := memdir.Dir(t)
	b := &builder{t: t, dir: filepath.Join(parent, "made", "for me"), chats: chats()}
	b.open()
	look := func(when string) {
		t.Helper()
		err := filepath.WalkDir(filepath.Join(parent, "made"), func(path string, e fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // the store is open
			}
			if err != nil {
				return err
			}
			info, err := e.Info()
			if err != nil {
				return nil
			}
			want := fs.FileMode(0o600)
			if e.IsDir() {
				want = fs.ModeDir | 0o700
			}
			if info.Mode() != want {
				t.Errorf("%s: %s is %s, expected %s", when, path, info.Mode(), want)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for name := range b.chats {
		if name != "turn 2" && name != "turn 3" {
			c := b.chats[name]
			c.rows, c.memo = c.compute(len(c.p.Tokens)), c.memory()
			_, err := b.model(c.d.Name).Put(ctx, c.p, c.rows, c.put)
			b.must(err)
		}
	}
	look("after puts")
	b.must(b.s.Checkpoint(ctx))
	look("after a checkpoint")
	_, err := b.s.DeleteScope(ctx, "bob")
	b.must(err)
	_, err = b.s.Compact(ctx, db.CompactOptions{All: true})
	b.must(err)
	b.must(b.s.Suspend(ctx))
	look("suspended")
	b.must(b.s.Resume(ctx))
	b.must(b.s.Close())
	look("closed")
	for _, name := range []string{"index.db", "bloom", "FORMAT"} {
		if err := os.Remove(filepath.Join(b.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		b.open()
		b.must(b.s.Close())
		look("without " + name)
	}
}

// A folder that others can write to is refused, and nothing in it is touched, unless the option accepts it.
func TestFoldersThatOthersWrite(t *testing.T) {
	x := build(t, 1)[1]
	dir := filepath.Join(memdir.Dir(t), "store")
	for _, sub := range []string{"", "wal", "segments"} {
		for _, mode := range []os.FileMode{0o770, 0o720, 0o707, 0o702, 0o777, 0o777 | os.ModeSticky} {
			if err := x.files.lay(dir); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(filepath.Join(dir, sub), mode); err != nil {
				t.Fatal(err)
			}
			before := outline(t, dir)
			o := options()
			for _, o.ReadOnly = range []bool{true, false} {
				if s, err := db.Open(ctx, dir, o); !errors.Is(err, db.ErrUnsafeDir) {
					t.Errorf("%q of mode %s, read-only %t: %v", sub, mode, o.ReadOnly, err)
					if err == nil {
						s.Close()
					}
				}
			}
			if _, err := admin.Verify(ctx, dir, admin.VerifyOptions{}); !errors.Is(err, db.ErrUnsafeDir) {
				t.Errorf("verify, %q of mode %s: %v", sub, mode, err)
			}
			if after := outline(t, dir); before != after {
				t.Errorf("%q of mode %s: an Open that was refused changed something:\n%s%s", sub, mode, before, after)
			}
			if rep, err := admin.Verify(ctx, dir, admin.VerifyOptions{AllowSharedDir: true}); err != nil || len(rep.Damage) > 0 {
				t.Errorf("verify, allowed, %q of mode %s: %v, %v", sub, mode, rep.Damage, err)
			}
			for _, o.ReadOnly = range []bool{true, false} {
				o.AllowSharedDir = true
				s, err := db.Open(ctx, dir, o)
				if err != nil {
					t.Errorf("allowed, %q of mode %s, read-only %t: %v", sub, mode, o.ReadOnly, err)
					continue
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
			os.Chmod(filepath.Join(dir, sub), 0o700)
		}
	}
	empty := filepath.Join(memdir.Dir(t), "new")
	if err := errors.Join(os.Mkdir(empty, 0o700), os.Chmod(empty, 0o777)); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Open(ctx, empty, options()); !errors.Is(err, db.ErrUnsafeDir) {
		t.Errorf("a new store where others can write: %v", err)
	}
	if names, err := os.ReadDir(empty); err != nil || len(names) > 0 {
		t.Errorf("it left %v, %v", names, err)
	}
}

// Files of the store that others can write to are refused, and so is what another user owns; the error says what is wrong, and what accepts
// it. A copy that others can only read opens, and says so.
func TestFilesThatOthersWrite(t *testing.T) {
	x := build(t, 1)[1]
	dir := filepath.Join(memdir.Dir(t), "store")
	var log bytes.Buffer
	try := func(what, path string, says ...string) {
		t.Helper()
		before := outline(t, dir)
		o := options()
		for _, o.ReadOnly = range []bool{true, false} {
			s, err := db.Open(ctx, dir, o)
			if err == nil {
				s.Close()
			}
			if !errors.Is(err, db.ErrUnsafeDir) {
				t.Errorf("%s, read-only %t: %v", what, o.ReadOnly, err)
				continue
			}
			for _, say := range append(says, path, "AllowSharedDir", "container") {
				if !strings.Contains(err.Error(), say) {
					t.Errorf("%s: %q does not say %q", what, err, say)
				}
			}
		}
		if _, err := admin.Verify(ctx, dir, admin.VerifyOptions{}); !errors.Is(err, db.ErrUnsafeDir) {
			t.Errorf("%s: Verify: %v", what, err)
		}
		to := filepath.Join(memdir.Dir(t), "to")
		if _, err := admin.Repair(ctx, dir, to, admin.RepairOptions{}); !errors.Is(err, db.ErrUnsafeDir) {
			t.Errorf("%s: Repair: %v", what, err)
		}
		if after := outline(t, dir); before != after {
			t.Errorf("%s: an Open that was refused changed something:\n%s%s", what, before, after)
		}
		if _, err := admin.Repair(ctx, dir, to, admin.RepairOptions{AllowSharedDir: true}); err != nil {
			t.Errorf("%s: Repair, allowed: %v", what, err)
		}
		o.AllowSharedDir = true
		for _, o.ReadOnly = range []bool{true, false} {
			s, err := db.Open(ctx, dir, o)
			if err != nil {
				t.Errorf("%s, allowed, read-only %t: %v", what, o.ReadOnly, err)
			} else if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	lay := func() {
		t.Helper()
		os.RemoveAll(dir) // what is as it should be is not written again
		if err := x.files.lay(dir); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range x.files.names() {
		path := filepath.Join(dir, filepath.FromSlash(name))
		for _, mode := range []os.FileMode{0o666, 0o620, 0o602} {
			lay()
			if err := os.Chmod(path, mode); err != nil {
				t.Fatal(err)
			}
			try(fmt.Sprintf("%s of mode %s", name, mode), path, mode.String())
		}
		if os.Geteuid() == 0 {
			lay()
			if err := os.Chown(path, nobody, nobody); err != nil {
				t.Fatal(err)
			}
			try(name+" of another user", path, fmt.Sprint("uid ", nobody))
		}
	}
	for _, sub := range []string{"", "wal", "segments"} {
		if os.Geteuid() == 0 {
			lay()
			path := filepath.Join(dir, sub)
			if err := os.Chown(path, nobody, nobody); err != nil {
				t.Fatal(err)
			}
			try(sub+" of another user", path, fmt.Sprint("uid ", nobody), "expected 0")
			if err := os.Chown(path, 0, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	lay()
	for _, name := range append(x.files.names(), "", "wal", "segments") {
		path, mode := filepath.Join(dir, filepath.FromSlash(name)), os.FileMode(0o644)
		if info, err := os.Stat(path); err != nil || info.IsDir() {
			mode = 0o755
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "notes.txt"), nil, 0o666); err != nil { // no file of the store
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "notes.txt"), 0o666); err != nil {
		t.Fatal(err)
	}
	o := options()
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	s, err := db.Open(ctx, dir, o)
	if err != nil {
		t.Fatalf("a copy that others can read: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "can read") {
		t.Errorf("nothing is said of a copy that others can read: %s", &log)
	}
	log.Reset()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if s, err = db.Open(ctx, dir, o); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if strings.Contains(log.String(), "can read") {
		t.Errorf("nobody can enter the folder: %s", &log)
	}
}

// Links that somebody planted, under every name that the store writes, lead nowhere.
func TestPlantedLinks(t *testing.T) {
	victim := filepath.Join(memdir.Dir(t), "victim")
	dir := filepath.Join(memdir.Dir(t), "store")
	const mine = "what is in it"
	bases := build(t, 1)
	names := map[string]bool{
		"FORMAT.tmp": true, "bloom.tmp": true, "index.db.tmp": true, "wal/next.wal.tmp": true,
		"segments/000000000000000d.seg": true, "segments/000000000000000e.seg": true, // the next ones
		"wal/0000000000000009.wal": true, "wal/000000000000000c.wal": true, "wal/000000000000000d.wal": true,
	}
	for _, x := range bases {
		for name := range x.files {
			names[name] = true
		}
	}
	for _, x := range bases {
		for name := range names {
			for _, to := range []string{victim, victim + ".none"} {
				if err := os.WriteFile(victim, []byte(mine), 0o600); err != nil {
					t.Fatal(err)
				}
				if err := x.files.lay(dir); err != nil {
					t.Fatal(err)
				}
				path := filepath.Join(dir, filepath.FromSlash(name))
				if err := os.RemoveAll(path); err != nil {
					t.Fatal(err)
				}
				if err := os.Symlink(to, path); err != nil {
					t.Fatal(err)
				}
				watch(t, x.name+" "+name, func() {
					admin.Verify(ctx, dir, admin.VerifyOptions{})
					u := &user{x: x, dir: dir, cost: &cost{step: -1, log: true}}
					s, err := db.Open(ctx, dir, options())
					if err == nil {
						u.write(s, nil) // may fail: TestReplacedFiles asks how
						s.Compact(ctx, db.CompactOptions{All: true})
						s.Close()
					}
				})
				if b, err := os.ReadFile(victim); err != nil || string(b) != mine {
					t.Errorf("%s: %s: what a link leads to is now %q, %v", x.name, name, b, err)
				}
				if _, err := os.Lstat(victim + ".none"); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("%s: %s: something was made where a link leads", x.name, name)
					os.Remove(victim + ".none")
				}
			}
		}
	}
}
