//go:build cgo

package main

/*
#include "dormouse.h"
*/
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// promptOf is a caller's prompt. Its tokens are the caller's memory: whoever keeps it takes a copy.
func promptOf(p *C.dormouse_prompt) (out kv.Prompt, err error) {
	if p == nil {
		return out, badArgument("the prompt is null")
	}
	if err := sized("dormouse_prompt", p.size, unsafe.Sizeof(*p)); err != nil {
		return out, err
	}
	if out.Tokens, err = list("tokens", (*kv.Token)(unsafe.Pointer(p.tokens)), p.n_tokens); err != nil {
		return out, err
	}
	spans, err := list("spans", p.spans, p.n_spans)
	if err != nil {
		return out, err
	}
	for _, s := range spans {
		if s.start > 1<<31 || s.len > 1<<31 {
			return out, fmt.Errorf("%w: a span of %d tokens at %d", kv.ErrPrompt, s.len, s.start)
		}
		out.Spans = append(out.Spans, kv.Span{Start: int(s.start), Len: int(s.len), Hash: *(*kv.Hash)(unsafe.Pointer(&s.hash))})
	}
	if out.Adapters, err = adaptersOf(p.adapters, p.n_adapters); err != nil {
		return out, err
	}
	if p.scope_start > 1<<31 {
		return out, fmt.Errorf("%w: scope_start is %d", kv.ErrPrompt, p.scope_start)
	}
	out.Scope, out.ScopeStart = text(p.scope), int(p.scope_start)
	return out, out.Validate()
}

func adaptersOf(p *C.dormouse_adapter, n C.size_t) (out []kv.Adapter, err error) {
	adapters, err := list("adapters", p, n)
	for _, a := range adapters {
		out = append(out, kv.Adapter{Hash: *(*kv.Hash)(unsafe.Pointer(&a.hash)), Scale: float32(a.scale)})
	}
	return out, err
}

// rowsOf are a caller's rows: the memory stays theirs.
func rowsOf(m *db.Model, rows *C.dormouse_rows, n C.size_t) (kv.Rows, error) {
	given, err := list("rows", rows, n)
	if err != nil {
		return nil, err
	}
	if want := len(m.Descriptor().Tensors); len(given) != want {
		return nil, fmt.Errorf("%w: n_rows is %d, the model has %d tensors", kv.ErrRows, len(given), want)
	}
	out := make(kv.Rows, len(given))
	for i, r := range given {
		pieces, err := list("pieces", r.pieces, r.n_pieces)
		if err != nil {
			return nil, err
		}
		if r.first > 1<<31 {
			return nil, fmt.Errorf("%w: tensor %d begins at %d", kv.ErrRows, i, r.first)
		}
		out[i].First = int(r.first)
		for _, p := range pieces {
			if p.count > 1<<31 || p.bytes > 1<<46 || p.row_stride > 1<<40 || p.elem_stride > 1<<40 || p.heads > 1<<31 || p.head_stride > 1<<40 {
				return nil, fmt.Errorf("%w: tensor %d: a piece of %d rows of %d heads in %d bytes, strides %d, %d and %d", kv.ErrRows, i,
					p.count, p.heads, p.bytes, p.row_stride, p.elem_stride, p.head_stride)
			}
			if p.mem == nil && p.bytes > 0 {
				return nil, badArgument("tensor %d: mem is null", i)
			}
			out[i].Pieces = append(out[i].Pieces, kv.Piece{
				Mem: unsafe.Slice((*byte)(p.mem), int(p.bytes)), Count: int(p.count), RowStride: int(p.row_stride), ElemStride: int(p.elem_stride),
				Heads: int(p.heads), HeadStride: int(p.head_stride),
			})
		}
	}
	return out, nil
}

func canRestored(out *C.dormouse_restored) error {
	if out == nil {
		return nil
	}
	return sized("dormouse_restored", out.size, unsafe.Sizeof(*out))
}

func giveRestored(out *C.dormouse_restored, tokens int, r db.Reason) {
	if out != nil {
		out.tokens, out.reason, out.reason_at = C.size_t(tokens), C.int32_t(r.Code), C.size_t(max(0, r.At))
	}
}
