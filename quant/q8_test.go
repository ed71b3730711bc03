package quant

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/kv"
)

// exceptionsOf reads the list that Codes leaves out.
func exceptionsOf(t rapid.TB, tensor kv.Tensor, p Plane, stored []byte) (groups []int) {
	t.Helper()
	_, exc, err := parseGroups(tensor, p, stored)
	if err != nil {
		t.Fatal(err)
	}
	for i := range exc.len() {
		groups = append(groups, int(exc.at(i)))
	}
	return groups
}

// Exceptions are exactly the groups that int8 cannot hold and the exact rows; they come back bit by bit; all other
// values come back within half a scale and the scale's own rounding; MaxError is the largest error among them.
func TestQ8KeepsItsPromises(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		tensor := drawFloatTensor(rt)
		rows := rapid.IntRange(1, 40).Draw(rt, "rows")
		exact := rapid.IntRange(0, 4).Draw(rt, "exact rows")
		src := drawFloats(rt, tensor, rows)
		stored, p := mustEncode(rt, Q8_0, None, tensor, kv.Packed(0, rows, src), exact)
		out := mustDecode(rt, tensor, p, stored, 0, rows)
		codes, err := Codes(p, tensor, stored)
		if err != nil || &codes[0] != &stored[0] {
			rt.Fatalf("codes are not the first bytes of the plane: %v", err)
		}

		size := tensor.DType.RowBytes(groupValues)
		var want []int
		worst := 0.0
		for g := 0; g*size < len(src); g++ {
			in, back := src[g*size:(g+1)*size], out[g*size:(g+1)*size]
			x, y := values(tensor.DType, in), values(tensor.DType, back)
			why := refException(tensor.DType, x)
			if why != "not finite" {
				if block := refBlock(x); !bytes.Equal(block[:], codes[g*blockBytes:][:blockBytes]) {
					rt.Fatalf("group %d: codes % x, want % x", g, codes[g*blockBytes:][:blockBytes], block)
				}
			}
			if why != "" || g < exact*tensor.Width/groupValues {
				if want = append(want, g); !bytes.Equal(in, back) {
					rt.Fatalf("exception %d (%s) comes back as % x, want % x", g, why, back, in)
				}
				continue
			}
			amax := 0.0
			for _, v := range x {
				amax = math.Max(amax, math.Abs(float64(v)))
			}
			d := amax / 127
			// 127 times the scale's rounding to 11 bits, and the rounding of the result: 11, 8 or 24 bits.
			bound := d/2 + amax/(1<<11) + amax/map[kv.DType]float64{kv.F16: 1 << 11, kv.BF16: 1 << 8, kv.F32: 1 << 20}[tensor.DType]
			for j := range x {
				e := math.Abs(float64(y[j]) - float64(x[j]))
				if worst = math.Max(worst, e); e > bound {
					rt.Fatalf("group %d: %g comes back as %g, more than %g away", g, x[j], y[j], bound)
				}
			}
		}
		if got := exceptionsOf(rt, tensor, p, stored); !slices.Equal(got, want) {
			rt.Fatalf("exceptions %v, want %v", got, want)
		}
		if p.MaxError != float32(worst) {
			rt.Fatalf("MaxError is %g, the largest error %g", p.MaxError, worst)
		}
	})
}

// Rows that were restored and are stored again must not drift. In f32 no bit of the codes changes. In the 16-bit types
// the group's maximum may have been rounded, and with it, once, the scale: codes stay, and from then on all does.
func TestRequantizingDoesNotDrift(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		tensor := drawFloatTensor(rt)
		rows := rapid.IntRange(1, 20).Draw(rt, "rows")
		src := drawFloats(rt, tensor, rows)
		var codes [3][]byte
		exception := map[int]bool{}
		for i := range codes {
			stored, p := mustEncode(rt, Q8_0, None, tensor, kv.Packed(0, rows, src), 0)
			codes[i], _ = Codes(p, tensor, stored)
			for _, g := range exceptionsOf(rt, tensor, p, stored) {
				exception[g] = true
			}
			src = mustDecode(rt, tensor, p, stored, 0, rows)
		}
		for g := 0; g*blockBytes < len(codes[0]); g++ {
			if exception[g] {
				continue
			}
			a, b, c := codes[0][g*blockBytes:][:blockBytes], codes[1][g*blockBytes:][:blockBytes], codes[2][g*blockBytes:][:blockBytes]
			scale := binary.LittleEndian.Uint16(a)
			// The maximum is 127 x scale: 17 or 18 bits, rounded to 11. Only a tie moves it by half a step of the scale.
			tie := tensor.DType == kv.F16 && scale&127 == 64 && scale&0x3ff > 8
			sameScale := scale == binary.LittleEndian.Uint16(b)
			if !bytes.Equal(a[2:], b[2:]) || !bytes.Equal(b, c) || !sameScale && tensor.DType != kv.BF16 && !tie {
				rt.Fatalf("%s group %d:\n% x\n% x\n% x", tensor.DType, g, a, b, c)
			}
		}
	})
}

// The one case in which storing restored f16 rows changes a scale, and that it is no more than its last bit.
func TestRequantizingF16AtATie(t *testing.T) {
	tensor := kv.Tensor{Role: kv.RoleK, DType: kv.F16, Width: groupValues}
	changed := 0
	for scale := uint16(f16MinNormal); scale <= maxScaleF16; scale++ {
		plane := make([]byte, blockBytes)
		binary.LittleEndian.PutUint16(plane, scale)
		plane[2], plane[3] = 127, 0x81
		p := Plane{Codec: Q8_0, Rows: 1}
		again, _ := mustEncode(t, Q8_0, None, tensor, kv.Packed(0, 1, mustDecode(t, tensor, p, plane, 0, 1)), 0)
		switch got := binary.LittleEndian.Uint16(again); {
		case got == scale:
		case got == scale+1 || got == scale-1:
			changed++
			if scale&127 != 64 {
				t.Fatalf("scale %#04x becomes %#04x", scale, got)
			}
		default:
			t.Fatalf("scale %#04x becomes %#04x", scale, got)
		}
	}
	if total := maxScaleF16 - f16MinNormal + 1; changed == 0 || changed*127 > total {
		t.Fatalf("%d of %d scales change", changed, total)
	}
}

// Codes of an odd number of groups end 2 bytes before a multiple of 4.
func TestPaddingIsZero(t *testing.T) {
	tensor := kv.Tensor{Role: kv.RoleK, DType: kv.F16, Width: groupValues}
	src := normalRows(kv.F16, 3, groupValues, 1)
	stored, p := mustEncode(t, Q8_0, None, tensor, kv.Packed(0, 3, src), 2)
	if want := 3*blockBytes + 2 + 2*4 + 2*64; len(stored) != want || p.Exceptions != 2 {
		t.Fatalf("%d bytes, want %d: %v", len(stored), want, p)
	}
	again, _, _ := Encode(bytes.Repeat([]byte{canary}, 1000)[:0], Q8_0, None, tensor, kv.Packed(0, 3, src), 2)
	if !bytes.Equal(again, stored) {
		t.Fatal("a used buffer shows in the plane")
	}
	stored[3*blockBytes+1] = 1
	err := Decode(kv.Packed(0, 3, src), tensor, p, stored, 0)
	if want := "corrupt padding behind codes at offset 103: expected 0, found 1"; err == nil || err.Error() != want {
		t.Fatalf("%v, want %s", err, want)
	}
}
