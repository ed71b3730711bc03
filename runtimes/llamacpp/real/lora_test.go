//go:build (linux && !android) || (darwin && !ios)

package real_test

import (
	"testing"

	"github.com/ebitengine/purego"

	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/kit"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
)

// lora is llama.cpp's adapter interface, which no binding of ours has.
type lora struct {
	load func(model uintptr, path string) uintptr
	set  func(c uintptr, adapters *uintptr, n uintptr, scales *float32) int32
}

func (r *rig) lora() lora {
	r.t.Helper()
	var l lora
	for name, f := range map[string]any{"llama_adapter_lora_init": &l.load, "llama_set_adapters_lora": &l.set} {
		at, err := r.lib.Lookup(name)
		if err != nil {
			r.t.Skipf("SKIPPED: the library has no %s", name)
		}
		purego.RegisterFunc(f, at)
	}
	return l
}

func (l lora) on(t testing.TB, r *rig, c *llama.Context, b []byte) {
	t.Helper()
	adapter, scale := l.load(r.model.Pointer(), kit.WriteFile(t, "lora.gguf", b)), float32(1)
	if adapter == 0 || l.set(c.Pointer(), &adapter, 1, &scale) != 0 {
		t.Fatal("no adapter")
	}
}

// memoryOf calls what the package itself does not.
type memoryOf struct {
	remove   func(memory uintptr, sequence, from, to int32) bool
	add      func(memory uintptr, sequence, from, to, delta int32)
	canShift func(memory uintptr) bool
	memory   uintptr
}

func (r *rig) memory(c *llama.Context) *memoryOf {
	r.t.Helper()
	m := &memoryOf{memory: r.api.GetMemory(c.Pointer()), remove: r.api.SequenceRemove}
	for name, f := range map[string]any{"llama_memory_seq_add": &m.add, "llama_memory_can_shift": &m.canShift} {
		address, err := r.lib.Lookup(name)
		if err != nil {
			r.t.Fatal(err)
		}
		purego.RegisterFunc(f, address)
	}
	return m
}

// shift is what programs do whose context is full.
func (m *memoryOf) shift(from, to int) {
	m.remove(m.memory, 0, int32(from), int32(to))
	m.add(m.memory, 0, int32(to), -1, int32(from-to))
}
