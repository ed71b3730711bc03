package db

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// Who restores rows from a later position on pays for these alone: nothing that lies before is read, whatever became of it.
func TestRestoreOfLaterRows(t *testing.T) {
	for name, d := range map[string]kv.Descriptor{"plain": plain(), "windowed": windowed(40)} {
		t.Run(name, func(t *testing.T) {
			s := open(t, t.TempDir(), options())
			m := model(t, s, d)
			p := kv.Tokens(tokens(1, 160)...)
			put(t, m, p)
			first := 96 // blocks of 16
			var later int64
			var before []Block
			for b, err := range s.Blocks(ctx) {
				switch {
				case err != nil:
					t.Fatal(err)
				case b.First < first:
					before = append(before, b)
				case m.ms.Desc.Groups[b.Group].Window == 0 || b.First+b.Tokens > 160-m.ms.Desc.Groups[b.Group].Window:
					later += b.Bytes
				}
			}
			for _, b := range before { // whoever reads them says so
				overwrite(t, s.eng.segmentPath(b.Segment), b.Offset, b.Bytes)
			}
			for call, restore := range map[string]func(x *Match, rows kv.Rows) (Restored, error){
				"Restore":       func(x *Match, rows kv.Rows) (Restored, error) { return x.Restore(ctx, rows) },
				"RestoreRange":  func(x *Match, rows kv.Rows) (Restored, error) { return x.RestoreRange(ctx, rows) },
				"RestoreLayers": func(x *Match, rows kv.Rows) (Restored, error) { return x.RestoreLayers(ctx, rows, func(int, int) {}) },
			} {
				x, err := m.Match(ctx, p, MatchOptions{})
				if err != nil {
					t.Fatal(err)
				}
				rows := make(kv.Rows, len(m.Descriptor().Tensors))
				for i, tensor := range m.Descriptor().Tensors {
					rows[i] = kv.Packed(first, 160-first, make([]byte, (160-first)*tensor.RowBytes()))
				}
				got, err := restore(x, rows)
				if err != nil || got.Tokens != 160 || got.Bytes != later {
					t.Errorf("%s: %d tokens (%v), %d bytes were read, expected %d; %v", call, got.Tokens, got.Reason, got.Bytes, later, err)
				}
				if err := x.Close(); err != nil {
					t.Fatal(err)
				}
				for i, tensor := range m.Descriptor().Tensors {
					from, size := first, tensor.RowBytes()
					if w := m.Descriptor().Groups[tensor.Group].Window; w > 0 {
						from = 160 - w
					}
					for pos := from; pos < 160; pos++ {
						if !bytes.Equal(rows[i].Pieces[0].Mem[(pos-first)*size:(pos-first+1)*size], truth(m.Descriptor(), &p, i, pos)) {
							t.Fatalf("%s: tensor %d differs at %d", call, i, pos)
						}
					}
				}
			}
			x, err := m.Match(ctx, p, MatchOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer x.Close()
			got, err := x.Restore(ctx, empty(m.Descriptor(), 160))
			if err != nil || got.Tokens != 0 || !errors.Is(got.Reason.Err, ErrCorrupt) {
				t.Errorf("from the first row on: %d tokens (%v), %v", got.Tokens, got.Reason, err)
			}
		})
	}
}

// overwrite overwrites a record.
func overwrite(t *testing.T, file string, off, n int64) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, n)
	for i := range b {
		b[i] = 0xa5
	}
	_, err = f.WriteAt(b, off)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}
