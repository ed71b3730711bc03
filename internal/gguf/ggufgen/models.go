package ggufgen

import "fmt"

// Vocabulary is the number of token ids of all models here.
const Vocabulary = 128

const (
	tokenizerKey  = "tokenizer.ggml.model"
	noVocabulary  = "no_vocab"
	contextTokens = 2048
	epsilon       = 1e-5
)

// common writes what all architectures have.
func common(arch string, seed uint64, layers, embed, ff int) *Writer {
	return commonNormed(arch, "output_norm.weight", seed, layers, embed, ff)
}

// commonNormed is common where the last norm has a name of its own.
func commonNormed(arch, norm string, seed uint64, layers, embed, ff int) *Writer {
	w := NewWriter(arch, seed)
	w.String(tokenizerKey, noVocabulary)
	w.common(arch, norm, layers, embed, ff)
	return w
}

func (w *Writer) common(arch, norm string, layers, embed, ff int) {
	w.String("general.name", fmt.Sprintf("random %s", arch))
	w.Uint(arch+".vocab_size", Vocabulary)
	w.Uint(arch+".context_length", contextTokens)
	w.Uint(arch+".embedding_length", embed)
	w.Uint(arch+".block_count", layers)
	w.Uint(arch+".feed_forward_length", ff)
	w.Float(arch+".attention.layer_norm_rms_epsilon", epsilon)
	w.Matrix("token_embd.weight", embed, Vocabulary)
	w.Ones(norm, embed)
}

func feedForward(w *Writer, i, embed, ff int) {
	w.Ones(block(i, "ffn_norm"), embed)
	w.Matrix(block(i, "ffn_gate"), embed, ff)
	w.Matrix(block(i, "ffn_up"), embed, ff)
	w.Matrix(block(i, "ffn_down"), ff, embed)
}

// experts is a feedForward of many, of which a router picks some for each token.
func experts(w *Writer, i, embed, ff, all int) {
	w.Ones(block(i, "ffn_norm"), embed)
	w.Matrix(block(i, "ffn_gate_inp"), embed, all)
	w.Matrix(block(i, "ffn_gate_exps"), embed, ff, all)
	w.Matrix(block(i, "ffn_up_exps"), embed, ff, all)
	w.Matrix(block(i, "ffn_down_exps"), ff, embed, all)
}

// Mixtral is LLaMA with a mixture of experts in place of each feed-forward network: 8, of which a token takes 2.
func Mixtral(seed uint64, layers, headDim int) []byte {
	const all, used = 8, 2
	return llamaOf(seed, layers, headDim, func(w *Writer) {
		w.Uint("llama.expert_count", all)
		w.Uint("llama.expert_used_count", used)
	}, func(w *Writer, i, embed, ff int) { experts(w, i, embed, ff, all) })
}

// LLaMA is plain attention with grouped queries: 4 heads of headDim share 2 KV heads.
func LLaMA(seed uint64, layers, headDim int) []byte {
	return llama(seed, layers, headDim, func(*Writer) {})
}

// LongRoPE is LLaMA with two sets of frequency factors: one for contexts of at most so many tokens, one for longer ones.
func LongRoPE(seed uint64, layers, headDim, original int) []byte {
	return llama(seed, layers, headDim, func(w *Writer) {
		w.String("llama.rope.scaling.type", "longrope")
		w.Uint("llama.rope.scaling.original_context_length", original)
		w.Tensor("rope_factors_long.weight", func(i int) float32 { return float32(2 + i) }, headDim/2)
		w.Tensor("rope_factors_short.weight", func(int) float32 { return 1 }, headDim/2)
	})
}

func llama(seed uint64, layers, headDim int, more func(*Writer)) []byte {
	return llamaOf(seed, layers, headDim, more, feedForward)
}

// llamaOf is llama with another network behind the attention of each layer.
func llamaOf(seed uint64, layers, headDim int, more func(*Writer), network func(w *Writer, i, embed, ff int)) []byte {
	const arch, heads, kvHeads, embed, ff = "llama", 4, 2, 128, 192
	w := common(arch, seed, layers, embed, ff)
	w.Uint(arch+".attention.head_count", heads)
	w.Uint(arch+".attention.head_count_kv", kvHeads)
	w.Uint(arch+".attention.key_length", headDim)
	w.Uint(arch+".attention.value_length", headDim)
	w.Uint(arch+".rope.dimension_count", headDim)
	more(w)
	w.Matrix("output.weight", embed, Vocabulary)
	for i := range layers {
		w.Ones(block(i, "attn_norm"), embed)
		w.Matrix(block(i, "attn_q"), embed, heads*headDim)
		w.Matrix(block(i, "attn_k"), embed, kvHeads*headDim)
		w.Matrix(block(i, "attn_v"), embed, kvHeads*headDim)
		w.Matrix(block(i, "attn_output"), heads*headDim, embed)
		network(w, i, embed, ff)
	}
	return w.Bytes()
}

// Gemma3 has sliding-window layers but for each sixth.
func Gemma3(seed uint64, layers, headDim, window int) []byte {
	const arch, heads, kvHeads, embed, ff = "gemma3", 4, 1, 128, 192
	w := common(arch, seed, layers, embed, ff)
	w.Uint(arch+".attention.head_count", heads)
	w.Uint(arch+".attention.head_count_kv", kvHeads)
	w.Uint(arch+".attention.key_length", headDim)
	w.Uint(arch+".attention.value_length", headDim)
	w.Uint(arch+".attention.sliding_window", window)
	w.Float(arch+".rope.freq_base", 1e6)
	for i := range layers {
		w.Ones(block(i, "attn_norm"), embed)
		w.Matrix(block(i, "attn_q"), embed, heads*headDim)
		w.Matrix(block(i, "attn_k"), embed, kvHeads*headDim)
		w.Matrix(block(i, "attn_v"), embed, kvHeads*headDim)
		w.Matrix(block(i, "attn_output"), heads*headDim, embed)
		w.Ones(block(i, "attn_q_norm"), headDim)
		w.Ones(block(i, "attn_k_norm"), headDim)
		w.Ones(block(i, "post_attention_norm"), embed)
		w.Ones(block(i, "post_ffw_norm"), embed)
		feedForward(w, i, embed, ff)
	}
	return w.Bytes()
}

// Qwen2VL rotates by positions in several dimensions (M-RoPE): a cell's position is not enough to name a token.
func Qwen2VL(seed uint64, layers int) []byte {
	const arch, heads, kvHeads, headDim, embed, ff = "qwen2vl", 4, 2, 32, 128, 192
	w := common(arch, seed, layers, embed, ff)
	w.Uint(arch+".attention.head_count", heads)
	w.Uint(arch+".attention.head_count_kv", kvHeads)
	w.Ints(arch+".rope.dimension_sections", headDim/8, 3*headDim/16, 3*headDim/16, 0)
	w.Matrix("output.weight", embed, Vocabulary)
	bias := func(i int, name string, n int) {
		w.Tensor(fmt.Sprintf("blk.%d.%s.bias", i, name), func(int) float32 { return float32(0.1 * w.rng.NormFloat64()) }, n)
	}
	for i := range layers {
		w.Ones(block(i, "attn_norm"), embed)
		w.Matrix(block(i, "attn_q"), embed, heads*headDim)
		w.Matrix(block(i, "attn_k"), embed, kvHeads*headDim)
		w.Matrix(block(i, "attn_v"), embed, kvHeads*headDim)
		w.Matrix(block(i, "attn_output"), heads*headDim, embed)
		bias(i, "attn_q", heads*headDim)
		bias(i, "attn_k", kvHeads*headDim)
		bias(i, "attn_v", kvHeads*headDim)
		feedForward(w, i, embed, ff)
	}
	return w.Bytes()
}

// DeepSeek2 has multi-head latent attention: the cache holds one latent row a token, and no V.
func DeepSeek2(seed uint64, layers int) []byte {
	const arch, heads, embed, ff = "deepseek2", 4, 128, 192
	const latent, rope, nope, value = 64, 32, 32, 32
	w := common(arch, seed, layers, embed, ff)
	w.Uint(arch+".attention.head_count", heads)
	w.Uint(arch+".attention.head_count_kv", 1)
	w.Uint(arch+".attention.kv_lora_rank", latent)
	w.Uint(arch+".attention.q_lora_rank", 48)
	w.Uint(arch+".attention.key_length", latent+rope)
	w.Uint(arch+".attention.value_length", latent)
	w.Uint(arch+".attention.key_length_mla", nope+rope)
	w.Uint(arch+".attention.value_length_mla", value)
	w.Uint(arch+".rope.dimension_count", rope)
	w.Uint(arch+".leading_dense_block_count", layers)
	w.Uint(arch+".expert_count", 0)
	w.Uint(arch+".expert_used_count", 0)
	w.Uint(arch+".expert_shared_count", 1)
	w.Uint(arch+".expert_feed_forward_length", ff)
	w.Float(arch+".expert_weights_scale", 1)
	w.Matrix("output.weight", embed, Vocabulary)
	for i := range layers {
		w.Ones(block(i, "attn_norm"), embed)
		w.Matrix(block(i, "attn_q_a"), embed, 48)
		w.Ones(block(i, "attn_q_a_norm"), 48)
		w.Matrix(block(i, "attn_q_b"), 48, heads*(nope+rope))
		w.Matrix(block(i, "attn_kv_a_mqa"), embed, latent+rope)
		w.Ones(block(i, "attn_kv_a_norm"), latent)
		w.Matrix(block(i, "attn_k_b"), nope, latent, heads)
		w.Matrix(block(i, "attn_v_b"), latent, value, heads)
		w.Matrix(block(i, "attn_output"), heads*value, embed)
		feedForward(w, i, embed, ff)
	}
	return w.Bytes()
}

const (
	ssmConv, ssmInner, ssmState, ssmRank = 4, 256, 16, 8
)

func stateSpace(w *Writer, i, embed int) {
	w.Matrix(block(i, "ssm_in"), embed, 2*ssmInner)
	w.Matrix(block(i, "ssm_conv1d"), ssmConv, ssmInner)
	w.Tensor(fmt.Sprintf("blk.%d.ssm_conv1d.bias", i), func(int) float32 { return 0.01 }, ssmInner)
	w.Matrix(block(i, "ssm_x"), ssmInner, ssmRank+2*ssmState)
	w.Matrix(block(i, "ssm_dt"), ssmRank, ssmInner)
	w.Tensor(fmt.Sprintf("blk.%d.ssm_dt.bias", i), func(int) float32 { return -2 }, ssmInner)
	w.Tensor(fmt.Sprintf("blk.%d.ssm_a", i), func(j int) float32 { return -float32(1 + j%ssmState) }, ssmState, ssmInner)
	w.Ones(fmt.Sprintf("blk.%d.ssm_d", i), ssmInner)
	w.Matrix(block(i, "ssm_out"), ssmInner, embed)
}

func stateSpaceKeys(w *Writer, arch string) {
	w.Uint(arch+".ssm.conv_kernel", ssmConv)
	w.Uint(arch+".ssm.inner_size", ssmInner)
	w.Uint(arch+".ssm.state_size", ssmState)
	w.Uint(arch+".ssm.time_step_rank", ssmRank)
}

const mambaEmbed = 128

// Mamba is recurrent: its state cannot be cut to a shorter prefix.
func Mamba(seed uint64, layers int) []byte {
	return mamba(common("mamba", seed, layers, mambaEmbed, 0), layers)
}

func mamba(w *Writer, layers int) []byte {
	const arch, embed = "mamba", mambaEmbed
	w.Uint(arch+".attention.head_count", 0)
	stateSpaceKeys(w, arch)
	w.Matrix("output.weight", embed, Vocabulary)
	for i := range layers {
		w.Ones(block(i, "attn_norm"), embed)
		stateSpace(w, i, embed)
	}
	return w.Bytes()
}

// Jamba is a hybrid: every second layer has attention, the others are recurrent.
func Jamba(seed uint64, layers int) []byte {
	const arch, heads, kvHeads, headDim, embed, ff = "jamba", 4, 2, 32, 128, 192
	w := common(arch, seed, layers, embed, ff)
	w.Uint(arch+".attention.head_count", heads)
	perLayer := make([]int, layers)
	for i := range perLayer {
		perLayer[i] = i % 2 * kvHeads
	}
	w.Ints(arch+".attention.head_count_kv", perLayer...)
	stateSpaceKeys(w, arch)
	w.Uint(arch+".expert_count", 0)
	w.Uint(arch+".expert_used_count", 0)
	w.Matrix("output.weight", embed, Vocabulary)
	for i := range layers {
		w.Ones(block(i, "attn_norm"), embed)
		if perLayer[i] == 0 {
			stateSpace(w, i, embed)
			w.Ones(block(i, "ssm_dt_norm"), ssmRank)
			w.Ones(block(i, "ssm_b_norm"), ssmState)
			w.Ones(block(i, "ssm_c_norm"), ssmState)
		} else {
			w.Matrix(block(i, "attn_q"), embed, heads*headDim)
			w.Matrix(block(i, "attn_k"), embed, kvHeads*headDim)
			w.Matrix(block(i, "attn_v"), embed, kvHeads*headDim)
			w.Matrix(block(i, "attn_output"), heads*headDim, embed)
		}
		feedForward(w, i, embed, ff)
	}
	return w.Bytes()
}
