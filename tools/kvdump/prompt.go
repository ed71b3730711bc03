package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/dormousekv/dormouse/internal/gguf"
	"github.com/dormousekv/dormouse/internal/gguf/tokenizer"
	"github.com/dormousekv/dormouse/kv"
)

// promptFlags are a kv.Prompt on the command line.
type promptFlags struct {
	tokens, file    string
	text, gguf      string
	fromText        bool
	tokenizer       kv.Hash // of the GGUF file; zero without one
	spans, adapters []string
	scope           string
	scopeStart      int
}

func (f *promptFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.tokens, "tokens", "", "token `ids`: a JSON array, or separated by commas or white space")
	cmd.Flags().StringVar(&f.file, "tokens-file", "", "`file` of token ids, written as for --tokens; - is standard input")
	cmd.Flags().StringArrayVar(&f.spans, "span", nil, "image or clip, `start:length:hash`; the hash as 32 hex digits. Repeatable")
	cmd.Flags().StringArrayVar(&f.adapters, "adapter", nil, "LoRA adapter, `hash:scale`; the hash as 32 hex digits. Repeatable, in order")
	cmd.Flags().StringVar(&f.scope, "scope", "", "`name` of whose data the prompt is")
	cmd.Flags().IntVar(&f.scopeStart, "scope-start", 0, "`position` from which on the scope applies")
	cmd.Flags().StringVar(&f.text, "text", "", "the prompt as `text`, with the texts of control tokens in it; needs --gguf")
	cmd.Flags().StringVar(&f.gguf, "gguf", "", "model `file` whose tokenizer makes tokens of --text")
}

// source checks that the prompt is said once.
func (f *promptFlags) source(cmd *cobra.Command) error {
	var given []string
	for _, name := range []string{"tokens", "tokens-file", "text"} {
		if cmd.Flags().Changed(name) {
			given = append(given, "--"+name)
		}
	}
	text, gguf := cmd.Flags().Changed("text"), cmd.Flags().Changed("gguf")
	switch {
	case len(given) > 1:
		return fmt.Errorf("%s: expected one of them", strings.Join(given, " and "))
	case len(given) == 0 && gguf:
		return errors.New("--gguf: no text; expected --text with it")
	case len(given) == 0:
		return errors.New("which prompt? give --tokens, --tokens-file, or --text with --gguf")
	case text && !gguf:
		return errors.New("--text: no tokenizer; expected --gguf with it, the model's file")
	case gguf && !text:
		return fmt.Errorf("--gguf: %s are token ids already; expected --text with it", given[0])
	}
	return nil
}

// prompt reads the flags. Its errors name the flag, and what is expected.
func (f *promptFlags) prompt(cmd *cobra.Command) (p kv.Prompt, err error) {
	if err := f.source(cmd); err != nil {
		return p, err
	}
	p.Scope, p.ScopeStart = f.scope, f.scopeStart
	if f.fromText = cmd.Flags().Changed("text"); f.fromText {
		p.Tokens, err = f.tokenize()
	} else {
		p.Tokens, err = f.ids(cmd.InOrStdin())
	}
	if err != nil {
		return p, err
	}
	for _, text := range f.spans {
		s, err := parseSpan(text, len(p.Tokens))
		if err != nil {
			return p, fmt.Errorf("--span %q: %w; expected start:length:hash, the hash as 32 hexadecimal digits", text, err)
		}
		p.Spans = append(p.Spans, s)
	}
	slices.SortStableFunc(p.Spans, func(a, b kv.Span) int { return cmp.Compare(a.Start, b.Start) })
	for i := 1; i < len(p.Spans); i++ {
		if a, b := p.Spans[i-1], p.Spans[i]; b.Start < a.End() {
			return p, fmt.Errorf("--span: [%d, %d) and [%d, %d) overlap; expected spans that do not", a.Start, a.End(), b.Start, b.End())
		}
	}
	for _, text := range f.adapters {
		a, err := parseAdapter(text)
		if err != nil {
			return p, fmt.Errorf("--adapter %q: %w; expected hash:scale, the hash as 32 hexadecimal digits, as in %s:1", text, err, kv.Hash{0xab, 0xcd})
		}
		p.Adapters = append(p.Adapters, a)
	}
	switch {
	case f.scopeStart < 0:
		return p, fmt.Errorf("--scope-start %d: expected a position, 0 or more", f.scopeStart)
	case cmd.Flags().Changed("scope-start") && f.scope == "":
		return p, fmt.Errorf("--scope-start %d: no scope; expected --scope with it", f.scopeStart)
	case f.scopeStart > len(p.Tokens):
		return p, fmt.Errorf("--scope-start %d: the prompt has %d tokens; expected the position of a token, or of the prompt's end", f.scopeStart, len(p.Tokens))
	}
	return p, p.Validate()
}

// tokenize makes tokens of --text, as llama.cpp would.
func (f *promptFlags) tokenize() ([]kv.Token, error) {
	file, err := gguf.Open(f.gguf)
	if err != nil {
		return nil, fmt.Errorf("--gguf: %w", err)
	}
	if f.tokenizer, err = file.MetaHash("tokenizer."); err != nil {
		return nil, fmt.Errorf("--gguf: %w", err)
	}
	t, err := tokenizer.Open(file)
	if errors.Is(err, tokenizer.ErrKind) {
		return nil, fmt.Errorf("--gguf: %w. Give the ids that your runtime makes of the text with --tokens", err)
	}
	if err != nil {
		return nil, fmt.Errorf("--gguf: %w", err)
	}
	ids, err := t.Encode(f.text)
	if err != nil {
		return nil, fmt.Errorf("--text: %w", err)
	}
	if len(ids) == 0 {
		return nil, errors.New("--text: no tokens; expected some text")
	}
	return ids, nil
}

// ids reads --tokens or --tokens-file.
func (f *promptFlags) ids(stdin io.Reader) (ids []kv.Token, err error) {
	flag, text := "--tokens", f.tokens
	if f.file != "" {
		flag = "--tokens-file " + f.file
		var b []byte
		if f.file == "-" {
			b, err = io.ReadAll(stdin)
		} else {
			b, err = os.ReadFile(f.file)
		}
		if err != nil {
			return nil, fmt.Errorf("--tokens-file: %w", err)
		}
		text = string(b)
	}
	if strings.HasPrefix(strings.TrimSpace(text), "[") {
		if err := json.Unmarshal([]byte(text), &ids); err != nil {
			return nil, fmt.Errorf("%s: not a JSON array of token ids: %w", flag, err)
		}
	} else {
		for _, w := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || unicode.IsSpace(r) }) {
			n, err := strconv.ParseInt(w, 10, 32)
			if err != nil {
				return nil, fmt.Errorf("%s: token id %q is not a 32-bit number; expected numbers separated by commas or white space, or a JSON array", flag, w)
			}
			ids = append(ids, kv.Token(n))
		}
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("%s: no token ids; expected at least one", flag)
	}
	return ids, nil
}

func parseSpan(text string, tokens int) (s kv.Span, err error) {
	parts := strings.Split(text, ":")
	if len(parts) != 3 {
		return s, fmt.Errorf("%d parts", len(parts))
	}
	if s.Start, err = strconv.Atoi(parts[0]); err != nil || s.Start < 0 {
		return s, fmt.Errorf("start %q is not a position", parts[0])
	}
	if s.Len, err = strconv.Atoi(parts[1]); err != nil || s.Len < 1 {
		return s, fmt.Errorf("length %q is not a number of tokens, 1 or more", parts[1])
	}
	if s.Len > tokens || s.Start > tokens-s.Len {
		return s, fmt.Errorf("it ends behind the prompt's %d tokens", tokens)
	}
	s.Hash, err = parseHash(parts[2])
	return s, err
}

func parseAdapter(text string) (a kv.Adapter, err error) {
	hash, scale, ok := strings.Cut(text, ":")
	if !ok {
		return a, fmt.Errorf("no scale")
	}
	x, err := strconv.ParseFloat(scale, 32)
	if err != nil || x != x {
		return a, fmt.Errorf("scale %q is not a 32-bit floating-point number", scale)
	}
	a.Scale = float32(x)
	a.Hash, err = parseHash(hash)
	return a, err
}

func parseHash(s string) (kv.Hash, error) {
	k, err := kv.ParseKey(s)
	if err != nil {
		return kv.Hash{}, fmt.Errorf("hash %w", err)
	}
	return kv.Hash(k), nil
}
