package read_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/prefix"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
)

// odd is a model with every kind of group, whose rows have widths that suit no kernel.
func odd(window int) kv.Descriptor {
	d := crashtest.Windowed(window)
	d.Name = "odd"
	d.Groups = append(d.Groups, kv.Group{Kind: kv.StateAt})
	for i, width := range []int{1, 31, 33, 64, 97, 32} {
		d.Tensors[i].Width = width
	}
	d.Tensors[1].DType, d.Tensors[3].DType = kv.F32, kv.BF16
	d.Tensors = append(d.Tensors, kv.Tensor{Layer: 1, Role: kv.RoleState, DType: kv.F32, Width: 37, Group: 2})
	return d
}

const untouched = 0xC3

// drawLayout is memory for n rows from position first on, in pieces of any layout, some without rows.
func drawLayout(rt *rapid.T, t kv.Tensor, first, n int) kv.TensorRows {
	out := kv.TensorRows{First: first}
	size := t.DType.GroupBytes()
	for left := n; left > 0 || rapid.IntRange(0, 7).Draw(rt, "no rows") == 7; {
		p := kv.Piece{Count: rapid.IntRange(0, left).Draw(rt, "rows")}
		if rapid.Bool().Draw(rt, "rest") {
			p.Count = left
		}
		gap := rapid.IntRange(0, 5).Draw(rt, "gap")
		switch rapid.IntRange(0, 3).Draw(rt, "layout") {
		case 1:
			p.RowStride = t.RowBytes() + gap
		case 2: // channel-major
			p.RowStride = size + gap
			p.ElemStride = max(1, p.Count) * p.RowStride
		case 3:
			p.ElemStride = size + gap
			p.RowStride = t.Width*p.ElemStride + gap
		}
		row, elem := p.Strides(t)
		room := 0
		if p.Count > 0 {
			room = (p.Count-1)*row + (t.Width-1)*elem + size
		}
		p.Mem = bytes.Repeat([]byte{untouched}, room+rapid.IntRange(0, 3).Draw(rt, "slack"))
		out.Pieces = append(out.Pieces, p)
		left -= p.Count
	}
	return out
}

// eachRow calls fn with every row, gathered, and with what puts it there.
func eachRow(t kv.Tensor, rows kv.TensorRows, fn func(pos int, row []byte, set func([]byte))) {
	pos, size := rows.First, t.DType.GroupBytes()
	for _, p := range rows.Pieces {
		stride, elem := p.Strides(t)
		for r := range p.Count {
			var row []byte
			for c := range t.Width {
				row = append(row, p.Mem[r*stride+c*elem:][:size]...)
			}
			fn(pos, row, func(b []byte) {
				for c := range t.Width {
					copy(p.Mem[r*stride+c*elem:], b[c*size:(c+1)*size])
				}
			})
			pos++
		}
	}
}

// Whatever the layouts of a put's and a restore's memory, the part of it that is given, the codec, what is damaged, and when it is
// cancelled: what is reported as restored is right, everything behind it is zero, and no byte beside the rows is written.
func TestRestoreIntoAnyLayout(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir := storetest.Must(os.MkdirTemp("", "layout"))(rt)
		defer os.RemoveAll(dir)
		s := storetest.Must(db.Open(t.Context(), dir, storetest.Options()))(rt)
		defer s.Close()
		d := odd(rapid.SampledFrom([]int{1, 5, 15, 16, 17, 32, 40}).Draw(rt, "window"))
		m := storetest.Must(s.Register(t.Context(), d))(rt)
		d = m.Descriptor()
		n := rapid.IntRange(kv.OpeningTokens, 70).Draw(rt, "tokens")
		p := kv.Tokens(crashtest.Tokens(1, n)...)
		from := rapid.IntRange(0, n).Draw(rt, "put in two")
		for _, part := range [][2]int{{0, from}, {from, n}} {
			if part[0] == part[1] {
				continue
			}
			q := p.Prefix(part[1])
			rows := make(kv.Rows, len(d.Tensors))
			for i, tensor := range d.Tensors {
				first, count := part[0], part[1]-part[0]
				if d.Groups[tensor.Group].Kind == kv.StateAt {
					first, count = part[1], 1
				}
				rows[i] = drawLayout(rt, tensor, first, count)
				eachRow(tensor, rows[i], func(pos int, _ []byte, set func([]byte)) {
					if d.Groups[tensor.Group].Kind == kv.StateAt {
						pos--
					}
					set(storetest.Truth(d, &q, i, pos))
				})
			}
			o := db.PutOptions{
				Codec:       rapid.SampledFrom([]quant.Codec{quant.Raw, quant.ByteSplit}).Draw(rt, "codec"),
				Compression: quant.Compression(rapid.IntRange(0, 3).Draw(rt, "compression")),
			}
			storetest.Must(m.Put(t.Context(), q, rows, o))(rt)
		}
		damaged := rapid.Bool().Draw(rt, "damaged")
		if damaged {
			stored := storetest.Must(db.Collect(s.Blocks(t.Context())))(rt)
			slices.SortFunc(stored, func(a, b db.Block) int {
				return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(a.Tokens, b.Tokens), cmp.Compare(a.Group, b.Group))
			})
			at := rapid.SampledFrom(stored).Draw(rt, "record")
			flipByte(t, dir, at, rapid.Int64Range(0, at.Bytes-1).Draw(rt, "byte"))
		}
		x := storetest.Must(m.Match(t.Context(), p, db.MatchOptions{Limit: rapid.IntRange(0, n).Draw(rt, "limit")}))(rt)
		defer x.Close()
		for range 2 {
			rows := make(kv.Rows, len(d.Tensors))
			for i, tensor := range d.Tensors {
				switch {
				case rapid.IntRange(0, 4).Draw(rt, "left out") == 4:
				case d.Groups[tensor.Group].Kind == kv.StateAt:
					rows[i] = drawLayout(rt, tensor, rapid.IntRange(0, 80).Draw(rt, "state"), 1)
				default:
					first := rapid.IntRange(0, n).Draw(rt, "first")
					rows[i] = drawLayout(rt, tensor, first, rapid.IntRange(0, n+9-first).Draw(rt, "count"))
				}
			}
			restoreCtx, cancel := context.WithCancel(t.Context())
			stop, calls, last := rapid.IntRange(0, 8).Draw(rt, "cancel"), 0, n+1
			ready := func(layer, tokens int) {
				if calls++; calls == stop {
					cancel()
				}
				if tokens > last {
					rt.Fatalf("the number of tokens grew from %d to %d", last, tokens)
				}
				last = tokens
				for i, tensor := range d.Tensors {
					if tensor.Layer == layer && d.Groups[tensor.Group].Kind != kv.StateAt {
						checkLayout(rt, d, &p, i, rows[i], tokens, false)
					}
				}
			}
			if rapid.Bool().Draw(rt, "at once") {
				ready = nil
			}
			whole := func() (db.Restored, error) { return x.RestoreLayers(restoreCtx, rows, ready) }
			if rapid.Bool().Draw(rt, "a range") {
				promised := x.Tokens()
				whole = func() (db.Restored, error) {
					got, err := x.RestoreRange(restoreCtx, rows)
					if err == nil && !damaged && got.Tokens != promised {
						rt.Fatalf("a range gave %d tokens of the %d that are matched: %v", got.Tokens, promised, got.Reason)
					}
					return got, err
				}
			}
			got, err := whole()
			cancelled := restoreCtx.Err() != nil
			cancel()
			if (err != nil) != cancelled && !(cancelled && err == nil) || err != nil && got.Tokens != 0 {
				rt.Fatalf("%+v, %v; cancelled %t", got, err, cancelled)
			}
			for i := range d.Tensors {
				checkLayout(rt, d, &p, i, rows[i], got.Tokens, true)
			}
		}
	})
}

// checkLayout compares what a restore of n tokens left in the memory of a tensor with the truth; whole: behind them, and between
// the rows.
func checkLayout(rt *rapid.T, d kv.Descriptor, p *kv.Prompt, i int, rows kv.TensorRows, n int, whole bool) {
	tensor, group := d.Tensors[i], d.Groups[d.Tensors[i].Group]
	blank := bytes.Repeat([]byte{untouched}, tensor.RowBytes())
	eachRow(tensor, rows, func(pos int, row []byte, set func([]byte)) {
		switch {
		case group.Kind == kv.StateAt && n > 0:
			if !bytes.Equal(row, storetest.Truth(d, p, i, n-1)) {
				rt.Fatalf("the state after %d tokens is wrong", n)
			}
		case group.Kind == kv.StateAt || pos >= n:
			if whole && len(bytes.Trim(row, "\x00")) > 0 {
				rt.Fatalf("tensor %d row %d behind %d tokens is not zero", i, pos, n)
			}
		case group.Kind == kv.Window && pos < n-group.Window:
		case !bytes.Equal(row, storetest.Truth(d, p, i, pos)):
			rt.Fatalf("tensor %d row %d of %d is wrong", i, pos, n)
		}
		if whole {
			set(blank)
		}
	})
	for _, piece := range rows.Pieces {
		if whole && len(bytes.Trim(piece.Mem, string([]byte{untouched}))) > 0 {
			rt.Fatalf("tensor %d: written beside the rows", i)
		}
	}
}

// flipByte damages a byte of a record.
func flipByte(t *testing.T, dir string, at db.Block, i int64) {
	path := storetest.SegmentPath(dir, at.Segment)
	file := storetest.Must(os.ReadFile(path))(t)
	storetest.Write(t, path, at.Offset+i, []byte{file[at.Offset+i] ^ 0x10})
}

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

// A View of a prefix that was deleted after the match, but for the last block, whose place the match knows, does not pass over
// what is gone: nobody would miss it.
func TestViewNamesWhatIsGone(t *testing.T) {
	_, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 64)}
	storetest.Put(t, m, p)
	x, err := m.Match(t.Context(), p, db.MatchOptions{})
	storetest.OK(t, err)
	defer x.Close()
	storetest.Must(m.Delete(t.Context(), p.Prefix(16)))(t)
	next := 0
	err = x.View(t.Context(), func(p db.StoredPlane) error {
		if p.Tensor == 0 {
			if p.First != next {
				t.Errorf("rows from %d on, expected %d", p.First, next)
			}
			next = p.First + p.Rows
		}
		return nil
	})
	if err == nil && next != x.Tokens() {
		t.Errorf("no error, and rows up to %d of %d tokens", next, x.Tokens())
	}
	if err != nil && (!errors.Is(err, prefix.ErrGone) || !errors.Is(err, db.ErrNotStored)) {
		t.Errorf("view: %v", err)
	}
}
