//go:build cgo

package main

/*
#include "dormouse.h"
*/
import "C"

import (
	"context"
	"unsafe"

	"github.com/dormousekv/dormouse/db"
)

// How a store gives space back.

//export goCheckpoint
func goCheckpoint(e *C.dormouse_error, h C.dormouse_store, c *C.dormouse_call) C.dormouse_status {
	return onStore(e, h, c, func(ctx context.Context, s *db.Store) error { return s.Checkpoint(ctx) })
}

//export goShrink
func goShrink(e *C.dormouse_error, h C.dormouse_store, bytes C.int64_t, c *C.dormouse_call, disk *C.int64_t) C.dormouse_status {
	return onStore(e, h, c, func(ctx context.Context, s *db.Store) error {
		if bytes < 0 {
			return badArgument("bytes is %d: expected what the store's files may take", int64(bytes))
		}
		n, err := s.Shrink(ctx, int64(bytes))
		if disk != nil {
			*disk = C.int64_t(n)
		}
		return err
	})
}

//export goCompact
func goCompact(e *C.dormouse_error, h C.dormouse_store, o *C.dormouse_compact_options, c *C.dormouse_call, out *C.dormouse_compacted) C.dormouse_status {
	return onStore(e, h, c, func(ctx context.Context, s *db.Store) error {
		var options db.CompactOptions
		if o != nil {
			if err := sized("dormouse_compact_options", o.size, unsafe.Sizeof(*o)); err != nil {
				return err
			}
			options = db.CompactOptions{LiveShare: float64(o.live_share), All: o.all != 0}
			if err := options.Validate(); err != nil {
				return badArgument("%v", err)
			}
		}
		if out != nil {
			if err := sized("dormouse_compacted", out.size, unsafe.Sizeof(*out)); err != nil {
				return err
			}
		}
		got, err := s.Compact(ctx, options)
		if out != nil {
			out.segments, out.records, out.bytes = C.size_t(got.Segments), C.size_t(got.Records), C.int64_t(got.Bytes)
			out.before, out.after = C.int64_t(got.Before), C.int64_t(got.After)
		}
		return err
	})
}
