package db

import (
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// Two puts at a time add different window rows to one block: those of both are stored afterwards, as if one had come after
// the other.
func TestPutsOfOneWindowBesideEachOther(t *testing.T) {
	d := windowed(8)
	s := open(t, t.TempDir(), options())
	m := model(t, s, d)
	p := kv.Prompt{Tokens: tokens(1, 16)}
	rows := func(from, to int) kv.Rows { // of the window alone
		out := filled(d, &p, from, to)
		for i, tensor := range d.Tensors {
			if tensor.Group == 0 {
				out[i] = kv.TensorRows{}
			}
		}
		return out
	}
	base := filled(d, &p, 0, 16)
	for i, tensor := range d.Tensors {
		if tensor.Group == 1 {
			base[i] = kv.TensorRows{}
		}
	}
	if _, err := m.Put(ctx, p, base, PutOptions{}); err != nil {
		t.Fatal(err)
	}
	slow := &putter{e: s.eng, m: m, rows: rows(0, 8), o: PutOptions{Codec: s.eng.o.Codec}}
	if err := slow.plan(&p); err != nil {
		t.Fatal(err)
	}
	if err := slow.block(ctx, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Put(ctx, p, rows(8, 16), PutOptions{}); err != nil {
		t.Fatal(err)
	}
	expect(t, m, p, 16)
	err := slow.publish(ctx)
	slow.unpin()
	if isGone(err) { // put starts over
		_, err = m.Put(ctx, p, rows(0, 8), PutOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	expect(t, m, p, 16)
}
