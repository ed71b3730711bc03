//go:build (linux && (!android || cgo)) || (darwin && (!ios || cgo)) || windows

package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/dormousekv/dormouse/quant"
)

//go:embed prompt.txt
var defaultPrompt string

func main() {
	if len(os.Args) == 2 && os.Args[1] == childFlag {
		if err := child(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "llamachat:", err)
			os.Exit(1)
		}
		return
	}
	ok, err := run(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "llamachat:", err)
		os.Exit(1)
	}
	if !ok {
		os.Exit(1)
	}
}

// report is what is printed, and with -json the document.
type report struct {
	Mode         string  `json:"mode"` // rows or opaque
	Codec        string  `json:"codec"`
	PromptTokens int     `json:"prompt_tokens"`
	ReusedTokens int     `json:"reused_tokens"`
	ColdTTFT     float64 `json:"cold_ttft_ms"` // open an empty store, evaluate the prompt, first token
	WarmTTFT     float64 `json:"warm_ttft_ms"` // open the store, restore, evaluate the rest, first token
	OpenMS       float64 `json:"warm_open_ms"`
	RestoreMS    float64 `json:"warm_restore_ms"`
	SpeedUp      float64 `json:"speed_up"`
	SaveMS       float64 `json:"save_ms"`
	StoreBytes   int64   `json:"store_bytes"`
	RecordBytes  int64   `json:"record_bytes"`
	F16Bytes     int64   `json:"f16_bytes"`
	Tokens       int     `json:"continuation_tokens"`
	Identical    bool    `json:"identical"`
	SameFirst    int     `json:"identical_tokens"` // before the first that differs
	Text         string  `json:"text"`
	Reference    string  `json:"reference_text"`
}

func run(args []string) (ok bool, err error) {
	var j job
	flags := flag.NewFlagSet("llamachat", flag.ContinueOnError)
	flags.StringVar(&j.Lib, "lib", "", "folder with llama.cpp's shared libraries (required)")
	flags.StringVar(&j.Model, "model", "", "GGUF file (required)")
	flags.StringVar(&j.Store, "store", "", "folder of the store (required); it must hold no store yet")
	file := flags.String("prompt-file", "", "text file with the prompt (default: a built-in one)")
	codec := flags.String("codec", "q8_0", "how rows are stored: raw, q8_0 or bytesplit")
	asJSON := flags.Bool("json", false, "print one JSON object")
	flags.IntVar(&j.Continue, "tokens", 64, "tokens to write")
	flags.IntVar(&j.Batch, "batch", 256, "tokens that are evaluated at a time")
	flags.BoolVar(&j.CacheQ8, "cache-q8", false, "let llama.cpp keep its cache in q8_0")
	if err := flags.Parse(args); err != nil {
		return false, flag.ErrHelp
	}
	if j.Lib == "" || j.Model == "" || j.Store == "" || flags.NArg() > 0 {
		flags.Usage()
		return false, flag.ErrHelp
	}
	if j.Codec, err = quant.ParseCodec(*codec); err != nil {
		return false, err
	}
	if _, err := os.Stat(filepath.Join(j.Store, "FORMAT")); err == nil {
		return false, fmt.Errorf("%s holds a store already: the first run would not be cold", j.Store)
	}
	j.Prompt = strings.TrimSpace(defaultPrompt)
	if *file != "" {
		b, err := os.ReadFile(*file)
		if err != nil {
			return false, err
		}
		j.Prompt = string(b)
	}
	r, err := story(context.Background(), j)
	if err != nil {
		return false, err
	}
	if *asJSON {
		enc := json.NewEncoder(os.Stdout)
		enc.SetIndent("", "  ")
		err = enc.Encode(r)
	} else {
		r.print()
	}
	lossless := j.Codec != quant.Q8_0 || j.CacheQ8
	return r.ReusedTokens > 0 && (r.Identical || !lossless), err
}

// story runs the three processes and compares what they wrote.
func story(ctx context.Context, j job) (*report, error) {
	j.Do = "reference"
	ref, err := runChild(ctx, j, false)
	if err != nil {
		return nil, err
	}
	j.Do = "first"
	first, err := runChild(ctx, j, true)
	if err != nil {
		return nil, err
	}
	j.Do = "second"
	second, err := runChild(ctx, j, false)
	if err != nil {
		return nil, err
	}
	r := &report{
		Mode: second.Mode, Codec: j.Codec.String(), PromptTokens: second.PromptTokens, ReusedTokens: second.Reused,
		ColdTTFT: first.TTFT, WarmTTFT: second.TTFT, OpenMS: second.Open, RestoreMS: second.Restore, SaveMS: first.Save,
		RecordBytes: second.RecordBytes, F16Bytes: second.F16Bytes, Tokens: len(second.Tokens),
		Identical: slices.Equal(ref.Tokens, second.Tokens), Text: second.Text, Reference: ref.Text,
	}
	r.SpeedUp = r.ColdTTFT / r.WarmTTFT
	for r.SameFirst < min(len(ref.Tokens), len(second.Tokens)) && ref.Tokens[r.SameFirst] == second.Tokens[r.SameFirst] {
		r.SameFirst++
	}
	return r, filepath.WalkDir(j.Store, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		r.StoreBytes += info.Size()
		return err
	})
}

func (r *report) print() {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	row := func(name, value, note string) { fmt.Fprintf(w, "  %s\t%s\t%s\n", name, value, note) }
	row("prompt", fmt.Sprintf("%d tokens", r.PromptTokens), "")
	row("reused after the kill", fmt.Sprintf("%d tokens", r.ReusedTokens), "stored as "+r.Mode+", codec "+r.Codec)
	row("cold time to first token", fmt.Sprintf("%.0f ms", r.ColdTTFT), "open an empty store, evaluate the prompt")
	row("warm time to first token", fmt.Sprintf("%.0f ms", r.WarmTTFT), fmt.Sprintf("open the store (%.1f ms), restore (%.1f ms), evaluate the rest", r.OpenMS, r.RestoreMS))
	row("speed-up", fmt.Sprintf("%.0f x", r.SpeedUp), "loading the model is in neither")
	row("saving", fmt.Sprintf("%.0f ms", r.SaveMS), "when it returns, the rows outlive the process")
	row("records on disk", fmt.Sprintf("%.1f MB", float64(r.RecordBytes)/1e6), fmt.Sprintf("f16 rows of these tokens: %.1f MB", float64(r.F16Bytes)/1e6))
	same := "identical"
	if !r.Identical {
		same = fmt.Sprintf("the first %d", r.SameFirst)
	}
	row("continuation", fmt.Sprintf("%s of %d tokens", same, r.Tokens), "as the process that was never killed wrote")
	w.Flush()
	fmt.Printf("\nnever killed: %s\n\nkilled:       %s\n", strings.TrimSpace(r.Reference), strings.TrimSpace(r.Text))
}
