package talk

import (
	"context"
	"errors"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/tiny"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
)

// Talk is a model and the store of its KV cache.
type Talk struct {
	Store     *db.Store
	Model     *db.Model
	Tokenizer *tiny.Tokenizer
	tiny      *tiny.Model
}

// Open opens the store in dir, or makes one, for a model with random weights: what it says has no sense, its work is real.
func Open(ctx context.Context, dir string) (*Talk, error) {
	t := &Talk{Tokenizer: tiny.NewTokenizer()}
	shape := tiny.Default(t.Tokenizer)
	shape.Layers = 3 // an example should take a moment, not a minute
	var err error
	if t.tiny, err = tiny.New(shape, 1); err != nil {
		return nil, err
	}
	if t.Store, err = db.Open(ctx, dir, db.Options{Budget: 64 << 20}); err != nil {
		return nil, err
	}
	registered, err := t.Store.Register(ctx, t.describe())
	if err != nil {
		return nil, errors.Join(err, t.Store.Close())
	}
	t.Model = registered.Model
	return t, nil
}

// Close closes the store.
func (t *Talk) Close() error { return t.Store.Close() }

// describe names all that makes a KV cache of this model useless to any other: the store never mixes them up.
func (t *Talk) describe() kv.Descriptor {
	weights, vocabulary := t.tiny.Hash(), t.Tokenizer.Hash()
	d := kv.Descriptor{
		Name: "tiny", Weights: kv.Hash(weights[:16]), Architecture: "tiny", Tokenizer: kv.Hash(vocabulary[:16]),
		RoPE:        kv.RoPE{Type: "neox", Dims: t.tiny.HeadDim, Base: t.tiny.RoPEBase, Scale: 1, Scaling: "none"},
		BlockTokens: 16, // prompts are short here
	}
	for l := range t.tiny.Layers {
		for _, role := range []kv.Role{kv.RoleK, kv.RoleV} {
			d.Tensors = append(d.Tensors, kv.Tensor{Layer: l, Role: role, DType: kv.F16, Width: t.tiny.KVWidth()})
		}
	}
	return d
}

// Turn is what came of one turn.
type Turn struct {
	Tokens int       // of the prompt
	Reused int       // came from the store
	Why    db.Reason // why not more
	Answer []int32   // words, the likeliest each
	Rows   kv.Rows   // of prompt and answer, in the model's own memory

	RowBytes int // of one token in one tensor
}

// Say reads the prompt and answers with that many words. What the store has of the prompt is not computed. Then all that is new, the
// answer too, is stored under the prompt's scope.
func (t *Talk) Say(ctx context.Context, prompt kv.Prompt, words int) (turn Turn, err error) {
	n := len(prompt.Tokens)
	turn.Tokens = n
	cache := t.tiny.NewCache(n + words)
	// The last token is left out: the model computes that one, since it gives the first word of the answer.
	match, err := t.Model.Match(ctx, prompt, db.MatchOptions{Limit: n - 1})
	if err != nil {
		return turn, err
	}
	defer func() { err = errors.Join(err, match.Close()) }()
	got, err := match.Restore(ctx, rows(cache, n))
	if err != nil {
		return turn, err
	}
	turn.Reused, turn.Why = got.Tokens, got.Reason
	turn.Answer = t.goOn(cache, prompt.Tokens, got.Tokens, words)

	all := prompt
	all.Tokens = append(append([]int32{}, prompt.Tokens...), turn.Answer[:words-1]...) // the last word was chosen, not read
	turn.Rows, turn.RowBytes = rows(cache, len(all.Tokens)), cache.RowBytes
	// Raw keeps every bit. The default, INT8, takes half the space, and a model may choose another word now and then.
	_, err = match.Extend(ctx, all, turn.Rows, db.PutOptions{Codec: quant.Raw})
	return turn, err
}

// Cold is the answer of a model without a store.
func (t *Talk) Cold(prompt kv.Prompt, words int) []int32 {
	return t.goOn(t.tiny.NewCache(len(prompt.Tokens)+words), prompt.Tokens, 0, words)
}

// goOn computes the prompt from position from on, and then word after word.
func (t *Talk) goOn(cache *tiny.Cache, prompt []int32, from, words int) (answer []int32) {
	logits := t.tiny.Forward(cache, from, prompt[from:])
	for i := range words {
		best := 0
		for id, v := range logits {
			if v > logits[best] {
				best = id
			}
		}
		answer = append(answer, int32(best))
		if i < words-1 {
			logits = t.tiny.Forward(cache, len(prompt)+i, answer[i:])
		}
	}
	return answer
}

// rows shows the store where the first n rows of each tensor lie: nothing is copied in between.
func rows(c *tiny.Cache, n int) (r kv.Rows) {
	for l := range c.K {
		r = append(r, kv.Packed(0, n, c.K[l]), kv.Packed(0, n, c.V[l]))
	}
	return r
}
