package write_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
)

// With Q4R only values become denser, and only where it is asked for: keys, narrow rows and a runtime's own codes are as without
// it. The first tokens come back to the bit, all else within what the planes say; and what was stored is not encoded anew.
func TestDenseValues(t *testing.T) {
	const n, exact = 200, 4
	d := crashtest.Plain()
	d.Name, d.BlockTokens, d.Tensors = "dense", 64, []kv.Tensor{
		{Layer: 0, Role: kv.RoleK, DType: kv.F16, Width: 128}, {Layer: 0, Role: kv.RoleV, DType: kv.F16, Width: 128},
		{Layer: 1, Role: kv.RoleK, DType: kv.BF16, Width: 64}, {Layer: 1, Role: kv.RoleV, DType: kv.BF16, Width: 96},
		{Layer: 2, Role: kv.RoleK, DType: kv.F32, Width: 64}, {Layer: 2, Role: kv.RoleV, DType: kv.F32, Width: 64},
		{Layer: 3, Role: kv.RoleK, DType: kv.Q8_0, Width: 64}, {Layer: 3, Role: kv.RoleV, DType: kv.Q8_0, Width: 64},
	}
	want := []quant.Codec{quant.Q8_0, quant.Q4R, quant.Q8_0, quant.Q8_0, quant.Q8_0, quant.Q4R, quant.Raw, quant.Raw}
	rng := rand.New(rand.NewPCG(1, 2))
	rows := make(kv.Rows, len(d.Tensors))
	for i, x := range d.Tensors {
		mem := make([]byte, n*x.RowBytes())
		for at := 0; at < len(mem); at += x.DType.GroupBytes() {
			v := math.Float32bits(float32(rng.NormFloat64()))
			switch x.DType {
			case kv.F16: // 1 to 2, of both signs
				binary.LittleEndian.PutUint16(mem[at:], uint16(v>>16&0x8000|0x3c00|v>>13&0x3ff))
			case kv.BF16:
				binary.LittleEndian.PutUint16(mem[at:], uint16(v>>16))
			case kv.F32:
				binary.LittleEndian.PutUint32(mem[at:], v)
			default:
				for j := range x.DType.GroupBytes() {
					mem[at+j] = byte(rng.Uint32())
				}
			}
		}
		rows[i] = kv.Packed(0, n, mem)
	}
	o := storetest.Options()
	o.Codec = 0
	dir := t.TempDir()
	s := storetest.Open(t, dir, o)
	m := storetest.Model(t, s, d)
	p := kv.Tokens(crashtest.Tokens(1, n)...)
	res, err := m.Put(t.Context(), p, rows, db.PutOptions{Codec: quant.Q4R})
	if err != nil || res.Tokens != n {
		t.Fatalf("%+v, %v", res, err)
	}
	if again, err := m.Put(t.Context(), p, rows, db.PutOptions{Codec: quant.Raw}); err != nil || again.Records > 0 {
		t.Fatalf("put again in another codec: %+v, %v", again, err)
	}
	storetest.OK(t, s.Close())
	s = storetest.Open(t, dir, o)
	m = storetest.Model(t, s, d)
	x := storetest.Match(t, m, p)
	defer x.Close()
	seen := 0
	if err := x.View(t.Context(), func(v db.StoredPlane) error {
		if seen++; v.Codec != want[v.Tensor] {
			t.Errorf("tensor %d is stored as %s, want %s", v.Tensor, v.Codec, want[v.Tensor])
		}
		if (v.Codes != nil) != (v.Codec == quant.Q8_0) {
			t.Errorf("tensor %d, %s: %d bytes of codes", v.Tensor, v.Codec, len(v.Codes))
		}
		return nil
	}); err != nil || seen == 0 {
		t.Fatalf("%d planes, %v", seen, err)
	}
	back := make(kv.Rows, len(d.Tensors))
	for i, x := range d.Tensors {
		back[i] = kv.Packed(0, n, make([]byte, n*x.RowBytes()))
	}
	if got, err := x.Restore(t.Context(), back); err != nil || got.Tokens != n {
		t.Fatalf("%+v, %v", got, err)
	}
	for i, x := range d.Tensors {
		in, out := rows[i].Pieces[0].Mem, back[i].Pieces[0].Mem
		first := exact * x.RowBytes()
		if !bytes.Equal(in[:first], out[:first]) {
			t.Errorf("tensor %d: the first %d tokens are not exact", i, exact)
		}
		if same := bytes.Equal(in, out); same != (want[i] == quant.Raw) {
			t.Errorf("tensor %d, %s: all the same is %t", i, want[i], same)
		}
	}
	storetest.Sound(t, s)
}
