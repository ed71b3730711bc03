package db

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// When a layer is ready its rows are, up to the number that comes with it; layers come in order.
func TestRestoreLayers(t *testing.T) {
	s := open(t, t.TempDir(), options())
	d := windowed(40)
	m := model(t, s, d)
	p := kv.Prompt{Tokens: tokens(1, 300)}
	put(t, m, p)
	x, err := m.Match(ctx, p, MatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	rows := empty(d, 300)
	next := 0
	got, err := x.RestoreLayers(ctx, rows, func(layer, n int) {
		if layer != next || n != 300 {
			t.Errorf("layer %d with %d tokens, expected layer %d with 300", layer, n, next)
		}
		next++
		checkLayers(t, d, &p, rows, layer, n, true)
	})
	if err != nil || got.Tokens != 300 || next != 3 {
		t.Fatalf("%+v, %v after %d layers", got, err, next)
	}
	checkRows(t, m.Descriptor(), &p, rows, 300)
}

// checkLayers compares the rows of the layers up to one with the truth; the first time, those of later ones are not there.
func checkLayers(t *testing.T, d kv.Descriptor, p *kv.Prompt, rows kv.Rows, upTo, n int, first bool) {
	t.Helper()
	for i, tensor := range d.Tensors {
		size := tensor.RowBytes()
		mem := rows[i].Pieces[0].Mem
		for pos := range n {
			row := string(mem[pos*size : (pos+1)*size])
			switch right := row == string(truth(d, p, i, pos)); {
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
	s := open(t, dir, options())
	d := plain()
	m := model(t, s, d)
	p := kv.Prompt{Tokens: tokens(1, 160)}
	put(t, m, p)
	var at Block
	for b, err := range s.Blocks(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if b.First == 96 {
			at = b
		}
	}
	names, _ := filepath.Glob(filepath.Join(dir, segmentsDir, "*.seg"))
	f, err := os.OpenFile(names[0], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	// The planes end the record: this byte is one of the last tensor, which is of layer 1.
	off := at.Offset + at.Bytes - 1
	b := make([]byte, 1)
	for ; b[0] == 0; off-- {
		if _, err := f.ReadAt(b, off); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.WriteAt([]byte{^b[0]}, off+1); err != nil {
		t.Fatal(err)
	}
	x, err := m.Match(ctx, p, MatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	rows := empty(d, 160)
	type call struct{ layer, tokens int }
	var calls []call
	got, err := x.RestoreLayers(ctx, rows, func(layer, n int) {
		calls = append(calls, call{layer, n})
		checkLayers(t, d, &p, rows, layer, n, n == 160)
		for i := range rows { // what a runtime would do with a layer that it was given too much of
			if d.Tensors[i].Layer <= layer && n == 160 {
				clear(rows[i].Pieces[0].Mem)
			}
		}
	})
	if err != nil || got.Tokens != 96 || got.Reason.Code != Damaged {
		t.Fatalf("%+v, %v", got, err)
	}
	if len(calls) != 3 || calls[0] != (call{0, 160}) || calls[1] != (call{0, 96}) || calls[2] != (call{1, 96}) {
		t.Errorf("calls %v", calls)
	}
	checkRows(t, d, &p, rows, 96)
}
