package db

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
)

// The tests' model of truth: a row is a function of the tensor and of everything the runtime conditioned on up to its
// position, so that a row from any other prefix is a wrong row.

var ctx = context.Background()

// Models and prompts that the tests of package db share with those of crashes.
var (
	plain, windowed, opaque = crashtest.Plain, crashtest.Windowed, crashtest.Opaque
	hybrid, tokens, concat  = crashtest.Hybrid, crashtest.Tokens, crashtest.Concat
)

func options() Options {
	return Options{
		Budget: 256 << 20, MinFree: -1, CheckpointInterval: -1, Codec: quant.Raw, SegmentBytes: 1 << 20,
		Logger: slog.New(slog.DiscardHandler),
	}
}

func open(t testing.TB, dir string, o Options) *Store {
	t.Helper()
	s, err := Open(ctx, dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil && err != ErrClosed {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func model(t testing.TB, s *Store, d kv.Descriptor) *Model {
	t.Helper()
	m, err := s.Register(ctx, d)
	if err != nil {
		t.Fatal(err)
	}
	return m.Model
}

// truth returns the right row of a tensor at position pos of p. Scope does not matter: it changes no computation.
func truth(d kv.Descriptor, p *kv.Prompt, tensor, pos int) []byte {
	h := fnv.New64a()
	fmt.Fprint(h, tensor, d.Weights, p.Adapters)
	for i, tok := range p.Tokens[:pos+1] {
		binary.Write(h, binary.LittleEndian, tok)
		for _, s := range p.Spans {
			if s.Start <= i && i < s.End() {
				fmt.Fprint(h, s)
			}
		}
	}
	n := d.Tensors[tensor].RowBytes()
	if n == 0 {
		n = 100 + pos%50
	}
	out := make([]byte, n)
	x := h.Sum64() | 1
	for i := range out {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		out[i] = byte(x)
		if d.Tensors[tensor].DType == kv.F16 && i%2 == 1 {
			out[i] = 0x38 | out[i]&0x83 // finite, of one magnitude
		}
	}
	return out
}

// filled returns right rows for the positions [first, end) of every tensor, and the state at end.
func filled(d kv.Descriptor, p *kv.Prompt, first, end int) kv.Rows {
	rows := make(kv.Rows, len(d.Tensors))
	for i, t := range d.Tensors {
		if d.Groups != nil && d.Groups[t.Group].Kind == kv.StateAt {
			rows[i] = kv.Packed(end, 1, truth(d, p, i, end-1))
			continue
		}
		mem := make([]byte, 0, (end-first)*t.RowBytes())
		for pos := first; pos < end; pos++ {
			mem = append(mem, truth(d, p, i, pos)...)
		}
		rows[i] = kv.Packed(first, end-first, mem)
	}
	return rows
}

// empty returns memory for n positions, full of rubbish.
func empty(d kv.Descriptor, n int) kv.Rows {
	rows := make(kv.Rows, len(d.Tensors))
	for i, t := range d.Tensors {
		size := n * t.RowBytes()
		count := n
		if d.Groups != nil && d.Groups[t.Group].Kind == kv.StateAt {
			size, count = 200, 1
			if t.Width > 0 {
				size = t.RowBytes()
			}
		}
		mem := make([]byte, size)
		for j := range mem {
			mem[j] = 0xA5
		}
		rows[i] = kv.Packed(0, count, mem)
	}
	return rows
}

// checkRows compares what a restore of n tokens left in rows with the truth.
func checkRows(t testing.TB, d kv.Descriptor, p *kv.Prompt, rows kv.Rows, n int) {
	t.Helper()
	for i, tensor := range d.Tensors {
		group := kv.Group{Kind: kv.All}
		if d.Groups != nil {
			group = d.Groups[tensor.Group]
		}
		mem := rows[i].Pieces[0].Mem
		if group.Kind == kv.StateAt {
			want := make([]byte, 0)
			if n > 0 {
				want = truth(d, p, i, n-1)
			}
			if n > 0 && string(mem[:len(want)]) != string(want) {
				t.Fatalf("state at %d is wrong", n)
			}
			continue
		}
		size := tensor.RowBytes()
		for pos := range rows[i].Count() {
			got := mem[pos*size : (pos+1)*size]
			switch {
			case pos >= n:
				for _, b := range got {
					if b != 0 {
						t.Fatalf("tensor %d row %d beyond the %d restored tokens is not zero", i, pos, n)
					}
				}
			case group.Kind == kv.Window && pos < n-group.Window:
			case string(got) != string(truth(d, p, i, pos)):
				t.Fatalf("tensor %d row %d of %d is wrong", i, pos, n)
			}
		}
	}
}

// put stores p and returns what that did.
func put(t testing.TB, m *Model, p kv.Prompt) PutResult {
	t.Helper()
	res, err := m.Put(ctx, p, filled(m.Descriptor(), &p, 0, len(p.Tokens)), PutOptions{})
	if err != nil {
		t.Fatalf("put: %v", err)
	}
	if res.Tokens != len(p.Tokens) {
		t.Fatalf("put stored %d of %d tokens", res.Tokens, len(p.Tokens))
	}
	return res
}

// restore matches p, restores it, checks every row, and returns the number of tokens.
func restore(t testing.TB, m *Model, p kv.Prompt) (int, Reason) {
	t.Helper()
	x, err := m.Match(ctx, p, MatchOptions{})
	if err != nil {
		t.Fatalf("match: %v", err)
	}
	defer x.Close()
	d := m.Descriptor()
	rows := empty(d, len(p.Tokens))
	got, err := x.Restore(ctx, rows)
	if err != nil {
		t.Fatalf("restore: %v", err)
	}
	if got.Reason.Code == NoReason || x.Reason().Code == NoReason {
		t.Fatalf("%d tokens matched (%v), %d restored (%v): expected reasons", x.Tokens(), x.Reason(), got.Tokens, got.Reason)
	}
	checkRows(t, d, &p, rows, got.Tokens)
	return got.Tokens, got.Reason
}

// expect is restore with the number of tokens that must come back.
func expect(t testing.TB, m *Model, p kv.Prompt, want int) Reason {
	t.Helper()
	got, reason := restore(t, m, p)
	if got != want {
		t.Fatalf("restored %d tokens (%v), expected %d", got, reason, want)
	}
	return reason
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for range 500 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("never happened: %s", what)
}

func (s *Store) mustStats(t testing.TB) Stats {
	t.Helper()
	st, err := s.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// putState stores a prompt with the state at its end.
func putState(t *testing.T, m *Model, p kv.Prompt, keep int) {
	t.Helper()
	d := m.Descriptor()
	rows := filled(d, &p, 0, len(p.Tokens))
	for i, tensor := range d.Tensors {
		if d.Groups[tensor.Group].Kind == kv.StateAt {
			rows[i].First = len(p.Tokens)
		}
	}
	if _, err := m.Put(ctx, p, rows, PutOptions{KeepStates: keep}); err != nil {
		t.Fatal(err)
	}
}

// crash leaves the files as a SIGKILL would: nothing is synced, sealed or checkpointed.
func crash(s *Store, _ ...*Match) {
	s.life.own(nil)
	defer s.life.disown()
	e := s.eng
	s.eng = nil
	e.Halt()
	e.Abandon()
	s.unlock()
}

// copyStore copies a store's files as they are: of an open store, it is what a SIGKILL at this moment would leave.
func copyStore(t testing.TB, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(to, 0o700); err != nil {
		t.Fatal(err)
	}
	return to
}

// occupied asks the file system what all files in dir take, and lists the largest parts.
func occupied(t testing.TB, dir string) (total int64, files int, parts map[string]int64) {
	parts = map[string]int64{}
	filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil // gone since it was listed
		}
		if info, err := vfs.OS.Stat(name); err == nil {
			total += info.Allocated
			files++
			part := filepath.Base(filepath.Dir(name))
			if part != segmentsDir && part != walDir {
				part = d.Name()
			}
			parts[part] += info.Allocated
		}
		return nil
	})
	return total, files, parts
}

// reopened is a store that was checkpointed, closed and opened again.
func reopened(t *testing.T, s *Store, dir string, o Options) *Store {
	t.Helper()
	if err := s.Checkpoint(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return open(t, dir, o)
}

// image is the files of a store, by their names in its directory.
type image map[string][]byte

func readDir(dir string) (image, error) {
	m := image{}
	return m, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		m[filepath.ToSlash(name)], err = os.ReadFile(path)
		return err
	})
}

// write makes the files in dir. Zeros at their ends are holes.
func (m image) write(dir string) error {
	for name, b := range m {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(file, bytes.TrimRight(b, "\x00"), 0o600); err != nil {
			return err
		}
		if err := os.Truncate(file, int64(len(b))); err != nil {
			return err
		}
	}
	return nil
}

func (m image) clone() image {
	out := image{}
	for name, b := range m {
		out[name] = bytes.Clone(b)
	}
	return out
}
