package read_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// Who restores rows from a later position on pays for these alone: nothing that lies before is read, whatever became of it.
func TestRestoreOfLaterRows(t *testing.T) {
	for name, d := range map[string]kv.Descriptor{"plain": crashtest.Plain(), "windowed": crashtest.Windowed(40)} {
		t.Run(name, func(t *testing.T) {
			s, m := storetest.Fresh(t, storetest.Options(), d)
			p := kv.Tokens(crashtest.Tokens(1, 160)...)
			storetest.Put(t, m, p)
			first := 96 // blocks of 16
			var later int64
			var before []db.Block
			for b, err := range s.Blocks(t.Context()) {
				switch {
				case err != nil:
					t.Fatal(err)
				case b.First < first:
					before = append(before, b)
				case m.Descriptor().Groups[b.Group].Window == 0 || b.First+b.Tokens > 160-m.Descriptor().Groups[b.Group].Window:
					later += b.Bytes
				}
			}
			for _, b := range before { // whoever reads them says so
				storetest.Write(t, storetest.SegmentPath(s.Dir(), b.Segment), b.Offset, bytes.Repeat([]byte{0xa5}, int(b.Bytes)))
			}
			for call, restore := range map[string]func(x *db.Match, rows kv.Rows) (db.Restored, error){
				"Restore":      func(x *db.Match, rows kv.Rows) (db.Restored, error) { return x.Restore(t.Context(), rows) },
				"RestoreRange": func(x *db.Match, rows kv.Rows) (db.Restored, error) { return x.RestoreRange(t.Context(), rows) },
				"RestoreLayers": func(x *db.Match, rows kv.Rows) (db.Restored, error) {
					return x.RestoreLayers(t.Context(), rows, func(int, int) {})
				},
			} {
				x := storetest.Match(t, m, p)
				rows := make(kv.Rows, len(m.Descriptor().Tensors))
				for i, tensor := range m.Descriptor().Tensors {
					rows[i] = kv.Packed(first, 160-first, make([]byte, (160-first)*tensor.RowBytes()))
				}
				got, err := restore(x, rows)
				if err != nil || got.Tokens != 160 || got.Bytes != later {
					t.Errorf("%s: %d tokens (%v), %d bytes were read, expected %d; %v", call, got.Tokens, got.Reason, got.Bytes, later, err)
				}
				storetest.OK(t, x.Close())
				for i, tensor := range m.Descriptor().Tensors {
					from, size := first, tensor.RowBytes()
					if w := m.Descriptor().Groups[tensor.Group].Window; w > 0 {
						from = 160 - w
					}
					for pos := from; pos < 160; pos++ {
						if !bytes.Equal(rows[i].Pieces[0].Mem[(pos-first)*size:(pos-first+1)*size], storetest.Truth(m.Descriptor(), &p, i, pos)) {
							t.Fatalf("%s: tensor %d differs at %d", call, i, pos)
						}
					}
				}
			}
			x := storetest.Match(t, m, p)
			defer x.Close()
			got, err := x.Restore(t.Context(), storetest.Empty(m.Descriptor(), 160))
			if err != nil || got.Tokens != 0 || !errors.Is(got.Reason.Err, db.ErrCorrupt) {
				t.Errorf("from the first row on: %d tokens (%v), %v", got.Tokens, got.Reason, err)
			}
		})
	}
}
