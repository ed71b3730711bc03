package modelfile

import (
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"

	"github.com/dormousekv/dormouse/internal/gguf"
	"github.com/dormousekv/dormouse/kv"
)

// Head is what the head of a model file says.
type Head struct {
	Architecture       string
	Tokenizer, Factors kv.Hash // of the vocabulary and all that belongs to it; of the RoPE frequency factors
	TwoSets            bool    // of factors: for long and for short contexts
	Contents           Contents
	Forgotten          error // why the memo does not remember it, if it was read
}

// ReadHead reads the head of a model file, or remembers it as [WeightsHash] does: a vocabulary of 262 thousand tokens takes
// tens of milliseconds to walk and to hash, much longer than a restore.
func ReadHead(path, memo string) (h Head, err error) {
	id, err := modelID(path)
	if err != nil {
		return h, err
	}
	if f := recall(memo, headTag, id, 7); f != nil {
		tokenizer, ok := parseHash(f[1])
		factors, also := parseHash(f[2])
		meta, sound := parseHash(f[4])
		values, err1 := strconv.ParseUint(f[5], 10, 64)
		bytes, err2 := strconv.ParseUint(f[6], 10, 64)
		if ok && also && sound && err1 == nil && err2 == nil && (f[3] == oneSet || f[3] == twoSets) {
			return Head{f[0], tokenizer, factors, f[3] == twoSets, Contents{meta, values, bytes}, nil}, nil
		}
	}
	if h, err = readHead(path); err != nil {
		return h, err
	}
	if now, err := modelID(path); err != nil || now != id { // it may be the head of another file
		return h, fmt.Errorf("%s: %w", path, ErrChanged)
	}
	if f := strings.Fields(h.Architecture); len(f) == 1 && f[0] == h.Architecture { // a word, as the memo's lines are made of
		sets := oneSet
		if h.TwoSets {
			sets = twoSets
		}
		h.Forgotten = remember(memo, headTag, id, h.Architecture, h.Tokenizer.String(), h.Factors.String(), sets,
			h.Contents.Meta.String(), strconv.FormatUint(h.Contents.Values, 10), strconv.FormatUint(h.Contents.Bytes, 10))
	}
	return h, nil
}

// How the memo spells the number of sets.
const oneSet, twoSets = "1", "2"

func readHead(path string) (h Head, err error) {
	f, err := gguf.Open(path)
	if err != nil {
		return h, err
	}
	if h.Architecture, err = f.Architecture(); err != nil {
		return h, fmt.Errorf("%s: %w", path, err)
	}
	if h.Tokenizer, err = f.MetaHash("tokenizer."); err != nil {
		return h, err
	}
	factors := sha256.New()
	found := false
	for _, name := range []string{"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"} {
		t, ok := f.Tensor(name)
		if !ok || t.Type != 0 || len(t.Dims) != 1 || t.Dims[0] > 1<<20 {
			continue
		}
		sum, err := f.TensorHash(t, 4*t.Dims[0])
		if err != nil {
			return h, err
		}
		found = true
		fmt.Fprintf(factors, "%s %s\n", name, sum)
	}
	if found {
		h.Factors = kv.Hash(factors.Sum(nil)[:16])
	}
	if h.TwoSets, err = hasTwoSets(path); err != nil {
		return h, err
	}
	h.Contents, err = contentsOf(f)
	return h, err
}

// hasTwoSets looks for the factors of long contexts in all parts of a model.
func hasTwoSets(path string) (bool, error) {
	parts, err := gguf.Splits(path)
	if err != nil {
		return false, err
	}
	for _, part := range parts {
		f, err := gguf.Open(part)
		if err != nil {
			return false, err
		}
		for _, t := range f.Tensors {
			if strings.HasPrefix(t.Name, "rope_factors_") || strings.Contains(t.Name, ".rope_factors_") {
				return true, nil
			}
		}
	}
	return false, nil
}
