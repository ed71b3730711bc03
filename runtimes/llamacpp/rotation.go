package llamacpp

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/layout"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/state"
)

// rotation reports whether K or V of the context are Hadamard-rotated. From 0.6.0 on llama.cpp says so in its states, and what
// it says is taken. Of releases before, the rule is known that they follow. option is Options.Rotated.
//
// kv.Descriptor tells rotated rows from others, not how they are rotated. So rows that are said to be rotated in another way
// than by the rule get a StateFormat of their own.
func (l *Library) rotation(model uintptr, f state.Format, option *bool, d *kv.Descriptor) (bool, error) {
	if !f.HasRotation {
		if option != nil {
			return *option, nil
		}
		return l.rotationByRule(model, f, d.Architecture)
	}
	rotated, strange := false, false
	var said []string
	for i, section := range f.Sections {
		r := section.Rotation
		rotated = rotated || r != state.Rotation{}
		strange = strange || r != l.rotationRule(model, d.Architecture, section, i == layout.Window)
		said = append(said, fmt.Sprintf("K %d V %d", r.K, r.V))
	}
	if option != nil && *option != rotated {
		return false, fmt.Errorf("%w: Options.Rotated is %v, but llama.cpp says that it rotates the cache by matrices of %s", ErrRefused, *option, strings.Join(said, ", "))
	}
	if rotated && strange {
		d.StateFormat = strings.TrimSpace(d.StateFormat + " rotated by " + strings.Join(said, ", "))
	}
	return rotated, nil
}

// rotationByRule is what a release does that says nothing.
func (l *Library) rotationByRule(model uintptr, f state.Format, arch string) (bool, error) {
	rotated := false
	for _, section := range f.Sections {
		rotated = rotated || l.rotationRule(model, arch, section, false) != state.Rotation{}
	}
	if !rotated || rotationDisabled() {
		return false, nil
	}
	if l.Version == nil {
		return false, fmt.Errorf("%w: this release of llama.cpp may or may not rotate a quantized cache, and does not say: set Options.Rotated", ErrRefused)
	}
	return true, nil
}

// rotationRule is how llama.cpp rotates a section unless it is told not to: where the elements are quantized and the width of a
// head is a multiple of 64, K by as many doublings of 64 as fit into a head, V by 64.
func (l *Library) rotationRule(model uintptr, arch string, section state.SectionFormat, window bool) (r state.Rotation) {
	if len(section.Layers) == 0 {
		return r
	}
	head := func(t state.TensorFormat, key string) int {
		if d, err := t.DType(); err != nil || t.RowBytes == 0 || d.Group() == 1 {
			return 0
		}
		keys := []string{arch + ".attention." + key}
		if window {
			keys = append([]string{keys[0] + "_swa"}, keys...)
		}
		for _, key := range keys {
			if s, ok := l.meta(model, key); ok {
				n, _ := strconv.Atoi(s)
				return n
			}
		}
		return int(l.Embedding(model)) / max(1, int(l.Heads(model)))
	}
	first := section.Layers[0]
	if n := head(first.K, "key_length"); n > 0 && n%64 == 0 {
		r.K = 64
		for n%(2*r.K) == 0 {
			r.K *= 2
		}
	}
	if n := head(first.V, "value_length"); n > 0 && n%64 == 0 {
		r.V = 64
	}
	return r
}

// rotationDisabled reports whether llama.cpp was told not to rotate quantized caches. It reads the variable as atoi does: white
// space, a sign, digits up to whatever follows.
func rotationDisabled() bool {
	v := strings.TrimLeft(os.Getenv("LLAMA_ATTN_ROT_DISABLE"), " \t\n\v\f\r")
	if v != "" && (v[0] == '+' || v[0] == '-') {
		v = v[1:]
	}
	v = strings.TrimLeft(v, "0")
	return v != "" && v[0] >= '1' && v[0] <= '9'
}
