package main

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

type explainFlags struct {
	promptFlags
	model string
	limit int
	names scopeNames
}

func newExplain(c *common) *cobra.Command {
	f := &explainFlags{}
	cmd := &cobra.Command{
		Use:   "explain DIR {--tokens 1,2,3 | --text TEXT --gguf FILE}",
		Short: "Say why a prompt would, or would not, be reused",
		Long: "Explain looks a prompt up as a runtime would, and says up to which token it would be reused, what stands in the\n" +
			"way of more, and which other models in the store hold more of it. It reads every record that it counts, and\n" +
			"promises none that is damaged. The flags are what a prompt consists of: token\n" +
			"ids, spans (images, clips), adapters, and from a position on a scope.\n\n" +
			"With --text, the tokenizer of a GGUF file makes the ids, as llama.cpp would: of the kind llama (SentencePiece), or gpt2\n" +
			"with the pre-tokenizer smollm. Any other kind is refused. The text must be what the runtime got: with the marks of the\n" +
			"chat template, and all that was before it.",
		Args: oneStore,
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.limit < 0 {
				return fmt.Errorf("--limit %d: expected a number of tokens, 0 for all", f.limit)
			}
			if err := f.names.validate(); err != nil {
				return err
			}
			p, err := f.prompt(cmd)
			if err != nil {
				return err
			}
			report, done := bar(c, cmd.ErrOrStderr())
			s, err := openReadOnly(cmd, c, args[0], report)
			done()
			if err != nil {
				return errWork{err}
			}
			defer s.Close()
			m, ms, err := f.find(s)
			if err != nil {
				return err
			}
			x, err := m.Explain(cmd.Context(), p, db.MatchOptions{Limit: f.limit})
			if err != nil {
				return errWork{err}
			}
			j := newExplanation(p, ms, x)
			if lost := lostFormat(args[0]); lost != "" {
				j.Problems = append(j.Problems, lost)
			}
			if f.fromText {
				j.Tokens = p.Tokens
				if f.tokenizer != ms.Descriptor.Tokenizer {
					j.Notes = append(j.Notes, fmt.Sprintf("the tokenizer of %s (%s) is not the one that the stored model names (%s)", f.gguf, f.tokenizer, ms.Descriptor.Tokenizer))
				}
			}
			if j.Otherwise, err = f.otherwise(cmd, m, p, x.Tokens); err != nil {
				return errWork{err}
			}
			if c.json {
				return printJSON(cmd.OutOrStdout(), j)
			}
			if err := f.names.resolve(s, p.Scope); err != nil {
				return errWork{err}
			}
			printExplanation(cmd.OutOrStdout(), p, ms, x.Reason, j, &f.names)
			return nil
		},
	}
	f.add(cmd)
	f.names.add(cmd)
	cmd.Flags().StringVar(&f.model, "model", "", "`name`, or fingerprint or its first 8 digits or more; needed if the store has several; of several versions the latest")
	cmd.Flags().IntVar(&f.limit, "limit", 0, "largest prefix that is wanted, in `tokens` (0: all)")
	return cmd
}

// otherwise looks the prompt up without its adapters, and without its scope: what is stored under another adapter or
// scope has other keys, and cannot be named.
func (f *explainFlags) otherwise(cmd *cobra.Command, m *db.Model, p kv.Prompt, reused int) ([]withoutJSON, error) {
	out := []withoutJSON{}
	try := func(without string, q kv.Prompt) error {
		x, err := m.Explain(cmd.Context(), q, db.MatchOptions{Limit: f.limit})
		if err == nil && x.Tokens > reused {
			out = append(out, withoutJSON{without, x.Tokens})
		}
		return err
	}
	if len(p.Adapters) > 0 {
		q := p
		q.Adapters = nil
		if err := try("adapters", q); err != nil {
			return nil, err
		}
	}
	if p.Scope != "" {
		q := p
		q.Scope, q.ScopeStart = "", 0
		if err := try("scope", q); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// find picks the model that --model means, of several versions the latest.
func (f *explainFlags) find(s *db.Store) (*db.Model, db.ModelStats, error) {
	all, err := storedModels(s)
	if err != nil {
		return nil, db.ModelStats{}, errWork{err}
	}
	picked := all
	if f.model != "" {
		picked = modelsNamed(all, f.model)
	}
	switch {
	case len(all) == 0:
		if st, err := s.Stats(); err == nil && st.BesideWriter {
			return nil, db.ModelStats{}, errors.New("the store holds no model as of its last checkpoint: a process has it open, and may have put some since")
		}
		return nil, db.ModelStats{}, errors.New("the store holds no model")
	case len(picked) == 0:
		return nil, db.ModelStats{}, noModel(all, f.model)
	case f.model == "" && len(all) > 1:
		return nil, db.ModelStats{}, fmt.Errorf("the store holds %d models, name one with --model: %s", len(all), modelList(all))
	}
	m, err := s.Model(picked[0].Fingerprint)
	return m, picked[0], err
}

type explainJSON struct {
	Model        string          `json:"model"`
	Fingerprint  string          `json:"fingerprint"`
	PromptTokens int             `json:"prompt_tokens"`
	Reused       int             `json:"reused_tokens"`
	Reason       string          `json:"reason"`
	ReasonAt     int             `json:"reason_at"`
	Problems     []string        `json:"problems"`
	Notes        []string        `json:"notes"`
	Tokens       []kv.Token      `json:"tokens,omitempty"` // that were made of --text
	Blocks       []blockJSON     `json:"blocks"`
	Otherwise    []withoutJSON   `json:"otherwise"`
	Elsewhere    []elsewhereJSON `json:"elsewhere"`
}

type blockJSON struct {
	Key    string   `json:"key"`
	Start  int      `json:"start"`
	End    int      `json:"end"`
	Scope  string   `json:"scope,omitempty"`
	Groups []string `json:"groups"`
}

type withoutJSON struct {
	Without string `json:"without"`
	Tokens  int    `json:"tokens"`
}

type elsewhereJSON struct {
	Model       string   `json:"model"`
	Fingerprint string   `json:"fingerprint"`
	Tokens      int      `json:"tokens"`
	Differs     []string `json:"differs"`
}

func newExplanation(p kv.Prompt, ms db.ModelStats, x db.Explanation) explainJSON {
	j := explainJSON{
		Model: ms.Descriptor.Name, Fingerprint: ms.Fingerprint.String(), PromptTokens: len(p.Tokens), Reused: x.Tokens,
		Reason: x.Reason.String(), ReasonAt: x.Reason.At, Problems: []string{}, Notes: []string{}, Blocks: []blockJSON{}, Elsewhere: []elsewhereJSON{},
	}
	for _, b := range x.Blocks {
		row := blockJSON{Key: b.Key.String(), Start: b.Start, End: b.End, Groups: slices.Clone(b.Groups)}
		for g := range row.Groups {
			if ms.Descriptor.Groups[g].Kind == kv.StateAt {
				row.Groups[g] = "-" // its states are not in blocks
			}
		}
		if !b.Scope.IsShared() {
			row.Scope = b.Scope.String()
		}
		j.Blocks = append(j.Blocks, row)
	}
	slices.SortStableFunc(x.Elsewhere, func(a, b db.Elsewhere) int { return natural(a.Name, b.Name) })
	for _, o := range x.Elsewhere {
		if o.Err != nil {
			j.Problems = append(j.Problems, fmt.Sprintf("what model %s (%s) holds of it is not known: %v", o.Name, o.Fingerprint, o.Err))
			continue
		}
		row := elsewhereJSON{Model: o.Name, Fingerprint: o.Fingerprint.String(), Tokens: o.Tokens, Differs: []string{}}
		for _, d := range o.Differs {
			row.Differs = append(row.Differs, d.String())
		}
		j.Elsewhere = append(j.Elsewhere, row)
	}
	return j
}

func printExplanation(out io.Writer, p kv.Prompt, ms db.ModelStats, why db.Reason, j explainJSON, names *scopeNames) {
	for _, x := range j.Problems {
		fmt.Fprintln(out, "problem:", x)
	}
	for _, x := range j.Notes {
		fmt.Fprintln(out, "note:", x)
	}
	fmt.Fprintf(out, "model %s (%s)\n%d of %d tokens would be reused: %s\n", j.Model, j.Fingerprint, j.Reused, j.PromptTokens, j.Reason)
	switch why.Code {
	case db.Diverged, db.Ends, db.InSpan:
		for _, s := range p.Spans {
			if s.Start <= why.At && why.At < s.End() {
				fmt.Fprintf(out, "token %d is in the span [%d, %d), which is reused whole or not at all\n", why.At, s.Start, s.End())
			}
		}
	case db.NothingStored:
		fmt.Fprintf(out, "no stored prompt of this model, adapters and scope begins with these %d tokens\n", kv.OpeningTokens)
	}
	for _, o := range j.Otherwise {
		fmt.Fprintf(out, "without its %s, %s would be reused\n", o.Without, count(o.Tokens, "token"))
	}
	if len(j.Blocks) > 0 {
		printMatched(out, ms, j.Blocks, names)
	}
	for _, o := range j.Elsewhere {
		fmt.Fprintf(out, "\nmodel %s (%s) holds %s of it, but differs:\n", o.Model, o.Fingerprint, count(o.Tokens, "token"))
		for _, d := range o.Differs {
			fmt.Fprintf(out, "  %s\n", d)
		}
	}
}

// printMatched lists the matched blocks. Those of which the same is to be said are one line.
func printMatched(out io.Writer, ms db.ModelStats, blocks []blockJSON, names *scopeNames) {
	header := []string{"tokens", ">blocks", "scope", "last block"}
	for _, g := range ms.Descriptor.Groups {
		header = append(header, g.String())
	}
	t := newGrid(header...)
	for i := 0; i < len(blocks); {
		first, n := blocks[i], 1
		for i+n < len(blocks) && blocks[i+n].Scope == first.Scope && slices.Equal(blocks[i+n].Groups, first.Groups) {
			n++
		}
		last := blocks[i+n-1]
		row := []any{fmt.Sprintf("[%d, %d)", first.Start, last.End), n, names.show(first.Scope), short(last.Key)}
		for _, g := range first.Groups {
			row = append(row, g)
		}
		t.row(row...)
		i += n
	}
	t.print(out, "stored along this prompt")
}
