//go:build cgo

package main

import (
	"errors"
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// A call that found its session before another thread closed it must not touch the context, which may be freed.
func TestClosedBetweenFindingAndBeginning(t *testing.T) {
	id := newHandle(&session{})
	s, err := of[*session](id)
	if err != nil {
		t.Fatal(err)
	}
	drop(id)
	if err := s.begin(id); !errors.Is(err, errHandle) {
		t.Fatalf("a call began on a closed session: %v", err)
	}
	if !s.busy.TryLock() {
		t.Fatal("the call that did not begin is at work")
	}
}

func TestAStoreIsNotClosedUnderACall(t *testing.T) {
	mine, others := &store{}, &store{}
	idle, busy, other := &session{store: mine}, &session{store: mine}, &session{store: others}
	for _, s := range []*session{idle, busy, other} {
		id := newHandle(s)
		t.Cleanup(func() { drop(id) })
	}
	other.busy.Lock()
	busy.busy.Lock()
	if _, err := hold(mine); !errors.Is(err, errBusy) {
		t.Fatalf("held while a call is at work: %v", err)
	}
	busy.busy.Unlock()
	release, err := hold(mine)
	if err != nil {
		t.Fatal(err)
	}
	if idle.busy.TryLock() || busy.busy.TryLock() {
		t.Fatal("a call can begin while the store is closed")
	}
	release()
	if !idle.busy.TryLock() || !busy.busy.TryLock() {
		t.Fatal("a store that stayed open keeps calls away")
	}
}

// Whoever attaches is at work on a context from the first look at it on, and not only once it is a session.
func TestAStoreIsNotClosedUnderAnAttach(t *testing.T) {
	s := &store{}
	open := newHandle(s)
	t.Cleanup(func() { drop(open) })
	v, id, err := attaching(open)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := hold(s); !errors.Is(err, errBusy) {
		t.Fatalf("held while a context is attached: %v", err)
	}
	if err := v.begin(id); !errors.Is(err, errBusy) {
		t.Fatalf("a call began on a session that is not there yet: %v", err)
	}
	v.busy.Unlock()
	drop(id)
	release, err := hold(s)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := attaching(open); !errors.Is(err, errBusy) {
		t.Fatalf("attached to a store that is being closed: %v", err)
	}
	drop(open)
	release()
	if _, _, err := attaching(open); !errors.Is(err, errHandle) {
		t.Fatalf("attached to a closed store: %v", err)
	}
}

func TestOptionsEndWhereTheyEnd(t *testing.T) {
	for _, text := range []string{`{}}`, `{}]`, `{} {}`, `{},`, `[]`} {
		if _, err := parseLlama("", text); !errors.Is(err, errArgument) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := parseLlama("", " {} \n"); err != nil {
		t.Error(err)
	}
}

// What is refused is named as the caller wrote it, not by Go's types.
func TestOptionsOfAnotherType(t *testing.T) {
	for text, want := range map[string]string{
		`{"budget": 1.5}`:                  "options: budget is number 1.5: expected a whole number below 2^63",
		`{"budget": 99999999999999999999}`: "options: budget is number 99999999999999999999: expected a whole number below 2^63",
		`{"codec": 7}`:                     "options: codec is a number: expected a string",
		`{"read_only": "yes"}`:             "options: read_only is a string: expected true or false",
		`[]`:                               "options is an array: expected an object",
		`{"no": 1}`:                        `options: unknown field "no"`,
	} {
		if _, err := parseOptions(text); err == nil || err.Error() != "argument: "+want {
			t.Errorf("%s: %v, expected %q", text, err, want)
		}
	}
	for text, want := range map[string]string{
		`{"groups": {}}`:                "descriptor: groups is an object: expected an array",
		`{"tensors": [{"layer": "0"}]}`: "descriptor: tensors.layer is a string: expected a whole number below 2^63",
		`{"rope": {"base": 1e99}}`:      "descriptor: rope.base is number 1e99: expected a number below 3.4e38",
	} {
		if _, err := parseDescriptor(text); err == nil || err.Error() != "argument: "+want {
			t.Errorf("%s: %v, expected %q", text, err, want)
		}
	}
}

// An adapter is in full strength where nothing is said, as in llama.cpp's programs.
func TestScaleLeftOut(t *testing.T) {
	const hash = `"hash": "000102030405060708090a0b0c0d0e0f"`
	o, err := parseLlama("", `{"adapters": [{`+hash+`}, {`+hash+`, "scale": 0.5}, {`+hash+`, "scale": 0}]}`)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []float32{1, 0.5, 0} {
		if got := o.Adapters[i]; got.Scale != want || got.Hash != (kv.Hash{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}) {
			t.Errorf("adapter %d: %v, expected the scale %g", i, got, want)
		}
	}
}
