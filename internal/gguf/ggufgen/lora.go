package ggufgen

// LoRATarget is a matrix of a model that an adapter changes.
type LoRATarget struct {
	Name    string // "blk.0.attn_k.weight"
	In, Out int
}

// LoRA is an adapter of low rank for a model of that architecture. What it adds to a matrix is strength times as large as a matrix
// of [Writer.Matrix].
func LoRA(arch string, seed uint64, strength float32, targets ...LoRATarget) []byte {
	const rank = 8
	w := NewWriter(arch, seed)
	w.String("general.type", "adapter")
	w.String("adapter.type", "lora")
	w.Float("adapter.lora.alpha", strength*rank)
	for _, t := range targets {
		w.Matrix(t.Name+".lora_a", t.In, rank)
		w.Matrix(t.Name+".lora_b", rank, t.Out)
	}
	return w.Bytes()
}
