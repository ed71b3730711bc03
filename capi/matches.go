//go:build cgo

package main

/*
#include "dormouse.h"

void dormouse_call_layer(dormouse_layer_fn fn, void *user, size_t layer, size_t tokens);
int32_t dormouse_call_view(dormouse_view_fn fn, void *user, const dormouse_plane *plane);
*/
import "C"

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"unsafe"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
)

// onMatch runs a call on a match.
func onMatch(e *C.dormouse_error, h C.dormouse_match, c *C.dormouse_call, f func(ctx context.Context, x *match) error) C.dormouse_status {
	return do(e, c, func(ctx context.Context) error {
		x, err := of[*match](uint64(h.id))
		if err != nil {
			return err
		}
		return f(ctx, x)
	})
}

//export goMatchClose
func goMatchClose(e *C.dormouse_error, h C.dormouse_match) C.dormouse_status {
	return onMatch(e, h, nil, func(_ context.Context, x *match) error {
		drop(uint64(h.id))
		return x.Close()
	})
}

//export goRestore
func goRestore(e *C.dormouse_error, h C.dormouse_match, rows *C.dormouse_rows, n C.size_t, c *C.dormouse_call, out *C.dormouse_restored) C.dormouse_status {
	return restore(e, h, rows, n, c, out, func(ctx context.Context, x *match, r kv.Rows) (db.Restored, error) { return x.Restore(ctx, r) })
}

//export goRestoreLayers
func goRestoreLayers(e *C.dormouse_error, h C.dormouse_match, rows *C.dormouse_rows, n C.size_t, ready C.dormouse_layer_fn, user unsafe.Pointer, c *C.dormouse_call, out *C.dormouse_restored) C.dormouse_status {
	return restore(e, h, rows, n, c, out, func(ctx context.Context, x *match, r kv.Rows) (db.Restored, error) {
		return x.RestoreLayers(ctx, r, func(layer, tokens int) {
			if ready != nil {
				C.dormouse_call_layer(ready, user, C.size_t(layer), C.size_t(tokens))
			}
		})
	})
}

func restore(e *C.dormouse_error, h C.dormouse_match, rows *C.dormouse_rows, n C.size_t, c *C.dormouse_call, out *C.dormouse_restored,
	f func(ctx context.Context, x *match, r kv.Rows) (db.Restored, error)) C.dormouse_status {
	return onMatch(e, h, c, func(ctx context.Context, x *match) error {
		if out == nil {
			return badArgument("out is null")
		}
		if err := canRestored(out); err != nil {
			return err
		}
		out.tokens = 0
		r, err := rowsOf(x.model.Model, rows, n)
		if err != nil {
			return err
		}
		got, err := f(ctx, x, r)
		giveRestored(out, got.Tokens, got.Reason)
		return err
	})
}

//export goStateBytes
func goStateBytes(e *C.dormouse_error, h C.dormouse_match, tensor C.size_t, bytes *C.int64_t) C.dormouse_status {
	return onMatch(e, h, nil, func(_ context.Context, x *match) error {
		if bytes == nil {
			return badArgument("bytes is null")
		}
		if tensor >= C.size_t(len(x.model.Descriptor().Tensors)) {
			return badArgument("tensor %d of %d", tensor, len(x.model.Descriptor().Tensors))
		}
		n, err := x.StateBytes(int(tensor))
		*bytes = C.int64_t(n)
		return err
	})
}

//export goExtend
func goExtend(e *C.dormouse_error, h C.dormouse_match, prompt *C.dormouse_prompt, rows *C.dormouse_rows, n C.size_t, o *C.dormouse_put_options, c *C.dormouse_call, out *C.dormouse_put_result) C.dormouse_status {
	return onMatch(e, h, c, func(ctx context.Context, x *match) error {
		return put(x.model, prompt, rows, n, o, out, func(p kv.Prompt, r kv.Rows, o db.PutOptions) (db.PutResult, error) {
			return x.Extend(ctx, owned(p), r, o) // the match rests on it afterwards
		})
	})
}

// codecNames are C strings.
var codecNames = struct {
	sync.Mutex
	of map[quant.Codec]*C.char
}{of: map[quant.Codec]*C.char{}}

// errStop ends a view that the caller wants no more of.
var errStop = errors.New("stop")

//export goView
func goView(e *C.dormouse_error, h C.dormouse_match, fn C.dormouse_view_fn, user unsafe.Pointer, c *C.dormouse_call) C.dormouse_status {
	return onMatch(e, h, c, func(ctx context.Context, x *match) error {
		if fn == nil {
			return badArgument("fn is null")
		}
		err := x.View(ctx, func(p db.StoredPlane) error {
			var pin runtime.Pinner
			defer pin.Unpin()
			plane := C.dormouse_plane{size: C.size_t(unsafe.Sizeof(C.dormouse_plane{})), tensor: C.size_t(p.Tensor), first: C.size_t(p.First), rows: C.size_t(p.Rows), codec: codecName(p.Codec)}
			plane.data, plane.bytes = pinned(&pin, p.Bytes)
			plane.codes, plane.codes_bytes = pinned(&pin, p.Codes)
			if C.dormouse_call_view(fn, user, &plane) != 0 {
				return errStop
			}
			return nil
		})
		if errors.Is(err, errStop) {
			return nil
		}
		return err
	})
}

func pinned(pin *runtime.Pinner, b []byte) (unsafe.Pointer, C.size_t) {
	if len(b) == 0 {
		return nil, 0
	}
	pin.Pin(&b[0])
	return unsafe.Pointer(&b[0]), C.size_t(len(b))
}

func codecName(c quant.Codec) *C.char {
	codecNames.Lock()
	defer codecNames.Unlock()
	if codecNames.of[c] == nil {
		codecNames.of[c] = kept(c.String())
	}
	return codecNames.of[c]
}
