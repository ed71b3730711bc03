//go:build (linux && (!android || cgo)) || (darwin && (!ios || cgo)) || windows

package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/dormousekv/dormouse/quant"
)

// report is what is printed, and with -json the document.
type report struct {
	Mode         string  `json:"mode"`  // rows or opaque
	Codec        string  `json:"codec"` // in which the prompt's rows are stored, several joined by "+"; an earlier run may have chosen it
	Threads      int     `json:"threads"`
	PromptTokens int     `json:"prompt_tokens"`
	FoundTokens  int     `json:"found_tokens"` // that the first process reused: an earlier run had stored them
	ReusedTokens int     `json:"reused_tokens"`
	Reason       string  `json:"reason"`       // why not more
	ColdTTFT     float64 `json:"cold_ttft_ms"` // open a store without the prompt, evaluate it, first token
	WarmTTFT     float64 `json:"warm_ttft_ms"` // open the store, restore, evaluate the rest, first token
	OpenMS       float64 `json:"warm_open_ms"`
	RestoreMS    float64 `json:"warm_restore_ms"`
	SpeedUp      float64 `json:"speed_up"`
	SaveMS       float64 `json:"save_ms"`
	StoreBytes   int64   `json:"store_bytes"`
	RecordBytes  int64   `json:"record_bytes"` // of this prompt
	F16Bytes     int64   `json:"f16_bytes"`
	Tokens       int     `json:"continuation_tokens"`
	PrefillMS    float64 `json:"warm_prefill_ms"` // what the session observed of the turn after the kill
	DecodeMS     float64 `json:"warm_decode_ms"`
	Prefilled    int     `json:"warm_prefilled_tokens"`
	Unused       int     `json:"warm_unused_tokens"` // restored but not reused
	Identical    bool    `json:"identical"`
	SameFirst    int     `json:"identical_tokens"` // before the first that differs
	Wrong        string  `json:"wrong,omitempty"`
	Text         string  `json:"text"`
	Reference    string  `json:"reference_text"`

	store, asked string // the codec that was asked for
}

// story runs the three processes and compares what they wrote.
func story(ctx context.Context, j job, show func(step)) (*report, error) {
	j.Do = "reference"
	ref, err := runChild(ctx, j, false, show)
	if err != nil {
		return nil, err
	}
	j.Do = "first"
	first, err := runChild(ctx, j, true, show)
	if err != nil {
		return nil, err
	}
	j.Do = "second"
	second, err := runChild(ctx, j, false, show)
	if err != nil {
		return nil, err
	}
	r := &report{
		Mode: second.Mode, Codec: strings.Join(second.Codecs, "+"), Threads: j.Threads, PromptTokens: second.PromptTokens,
		FoundTokens: first.Reused, ReusedTokens: second.Reused, Reason: second.Reason,
		ColdTTFT: first.TTFT, WarmTTFT: second.TTFT, OpenMS: second.Open, RestoreMS: second.Restore, SaveMS: first.Save,
		RecordBytes: second.RecordBytes, F16Bytes: second.F16Bytes, Tokens: len(second.Tokens),
		PrefillMS: millis(second.Turn.Prefill), DecodeMS: millis(second.Turn.Decode), Prefilled: second.Turn.Prefilled, Unused: second.Turn.Unused,
		Identical: slices.Equal(ref.Tokens, second.Tokens), Text: second.Text, Reference: ref.Text, store: j.Store, asked: j.Codec.String(),
	}
	if first.Reused > 0 {
		r.ColdTTFT = ref.TTFT
	}
	r.SpeedUp = r.ColdTTFT / r.WarmTTFT
	for r.SameFirst < min(len(ref.Tokens), len(second.Tokens)) && ref.Tokens[r.SameFirst] == second.Tokens[r.SameFirst] {
		r.SameFirst++
	}
	r.Wrong = r.wrong(j.Batch)
	return r, filepath.WalkDir(j.Store, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		r.StoreBytes += info.Size()
		return err
	})
}

// wrong says what is not as it must be. From lossless rows the text is the same if the rest was evaluated in the batches of the
// process that was never killed; rows of INT8 promise nothing of the kind.
func (r *report) wrong(batch int) string {
	last := r.PromptTokens - 1
	sameBatches := r.FoundTokens == 0 || r.FoundTokens == last || r.FoundTokens%batch == 0
	switch {
	case r.ReusedTokens == 0:
		return "nothing was reused: " + r.Reason
	case !r.lossy() && sameBatches && !r.Identical:
		return "the text differs, although the rows are lossless and all batches the same"
	}
	return ""
}

// lossy says whether rows of the prompt are stored in 8 bits or less.
func (r *report) lossy() bool {
	return slices.ContainsFunc(strings.Split(r.Codec, "+"), func(c string) bool { return c == quant.Q8_0.String() || c == quant.Q4R.String() })
}

func (r *report) print(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name, value, note string) { fmt.Fprintf(w, "  %s\t%s\t%s\n", name, value, note) }
	row("prompt", fmt.Sprintf("%d tokens", r.PromptTokens), fmt.Sprintf("%d threads, %d for single tokens", r.Threads, decodeThreads(r.Threads)))
	cold := "open the store, evaluate the prompt"
	if r.FoundTokens > 0 {
		row("stored by an earlier run", fmt.Sprintf("%d tokens", r.FoundTokens), "the first process reused them")
		cold = "without a store: evaluate the prompt"
	}
	codec := "stored as " + r.Mode + ", codec " + r.Codec
	if r.FoundTokens > 0 && !slices.Contains(strings.Split(r.Codec, "+"), r.asked) {
		codec += ": as the earlier run chose, -codec " + r.asked + " is for what is new"
	}
	row("reused after the kill", fmt.Sprintf("%d tokens", r.ReusedTokens), codec)
	row("cold time to first token", fmt.Sprintf("%.0f ms", r.ColdTTFT), cold)
	row("warm time to first token", fmt.Sprintf("%.0f ms", r.WarmTTFT), fmt.Sprintf("open the store (%.1f ms), restore (%.1f ms), evaluate the rest", r.OpenMS, r.RestoreMS))
	row("speed-up", fmt.Sprintf("%.1f x", r.SpeedUp), "loading the model is in neither")
	row("the turn, as observed", fmt.Sprintf("%d of %d reused", r.ReusedTokens, r.PromptTokens),
		fmt.Sprintf("%d restored in vain; %d evaluated in %.0f ms, %d written in %.0f ms", r.Unused, r.Prefilled, r.PrefillMS, r.Tokens, r.DecodeMS))
	row("saving", fmt.Sprintf("%.0f ms", r.SaveMS), "when it returns, the rows outlive the process")
	row("records on disk", fmt.Sprintf("%.1f MB", float64(r.RecordBytes)/1e6), fmt.Sprintf("f16 rows of these tokens: %.1f MB", float64(r.F16Bytes)/1e6))
	same := "all"
	if !r.Identical {
		same = fmt.Sprintf("the first %d", r.SameFirst)
	}
	note := "as the process that was never killed wrote"
	if !r.Identical && r.lossy() {
		note += "; " + r.Codec + " is not lossless, -codec raw (in a new store) is"
	}
	row("continuation", fmt.Sprintf("%s of %d tokens the same", same, r.Tokens), note)
	w.Flush()
	fmt.Fprintf(out, "\nnever killed: %s\n\nkilled:       %s\n", strings.TrimSpace(r.Reference), strings.TrimSpace(r.Text))
	if r.Wrong != "" {
		fmt.Fprintf(out, "\nNot as it should be: %s.\n", r.Wrong)
	}
	fmt.Fprintf(out, "\nThe store stays in %s: run this again, or look at it with\n  go run ./tools/kvdump inspect %s\n", r.store, r.store)
}
