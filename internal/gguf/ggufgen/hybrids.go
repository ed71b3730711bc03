package ggufgen

import "fmt"

// FalconH1 is a hybrid of another kind: every layer has attention and a state space (Mamba 2) side by side.
func FalconH1(seed uint64, layers int) []byte {
	const arch, heads, kvHeads, headDim, embed, ff = "falcon-h1", 4, 2, 32, 128, 192
	const inner, state, groups, ssmHeads = 256, 16, 1, 8
	const conv = inner + 2*groups*state
	w := common(arch, seed, layers, embed, ff)
	w.Uint(arch+".attention.head_count", heads)
	w.Uint(arch+".attention.head_count_kv", kvHeads)
	w.Uint(arch+".attention.key_length", headDim)
	w.Uint(arch+".attention.value_length", headDim)
	w.Uint(arch+".ssm.conv_kernel", ssmConv)
	w.Uint(arch+".ssm.inner_size", inner)
	w.Uint(arch+".ssm.state_size", state)
	w.Uint(arch+".ssm.time_step_rank", ssmHeads)
	w.Uint(arch+".ssm.group_count", groups)
	w.Matrix("output.weight", embed, Vocabulary)
	for i := range layers {
		w.Ones(block(i, "attn_norm"), embed)
		w.Matrix(block(i, "ssm_in"), embed, inner+conv+ssmHeads)
		w.Matrix(block(i, "ssm_conv1d"), ssmConv, conv)
		w.Tensor(fmt.Sprintf("blk.%d.ssm_conv1d.bias", i), func(int) float32 { return 0.01 }, conv)
		w.Tensor(fmt.Sprintf("blk.%d.ssm_dt.bias", i), func(int) float32 { return -2 }, ssmHeads)
		w.Tensor(fmt.Sprintf("blk.%d.ssm_a", i), func(j int) float32 { return -float32(1 + j) }, 1, ssmHeads)
		w.Ones(fmt.Sprintf("blk.%d.ssm_d", i), 1, ssmHeads)
		w.Matrix(block(i, "ssm_out"), inner, embed)
		w.Matrix(block(i, "attn_q"), embed, heads*headDim)
		w.Matrix(block(i, "attn_k"), embed, kvHeads*headDim)
		w.Matrix(block(i, "attn_v"), embed, kvHeads*headDim)
		w.Matrix(block(i, "attn_output"), heads*headDim, embed)
		w.Ones(fmt.Sprintf("blk.%d.ffn_norm", i), embed)
		w.Matrix(block(i, "ffn_gate"), embed, ff)
		w.Matrix(block(i, "ffn_up"), embed, ff)
		w.Matrix(block(i, "ffn_down"), ff, embed)
	}
	return w.Bytes()
}

// LFM2 is a hybrid whose other layers are short convolutions: their state is a few tokens of input, and no recurrence.
func LFM2(seed uint64, layers int) []byte {
	const arch, heads, kvHeads, headDim, embed, ff, cache = "lfm2", 4, 2, 32, 128, 192, 3
	w := commonNormed(arch, "token_embd_norm.weight", seed, layers, embed, ff)
	w.Uint(arch+".attention.head_count", heads)
	perLayer := make([]int, layers)
	for i := range perLayer {
		perLayer[i] = i % 2 * kvHeads
	}
	w.Ints(arch+".attention.head_count_kv", perLayer...)
	w.Uint(arch+".shortconv.l_cache", cache)
	for i := range layers {
		w.Ones(block(i, "attn_norm"), embed)
		if perLayer[i] == 0 {
			w.Matrix(block(i, "shortconv.conv"), cache, embed)
			w.Matrix(block(i, "shortconv.in_proj"), embed, 3*embed)
			w.Matrix(block(i, "shortconv.out_proj"), embed, embed)
		} else {
			w.Ones(block(i, "attn_q_norm"), headDim)
			w.Ones(block(i, "attn_k_norm"), headDim)
			w.Matrix(block(i, "attn_q"), embed, heads*headDim)
			w.Matrix(block(i, "attn_k"), embed, kvHeads*headDim)
			w.Matrix(block(i, "attn_v"), embed, kvHeads*headDim)
			w.Matrix(block(i, "attn_output"), heads*headDim, embed)
		}
		feedForward(w, i, embed, ff)
	}
	return w.Bytes()
}
