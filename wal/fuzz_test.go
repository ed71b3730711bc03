package wal

import (
	"bytes"
	"errors"
	"testing"

	"github.com/dormousekv/dormouse/internal/damage"
)

// Whatever is in the files: no panic, LSNs in order, and nothing handed over that does not stand there.
func FuzzReplay(f *testing.F) {
	m, _ := sample(f)
	o := memOptions(m)
	one := bytes.TrimRight(m.names[o.path(1)].now, "\x00")
	two := bytes.TrimRight(m.names[o.path(2)].now, "\x00")
	f.Add(one, two)
	f.Add(one[:len(one)-9], two)
	f.Add(one, two[:headerBytes+20])
	f.Add(append(make([]byte, headerBytes), one[headerBytes:]...), []byte{})
	f.Add([]byte(magic), bytes.Repeat([]byte{0xff}, 200))
	f.Fuzz(func(t *testing.T, one, two []byte) {
		m := newMemFS()
		o := memOptions(m)
		m.names[o.path(1)], m.names[o.path(2)] = &memNode{now: one}, &memNode{now: two}
		err := standing(o)
		if verr := Verify(o, func(*damage.Error) {}, nil); (verr == nil) != (err == nil) {
			t.Fatalf("Replay: %v; Verify: %v", err, verr)
		}
		if err != nil && !errors.Is(err, ErrMagic) && !errors.Is(err, ErrVersion) && !errors.Is(err, ErrForeign) {
			t.Fatal(err)
		}
	})
}
