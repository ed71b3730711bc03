package db

import (
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// TestTailBelowPoorerBlock: what was put stays usable for whoever goes on from it, when a longer prompt is stored later whose
// block of the same place has neither its state nor its window rows.
func TestTailBelowPoorerBlock(t *testing.T) {
	d := windowed(10)
	d.StateFormat = "1"
	d.Groups = append(d.Groups, kv.Group{Kind: kv.StateAt})
	d.Tensors = append(d.Tensors, kv.Tensor{Layer: 9, Role: kv.RoleState, DType: kv.Bytes, Group: 2})
	s := open(t, t.TempDir(), options())
	m := model(t, s, d)
	long := kv.Prompt{Tokens: tokens(1, 80)}
	put(t, m, kv.Prompt{Tokens: long.Tokens[:22]})
	rows := filled(d, &long, 0, 80)
	for i, r := range filled(d, &long, 60, 80) { // a runtime with a sliding window has no more of it
		if d.Groups[d.Tensors[i].Group].Kind == kv.Window {
			rows[i] = r
		}
	}
	if _, err := m.Put(ctx, long, rows, PutOptions{}); err != nil {
		t.Fatal(err)
	}
	p := kv.Prompt{Tokens: concat(long.Tokens[:60], tokens(2, 20))}
	for _, n := range []int{22, 23, 30, 60, 80} {
		if got, why := restore(t, m, kv.Prompt{Tokens: p.Tokens[:n]}); got < 22 {
			t.Errorf("%d of %d tokens are found (%v), 22 were put", got, n, why)
		}
	}
}
