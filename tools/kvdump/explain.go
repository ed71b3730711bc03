package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

type explainFlags struct {
	model, tokens, file, scope string
	scopeStart, limit          int
}

func newExplain(c *common) *cobra.Command {
	f := &explainFlags{}
	cmd := &cobra.Command{
		Use:   "explain DIR --tokens 1,2,3",
		Short: "Say why a prompt of token ids would, or would not, be reused",
		Long:  "Explain looks a prompt up as a runtime would, and says up to which token it would be reused, what stands in the\nway of more, and which other models in the store hold more of it.",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := f.prompt()
			if err != nil {
				return err
			}
			s, err := openReadOnly(cmd, c, args[0], nil)
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
			return printExplanation(cmd, c, p, ms, x)
		},
	}
	cmd.Flags().StringVar(&f.model, "model", "", "name or fingerprint; needed if the store has several")
	cmd.Flags().StringVar(&f.tokens, "tokens", "", "token ids, separated by commas or spaces")
	cmd.Flags().StringVar(&f.file, "tokens-file", "", "file of token ids: a JSON array, or separated by commas or white space")
	cmd.Flags().StringVar(&f.scope, "scope", "", "whose data the prompt is")
	cmd.Flags().IntVar(&f.scopeStart, "scope-start", 0, "position from which on the scope applies")
	cmd.Flags().IntVar(&f.limit, "limit", 0, "largest prefix that is wanted (0: all)")
	cmd.MarkFlagsOneRequired("tokens", "tokens-file")
	cmd.MarkFlagsMutuallyExclusive("tokens", "tokens-file")
	return cmd
}

func (f *explainFlags) prompt() (kv.Prompt, error) {
	text := f.tokens
	if f.file != "" {
		b, err := os.ReadFile(f.file)
		if err != nil {
			return kv.Prompt{}, err
		}
		text = string(b)
	}
	p := kv.Prompt{Scope: f.scope, ScopeStart: f.scopeStart}
	if strings.HasPrefix(strings.TrimSpace(text), "[") {
		if err := json.Unmarshal([]byte(text), &p.Tokens); err != nil {
			return p, fmt.Errorf("token ids: %w", err)
		}
	} else {
		for _, w := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || unicode.IsSpace(r) }) {
			n, err := strconv.ParseInt(w, 10, 32)
			if err != nil {
				return p, fmt.Errorf("token id %q: not a 32-bit number", w)
			}
			p.Tokens = append(p.Tokens, kv.Token(n))
		}
	}
	if len(p.Tokens) == 0 {
		return p, errors.New("no token ids were given")
	}
	return p, p.Validate()
}

// find picks the model by name (the latest version) or fingerprint.
func (f *explainFlags) find(s *db.Store) (*db.Model, db.ModelStats, error) {
	all, err := s.Models()
	if err != nil {
		return nil, db.ModelStats{}, errWork{err}
	}
	var names []string
	for _, ms := range all {
		names = append(names, fmt.Sprintf("%s (%s)", ms.Descriptor.Name, ms.Fingerprint))
		if ms.Fingerprint.String() == f.model || (ms.Latest && ms.Descriptor.Name == f.model) || (f.model == "" && len(all) == 1) {
			m, err := s.ModelOf(ms.Fingerprint)
			return m, ms, err
		}
	}
	switch {
	case len(all) == 0:
		return nil, db.ModelStats{}, errWork{errors.New("the store holds no model")}
	case f.model == "":
		return nil, db.ModelStats{}, fmt.Errorf("the store holds %d models, name one with --model: %s", len(all), strings.Join(names, ", "))
	}
	return nil, db.ModelStats{}, fmt.Errorf("no model %q in the store, only %s", f.model, strings.Join(names, ", "))
}

type explainJSON struct {
	Model        string          `json:"model"`
	Fingerprint  string          `json:"fingerprint"`
	PromptTokens int             `json:"prompt_tokens"`
	Reused       int             `json:"reused_tokens"`
	Reason       string          `json:"reason"`
	ReasonAt     int             `json:"reason_at"`
	Blocks       []blockJSON     `json:"blocks"`
	Elsewhere    []elsewhereJSON `json:"elsewhere"`
}

type blockJSON struct {
	Key    string   `json:"key"`
	Start  int      `json:"start"`
	End    int      `json:"end"`
	Scope  string   `json:"scope,omitempty"`
	Groups []string `json:"groups"`
}

type elsewhereJSON struct {
	Model       string   `json:"model"`
	Fingerprint string   `json:"fingerprint"`
	Tokens      int      `json:"tokens"`
	Differs     []string `json:"differs"`
}

func printExplanation(cmd *cobra.Command, c *common, p kv.Prompt, ms db.ModelStats, x db.Explanation) error {
	j := explainJSON{
		Model: ms.Descriptor.Name, Fingerprint: ms.Fingerprint.String(), PromptTokens: len(p.Tokens), Reused: x.Tokens,
		Reason: x.Reason.String(), ReasonAt: x.Reason.At, Blocks: []blockJSON{}, Elsewhere: []elsewhereJSON{},
	}
	for _, b := range x.Blocks {
		row := blockJSON{Key: b.Key.String(), Start: b.Start, End: b.End, Groups: b.Groups}
		if !b.Scope.IsShared() {
			row.Scope = b.Scope.String()
		}
		j.Blocks = append(j.Blocks, row)
	}
	for _, o := range x.Elsewhere {
		row := elsewhereJSON{Model: o.Name, Fingerprint: o.Fingerprint.String(), Tokens: o.Tokens, Differs: []string{}}
		for _, d := range o.Differs {
			row.Differs = append(row.Differs, d.String())
		}
		j.Elsewhere = append(j.Elsewhere, row)
	}
	out := cmd.OutOrStdout()
	if c.json {
		return printJSON(out, j)
	}
	fmt.Fprintf(out, "model %s (%s)\n%d of %d tokens would be reused: %s\n", j.Model, j.Fingerprint, j.Reused, j.PromptTokens, j.Reason)
	if len(j.Blocks) > 0 {
		header := []any{"tokens", "scope", "block"}
		for _, g := range ms.Descriptor.Groups {
			header = append(header, g.String())
		}
		t := newTable(out, "stored along this prompt", header...)
		for _, b := range j.Blocks {
			scope := b.Scope
			if scope == "" {
				scope = "shared"
			}
			row := []any{fmt.Sprintf("[%d, %d)", b.Start, b.End), scope, b.Key}
			for i, g := range b.Groups {
				if ms.Descriptor.Groups[i].Kind == kv.StateAt {
					g = "-"
				}
				row = append(row, g)
			}
			t.AppendRow(row)
		}
		t.Render()
	}
	for _, o := range j.Elsewhere {
		fmt.Fprintf(out, "\nmodel %s (%s) holds %d tokens of it, but differs:\n", o.Model, o.Fingerprint, o.Tokens)
		for _, d := range o.Differs {
			fmt.Fprintf(out, "  %s\n", d)
		}
	}
	return nil
}
