package db

import (
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// noFilesFS is a file system of a process that has no file handles left while short is set.
type noFilesFS struct {
	vfs.FS
	short *atomic.Bool
}

func (f noFilesFS) Open(name string, readOnly bool) (vfs.File, error) {
	if f.short.Load() {
		return nil, &os.PathError{Op: "open", Path: name, Err: vfs.PassingErrors[0]}
	}
	return f.FS.Open(name, readOnly)
}

// A record that cannot be read for want of file handles is not damaged: when there are some again, it is restored.
func TestWantOfFilesIsNoDamage(t *testing.T) {
	for _, d := range []kv.Descriptor{plain(), opaque()} {
		t.Run(d.Name, func(t *testing.T) {
			var short atomic.Bool
			o := options()
			o.fs = noFilesFS{vfs.OS, &short}
			dir := t.TempDir()
			s := open(t, dir, o)
			p := kv.Prompt{Tokens: tokens(1, 64)}
			put(t, model(t, s, d), p)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = open(t, dir, o)
			m := model(t, s, d)
			put(t, m, kv.Prompt{Tokens: tokens(2, 64)}) // so that the log is begun
			short.Store(true)
			if n, why := restore(t, m, p); n != 0 {
				t.Errorf("%d tokens without files, %v", n, why)
			}
			short.Store(false)
			expect(t, m, p, 64)
			if n := s.eng.count.damaged.Load(); n != 0 {
				t.Errorf("%d records are counted as damaged", n)
			}
		})
	}
}

// deniedFS is a file system of a process to which files are closed for a while: those of a phone while it is locked.
type deniedFS struct {
	vfs.FS
	denied *atomic.Bool
	why    error
}

func (f deniedFS) Open(name string, readOnly bool) (vfs.File, error) {
	if f.denied.Load() {
		return nil, &os.PathError{Op: "open", Path: name, Err: f.why}
	}
	return f.FS.Open(name, readOnly)
}

// A record whose file may not be opened is not damaged either.
func TestDeniedIsNoDamage(t *testing.T) {
	for _, why := range vfs.PassingErrors {
		var denied atomic.Bool
		o := options()
		o.fs = deniedFS{vfs.OS, &denied, why}
		dir := t.TempDir()
		s := open(t, dir, o)
		p := kv.Tokens(tokens(1, 64)...)
		put(t, model(t, s, plain()), p)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, dir, o)
		m := model(t, s, plain())
		put(t, m, kv.Tokens(tokens(2, 64)...)) // so that the log is begun
		denied.Store(true)
		if n, reason := restore(t, m, p); n != 0 {
			t.Errorf("%v: %d tokens, %v", why, n, reason)
		}
		denied.Store(false)
		expect(t, m, p, 64)
		if n := s.eng.count.damaged.Load(); n != 0 {
			t.Errorf("%v: %d records are counted as damaged", why, n)
		}
	}
}

// A model is retired with all its segments, or not at all: one that could not be looked at for want of file handles, or because
// its header is damaged, would keep its tokens and rows.
func TestRetireTakesEverySegment(t *testing.T) {
	for _, damaged := range []bool{false, true} {
		var short atomic.Bool
		o := options()
		o.fs = noFilesFS{vfs.OS, &short}
		dir := t.TempDir()
		s := open(t, dir, o)
		c := newCanary(plain(), "")
		put(t, model(t, s, plain()), c.p)
		put(t, model(t, s, windowed(40)), kv.Prompt{Tokens: tokens(1, 64)})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		c.shows(t, dir, "stored")
		if damaged {
			f, err := os.OpenFile(filepath.Join(dir, segmentsDir, "0000000000000001.seg"), os.O_RDWR, 0)
			if err == nil {
				_, err = f.WriteAt([]byte("damage"), 20)
				err = errors.Join(err, f.Close())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		s = open(t, dir, o)
		m := model(t, s, plain())
		put(t, model(t, s, windowed(40)), kv.Prompt{Tokens: tokens(2, 64)}) // so that the log is begun
		short.Store(!damaged)
		err := s.Retire(ctx, m.Fingerprint())
		short.Store(false)
		if err != nil && !damaged {
			err = s.Retire(ctx, m.Fingerprint())
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Sync(ctx); err != nil {
			t.Fatal(err)
		}
		c.gone(t, dir, "retired")
	}
}
