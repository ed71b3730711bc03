package llamacpp

import (
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"

	"github.com/dormousekv/dormouse/internal/gguf"
	"github.com/dormousekv/dormouse/kv"
)

// head is what the descriptor takes from the head of a model file.
type head struct {
	architecture       string
	tokenizer, factors kv.Hash
	twoSets            bool // of factors: for long and for short contexts
	contents           contents
}

// headOf reads the head of a model file, or remembers it as [WeightsHash] does: a vocabulary of 262 thousand tokens takes
// tens of milliseconds to walk and to hash, much longer than a restore.
func headOf(path, memo string) (h head, err error) {
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
			return head{f[0], tokenizer, factors, f[3] == twoSets, contents{meta, values, bytes}}, nil
		}
	}
	if h, err = readHead(path); err != nil {
		return h, err
	}
	if f := strings.Fields(h.architecture); len(f) == 1 && f[0] == h.architecture { // a word, as the memo's lines are made of
		sets := oneSet
		if h.twoSets {
			sets = twoSets
		}
		remember(memo, headTag, id, h.architecture, h.tokenizer.String(), h.factors.String(), sets,
			h.contents.meta.String(), strconv.FormatUint(h.contents.values, 10), strconv.FormatUint(h.contents.bytes, 10))
	}
	return h, nil
}

// How the memo spells the number of sets.
const oneSet, twoSets = "1", "2"

func readHead(path string) (h head, err error) {
	f, err := gguf.Open(path)
	if err != nil {
		return h, err
	}
	if h.architecture, err = f.Architecture(); err != nil {
		return h, fmt.Errorf("%s: %w", path, err)
	}
	if h.tokenizer, err = f.MetaHash("tokenizer."); err != nil {
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
		h.factors = kv.Hash(factors.Sum(nil)[:16])
	}
	if h.twoSets, err = hasTwoSets(path); err != nil {
		return h, err
	}
	h.contents, err = contentsOf(f)
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
