//go:build cgo

package main

import (
	"fmt"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
)

// wireLlama are the options of dormouse_llama_attach.
type wireLlama struct {
	Memo          string        `json:"memo"`
	Weights       string        `json:"weights"`
	Tokenizer     string        `json:"tokenizer"`
	Name          string        `json:"name"`
	RopeBase      float32       `json:"rope_base"`
	RopeScale     float32       `json:"rope_scale"`
	RopeScaling   string        `json:"rope_scaling"`
	Sequence      int           `json:"sequence"`
	Adapters      []wireAdapter `json:"adapters"`
	DiscardCanary bool          `json:"discard_canary"`
	RowsOnly      bool          `json:"rows_only"`
	OpaqueOnly    bool          `json:"opaque_only"`
	Rotated       *bool         `json:"rotated"`
	BlockTokens   int           `json:"block_tokens"`
	CaptureTokens int           `json:"capture_tokens"`
	CaptureBytes  int64         `json:"capture_bytes"`
	Align         int           `json:"align"`
	TokenSpans    bool          `json:"token_spans"`
	Codec         string        `json:"codec"`
	Compression   string        `json:"compression"`
	KeepStates    int           `json:"keep_states"`
	NoStore       bool          `json:"no_store"`
}

type wireAdapter struct {
	Hash  string   `json:"hash"`
	Scale *float32 `json:"scale"` // 1
}

func parseLlama(path, text string) (o llamacpp.Options, err error) {
	var w wireLlama
	if text != "" {
		if err := strictly("options", text, &w); err != nil {
			return o, err
		}
	}
	o = llamacpp.Options{
		Identity: llamacpp.Identity{Path: path, Memo: w.Memo, Name: w.Name, RopeBase: w.RopeBase, RopeScale: w.RopeScale, RopeScaling: w.RopeScaling},
		Sequence: w.Sequence, DiscardCanary: w.DiscardCanary, RowsOnly: w.RowsOnly, OpaqueOnly: w.OpaqueOnly, Rotated: w.Rotated, BlockTokens: w.BlockTokens,
		CaptureTokens: w.CaptureTokens, CaptureBytes: w.CaptureBytes, Align: w.Align, TokenSpans: w.TokenSpans,
		Put: db.PutOptions{NoStore: w.NoStore, KeepStates: w.KeepStates},
	}
	if err := parseHash("options: weights", w.Weights, &o.Weights); err != nil {
		return o, err
	}
	if err := parseHash("options: tokenizer", w.Tokenizer, &o.Tokenizer); err != nil {
		return o, err
	}
	for i, a := range w.Adapters {
		to := kv.Adapter{Scale: 1}
		if a.Scale != nil {
			to.Scale = *a.Scale
		}
		if err := parseHash(fmt.Sprintf("options: adapter %d", i), a.Hash, &to.Hash); err != nil {
			return o, err
		}
		o.Adapters = append(o.Adapters, to)
	}
	if o.Put.Codec, o.Put.Compression, err = codecs(w.Codec, w.Compression); err != nil {
		return o, err
	}
	if err := o.Validate(); err != nil {
		return o, badArgument("%v", err)
	}
	return o, nil
}
