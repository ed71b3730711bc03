package db

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// fullFS is a file system on which nothing can be reserved while full is set, and no file be made.
type fullFS struct {
	vfs.FS
	full *atomic.Bool
}

type fullFile struct {
	vfs.File
	fs fullFS
}

func (f fullFS) Create(name string) (vfs.File, error) {
	if f.full.Load() {
		return nil, vfs.ErrNoSpace
	}
	file, err := f.FS.Create(name)
	return fullFile{file, f}, err
}

func (f fullFS) Open(name string, readOnly bool) (vfs.File, error) {
	file, err := f.FS.Open(name, readOnly)
	if err != nil {
		return nil, err
	}
	return fullFile{file, f}, nil
}

// Allocate reserves what is reserved already.
func (f fullFile) Allocate(off, n int64) error {
	if info, err := f.Stat(); f.fs.full.Load() && (err != nil || off+n > info.Size) {
		return vfs.ErrNoSpace
	}
	return f.File.Allocate(off, n)
}

// When what is reserved in the log's file is used up on a full disk, the worker comes to a checkpoint, which goes on in the
// spare, though it cannot log the removals that are due before.
func TestWorkerMakesRoomInTheLog(t *testing.T) {
	dir := t.TempDir()
	o := options()
	var full atomic.Bool
	o.fs = fullFS{vfs.OS, &full}
	o.Budget = 8 << 20 // a step is 128 KiB
	s := open(t, dir, o)
	m := model(t, s, plain())
	p := kv.Prompt{Tokens: tokens(1, 16)} // its refs are short
	put(t, m, p)
	for i := range 3000 { // so that few removals use up what is reserved
		if err := m.SetRef(ctx, fmt.Sprintf("%020d", i), p, RefOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Checkpoint(ctx); err != nil {
		t.Fatal(err)
	}
	if err := m.SetRef(ctx, "expires", p, RefOptions{TTL: time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(5 * time.Millisecond)
	full.Store(true)
	var err error
	i := 0
	for ; i < 3000 && err == nil; i++ {
		err = s.DeleteRef(ctx, fmt.Sprintf("%020d", i))
	}
	for err == nil { // small ones, too
		err = s.DeleteRef(ctx, "expires")
	}
	if !errors.Is(err, ErrNoSpace) {
		t.Fatalf("the log is not used up after %d refs: %v", i, err)
	}
	for range 3 { // the first turn says what it could not do
		err = s.eng.Inside().Turn(ctx, true)
	}
	if err != nil {
		t.Errorf("the worker: %v", err)
	}
	if err := s.DeleteRef(ctx, fmt.Sprintf("%020d", i)); err != nil {
		t.Errorf("after the worker's turn: %v", err)
	}
	full.Store(false)
}

// A store that was killed on a full disk deletes and evicts there in the place of its Bloom filter, where nothing is left of the space that
// was reserved for the log: nobody has to make room first. What was deleted stays deleted, and the rest is there, after further kills.
func TestKilledOnAFullDisk(t *testing.T) {
	dir := t.TempDir()
	o := options()
	s := open(t, dir, o)
	m := model(t, s, plain())
	prompts := make([]kv.Prompt, 8)
	for i := range prompts {
		prompts[i] = kv.Prompt{Tokens: tokens(i+1, 64)}
		put(t, m, prompts[i])
		if i == 4 {
			eventually(t, "the Bloom filter is built", func() bool { return s.eng.Inside().Bloom().Load() != nil })
			if err := s.Checkpoint(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	dir = copyStore(t, dir)
	if err := os.Remove(filepath.Join(dir, walDir, "next.wal.tmp")); err != nil {
		t.Fatal(err)
	}
	cutReserved(t, dir)
	var full atomic.Bool
	full.Store(true)
	o.fs = fullFS{vfs.OS, &full}
	for i := range 3 {
		s := open(t, dir, o)
		m := model(t, s, plain())
		if _, err := m.Delete(ctx, kv.Prompt{Tokens: prompts[i].Tokens[:1]}); err != nil {
			t.Fatalf("kill %d: %v", i, err)
		}
		if n, err := s.eng.Inside().EvictBlocks(1); n == 0 || err != nil {
			t.Fatalf("kill %d: %d blocks evicted, %v", i, n, err)
		}
		killed := copyStore(t, dir)
		crash(s)
		dir = killed
	}
	full.Store(false)
	s = open(t, dir, o)
	m = model(t, s, plain())
	for i, p := range prompts {
		n, why := restore(t, m, p)
		if i < 3 && n > 0 {
			t.Errorf("prompt %d was deleted: %d tokens are back, %v", i, n, why)
		}
	}
	expect(t, m, prompts[len(prompts)-1], 64)
	put(t, m, prompts[0])
	if err := s.Checkpoint(ctx); err != nil {
		t.Fatal(err)
	}
	rep, err := s.Verify(ctx, VerifyOptions{})
	if err != nil || len(rep.Damage) > 0 {
		t.Fatalf("%v, %v", rep.Damage, err)
	}
}

// cutReserved cuts what is reserved behind the end of the log.
func cutReserved(t *testing.T, dir string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, walDir, "*.wal"))
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		n := len(bytes.TrimRight(b, "\x00"))
		if err := os.Truncate(name, int64(n+7)/8*8); err != nil {
			t.Fatal(err)
		}
	}
}
