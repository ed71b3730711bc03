package read_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// When a layer is ready its rows are, up to the number that comes with it; layers come in order. While the caller works on one, nobody gives
// way to that.
func TestRestoreLayers(t *testing.T) {
	s := storetest.Open(t, t.TempDir(), storetest.Options())
	d := crashtest.Windowed(40)
	m := storetest.Model(t, s, d)
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 300)}
	storetest.Put(t, m, p)
	x := storetest.Match(t, m, p)
	defer x.Close()
	rows := storetest.Empty(d, 300)
	next := 0
	got, err := x.RestoreLayers(t.Context(), rows, func(layer, n int) {
		if layer != next || n != 300 {
			t.Errorf("layer %d with %d tokens, expected layer %d with 300", layer, n, next)
		}
		next++
		if n := storetest.Engine(s).Inside().Workers().Busy(); n != 0 {
			t.Errorf("layer %d: %d are at work", layer, n)
		}
		checkLayers(t, d, &p, rows, layer, n, true)
	})
	if err != nil || got.Tokens != 300 || next != 3 {
		t.Fatalf("%+v, %v after %d layers", got, err, next)
	}
	storetest.CheckRows(t, m.Descriptor(), &p, rows, 300)
}

// checkLayers compares the rows of the layers up to one with the truth; the first time, those of later ones are not there.
func checkLayers(t *testing.T, d kv.Descriptor, p *kv.Prompt, rows kv.Rows, upTo, n int, first bool) {
	t.Helper()
	for i, tensor := range d.Tensors {
		size := tensor.RowBytes()
		mem := rows[i].Pieces[0].Mem
		for pos := range n {
			row := string(mem[pos*size : (pos+1)*size])
			switch right := row == string(storetest.Truth(d, p, i, pos)); {
			case first && tensor.Layer > upTo && right:
				t.Fatalf("row %d of layer %d is there before layer %d is ready", pos, tensor.Layer, upTo+1)
			case tensor.Layer <= upTo && !right && (tensor.Group == 0 || pos >= n-d.Groups[1].Window):
				t.Fatalf("row %d of layer %d is wrong when layer %d is ready", pos, tensor.Layer, upTo)
			}
		}
	}
}

// Damage in a late layer makes the layers come again, with fewer tokens; the number never grows.
func TestRestoreLayersOverDamage(t *testing.T) {
	dir := t.TempDir()
	s := storetest.Open(t, dir, storetest.Options())
	d := crashtest.Plain()
	m := storetest.Model(t, s, d)
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 160)}
	storetest.Put(t, m, p)
	var at db.Block
	for b, err := range s.Blocks(t.Context()) {
		storetest.OK(t, err)
		if b.First == 96 {
			at = b
		}
	}
	names, _ := filepath.Glob(filepath.Join(dir, storetest.SegmentsDir, "*.seg"))
	f := storetest.Must(os.OpenFile(names[0], os.O_RDWR, 0))(t)
	defer f.Close()
	// The planes end the record: this byte is one of the last tensor, which is of layer 1.
	off := at.Offset + at.Bytes - 1
	b := make([]byte, 1)
	for ; b[0] == 0; off-- {
		storetest.Must(f.ReadAt(b, off))(t)
	}
	storetest.Must(f.WriteAt([]byte{^b[0]}, off+1))(t)
	x := storetest.Match(t, m, p)
	defer x.Close()
	rows := storetest.Empty(d, 160)
	type call struct{ layer, tokens int }
	var calls []call
	got, err := x.RestoreLayers(t.Context(), rows, func(layer, n int) {
		calls = append(calls, call{layer, n})
		checkLayers(t, d, &p, rows, layer, n, n == 160)
		for i := range rows { // what a runtime would do with a layer that it was given too much of
			if d.Tensors[i].Layer <= layer && n == 160 {
				clear(rows[i].Pieces[0].Mem)
			}
		}
	})
	if err != nil || got.Tokens != 96 || got.Reason.Code != db.Damaged {
		t.Fatalf("%+v, %v", got, err)
	}
	if len(calls) != 3 || calls[0] != (call{0, 160}) || calls[1] != (call{0, 96}) || calls[2] != (call{1, 96}) {
		t.Errorf("calls %v", calls)
	}
	storetest.CheckRows(t, d, &p, rows, 96)
}
