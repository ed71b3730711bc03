//go:build cgo

package main

/*
#include "dormouse.h"

static int32_t dormouse_flag(const volatile int32_t *p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }
*/
import "C"

import (
	"context"
	"errors"
	"math"
	"time"
	"unsafe"
)

// cancelEvery is how often a flag is looked at that another thread may set.
const cancelEvery = 2 * time.Millisecond

// limits are a call's deadline and its flag, as a context. The caller calls end when the call is over, with its error, and returns what that gives.
func limits(c *C.dormouse_call) (ctx context.Context, end func(error) error, err error) {
	ctx = context.Background()
	if c == nil {
		return ctx, func(err error) error { return err }, nil
	}
	if err := sized("dormouse_call", c.size, unsafe.Sizeof(*c)); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := func() {}
	if ms := int64(c.timeout_ms); ms > 0 && ms <= int64(math.MaxInt64/time.Millisecond) { // longer than 292 years is no limit
		ctx, stop = context.WithTimeout(ctx, time.Duration(c.timeout_ms)*time.Millisecond)
	}
	done := make(chan struct{})
	ended := make(chan struct{})
	if flag := c.cancel; flag != nil {
		if C.dormouse_flag(flag) != 0 {
			cancel(errCancel)
		}
		go func() { // it ends before the call does: the flag is the caller's
			defer close(ended)
			t := time.NewTicker(cancelEvery)
			defer t.Stop()
			for {
				select {
				case <-done:
					return
				case <-t.C:
					if C.dormouse_flag(flag) != 0 {
						cancel(errCancel)
						return
					}
				}
			}
		}()
	} else {
		close(ended)
	}
	return ctx, func(err error) error {
		close(done)
		<-ended
		if errors.Is(err, context.Canceled) && errors.Is(context.Cause(ctx), errCancel) {
			err = errCancel
		}
		stop()
		cancel(nil)
		return err
	}, nil
}

// slack is how much longer than here a struct of a later header may be; what is longer still was not set.
const slack = 4096

// sized checks the size that a caller was compiled with: at least what this version knows.
func sized(what string, size C.size_t, want uintptr) error {
	if uintptr(size) < want {
		return badArgument("%s.size is %d, expected at least %d: begin with DORMOUSE_INIT", what, size, want)
	}
	if uintptr(size) > want+slack {
		return badArgument("%s.size is %d, here it is %d: begin with DORMOUSE_INIT", what, size, want)
	}
	return nil
}

// text is a C string; null is "".
func text(s *C.char) string {
	if s == nil {
		return ""
	}
	return C.GoString(s)
}

// do runs a call with its limits.
func do(e *C.dormouse_error, c *C.dormouse_call, f func(ctx context.Context) error) (status C.dormouse_status) {
	defer guard(e, &status)
	ctx, end, err := limits(c)
	if err != nil {
		return say(e, err)
	}
	if err := ctx.Err(); err != nil { // cancelled before it began
		return say(e, end(err))
	}
	return say(e, end(f(ctx)))
}

// plain runs a call without limits.
func plain(e *C.dormouse_error, f func() error) (status C.dormouse_status) {
	defer guard(e, &status)
	return say(e, f())
}

// list is n values from p on.
func list[T any](what string, p *T, n C.size_t) ([]T, error) {
	if n == 0 {
		return nil, nil
	}
	if p == nil {
		return nil, badArgument("%s is null, and there are to be %d", what, n)
	}
	if uint64(n) > 1<<31 {
		return nil, badArgument("%s: %d are too many", what, n)
	}
	return unsafe.Slice(p, int(n)), nil
}
