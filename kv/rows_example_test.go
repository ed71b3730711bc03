package kv_test

import (
	"fmt"

	"github.com/dormousekv/dormouse/kv"
)

// Five ways in which a cache may hold the rows of a tensor. docs/embedding.md shows them.
func ExampleTensorRows() {
	tensor := kv.Tensor{Role: kv.RoleV, DType: kv.F16, Width: 64}
	const n, cells, page = 100, 256, 32 // tokens that are there; tokens that the cache has room for; tokens in a page
	const elem, row = 2, 64 * 2         // bytes of a value, and of a row
	mem := make([]byte, cells*2*row)    // the runtime's own
	pages := [][]byte{mem[:page*row], mem[:page*row], mem[:page*row], mem[:page*row]}

	packed := kv.Packed(0, n, mem[:n*row]) // row after row

	// A row every two rows: K and V take turns.
	strided := kv.TensorRows{Pieces: []kv.Piece{{Mem: mem, Count: n, RowStride: 2 * row}}}

	// Transposed, as llama.cpp keeps V without flash attention: all tokens' first values, then all tokens' second values, …
	transposed := kv.TensorRows{Pieces: []kv.Piece{{Mem: mem, Count: n, RowStride: elem, ElemStride: cells * elem}}}

	// In pages that lie anywhere.
	var paged kv.TensorRows
	for at := 0; at < n; at += page {
		paged.Pieces = append(paged.Pieces, kv.Piece{Mem: pages[at/page], Count: min(page, n-at)})
	}

	// Head by head: all tokens of the first head, then all tokens of the second, …
	const heads = 4
	byHead := kv.TensorRows{Pieces: []kv.Piece{{Mem: mem, Count: n, Heads: heads, HeadStride: cells * row / heads}}}

	for _, rows := range []kv.TensorRows{packed, strided, transposed, paged, byHead} {
		fmt.Println(rows.Count(), rows.Validate(tensor))
	}
	// Output:
	// 100 <nil>
	// 100 <nil>
	// 100 <nil>
	// 100 <nil>
	// 100 <nil>
}
