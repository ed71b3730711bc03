package kv_test

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/dormousekv/dormouse/kv"
)

// checkDiff holds the law of Diff: it is empty for equal fingerprints, and only for those. Both equal what a comparison of
// everything but the name says.
func checkDiff(t *rapid.T, a, b *kv.Descriptor) {
	x, y := *a, *b
	x.Name, y.Name = "", ""
	same := reflect.DeepEqual(x, y)
	diff, back := a.Diff(b), b.Diff(a)
	if equal := a.Fingerprint() == b.Fingerprint(); equal != same || (len(diff) == 0) != same || len(back) != len(diff) {
		t.Fatalf("%+v\n%+v\nthe same = %v, equal fingerprints = %v, differences %v and back %v", *a, *b, same, equal, diff, back)
	}
	for i, x := range diff {
		if x.Field != back[i].Field || x.Have != back[i].Want || x.Want != back[i].Have || x.Have == x.Want {
			t.Fatalf("difference %v, the other way round %v", x, back[i])
		}
		if s := x.String(); !strings.Contains(s, x.Field) || !strings.Contains(s, x.Have) || !strings.Contains(s, x.Want) {
			t.Fatalf("%q does not say %q, %q and %q", s, x.Field, x.Have, x.Want)
		}
	}
}

func TestDiffOfPairs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawNormal(t), drawNormal(t)
		checkDiff(t, &a, &b)
		checkDiff(t, &a, &a)
		b = cloneDescriptor(a)
		switch rapid.SampledFrom([]string{"drop", "append", "turn", "group", "kind"}).Draw(t, "change") {
		case "drop":
			b.Tensors = b.Tensors[:max(0, len(b.Tensors)-1)]
		case "append":
			b.Tensors = append(b.Tensors, tensors.Draw(t, "tensor"))
		case "turn":
			slices.Reverse(b.Tensors)
		case "group":
			b.Groups = append(b.Groups, kv.Group{Kind: kv.StateAt})
		case "kind":
			if i := len(b.Groups) - 1; b.Groups[i].Kind == kv.Window {
				b.Groups[i] = kv.Group{Kind: kv.StateAt}
			}
		}
		if b, err := b.Normal(); err == nil {
			checkDiff(t, &a, &b)
		}
	})
}

// leaves calls f with every value that a descriptor is made of, and its path. Hashes are leaves.
func leaves(path string, v reflect.Value, f func(path string, v reflect.Value)) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			leaves(path+"."+v.Type().Field(i).Name, v.Field(i), f)
		}
	case reflect.Slice:
		for i := range v.Len() {
			leaves(path+"[]", v.Index(i), f)
		}
	default:
		f(path, v)
	}
}

// changeLeaf draws another value for a leaf.
func changeLeaf(t *rapid.T, v reflect.Value) {
	switch v.Kind() {
	case reflect.Int:
		if math.MaxInt > math.MaxInt32 && rapid.Bool().Draw(t, "far") {
			v.SetInt(v.Int() + 1<<32) // a hash of 32 bits would not see it
		} else {
			v.SetInt(rapid.OneOf(rapid.Int64Range(-1, 3), rapid.SampledFrom([]int64{32, 64, 128, 512}), rapid.Just(v.Int()+1)).Draw(t, "int"))
		}
	case reflect.Uint8:
		v.SetUint(uint64(rapid.Uint8Range(0, 12).Draw(t, "number")))
	case reflect.Float32:
		zeros := rapid.SampledFrom([]float32{0, float32(math.Copysign(0, -1)), float32(math.NaN())})
		v.SetFloat(float64(rapid.OneOf(rapid.Float32(), zeros).Draw(t, "float")))
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.String:
		v.SetString(v.String() + rapid.SampledFrom([]string{"", "x", " ", "\x00"}).Draw(t, "string"))
	case reflect.Array:
		b := v.Index(rapid.IntRange(0, v.Len()-1).Draw(t, "byte"))
		b.SetUint(b.Uint() ^ 1<<rapid.IntRange(0, 7).Draw(t, "bit"))
	default:
		t.Fatalf("no way to change a %s", v.Type())
	}
}

// A change of any field, whichever it is, shows in Diff and fingerprint, except that of the name. Fields are found by
// reflection: one that is added and forgotten fails here.
func TestDiffOfEveryField(t *testing.T) {
	shown := map[string]bool{
		".Groups[].Kind": true, // never changes alone: see TestDiffOfPairs
	}
	rapid.Check(t, func(t *rapid.T) {
		base := drawNormal(t)
		for target, done := 0, false; !done; target++ {
			changed, path, i := cloneDescriptor(base), "", 0
			leaves("", reflect.ValueOf(&changed).Elem(), func(p string, v reflect.Value) {
				if i == target {
					path = p
					changeLeaf(t, v)
				}
				i++
			})
			done = target == i-1
			normal, err := changed.Normal()
			if err != nil {
				continue
			}
			checkDiff(t, &base, &normal)
			diff := base.Diff(&normal)
			if len(diff) > 1 || path == ".Name" && len(diff) > 0 {
				t.Fatalf("%s was changed, and the difference is %v", path, diff)
			}
			if len(diff) == 1 {
				shown[path] = true
			}
		}
	})
	full := kv.Descriptor{Groups: make([]kv.Group, 1), Tensors: make([]kv.Tensor, 1)}
	leaves("", reflect.ValueOf(&full).Elem(), func(path string, _ reflect.Value) {
		if !shown[path] && path != ".Name" {
			t.Errorf("no change of %s made a difference", path)
		}
	})
}

// Strings that stand side by side cannot flow into each other.
func TestFingerprintKeepsFieldsApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawNormal(t), drawNormal(t)
		words := rapid.StringMatching("[ab\x00]{0,3}")
		for _, d := range []*kv.Descriptor{&a, &b} {
			d.Architecture, d.RoPE.Type, d.RoPE.Scaling, d.StateFormat =
				words.Draw(t, "architecture"), words.Draw(t, "type"), words.Draw(t, "scaling"), words.Draw(t, "format")
		}
		b2 := a
		b2.Architecture, b2.RoPE.Type, b2.RoPE.Scaling, b2.StateFormat = b.Architecture, b.RoPE.Type, b.RoPE.Scaling, b.StateFormat
		checkDiff(t, &a, &b2)
	})
}
