package db

import (
	"errors"
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// States of one group are valid at one position, or they are not stored.
func TestStatesAtTwoPositions(t *testing.T) {
	d := opaque()
	d.Tensors = append(d.Tensors, d.Tensors[0])
	s := open(t, t.TempDir(), options())
	m := model(t, s, d)
	p := kv.Tokens(tokens(1, 48)...)
	for _, first := range [][2]int{{0, 48}, {48, 0}, {16, 48}} {
		rows := filled(d, &p, 0, 48)
		for i := range rows {
			rows[i].First = first[i]
		}
		if _, err := m.Put(ctx, p, rows, PutOptions{}); !errors.Is(err, kv.ErrRows) {
			t.Errorf("states at the positions %v: %v", first, err)
		}
	}
	expect(t, m, p, 0)
}
