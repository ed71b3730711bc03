//go:build (linux && (!android || cgo)) || (darwin && (!ios || cgo)) || windows

//lint:file-ignore U1000 Fields that are not set here still have to lie where C wants them.

package llama

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unsafe"
)

// ErrLayout is returned when a library's parameter structs are not those of a known release: passing them by value would
// set the wrong fields.
var ErrLayout = errors.New("llama: unknown layout of llama.cpp's parameter structs")

// The structs of include/llama.h, releases 0.4.0 to 0.7.0, with C's padding spelled out. Each ends in slack: a later release that
// appends a field then neither writes beyond our memory nor loses the field's default.

type modelParams struct {
	devices, bufferOverrides                       uintptr
	gpuLayers, splitMode, loadMode, lazyMode       int32
	mainGPU                                        int32
	_                                              int32
	tensorSplit, progress, progressData, overrides uintptr
	vocabOnly, checkTensors, useExtraBufts         bool
	noHost, noAlloc, loadMTP                       bool
	_                                              [2]byte
	slack                                          [6]uint64
}

type contextParams struct {
	nCtx, nBatch, nUbatch, nSeqMax                            uint32
	nRsSeq, nOutputsMax, nOutputsMaxPerSeq                    uint32
	threads, threadsBatch                                     int32
	contextType, ropeScaling, pooling, attention, flashAttn   int32
	ropeBase, ropeScale, yarnExt, yarnAttn, yarnFast, yarnLow float32
	yarnOrigCtx                                               uint32
	defragThreshold                                           float32
	evalCallback, evalData                                    uintptr
	typeK, typeV                                              int32
	tail                                                      [12]uint64 // abort callback, flags, samplers, ctx_other, slack: see layout
}

type contextFlags struct {
	embeddings, offloadKQV, noPerf bool
	opOffload, swaFull, kvUnified  bool
	_                              [2]byte
}

// layout is where releases differ: which word of llama_context_params' tail holds the flags. All words before are zero by default.
type layout struct {
	releases string
	flags    int
}

var layouts = []layout{
	{"0.4.0, 0.5.0", 2}, // behind the abort callback and its data
	{"0.6.0, 0.7.0", 3}, // and behind moe_cache_size
}

func (p *contextParams) flags(l layout) *contextFlags {
	return (*contextFlags)(unsafe.Pointer(&p.tail[l.flags]))
}

type batch struct {
	n                                        int32
	_                                        int32
	token, embd, pos, nSeqID, seqID, outputs uintptr
}

// checkLayout compares defaults that are unlikely to be found where they are by chance, and says which layout they are those of.
func checkLayout(m modelParams, c contextParams) (layout, error) {
	bad := func(field string, found, want any) (layout, error) {
		return layout{}, fmt.Errorf("%w: default of %s reads as %v, expected %v", ErrLayout, field, found, want)
	}
	for _, x := range []struct {
		field       string
		found, want int64
	}{
		{"n_gpu_layers", int64(m.gpuLayers), -1},
		{"split_mode", int64(m.splitMode), 1},
		{"load_mode", int64(m.loadMode), -1},
		{"lazy_mode", int64(m.lazyMode), 1},
		{"main_gpu", int64(m.mainGPU), 0},
		{"tensor_split", int64(m.tensorSplit), 0},
		{"kv_overrides", int64(m.overrides), 0},
		{"n_ctx", int64(c.nCtx), 512},
		{"n_batch", int64(c.nBatch), 2048},
		{"n_ubatch", int64(c.nUbatch), 512},
		{"n_seq_max", int64(c.nSeqMax), 1},
		{"n_outputs_max_per_seq", int64(c.nOutputsMaxPerSeq), 1},
		{"n_threads", int64(c.threads), 4},
		{"n_threads_batch", int64(c.threadsBatch), 4},
		{"rope_scaling_type", int64(c.ropeScaling), -1},
		{"pooling_type", int64(c.pooling), -1},
		{"attention_type", int64(c.attention), -1},
		{"flash_attn_type", int64(c.flashAttn), -1},
		{"cb_eval", int64(c.evalCallback), 0},
		{"type_k", int64(c.typeK), 1},
		{"type_v", int64(c.typeV), 1},
	} {
		if x.found != x.want {
			return bad(x.field, x.found, x.want)
		}
	}
	if c.yarnExt != -1 || c.defragThreshold != -1 {
		return bad("yarn_ext_factor, defrag_thold", fmt.Sprint(c.yarnExt, c.defragThreshold), "-1 -1")
	}
	if m.vocabOnly || m.checkTensors || !m.useExtraBufts || m.noHost || m.noAlloc {
		return bad("llama_model_params' flags", fmt.Sprint(m.vocabOnly, m.checkTensors, m.useExtraBufts, m.noHost, m.noAlloc), "false false true false false")
	}
	flags := contextFlags{offloadKQV: true, noPerf: true, opOffload: true, swaFull: true}
	for _, l := range layouts {
		if *c.flags(l) == flags && !slices.ContainsFunc(c.tail[:l.flags], func(word uint64) bool { return word != 0 }) {
			return l, nil
		}
	}
	return bad("llama_context_params from abort_callback on", fmt.Sprintf("%x", c.tail[:4]), "zeros, then the flags 00 01 01 01 01 00")
}

// unknown says what can be done about a release that is not one of those.
func unknown(dir, version string, err error) error {
	var known []string
	for _, l := range layouts {
		known = append(known, l.releases)
	}
	return fmt.Errorf("%s, llama.cpp %s: %w; this loader knows the releases %s: take one of them, or bind this one yourself and give its llama_context to llamacpp.Attach, which needs no structs",
		dir, version, err, strings.Join(known, ", "))
}
