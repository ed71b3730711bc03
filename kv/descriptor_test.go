package kv_test

import (
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/kv"
)

// descriptors is descriptors that have a normal form.
var descriptors = rapid.Custom(func(t *rapid.T) kv.Descriptor {
	words := rapid.SampledFrom([]string{"", "a", "ab", "b", "neox"})
	d := kv.Descriptor{
		Name: words.Draw(t, "name"), Weights: hashes.Draw(t, "weights"), Architecture: words.Draw(t, "architecture"),
		Tokenizer: hashes.Draw(t, "tokenizer"),
		RoPE: kv.RoPE{
			Type: words.Draw(t, "type"), Dims: rapid.IntRange(0, 128).Draw(t, "dims"),
			Base: rapid.Float32().Draw(t, "base"), Scale: rapid.SampledFrom([]float32{1, 0, float32(math.Copysign(0, -1)), 0.5}).Draw(t, "scale"),
			Scaling: words.Draw(t, "scaling"), FreqFactors: hashes.Draw(t, "factors"),
		},
		Rotated: rapid.Bool().Draw(t, "rotated"), StateFormat: words.Draw(t, "state format"),
		BlockTokens: rapid.SampledFrom([]int{0, 16, 32, 64, 128, 256, 512}).Draw(t, "block tokens"),
	}
	d.Shards = rapid.IntRange(0, 4).Draw(t, "shards")
	d.Shard = rapid.IntRange(0, max(d.Shards, 1)-1).Draw(t, "shard")
	d.Groups = []kv.Group{{Kind: kv.All}}
	for range rapid.IntRange(0, 3).Draw(t, "groups") {
		d.Groups = append(d.Groups, rapid.SampledFrom([]kv.Group{{Kind: kv.Window, Window: 512}, {Kind: kv.Window, Window: 1}, {Kind: kv.StateAt}}).Draw(t, "group"))
	}
	for i := range rapid.IntRange(0, 6).Draw(t, "tensors") {
		x := tensors.Draw(t, "tensor")
		x.Layer, x.Role = i/2, rapid.SampledFrom([]kv.Role{kv.RoleK, kv.RoleV, kv.RoleState}).Draw(t, "role")
		x.Group = rapid.IntRange(0, len(d.Groups)-1).Draw(t, "group of tensor")
		if d.Groups[x.Group].Kind == kv.StateAt && rapid.Bool().Draw(t, "varies") {
			x.DType, x.Width = kv.Bytes, 0
		}
		d.Tensors = append(d.Tensors, x)
	}
	if len(d.Groups) == 1 && rapid.Bool().Draw(t, "groups unsaid") {
		d.Groups = nil
	}
	return d
})

func drawNormal(t *rapid.T) kv.Descriptor {
	d, err := descriptors.Draw(t, "descriptor").Normal()
	if err != nil {
		t.Fatalf("the generator makes an invalid descriptor: %v", err)
	}
	return d
}

// Normal fills in what is missing, changes nothing a second time, and leaves what its caller gave alone.
func TestNormal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		given := descriptors.Draw(t, "descriptor")
		before := cloneDescriptor(given)
		d, err := given.Normal()
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(given, before) {
			t.Fatal("Normal changed the descriptor it was called on")
		}
		again, err := d.Normal()
		if err != nil || !reflect.DeepEqual(again, d) || again.Fingerprint() != d.Fingerprint() {
			t.Fatalf("normal twice is %+v, once %+v: %v", again, d, err)
		}
		if len(d.Groups) == 0 || d.Groups[0].Kind != kv.All || d.Shards < 1 {
			t.Fatalf("a default is missing: %+v", d)
		}
		if given.BlockTokens != 0 {
			if d.BlockTokens != given.BlockTokens {
				t.Fatalf("%d block tokens became %d", given.BlockTokens, d.BlockTokens)
			}
			return
		}
		perToken := 0 // in INT8
		for _, i := range d.GroupTensors(0) {
			x := d.Tensors[i]
			if x.DType.IsFloat() {
				perToken += x.Width / 32 * 34
			} else {
				perToken += x.RowBytes()
			}
		}
		n := d.BlockTokens
		if n < 64 || n > kv.MaxBlockTokens || (n > 64 && n/2*perToken >= 32<<10) || (n < kv.MaxBlockTokens && n*perToken < 32<<10) {
			t.Fatalf("blocks of %d tokens for %d bytes a token", n, perToken)
		}
	})
}

// What contradicts itself is refused, and the message has the number at fault.
func TestNormalRefuses(t *testing.T) {
	good := kv.Descriptor{
		Groups:  []kv.Group{{Kind: kv.All}, {Kind: kv.Window, Window: 512}, {Kind: kv.StateAt}},
		Tensors: []kv.Tensor{{Role: kv.RoleK, DType: kv.F16, Width: 64}, {Role: kv.RoleState, DType: kv.Bytes, Group: 2}},
	}
	if _, err := good.Normal(); err != nil {
		t.Fatal(err)
	}
	type change func(d *kv.Descriptor)
	for name, c := range map[string]struct {
		says string
		do   change
	}{
		"no All group":        {"group 0 is window(9)", func(d *kv.Descriptor) { d.Groups[0] = kv.Group{Kind: kv.Window, Window: 9} }},
		"two All groups":      {"group 1 is all", func(d *kv.Descriptor) { d.Groups[1] = kv.Group{Kind: kv.All} }},
		"unknown group":       {"kind 77", func(d *kv.Descriptor) { d.Groups[1].Kind = 77 }},
		"window of nothing":   {"0 rows", func(d *kv.Descriptor) { d.Groups[1].Window = 0 }},
		"negative window":     {"-5 rows", func(d *kv.Descriptor) { d.Groups[1].Window = -5 }},
		"All with a window":   {"5 rows", func(d *kv.Descriptor) { d.Groups[0].Window = 5 }},
		"All, minus a window": {"-5 rows", func(d *kv.Descriptor) { d.Groups[0].Window = -5 }},
		"state with window":   {"5 rows", func(d *kv.Descriptor) { d.Groups[2].Window = 5 }},
		"17 groups":           {"17 groups", func(d *kv.Descriptor) { d.Groups = append(d.Groups, make([]kv.Group, 14)...) }},
		"too many tensors":    {"16385 tensors", func(d *kv.Descriptor) { d.Tensors = make([]kv.Tensor, kv.MaxTensors+1) }},
		"group of tensor":     {"group 3 of 3", func(d *kv.Descriptor) { d.Tensors[0].Group = 3 }},
		"negative group":      {"group -1", func(d *kv.Descriptor) { d.Tensors[0].Group = -1 }},
		"no dtype":            {"dtype 0", func(d *kv.Descriptor) { d.Tensors[0].DType = 0 }},
		"unknown dtype":       {"dtype", func(d *kv.Descriptor) { d.Tensors[0].DType = 200 }},
		"no role":             {"role 0", func(d *kv.Descriptor) { d.Tensors[0].Role = 0 }},
		"unknown role":        {"role 9", func(d *kv.Descriptor) { d.Tensors[0].Role = 9 }},
		"negative layer":      {"layer -1", func(d *kv.Descriptor) { d.Tensors[0].Layer = -1 }},
		"negative width":      {"-2 values", func(d *kv.Descriptor) { d.Tensors[0].Width = -2 }},
		"huge width":          {"16777217 values", func(d *kv.Descriptor) { d.Tensors[0].Width = kv.MaxWidth + 1 }},
		"no width":            {"width 0", func(d *kv.Descriptor) { d.Tensors[0].Width = 0 }},
		"no width, all":       {"width 0", func(d *kv.Descriptor) { d.Tensors[1].Group = 0 }},
		"half a block":        {"33 values", func(d *kv.Descriptor) { d.Tensors[0].DType, d.Tensors[0].Width = kv.Q4_0, 33 }},
		"shard 1 of none":     {"shard 1 of 1", func(d *kv.Descriptor) { d.Shard = 1 }},
		"negative shard":      {"shard -1 of 2", func(d *kv.Descriptor) { d.Shard, d.Shards = -1, 2 }},
		"small blocks":        {"blocks of 8", func(d *kv.Descriptor) { d.BlockTokens = 8 }},
		"large blocks":        {"blocks of 1024", func(d *kv.Descriptor) { d.BlockTokens = 1024 }},
		"crooked blocks":      {"blocks of 48", func(d *kv.Descriptor) { d.BlockTokens = 48 }},
		"negative blocks":     {"blocks of -64", func(d *kv.Descriptor) { d.BlockTokens = -64 }},
		"base NaN":            {"NaN", func(d *kv.Descriptor) { d.RoPE.Base = float32(math.NaN()) }},
		"scale NaN":           {"NaN", func(d *kv.Descriptor) { d.RoPE.Scale = float32(math.NaN()) }},
		"negative dims":       {"-1 rotated", func(d *kv.Descriptor) { d.RoPE.Dims = -1 }},
	} {
		d := cloneDescriptor(good)
		c.do(&d)
		if _, err := d.Normal(); !errors.Is(err, kv.ErrDescriptor) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want it to say %q", name, err, c.says)
		}
	}
}

func cloneDescriptor(d kv.Descriptor) kv.Descriptor {
	d.Groups, d.Tensors = slices.Clone(d.Groups), slices.Clone(d.Tensors)
	return d
}

// Each tensor is in one group's list; a token's bytes are those of the rows that grow with the prompt.
func TestGroupTensorsAndTokenBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawNormal(t)
		var all []int
		tokenBytes := 0
		for g := range d.Groups {
			ids := d.GroupTensors(g)
			if !slices.IsSorted(ids) {
				t.Fatalf("group %d: %v is not in order", g, ids)
			}
			for _, i := range ids {
				if d.Tensors[i].Group != g {
					t.Fatalf("tensor %d is not in group %d", i, g)
				}
				if d.Groups[g].Kind != kv.StateAt {
					tokenBytes += d.Tensors[i].RowBytes()
				}
			}
			all = append(all, ids...)
		}
		slices.Sort(all)
		if len(all) != len(d.Tensors) || len(slices.Compact(all)) != len(d.Tensors) {
			t.Fatalf("groups have tensors %v of %d", all, len(d.Tensors))
		}
		if got := d.TokenBytes(); got != tokenBytes {
			t.Fatalf("%d bytes a token, want %d", got, tokenBytes)
		}
	})
}

// The sizes that every plan for memory and disk starts from.
func TestTokenBytesOfKnownModels(t *testing.T) {
	for name, c := range map[string]struct{ layers, heads, dim, want int }{
		"Llama-2-7B":   {32, 32, 128, 512 << 10},
		"Llama-3.2-1B": {16, 8, 64, 32 << 10},
		"Gemma-3-270M": {18, 1, 256, 18 << 10},
	} {
		var d kv.Descriptor
		for l := range c.layers {
			for _, r := range []kv.Role{kv.RoleK, kv.RoleV} {
				d.Tensors = append(d.Tensors, kv.Tensor{Layer: l, Role: r, DType: kv.F16, Width: c.heads * c.dim})
			}
		}
		n, err := d.Normal()
		if err != nil || n.TokenBytes() != c.want || n.BlockTokens != 64 {
			t.Errorf("%s: %d bytes a token, want %d; %d tokens a block; %v", name, n.TokenBytes(), c.want, n.BlockTokens, err)
		}
	}
}

// What a descriptor must say has no default: without it two models of one shape would be one.
func TestValidate(t *testing.T) {
	good := kv.Descriptor{
		Name: "my toy", Weights: kv.HashOf("my toy"), Architecture: "toy", Tokenizer: kv.HashOf("my toy"), RoPE: kv.RoPE{Type: kv.NoRoPE},
		Tensors: []kv.Tensor{{Role: kv.RoleK, DType: kv.F16, Width: 64}, {Role: kv.RoleV, DType: kv.F16, Width: 64}, {Layer: 1, Role: kv.RoleK, DType: kv.F16, Width: 64}},
	}
	rotated := good
	rotated.RoPE = kv.RoPE{Type: "neox", Base: 10000}
	for _, d := range []kv.Descriptor{good, rotated} {
		if err := d.Validate(); err != nil {
			t.Fatal(err)
		}
	}
	for says, forget := range map[string]func(*kv.Descriptor){
		"Weights is not said":                           func(d *kv.Descriptor) { d.Weights = kv.Hash{} },
		"Architecture is not said":                      func(d *kv.Descriptor) { d.Architecture = "" },
		"Tokenizer is not said":                         func(d *kv.Descriptor) { d.Tokenizer = kv.Hash{} },
		"RoPE.Type is not said":                         func(d *kv.Descriptor) { d.RoPE.Type = "" },
		"Name is not said":                              func(d *kv.Descriptor) { d.Name = "" },
		"Tensors is empty":                              func(d *kv.Descriptor) { d.Tensors = nil },
		"Tensors[2] is layer 0 V, and so is Tensors[1]": func(d *kv.Descriptor) { d.Tensors[2] = d.Tensors[1] },
		"RoPE.Base is 0 ":                               func(d *kv.Descriptor) { d.RoPE.Type = "neox" },
		"RoPE.Base is -1 ":                              func(d *kv.Descriptor) { d.RoPE = kv.RoPE{Type: "norm", Base: -1} },
		"dtype 0":                                       func(d *kv.Descriptor) { d.Tensors[0].DType = 0 },
		"RoPE.Base is +Inf":                             func(d *kv.Descriptor) { d.RoPE.Base = float32(math.Inf(1)) },
		"RoPE.Scale -Inf":                               func(d *kv.Descriptor) { d.RoPE.Scale = float32(math.Inf(-1)) },
	} {
		d := cloneDescriptor(good)
		forget(&d)
		if err := d.Validate(); !errors.Is(err, kv.ErrDescriptor) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want it to say %q", err, says)
		}
	}
}
