package oplog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/internal/fuzzkit"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// layered is a model of so many tensors, K and V in turns.
func layered(name string, tensors int) kv.Descriptor {
	d := kv.Descriptor{Name: name, Weights: kv.HashOf(name), Architecture: "toy", Tokenizer: kv.HashOf("toy"), RoPE: kv.RoPE{Type: "none"}}
	for i := range tensors {
		d.Tensors = append(d.Tensors, kv.Tensor{Layer: i / 2, Role: kv.RoleK + kv.Role(i%2), DType: kv.F16, Width: 256})
	}
	return d
}

// normal is d in its normal form.
func normal(t testing.TB, d kv.Descriptor) *kv.Descriptor {
	t.Helper()
	d, err := d.Normal()
	if err != nil {
		t.Fatal(err)
	}
	return &d
}

// What is packed comes back, whatever its tensors are; layers that repeat take no room.
func TestPackedDescriptor(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	all := []kv.Descriptor{sampleDescriptor(), layered("most", kv.MaxTensors), layered("none", 0)}
	for i := range 200 {
		d := layered(fmt.Sprint("random ", i), 0)
		d.Groups = []kv.Group{{Kind: kv.All}, {Kind: kv.Window, Window: 512}, {Kind: kv.StateAt}}
		period := 1 + r.IntN(24)
		for j := range r.IntN(200) {
			x := kv.Tensor{Layer: j / 2, Role: kv.RoleK + kv.Role(j%2), DType: kv.F16, Width: 64 * (1 + j%period)}
			if r.IntN(30) == 0 {
				x.Group, x.Layer = r.IntN(3), r.IntN(1<<31)
			}
			d.Tensors = append(d.Tensors, x)
		}
		all = append(all, d)
	}
	for _, d := range all {
		want := normal(t, d)
		op := NewModel(want, 7)
		got, err := op.Descriptor()
		if err != nil || got.Fingerprint() != want.Fingerprint() || got.Name != want.Name || len(got.Diff(want)) > 0 {
			t.Errorf("%s: %v, differs in %v", d.Name, err, got.Diff(want))
		}
	}
	op := NewModel(normal(t, layered("gemma", 128)), 7)
	if n := len(op.Packed); n > 200 {
		t.Errorf("128 tensors that repeat take %d bytes", n)
	}
}

// A descriptor that is cut, of another model, or of more tensors than there can be, is refused.
func TestDescriptorThatIsNone(t *testing.T) {
	good := NewModel(normal(t, layered("good", 4)), 7)
	many := normal(t, layered("many", 2))
	many.Tensors = make([]kv.Tensor, kv.MaxTensors+1)
	odd := normal(t, layered("odd", 2))
	odd.Shards = 0 // which Normal would make 1
	for name, packed := range map[string][]byte{
		"rubbish": []byte("rubbish"), "nothing": {}, "cut": good.Packed[:len(good.Packed)-1], "more": append(good.Packed[:len(good.Packed):len(good.Packed)], 0),
		"another's": NewModel(normal(t, layered("x", 6)), 0).Packed, "too many tensors": appendDescriptor(nil, many), "not normal": appendDescriptor(nil, odd),
	} {
		op := Model{Fingerprint: good.Fingerprint, Name: "good", Packed: packed}
		if d, err := op.Descriptor(); !errors.Is(err, ErrPayload) {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
	}
}

// An element type, a role or a kind of group that this release does not know is another release's, not damage.
func TestDescriptorOfAnotherRelease(t *testing.T) {
	for want, change := range map[string]func(*kv.Descriptor){
		"tensor 1 has dtype 77": func(d *kv.Descriptor) { d.Tensors[1].DType = 77 },
		"tensor 0 has dtype 0":  func(d *kv.Descriptor) { d.Tensors[0].DType = 0 },
		"tensor 1 has role 4":   func(d *kv.Descriptor) { d.Tensors[1].Role = 4 },
		"group 1 has kind 9":    func(d *kv.Descriptor) { d.Groups = append(d.Groups, kv.Group{Kind: 9}) },
	} {
		d := normal(t, layered("newer", 4))
		change(d)
		op := NewModel(d, 7)
		if got, err := op.Descriptor(); !errors.Is(err, vfs.ErrVersion) || errors.Is(err, ErrPayload) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v", want, got, err)
		}
	}
}

// FuzzModel unpacks a model's descriptor: it takes no more memory than one of most tensors, and what is accepted is the same when it
// was packed again.
func FuzzModel(f *testing.F) {
	var seeds [][]any
	for _, d := range []kv.Descriptor{sampleDescriptor(), layered("gemma", 128), layered("tiny", 2)} {
		op := NewModel(normal(f, d), 7)
		seeds = append(seeds, []any{op.Packed, op.Fingerprint[:]})
	}
	fuzzkit.Seeds(f, append(seeds, []any{make([]byte, 100), make([]byte, 16)})...)
	f.Fuzz(func(t *testing.T, packed, fp []byte) {
		if len(packed) > 1<<16 || len(fp) < 16 {
			return
		}
		fuzzkit.Bounded(t, 8<<20+256*uint64(len(packed)), func() {
			op := Model{Fingerprint: kv.Fingerprint(fp[:16]), Name: "x", Packed: packed}
			d, err := op.Descriptor()
			if err != nil {
				return
			}
			again := NewModel(&d, 0)
			if got, err := again.Descriptor(); err != nil || again.Fingerprint != op.Fingerprint || len(got.Diff(&d)) > 0 {
				t.Fatalf("%+v became %+v: %v", d, got, err)
			}
		})
	})
}
