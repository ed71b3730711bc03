package db_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
)

// headed returns memory of a runtime for count rows of each tensor: (heads, cells, values), of which count cells are given.
func headed(d kv.Descriptor, heads, count, cells int) kv.Rows {
	rows := make(kv.Rows, len(d.Tensors))
	for i, t := range d.Tensors {
		rows[i].Pieces = []kv.Piece{{Mem: make([]byte, cells*t.RowBytes()), Count: count, Heads: heads, HeadStride: cells * t.RowBytes() / heads}}
	}
	return rows
}

// copyRows copies n rows from one layout to another, element by element.
func copyRows(d kv.Descriptor, to, from kv.Rows, n int) {
	for i, t := range d.Tensors {
		size := t.DType.GroupBytes()
		x, y := to[i].Pieces[0], from[i].Pieces[0]
		for r := range n {
			for e := range t.Width / t.DType.Group() {
				copy(x.Mem[x.At(t, r, e):][:size], y.Mem[y.At(t, r, e):])
			}
		}
	}
}

// stored is what a store's files have of a prompt.
func stored(ctx context.Context, t storetest.TB, m *db.Model, p kv.Prompt) (planes [][]byte) {
	x := storetest.Must(m.Match(ctx, p, db.MatchOptions{}))(t)
	defer x.Close()
	storetest.OK(t, x.View(ctx, func(s db.StoredPlane) error {
		planes = append(planes, bytes.Clone(s.Bytes))
		return nil
	}))
	return planes
}

// Rows of the shape (heads, tokens, values) are stored as the same bytes as rows of (tokens, heads, values), and either layout restores what the other
// has put.
func TestHeadMajorRows(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		heads := rapid.SampledFrom([]int{1, 2, 4, 8}).Draw(rt, "heads")
		dtype := rapid.SampledFrom([]kv.DType{kv.F16, kv.F32, kv.BF16, kv.Q8_0}).Draw(rt, "dtype")
		width := heads * dtype.Group() * rapid.SampledFrom([]int{1, 3, 4, 32, 40}).Draw(rt, "values of a head")
		codec := rapid.SampledFrom([]quant.Codec{0, quant.Raw, quant.ByteSplit, quant.Q4R}).Draw(rt, "codec")
		d := storetest.Must(kv.Descriptor{
			Name: "heads", Architecture: "toy", Weights: kv.HashOf([]byte("w")), Tokenizer: kv.HashOf([]byte("t")), RoPE: kv.RoPE{Type: "none"}, BlockTokens: 16,
			Tensors: []kv.Tensor{{Role: kv.RoleK, DType: dtype, Width: width}, {Role: kv.RoleV, DType: dtype, Width: width}},
		}.Normal())(rt)
		n := rapid.IntRange(16, 100).Draw(rt, "tokens")
		cells := n + rapid.IntRange(0, 20).Draw(rt, "cells to spare")
		tokens := make([]kv.Token, n)
		for i := range tokens {
			tokens[i] = kv.Token(rapid.IntRange(0, 1000).Draw(rt, "token"))
		}
		p := kv.Prompt{Tokens: tokens}

		plain, byHead := headed(d, 1, n, n), headed(d, heads, n, cells)
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		for _, r := range plain {
			fillFloats(random, dtype, r.Pieces[0].Mem)
		}
		copyRows(d, byHead, plain, n)
		var planes [2][][]byte
		for i, rows := range []kv.Rows{plain, byHead} {
			s := storetest.Must(db.Open(t.Context(), t.TempDir(), storetest.Options()))(rt)
			defer s.Close()
			m := storetest.Must(s.Register(t.Context(), d))(rt)
			storetest.Must(m.Put(t.Context(), p, rows, db.PutOptions{Codec: codec}))(rt)
			planes[i] = stored(t.Context(), rt, m.Model, p)

			// Both layouts get the same, of a part of the prompt, and zeros behind it.
			part := p.Prefix(rapid.IntRange(16, n).Draw(rt, "part"))
			x := storetest.Must(m.Match(t.Context(), part, db.MatchOptions{}))(rt)
			a, b, again := headed(d, 1, n, n), headed(d, heads, n, cells), headed(d, 1, n, n)
			for _, rows := range []kv.Rows{a, b} {
				for _, r := range rows {
					for i := range r.Pieces[0].Mem {
						r.Pieces[0].Mem[i] = 0xa5
					}
				}
				if got := storetest.Must(x.Restore(t.Context(), rows))(rt); got.Tokens != len(part.Tokens) {
					rt.Fatalf("%d of %d tokens: %v", got.Tokens, len(part.Tokens), got.Reason)
				}
			}
			storetest.OK(rt, x.Close())
			copyRows(d, again, b, n)
			for i, tensor := range d.Tensors {
				if !bytes.Equal(a[i].Pieces[0].Mem, again[i].Pieces[0].Mem) {
					rt.Fatalf("tensor %d: the layouts were given other rows", i)
				}
				used := len(part.Tokens) * tensor.RowBytes()
				if codec == quant.Raw && !bytes.Equal(a[i].Pieces[0].Mem[:used], plain[i].Pieces[0].Mem[:used]) {
					rt.Fatalf("tensor %d: other rows came back than were put", i)
				}
				if len(bytes.Trim(a[i].Pieces[0].Mem[used:], "\x00")) > 0 {
					rt.Fatalf("tensor %d: rows behind the match are not zero", i)
				}
				for h := range heads { // cells to spare are nobody's
					piece := b[i].Pieces[0]
					end := n * tensor.RowBytes() / heads
					if len(bytes.Trim(piece.Mem[h*piece.HeadStride+end:(h+1)*piece.HeadStride], "\xa5")) > 0 {
						rt.Fatalf("tensor %d: cells of head %d behind the rows were written to", i, h)
					}
				}
			}
		}
		for i := range planes[0] {
			if !bytes.Equal(planes[0][i], planes[1][i]) {
				rt.Fatalf("plane %d of %d is stored as other bytes", i, len(planes[0]))
			}
		}
	})
}

// fillFloats fills memory with values that all codecs take: of a quantized type, any bytes.
func fillFloats(random *rand.Rand, dtype kv.DType, mem []byte) {
	for i := range mem {
		mem[i] = byte(random.Uint32())
	}
	top := map[kv.DType]int{kv.F16: 1, kv.BF16: 1, kv.F32: 3}[dtype]
	for i := top; top > 0 && i < len(mem); i += top + 1 {
		mem[i] = mem[i]&0x83 | 0x38 // no infinity, nothing that is not a number
	}
}
