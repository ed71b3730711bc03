package wal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// What somebody else keeps under the name of the next log file stays as it is: the log makes its next file under another name.
func TestForeignSpare(t *testing.T) {
	put := map[string]func(path string) error{
		"a text":    func(p string) error { return os.WriteFile(p, []byte("the next wal: dear diary"), 0o600) },
		"one byte":  func(p string) error { return os.WriteFile(p, []byte{7}, 0o600) },
		"a folder":  func(p string) error { return os.Mkdir(p, 0o700) },
		"another's": func(p string) error { return os.WriteFile(p, appendHeader(nil, fileHeader{id: 1, first: 1}), 0o600) },
	}
	for what, put := range put {
		t.Run(what, func(t *testing.T) {
			o := Options{FS: vfs.OS, Dir: t.TempDir(), UUID: testUUID, PreallocBytes: 4096}
			path := filepath.Join(o.Dir, "next.wal.tmp")
			if err := put(path); err != nil {
				t.Fatal(err)
			}
			before, _ := os.ReadFile(path)
			for id := uint64(1); id < 4; id++ {
				log := must[*Log](t)(Create(o, 2*id-1, 2*id-1, []byte("head")))
				must[uint64](t)(log.Append(2, []byte("a frame")))
				if _, _, err := log.Rotate(text("head")); err != nil {
					t.Fatal(err)
				}
				must[uint64](t)(log.Append(2, []byte("a frame")))
				if err := log.Remove(2 * id); err != nil {
					t.Fatal(err)
				}
				if id == 2 { // killed: what is left of it is the next one's
					continue
				}
				if err := log.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if after, err := os.ReadFile(path); string(after) != string(before) || err != nil && what != "a folder" {
				t.Errorf("%q is now %q, %v", before, after, err)
			}
			if info, err := os.Lstat(path); err != nil || info.IsDir() != (what == "a folder") {
				t.Errorf("it is gone: %v", err)
			}
			if names, err := o.FS.List(o.Dir); err != nil || fmt.Sprint(names) != "[0000000000000006.wal next.wal.tmp next1.wal.tmp]" {
				t.Errorf("the folder has %v, %v", names, err)
			}
		})
	}
	o := Options{FS: vfs.OS, Dir: t.TempDir(), UUID: testUUID, PreallocBytes: 4096}
	for _, name := range []string{"next", "next1", "next2", "next3", "next4", "next5", "next6", "next7", "next8"} {
		if err := os.WriteFile(filepath.Join(o.Dir, name+".wal.tmp"), []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if log, err := Create(o, 1, 1, nil); !errors.Is(err, ErrForeign) {
		t.Errorf("all names are taken: %v, %v", log, err)
	}
}

// When somebody takes away what had the name of the next log file, nothing stays that the log reserved under another one: the next run
// takes it, and removes what is too much once it writes. One that only reads removes nothing.
func TestForeignSpareThatIsTakenAway(t *testing.T) {
	for _, both := range []bool{false, true} {
		o := Options{FS: vfs.OS, Dir: t.TempDir(), UUID: testUUID, PreallocBytes: 4096}
		path := filepath.Join(o.Dir, "next.wal.tmp")
		film := filepath.Join(o.Dir, "next2.wal.tmp")
		if err := errors.Join(os.WriteFile(path, []byte("mine"), 0o600), os.WriteFile(film, []byte("mine, too"), 0o600)); err != nil {
			t.Fatal(err)
		}
		log := must[*Log](t)(Create(o, 1, 1, []byte("head")))
		must[uint64](t)(log.Append(2, []byte("a frame")))
		if err := errors.Join(log.Close(), os.Remove(path)); err != nil {
			t.Fatal(err)
		}
		if both { // as an earlier release left them
			if err := os.WriteFile(path, make([]byte, 4096), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		names := func(when, want string) {
			t.Helper()
			if names, err := o.FS.List(o.Dir); err != nil || fmt.Sprint(names) != want {
				t.Errorf("%s, the folder has %v, %v, expected %s", when, names, err, want)
			}
		}
		before, _ := o.FS.List(o.Dir)
		log = must[*Log](t)(CreateLater(o, 2, 2, func() []byte { return nil }))
		names("opened", fmt.Sprint(before))
		must[uint64](t)(log.Append(2, []byte("a frame")))
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
		if both {
			names("written", "[0000000000000001.wal 0000000000000002.wal next.wal.tmp next2.wal.tmp]")
		} else {
			names("written", "[0000000000000001.wal 0000000000000002.wal next1.wal.tmp next2.wal.tmp]")
		}
		if b, err := os.ReadFile(film); err != nil || string(b) != "mine, too" {
			t.Errorf("what is somebody's is %q, %v", b, err)
		}
	}
}

// What is kept ahead is found under whichever name the log keeps it, and no file of somebody else counts.
func TestKeptAhead(t *testing.T) {
	const step = 64 << 10
	for what, put := range map[string]func(path string) error{
		"nothing":  func(string) error { return nil },
		"a text":   func(p string) error { return os.WriteFile(p, bytes.Repeat([]byte("mine"), 1<<18), 0o600) },
		"a folder": func(p string) error { return os.Mkdir(p, 0o700) },
		"another's": func(p string) error {
			return os.WriteFile(p, append(appendHeader(nil, fileHeader{uuid: [16]byte{9}, id: 1, first: 1}), make([]byte, 1<<20)...), 0o600)
		},
	} {
		o := Options{FS: vfs.OS, Dir: t.TempDir(), UUID: testUUID, PreallocBytes: step}
		if err := put(o.sparePath()); err != nil {
			t.Fatal(err)
		}
		if n, err := KeptAhead(o.FS, o.Dir); n != 0 || err != nil {
			t.Errorf("%s, before there is a log: %d, %v", what, n, err)
		}
		log := must[*Log](t)(Create(o, 1, 1, []byte("head")))
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
		if n, err := KeptAhead(o.FS, o.Dir); n != step || err != nil {
			t.Errorf("%s: %d bytes, %v, expected %d", what, n, err, step)
		}
		if what != "nothing" {
			continue
		}
		f := must[vfs.File](t)(o.FS.Open(o.sparePath(), false)) // an old file, whose blocks a crash left as they were
		must[int](t)(f.WriteAt(ownBytes(headerBytes), 0))
		if n, err := KeptAhead(o.FS, o.Dir); n != step || err != nil || f.Close() != nil {
			t.Errorf("what an old file left: %d bytes, %v, expected %d", n, err, step)
		}
	}
}
