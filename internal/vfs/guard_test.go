package vfs

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
)

// What f returns comes back as it is.
func TestGuardReturns(t *testing.T) {
	want := errors.New("of f")
	for _, e := range []error{nil, want} {
		if err := Guard(func() error { return e }); err != e {
			t.Errorf("%v became %v", e, err)
		}
	}
}

// panicOf returns what f panics with.
func panicOf(f func()) (r any) {
	defer func() { r = recover() }()
	f()
	return nil
}

// A bug is not damage: panics other than faults go on, with their value.
func TestGuardLetsOtherPanicsPass(t *testing.T) {
	var none *int
	var list []int
	var table map[string]int
	zero, mine := 0, errors.New("mine")
	for name, c := range map[string]struct {
		do   func()
		says string
	}{
		"value":        {func() { panic("of f") }, "of f"},
		"error":        {func() { panic(mine) }, "mine"},
		"wrapped":      {func() { panic(fmt.Errorf("about: %w", ErrFault)) }, "about: " + ErrFault.Error()},
		"nil":          {func() { *none = 1 }, "nil pointer"},
		"index":        {func() { _ = list[5] }, "out of range"},
		"slice":        {func() { _ = list[5:zero] }, "out of range"},
		"map":          {func() { table["x"] = 1 }, "nil map"},
		"divide":       {func() { _ = 1 / zero }, "divide"},
		"type":         {func() { _ = any(1).(string) }, "not string"},
		"panic of nil": {func() { panic(nil) }, "nil"},
	} {
		r := panicOf(func() {
			err := Guard(func() error { c.do(); return nil })
			t.Errorf("%s: returned %v", name, err)
		})
		if !strings.Contains(fmt.Sprint(r), c.says) {
			t.Errorf("%s: panics with %v, want %q", name, r, c.says)
		}
	}
	if r := panicOf(func() { Guard(func() error { panic(mine) }) }); r != mine {
		t.Errorf("another value: %v", r)
	}
}

// Guard leaves the goroutine as it found it, guarded or not.
func TestGuardRestores(t *testing.T) {
	for _, before := range []bool{false, true} {
		first := debug.SetPanicOnFault(before)
		Guard(func() error {
			return Guard(func() error { return errors.New("inner") })
		})
		panicOf(func() { Guard(func() error { panic("inner") }) })
		if after := debug.SetPanicOnFault(first); after != before {
			t.Errorf("faults panic = %v before and %v after", before, after)
		}
	}
}

// A goroutine that ends inside of f, as a failing test does, just ends.
func TestGuardOfGoexit(t *testing.T) {
	done, returned := make(chan bool), false
	go func() {
		defer close(done)
		Guard(func() error { runtime.Goexit(); return nil })
		returned = true
	}()
	<-done
	if returned {
		t.Error("Guard stopped the goroutine from ending")
	}
}
