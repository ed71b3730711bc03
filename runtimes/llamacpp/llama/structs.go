//go:build (linux && (!android || cgo)) || (darwin && (!ios || cgo)) || windows

//lint:file-ignore U1000 Fields that are not set here still have to lie where C wants them.

package llama

import (
	"errors"
	"fmt"
)

// ErrLayout is returned when a library's parameter structs are not those of a known release: passing them by value would
// set the wrong fields.
var ErrLayout = errors.New("llama: unknown layout of llama.cpp's parameter structs")

// The structs of include/llama.h, release v0.5.0, with C's padding spelled out. Each ends in slack: a later release that
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
	abortCallback, abortData                                  uintptr
	embeddings, offloadKQV, noPerf                            bool
	opOffload, swaFull, kvUnified                             bool
	_                                                         [2]byte
	samplers, nSamplers, other                                uintptr
	slack                                                     [5]uint64
}

type batch struct {
	n                                        int32
	_                                        int32
	token, embd, pos, nSeqID, seqID, outputs uintptr
}

// checkLayout compares defaults that are unlikely to be found where they are by chance.
func checkLayout(m modelParams, c contextParams) error {
	bad := func(field string, found, want any) error {
		return fmt.Errorf("%w: default of %s reads as %v, expected %v", ErrLayout, field, found, want)
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
	switch {
	case m.vocabOnly || m.checkTensors || !m.useExtraBufts || m.noHost || m.noAlloc:
		return bad("llama_model_params' flags", fmt.Sprint(m.vocabOnly, m.checkTensors, m.useExtraBufts, m.noHost, m.noAlloc), "false false true false false")
	case c.embeddings || !c.offloadKQV || !c.noPerf || !c.opOffload || !c.swaFull || c.kvUnified:
		return bad("llama_context_params' flags", fmt.Sprint(c.embeddings, c.offloadKQV, c.noPerf, c.opOffload, c.swaFull, c.kvUnified), "false true true true true false")
	case c.yarnExt != -1 || c.defragThreshold != -1:
		return bad("yarn_ext_factor, defrag_thold", fmt.Sprint(c.yarnExt, c.defragThreshold), "-1 -1")
	}
	return nil
}
