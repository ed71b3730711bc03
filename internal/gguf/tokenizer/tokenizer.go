package tokenizer

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/dormousekv/dormouse/internal/gguf"
)

// ErrKind is returned for a tokenizer that this package does not know.
var ErrKind = errors.New("tokenizer is not supported")

// Types of tokens.
const (
	unknownToken     = 2
	controlToken     = 3
	userDefinedToken = 4
)

// maxArrayBytes bounds what one array of the metadata may take.
const maxArrayBytes = 256 << 20

// Tokenizer is safe for concurrent use.
type Tokenizer struct {
	ids      map[string]int32
	special  []string // texts of tokens that are cut out of the text first, the longest first
	addBOS   bool
	addEOS   bool
	bos, eos int32
	encode   func(out []int32, text string, afterSpecial bool) ([]int32, error)

	tokens      []string
	scores      []float32         // of "llama"
	spacePrefix bool              // of "llama"
	ranks       map[[2]string]int // of "gpt2"
}

// Open reads the tokenizer of a GGUF file.
func Open(f *gguf.File) (*Tokenizer, error) {
	src, err := os.Open(f.Path)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	kind, err := f.String("tokenizer.ggml.model")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Path, err)
	}
	pre, _ := f.String("tokenizer.ggml.pre")
	name, _ := f.String("general.name")
	t := &Tokenizer{ids: map[string]int32{}}
	switch {
	case kind == "llama" && !strings.Contains(strings.ToLower(name), "phi-3"): // of which some tokens take the spaces beside them
		t.encode = t.pieces
	case kind == "gpt2" && pre == "smollm":
		t.encode = t.bytePairs
	default:
		return nil, fmt.Errorf("%s: %w: kind %q, pre-tokenizer %q, model %q; known are kind \"llama\", and \"gpt2\" with the pre-tokenizer \"smollm\"", f.Path, ErrKind, kind, pre, name)
	}
	read := func(key string, elem gguf.Type, size int) ([]byte, int64, error) {
		v := f.Meta["tokenizer.ggml."+key]
		if v.Type != gguf.Array || v.Elem != elem || v.Size > maxArrayBytes || v.Size < 12 {
			return nil, 0, fmt.Errorf("%s: %w: tokenizer.ggml.%s", f.Path, gguf.ErrMissing, key)
		}
		b := make([]byte, v.Size)
		if _, err := src.ReadAt(b, v.Offset); err != nil {
			return nil, 0, fmt.Errorf("%s: tokenizer.ggml.%s: %w", f.Path, key, err)
		}
		if b = b[12:]; v.Count < 0 || size > 0 && int64(len(b))/int64(size) < v.Count {
			return nil, 0, fmt.Errorf("%s: %w: tokenizer.ggml.%s has %d bytes for %d elements", f.Path, gguf.ErrFormat, key, len(b), v.Count)
		}
		return b, v.Count, nil
	}
	strs := func(key string) (out []string, err error) {
		b, n, err := read(key, gguf.String, 0)
		if err != nil {
			return nil, err
		}
		for range n {
			if len(b) < 8 || binary.LittleEndian.Uint64(b) > uint64(len(b)-8) {
				return nil, fmt.Errorf("%s: %w: tokenizer.ggml.%s ends in a string", f.Path, gguf.ErrFormat, key)
			}
			size := binary.LittleEndian.Uint64(b)
			out, b = append(out, string(b[8:8+size])), b[8+size:]
		}
		return out, nil
	}
	if t.tokens, err = strs("tokens"); err != nil {
		return nil, err
	}
	for i, text := range t.tokens {
		t.ids[text] = int32(i) // of two with one text, the later
	}
	types, n, err := read("token_type", gguf.Int32, 4)
	if err != nil {
		return nil, err
	}
	if n != int64(len(t.tokens)) {
		return nil, fmt.Errorf("%s: %w: %d types of %d tokens", f.Path, gguf.ErrFormat, n, len(t.tokens))
	}
	for i, text := range t.tokens {
		switch binary.LittleEndian.Uint32(types[4*i:]) {
		case unknownToken, controlToken, userDefinedToken:
			if text != "" {
				t.special = append(t.special, text)
			}
		}
	}
	slices.SortStableFunc(t.special, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	flag := func(key string, def bool) bool {
		if b, ok := f.Meta["tokenizer.ggml."+key].Scalar.(bool); ok {
			return b
		}
		return def
	}
	id := func(key string) int32 {
		x, err := f.Int("tokenizer.ggml." + key)
		if err != nil || x < 0 || x >= int64(len(t.tokens)) {
			return -1
		}
		return int32(x)
	}
	t.addBOS, t.addEOS = flag("add_bos_token", kind == "llama"), flag("add_eos_token", false)
	t.bos, t.eos = id("bos_token_id"), id("eos_token_id")
	if t.addBOS && t.bos < 0 || t.addEOS && t.eos < 0 {
		return nil, fmt.Errorf("%s: %w: tokenizer.ggml.bos_token_id or eos_token_id", f.Path, gguf.ErrMissing)
	}
	if kind == "llama" {
		t.spacePrefix = flag("add_space_prefix", true)
		b, n, err := read("scores", gguf.Float32, 4)
		if err != nil {
			return nil, err
		}
		if n != int64(len(t.tokens)) {
			return nil, fmt.Errorf("%s: %w: %d scores of %d tokens", f.Path, gguf.ErrFormat, n, len(t.tokens))
		}
		for i := range t.tokens {
			t.scores = append(t.scores, math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])))
		}
		return t, nil
	}
	merges, err := strs("merges")
	if err != nil {
		return nil, err
	}
	t.ranks = make(map[[2]string]int, len(merges))
	for rank, m := range merges {
		if at := strings.IndexByte(m[min(1, len(m)):], ' '); at >= 0 {
			t.ranks[[2]string{m[:at+1], m[at+2:]}] = rank
		}
	}
	return t, nil
}

// Encode returns the ids of text as a runtime would read it: with the tokens that the model wants around a text, and texts of control
// tokens as these tokens.
func (t *Tokenizer) Encode(text string) (out []int32, err error) {
	if !utf8.ValidString(text) {
		return nil, errors.New("the text is not UTF-8")
	}
	if t.addBOS {
		out = append(out, t.bos)
	}
	afterSpecial := true
	for _, part := range t.cut(text) {
		if part.special {
			out = append(out, t.ids[part.text])
		} else if out, err = t.encode(out, part.text, afterSpecial); err != nil {
			return nil, err
		}
		afterSpecial = part.special
	}
	if t.addEOS {
		out = append(out, t.eos)
	}
	return out, nil
}

type part struct {
	text    string
	special bool
}

// cut takes the special tokens out of the text, the longest first.
func (t *Tokenizer) cut(text string) []part {
	if text == "" {
		return nil
	}
	parts := []part{{text: text}}
	for _, s := range t.special {
		if !strings.Contains(text, s) {
			continue
		}
		var next []part
		for _, p := range parts {
			if p.special {
				next = append(next, p)
				continue
			}
			for {
				before, after, ok := strings.Cut(p.text, s)
				if before != "" {
					next = append(next, part{text: before})
				}
				if !ok {
					break
				}
				next = append(next, part{s, true})
				p.text = after
			}
		}
		parts = next
	}
	return parts
}
