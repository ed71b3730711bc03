package llamacpp

import (
	"context"
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/dormousekv/dormouse/internal/gguf"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/internal/modelfile"
)

// Identity is what says which model a context runs, as far as llama.cpp itself does not say.
type Identity struct {
	// Path is the GGUF file that the model was loaded from (the first, if it is split). All its bytes are hashed.
	Path string
	// Memo is a file that remembers between runs what was read from Path: the hash of the weights ([WeightsHash]) and what
	// the descriptor takes from the file's head. Without it, every Attach reads the whole file.
	Memo string
	// Weights and Tokenizer replace what is computed from Path. Without a Path both are needed, and Tokenizer also where the file
	// has no vocabulary.
	Weights, Tokenizer kv.Hash
	// Name is what people call the model; the metadata's name if empty. Not part of its identity.
	Name string
	// RopeBase and RopeScale are what the context was made with (rope_freq_base, rope_freq_scale), if that was not zero;
	// RopeScaling any other setting of its own (YaRN). llama.cpp does not tell.
	RopeBase, RopeScale float32
	RopeScaling         string
}

// Describe returns the descriptor of a model but for its tensors and groups, which are read from a blob of a context
// ([Attach]). model is the llama_model pointer. The error wraps [ErrRefused] where it is 0, or the library lacks a function.
func (l *Library) Describe(model uintptr, id Identity) (kv.Descriptor, error) {
	switch {
	case l == nil:
		return kv.Descriptor{}, fmt.Errorf("%w: no library", ErrRefused)
	case model == 0:
		return kv.Descriptor{}, fmt.Errorf("%w: the pointer of the llama.cpp model is 0", ErrRefused)
	}
	if err := l.check(); err != nil {
		return kv.Descriptor{}, err
	}
	d, _, err := l.describe(context.Background(), model, id)
	return d, err
}

// describe also says what the head of the model's file does, if there is a path.
func (l *Library) describe(ctx context.Context, model uintptr, id Identity) (d kv.Descriptor, h modelfile.Head, err error) {
	d = kv.Descriptor{Name: id.Name, Weights: id.Weights, Tokenizer: id.Tokenizer}
	if id.Path == "" && id.Weights == (kv.Hash{}) {
		return d, h, fmt.Errorf("%w: neither Identity.Path nor Identity.Weights says which weights the model has, so models could be mixed up", ErrRefused)
	}
	var ok bool
	if d.Architecture, ok = l.meta(model, "general.architecture"); !ok {
		return d, h, fmt.Errorf("%w: the model does not name its architecture", ErrRefused)
	}
	if d.Name == "" {
		d.Name, _ = l.meta(model, "general.name")
	}
	d.RoPE = l.rope(model, d.Architecture, id)
	if id.Path != "" {
		if h, err = l.fromFile(ctx, model, &d, id); err != nil {
			return d, h, err
		}
	}
	if d.Tokenizer == (kv.Hash{}) {
		return d, h, fmt.Errorf("%w: neither Identity.Tokenizer nor the file at Identity.Path (%q) says which tokenizer the model has, so models could be mixed up",
			ErrRefused, id.Path)
	}
	if d.Name == "" {
		d.Name = d.Architecture
	}
	return d, h, nil
}

// defaultRopeBase is what llama.cpp takes where the model's file has no freq_base (hparams.rope_freq_base_train in llama-model.cpp).
const defaultRopeBase = 10000

// rope reads how positions are rotated into K. All parameters of the architecture that speak of it are taken, known or
// not: a new one must not go unnoticed.
func (l *Library) rope(model uintptr, arch string, id Identity) kv.RoPE {
	r := kv.RoPE{Type: ropeName(l.RopeType(model)), Scale: l.RopeScale(model)}
	var rest []string
	prefix := arch + ".rope."
	for i := range l.MetaCount(model) {
		key, ok := text(func(buf *byte, size uintptr) int32 { return l.MetaKey(model, i, buf, size) })
		if !ok || !strings.HasPrefix(key, prefix) {
			continue
		}
		value, _ := text(func(buf *byte, size uintptr) int32 { return l.MetaIndex(model, i, buf, size) })
		switch key {
		case prefix + "dimension_count":
			r.Dims, _ = strconv.Atoi(value)
		case prefix + "freq_base":
			r.Base = parseFloat(value)
		default:
			rest = append(rest, strings.TrimPrefix(key, prefix)+"="+normal(value))
		}
	}
	sort.Strings(rest)
	if id.RopeScaling != "" {
		rest = append(rest, "context="+id.RopeScaling)
	}
	r.Scaling = strings.Join(rest, " ")
	if id.RopeBase != 0 {
		r.Base = id.RopeBase
	}
	if id.RopeScale != 0 {
		r.Scale = id.RopeScale
	}
	if r.Base == 0 && r.Type != kv.NoRoPE {
		r.Base = defaultRopeBase
	}
	return r
}

// factorsOf says which of a model's two sets of frequency factors a context uses: llama.cpp takes the long ones where a
// sequence may have more tokens than the model was trained for at first. Empty: there is no such choice. twoSets is what the
// model's file says; without a file its metadata must do, and MiniCPM 3 does not say it there.
func (l *Library) factorsOf(lctx, model uintptr, arch string, twoSets bool) string {
	scaling, _ := l.meta(model, arch+".rope.scaling.type")
	original, ok := l.meta(model, arch+".rope.scaling.original_context_length")
	if !twoSets && scaling != "longrope" && (scaling != "" || !ok) { // Phi 3 names no scaling
		return ""
	}
	if !ok {
		if original, ok = l.meta(model, arch+".context_length"); !ok {
			return ""
		}
	}
	each := l.ContextTokens(lctx) / max(1, l.Sequences(lctx))
	if l.ContextTokensEach != nil {
		each = l.ContextTokensEach(lctx)
	}
	if n, err := strconv.ParseUint(original, 10, 32); err == nil && each <= uint32(n) {
		return "factors=short"
	}
	return "factors=long"
}

func ropeName(t int32) string {
	switch t {
	case -1:
		return kv.NoRoPE
	case ropeNorm:
		return "norm"
	case ropeNeox:
		return "neox"
	case 8:
		return "mrope"
	case 24:
		return "vision"
	case 40:
		return "imrope"
	}
	return fmt.Sprintf("type %d", t)
}

// The rotations of enum llama_rope_type in which a position is one number.
const (
	ropeNone = -1
	ropeNorm = 0
	ropeNeox = 2
)

func parseFloat(s string) float32 {
	f, _ := strconv.ParseFloat(s, 32)
	return float32(f)
}

// normal spells a number in one way, whatever digits the library pads it with.
func normal(value string) string {
	if f, err := strconv.ParseFloat(value, 32); err == nil {
		return strconv.FormatFloat(f, 'g', -1, 32)
	}
	return value
}

// fromFile adds what only the model file says.
func (l *Library) fromFile(ctx context.Context, model uintptr, d *kv.Descriptor, id Identity) (modelfile.Head, error) {
	h, err := modelfile.ReadHead(id.Path, id.Memo)
	if err != nil {
		return h, fmt.Errorf("llamacpp: describe: %w", err)
	}
	if h.Architecture != d.Architecture {
		return h, fmt.Errorf("%w: %s is of architecture %q, the context runs %q", ErrIdentity, id.Path, h.Architecture, d.Architecture)
	}
	if err := l.runs(model, id.Path, h.Contents); err != nil {
		return h, err
	}
	if d.Weights == (kv.Hash{}) {
		if d.Weights, err = modelfile.WeightsHash(ctx, id.Path, id.Memo); err != nil {
			return h, fmt.Errorf("llamacpp: weights: %w", err)
		}
	}
	if d.Tokenizer == (kv.Hash{}) {
		d.Tokenizer = h.Tokenizer
	}
	d.RoPE.FreqFactors = h.Factors
	return h, nil
}

// WeightsHash is the hash of all bytes of a model's files, all parts if it is split: their names must say so. The first
// time it reads them, about a second a gigabyte. memo names a small text file that remembers the answer by device, inode,
// size and times of modification and change; empty remembers nothing. A memo that cannot be read or written costs time only.
func WeightsHash(path, memo string) (kv.Hash, error) {
	h, err := modelfile.WeightsHash(context.Background(), path, memo)
	if err != nil {
		return h, fmt.Errorf("llamacpp: weights: %w", err)
	}
	return h, nil
}

// runs refuses a file that is not the one that the model was loaded from.
func (l *Library) runs(model uintptr, path string, c modelfile.Contents) error {
	if l.ModelValues != nil && l.ModelValues(model) != c.Values {
		return fmt.Errorf("%w: %s has tensors of %d values, the model in memory of %d: it was loaded from another file", ErrIdentity, path, c.Values, l.ModelValues(model))
	}
	if l.ModelBytes != nil && c.Bytes > 0 && l.ModelBytes(model) != c.Bytes {
		return fmt.Errorf("%w: %s has tensors of %d bytes, the model in memory of %d: it was loaded from another file", ErrIdentity, path, c.Bytes, l.ModelBytes(model))
	}
	if modelfile.Replaced(path) {
		return fmt.Errorf("%w: %s was replaced after a model was loaded from it: its hash is that of other weights. Load the model again", ErrIdentity, path)
	}
	loaded := l.modelMeta(model)
	if modelfile.MetaHash(loaded) == c.Meta {
		return nil
	}
	f, err := gguf.Open(path)
	if err != nil {
		return err
	}
	if why := modelfile.Differs(modelfile.Meta(f), loaded); why != "" {
		return fmt.Errorf("%w: %s was not what the model in memory was loaded from: %s", ErrIdentity, path, why)
	}
	return nil
}

// modelMeta is the metadata of a model that llama.cpp has loaded.
func (l *Library) modelMeta(model uintptr) map[string]string {
	out := map[string]string{}
	for i := range l.MetaCount(model) {
		key, ok := text(func(buf *byte, size uintptr) int32 { return l.MetaKey(model, i, buf, size) })
		if !ok {
			continue
		}
		value, _ := text(func(buf *byte, size uintptr) int32 { return l.MetaIndex(model, i, buf, size) })
		out[key] = modelfile.Spelled(value)
	}
	return out
}
