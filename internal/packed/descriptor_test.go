package packed

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/internal/fuzzkit"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// layered is a model of so many tensors, K and V in turns.
func layered(tensors int) *kv.Descriptor {
	d := kv.Descriptor{Weights: kv.Hash{7}, Architecture: "toy", Tokenizer: kv.Hash{8}, RoPE: kv.RoPE{Type: "none"}}
	for i := range tensors {
		d.Tensors = append(d.Tensors, kv.Tensor{Layer: i / 2, Role: kv.RoleK + kv.Role(i%2), DType: kv.F16, Width: 256})
	}
	d, err := d.Normal()
	if err != nil {
		panic(err)
	}
	return &d
}

// What is packed comes back, whatever its tensors are, and none of what it is cut to does.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hash := rapid.Custom(func(t *rapid.T) kv.Hash {
			return kv.Hash(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "hash"))
		})
		d := kv.Descriptor{
			Weights: hash.Draw(t, "weights"), Architecture: rapid.String().Draw(t, "arch"), Tokenizer: hash.Draw(t, "tokenizer"),
			RoPE: kv.RoPE{Type: rapid.String().Draw(t, "rope"), Dims: rapid.IntRange(0, 1<<20).Draw(t, "dims"),
				Base: rapid.Float32().Draw(t, "base"), Scale: rapid.Float32().Draw(t, "scale"),
				Scaling: rapid.String().Draw(t, "scaling"), FreqFactors: hash.Draw(t, "factors")},
			Rotated: rapid.Bool().Draw(t, "rotated"), Shard: rapid.IntRange(0, 3).Draw(t, "shard"), Shards: 4, StateFormat: rapid.String().Draw(t, "state"),
			BlockTokens: 16 << rapid.IntRange(0, 5).Draw(t, "block"),
			Groups:      []kv.Group{{Kind: kv.All}, {Kind: kv.Window, Window: rapid.IntRange(1, 1<<31-1).Draw(t, "window")}, {Kind: kv.StateAt}},
		}
		period := rapid.IntRange(1, 24).Draw(t, "period")
		for i := range rapid.IntRange(0, 200).Draw(t, "tensors") {
			x := kv.Tensor{Layer: i / 2, Role: kv.RoleK + kv.Role(i%3), DType: kv.DType(1 + i%period%9), Width: 64 * (1 + i%period)}
			if rapid.IntRange(0, 29).Draw(t, "odd") == 0 {
				x.Group, x.Layer = rapid.IntRange(0, 2).Draw(t, "group"), rapid.IntRange(0, 1<<31-1).Draw(t, "layer")
			}
			d.Tensors = append(d.Tensors, x)
		}
		d, err := d.Normal()
		if err != nil {
			t.Fatal(err)
		}
		b := Append(nil, &d)
		if got, err := Decode(b); err != nil || !reflect.DeepEqual(got, d) {
			t.Fatalf("%+v became %+v: %v", d, got, err)
		}
		n := rapid.IntRange(0, len(b)-1).Draw(t, "cut")
		if got, err := Decode(b[:n]); !errors.Is(err, ErrMalformed) {
			t.Fatalf("cut to %d of %d bytes: %+v, %v", n, len(b), got, err)
		}
	})
}

// Layers that repeat take no room.
func TestSize(t *testing.T) {
	for _, n := range []int{0, 128, kv.MaxTensors} {
		d := layered(n)
		b := Append(nil, d)
		if got, err := Decode(b); err != nil || len(b) > 200 || len(got.Diff(d)) > 0 {
			t.Errorf("%d tensors that repeat take %d bytes: %v", n, len(b), err)
		}
	}
}

// What cannot be a descriptor is refused, for what it is.
func TestMalformed(t *testing.T) {
	many, odd, good := layered(2), layered(2), Append(nil, layered(4))
	many.Tensors = make([]kv.Tensor, kv.MaxTensors+1)
	odd.Shards = 0 // which Normal would make 1
	for want, b := range map[string][]byte{
		"16 bytes in its last 7": []byte("rubbish"), "16 bytes in its last 0": nil, "1 bytes behind its end": append(good, 0),
		"16384 times 1 tensors behind 1": Append(nil, many), "not in its normal form": Append(nil, odd),
	} {
		if d, err := Decode(b); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v", want, d, err)
		}
	}
}

// An element type, a role or a kind of group that this release does not know is another release's, not damage.
func TestAnotherRelease(t *testing.T) {
	for want, change := range map[string]func(*kv.Descriptor){
		"tensor 1 has dtype 77": func(d *kv.Descriptor) { d.Tensors[1].DType = 77 },
		"tensor 0 has dtype 0":  func(d *kv.Descriptor) { d.Tensors[0].DType = 0 },
		"tensor 1 has role 4":   func(d *kv.Descriptor) { d.Tensors[1].Role = 4 },
		"group 1 has kind 9":    func(d *kv.Descriptor) { d.Groups = append(d.Groups, kv.Group{Kind: 9}) },
	} {
		d := layered(4)
		change(d)
		if got, err := Decode(Append(nil, d)); !errors.Is(err, vfs.ErrVersion) || errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v", want, got, err)
		}
	}
}

// FuzzDecode unpacks a descriptor: it takes no more memory than one of most tensors, and what is accepted is normal, and the same when it
// was packed again.
func FuzzDecode(f *testing.F) {
	long := Append(nil, layered(2))
	copy(long[73:], "\xff\xff\xff\xff") // the architecture
	window := layered(4)
	window.Groups = append(window.Groups, kv.Group{Kind: kv.Window, Window: 512})
	window.Tensors[3].Group, window.Tensors[3].Layer = 1, 300
	fuzzkit.Seeds(f, []any{Append(nil, layered(kv.MaxTensors))}, []any{Append(nil, window)}, []any{long}, []any{make([]byte, 100)})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1<<16 {
			return
		}
		var d kv.Descriptor
		var err error
		fuzzkit.Bounded(t, 4<<20+64*uint64(len(b)), func() { d, err = Decode(b) })
		if err != nil {
			if !errors.Is(err, ErrMalformed) && !errors.Is(err, vfs.ErrVersion) {
				t.Fatal(err)
			}
			return
		}
		if n, err := d.Normal(); err != nil || n.Fingerprint() != d.Fingerprint() {
			t.Fatalf("not normal: %+v, %v", d, err)
		}
		if got, err := Decode(Append(nil, &d)); err != nil || got.Fingerprint() != d.Fingerprint() || len(got.Diff(&d)) > 0 {
			t.Fatalf("%+v became %+v: %v", d, got, err)
		}
	})
}
