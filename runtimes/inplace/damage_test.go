package inplace

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/memdir"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// image is the file of a ring with three turns and some rows of a fourth.
func image(t testing.TB, name string, s Shape) []byte {
	t.Helper()
	r, _ := openRing(t, name, s)
	for i := range 4 {
		cells, err := r.Claim(3 + i)
		if err != nil {
			t.Fatal(err)
		}
		write(r, keyOf(i), 10*i, cells)
		if i < 3 {
			r.Commit(keyOf(i), 10*i, cells)
		}
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// judge opens a file that may be damaged: an error names it, and a ring that opens has turns that are as they were written, and all cells.
func judge(t rapidTB, name string, s Shape) (turns int, err error) {
	t.Helper()
	r, got, err := Open(name, s)
	if err != nil {
		if !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "offset") {
			t.Errorf("the error names no file or no offset: %v", err)
		}
		return 0, err
	}
	for x := range r.Turns() {
		if err := written(r, x); err != nil {
			t.Error(err)
		}
		turns++
	}
	for _, d := range got.Damaged {
		if !errors.Is(d, damage.ErrCorrupt) || !strings.Contains(d.Error(), name) || !strings.Contains(d.Error(), "offset") {
			t.Errorf("damage names no file or no offset: %v", d)
		}
	}
	if _, err := r.Claim(s.Cells); err != nil {
		t.Errorf("not all cells can be claimed: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	return turns, nil
}

type rapidTB interface {
	Helper()
	Errorf(string, ...any)
	Error(...any)
}

// Whichever bit of the file is wrong, opening it is an error or costs the turn that it is in; nothing else is lost.
func TestDamage(t *testing.T) {
	dir, s := memdir.Dir(t), Shape{Cells: 20, Turns: 4, Layers: 2, RowBytes: 8}
	name := filepath.Join(dir, "ring")
	whole := image(t, name, s)
	refused, less := 0, 0
	for at := 0; at < len(whole); at++ {
		if at >= countAt+4 && at < turnsAt || testing.Short() && at%23 != 0 {
			continue // nothing lies there
		}
		b := append([]byte(nil), whole...)
		b[at] ^= 1 << (at % 8)
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
		turns, err := judge(t, name, s)
		switch {
		case err != nil:
			if at >= headerSumAt+8 {
				t.Errorf("byte %d: %v", at, err)
			}
			refused++
		case turns < 2 || at < headerSumAt+8:
			t.Errorf("byte %d: opened, with %d of 3 turns", at, turns)
		case turns == 2:
			less++
		}
		if t.Failed() {
			t.Fatalf("byte %d", at)
		}
	}
	if refused == 0 || less == 0 {
		t.Errorf("%d refused, %d lost a turn", refused, less)
	}
	for _, size := range []int{0, 1, 7, 8, 60, turnsAt - 1, turnsAt, len(whole) / 2, len(whole) - 1} {
		if err := os.WriteFile(name, whole[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := judge(t, name, s); err == nil {
			t.Errorf("a file of %d bytes was opened", size)
		}
	}
	if err := os.WriteFile(name, append(append([]byte(nil), whole...), 0), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := judge(t, name, s); err == nil {
		t.Error("a file that is too long was opened")
	}
}

// What is somebody else's is not touched; a ring of another shape or model makes room for the new one; a second opener is refused.
func TestForeignFiles(t *testing.T) {
	dir, s := memdir.Dir(t), shapeOf(24, 4)
	name := filepath.Join(dir, "ring")
	if err := os.WriteFile(name, []byte(strings.Repeat("my diary\n", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	var foreign *NotARingError
	if _, err := judge(t, name, s); !errors.As(err, &foreign) {
		t.Errorf("a diary: %v", err)
	}
	if b, err := os.ReadFile(name); err != nil || !strings.HasPrefix(string(b), "my diary") {
		t.Errorf("the diary is %.20q, %v", b, err)
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	b := image(t, name, s)
	for what, change := range map[string]func(*Shape){
		"fewer cells": func(s *Shape) { s.Cells-- }, "another model": func(s *Shape) { s.Model[3]++ }, "wider rows": func(s *Shape) { s.RowBytes += 16 },
		"fewer layers": func(s *Shape) { s.Layers-- },
	} {
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
		other := s
		change(&other)
		r, got := openRing(t, name, other)
		if !got.New || got.Turns > 0 || r.Free() != other.Cells {
			t.Errorf("%s: %+v", what, got)
		}
		if _, _, err := Open(name, s); !errors.Is(err, vfs.ErrLocked) {
			t.Errorf("a second opener: %v, want vfs.ErrLocked", err)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	b[8]++
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := judge(t, name, s); !errors.Is(err, kv.ErrUnsupported) {
		t.Errorf("another version: %v", err)
	}
	for _, bad := range []Shape{{}, {Cells: -4, Layers: 1, RowBytes: 1}, {Cells: 1, Turns: -1, Layers: 1, RowBytes: 1}, {Cells: maxCells, Layers: maxLayers, RowBytes: kv.MaxWidth * 4}} {
		if _, _, err := Open(filepath.Join(dir, "bad"), bad); err == nil {
			t.Errorf("%+v was made", bad)
		}
	}
}

// No bytes of a file make opening it panic, or give a ring that has not all its cells.
func FuzzOpen(f *testing.F) {
	dir, s := f.TempDir(), Shape{Cells: 5, Turns: 2, Layers: 1, RowBytes: 4}
	f.Add(uint16(0), []byte{})
	f.Add(uint16(turnsAt), []byte{2, 0, 0, 0, 1})
	f.Add(uint16(turnsAt+2*turnBytes), []byte{2, 0, 0, 0, 1, 0, 0, 0})
	f.Add(uint16(countAt), []byte{0, 0, 0, 0x80}) // a count far from all generations: nothing walks there
	name := filepath.Join(dir, "ring")
	r, _ := openRing(f, name, s)
	cells, err := r.Claim(2)
	if err != nil {
		f.Fatal(err)
	}
	write(r, keyOf(1), 3, cells)
	r.Commit(keyOf(1), 3, cells)
	if err := r.Close(); err != nil {
		f.Fatal(err)
	}
	whole, err := os.ReadFile(name)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, at uint16, with []byte) {
		b := append([]byte(nil), whole...)
		copy(b[min(int(at), len(b)):], with)
		name := filepath.Join(t.TempDir(), "ring")
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
		r, _, err := Open(name, s)
		if err != nil {
			return
		}
		if _, err := r.Claim(s.Cells); err != nil {
			t.Error(err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
}
