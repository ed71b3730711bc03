package llamacpp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/internal/portrait"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/state"
)

// canaryPosition is where the canary is evaluated, or near the end of what the model was trained for: at position 0 no rotation does
// anything, and at 100 the slow ones of a model with a large frequency base do little.
const canaryPosition = 1000

// canaryLength is how many tokens are evaluated. The first one attends to itself alone, whatever its query is: of two tokens, queries
// show in half of one. With 16, rounding grows as much as what is looked for, and it takes twice the time.
const canaryLength = 8

// canary is what a context computes for some tokens at a position where every setting shows. Its portrait is stored as a note on the
// model, once for each set of adapters, and compared by every Attach.
type canary struct {
	tokens   []kv.Token
	position int
	settings []string       // "name value" of what llama.cpp tells: it does not decide, but helps who looks for the difference
	noise    portrait.Noise // how far rounding alone moves the rows
	portrait portrait.Portrait
}

// canaryTokens are ordinary ones, from the middle half of the vocabulary: the first are control tokens in most.
func (l *Library) canaryTokens(model uintptr) []kv.Token {
	n := 0
	if l.Vocabulary != nil && l.VocabularyTokens != nil {
		n = int(l.VocabularyTokens(l.Vocabulary(model)))
	}
	out := make([]kv.Token, canaryLength)
	for i := range out {
		switch {
		case n >= 4*canaryLength:
			out[i] = kv.Token(n/4 + i*(n/2/canaryLength))
		case n > 0:
			out[i] = kv.Token(i % n)
		default: // a binding without these functions
			out[i] = kv.Token(1 + i)
		}
	}
	return out
}

func (s *Session) newCanary(model uintptr, arch string) canary {
	c := canary{tokens: s.lib.canaryTokens(model), position: canaryPosition}
	if n := s.trained(model, arch); n > canaryLength { // learned positions end there
		c.position = min(c.position, n-canaryLength)
	}
	return c
}

// portraitOf is the portrait of a state of the canary.
func (s *Session) portraitOf(blob []byte) portrait.Portrait {
	rest := min(s.rest, len(blob))
	return portrait.Of(s.canaryFormat, blob[:len(blob)-rest], blob[len(blob)-rest:])
}

// errNotEvaluated says that the caller's Decode failed for the canary.
var errNotEvaluated = errors.New("llamacpp: what the model is known by was not evaluated")

// sing evaluates the canary in an empty sequence and returns the state of it. The sequence keeps it.
func (s *Session) sing(c canary, sequence, step int) ([]byte, error) {
	if s.o.Decode == nil {
		return nil, fmt.Errorf("%w: %d tokens are evaluated, to learn the state's format and to compare what the context computes", ErrNeedDecode, len(c.tokens))
	}
	step = max(1, min(step, int(s.lib.Batch(s.lctx))))
	for i := 0; i < len(c.tokens); i += step {
		if err := s.decode(slices.Clone(c.tokens[i:min(i+step, len(c.tokens))]), c.position+i, sequence); err != nil {
			return nil, fmt.Errorf("%w: %d tokens at position %d: %w", errNotEvaluated, len(c.tokens), c.position, err)
		}
	}
	blob, err := s.get(sequence, 0)
	return bytes.Clone(blob), err
}

// sungIn is the portrait of what the context computes now, so many tokens at a time. The sequence is the one to take if it is empty.
func (s *Session) sungIn(c canary, sequence, step int) (p portrait.Portrait, err error) {
	err = s.in(sequence, func(sequence int) error {
		blob, err := s.sing(c, sequence, step)
		p = s.portraitOf(blob)
		return err
	})
	return p, err
}

// noiseOf measures how far rounding moves the rows of this model: with the canary at other positions. Attention sees distances only, so
// V and recurrent states are the same there but for the rounding of the rotations, and what becomes of that on its way through the
// layers is what becomes of any rounding: of other batches, kernels, flash attention. Where positions are not rotated, that shows nothing, and
// the canary is evaluated token by token instead. 0 says that nothing shows it.
func (s *Session) noiseOf(c canary, sequence int) (most portrait.Noise, err error) {
	for _, position := range []int{c.position / 2, c.position - c.position/10} {
		moved := c
		moved.position = position
		if moved.portrait, err = s.sungIn(moved, sequence, canaryLength); err != nil {
			return most, err
		}
		n := c.portrait.Rounding(moved.portrait)
		most = portrait.Noise{Most: max(most.Most, n.Most), Mean: max(most.Mean, n.Mean)}
	}
	if most.Most == 0 {
		p, err := s.sungIn(c, sequence, 1)
		return c.portrait.Rounding(p), err
	}
	return most, nil
}

// settings are those that llama.cpp tells of a context.
func (s *Session) settings(model uintptr) []string {
	l := s.lib
	out := []string{
		fmt.Sprint("n_ctx ", l.ContextTokens(s.lctx)), fmt.Sprint("n_batch ", l.Batch(s.lctx)), fmt.Sprint("n_ubatch ", l.MicroBatch(s.lctx)),
		fmt.Sprint("n_seq_max ", l.Sequences(s.lctx)), fmt.Sprint("rope_freq_scale_train ", l.RopeScale(model)), fmt.Sprint("n_swa ", l.Window(model)),
		fmt.Sprint("LLAMA_ATTN_ROT_DISABLE ", rotationDisabled()), fmt.Sprint("state ", s.shape),
	}
	if l.Version != nil {
		out = append(out, "llama_version "+l.Version())
	}
	if l.ModelBytes != nil && l.ModelValues != nil {
		out = append(out, fmt.Sprint("llama_model_size ", l.ModelBytes(model)), fmt.Sprint("llama_model_n_params ", l.ModelValues(model)))
	}
	return out
}

// against compares what a context computes now with what is stored. If nothing showed what rounding does, and llama.cpp tells the same
// settings as then, the model is taken for one in which it does least: some releases compute the same bits whatever the batches are.
func (c canary) against(now canary) portrait.Difference {
	n := c.noise
	if n.Most == 0 && len(c.differs(now)) == 0 {
		n.Most = math.SmallestNonzeroFloat64
	}
	return c.portrait.Against(now.portrait, n)
}

// differs lists the settings that are not what they were.
func (c canary) differs(now canary) (out []string) {
	was := map[string]string{}
	for _, x := range c.settings {
		name, value, _ := strings.Cut(x, " ")
		was[name] = value
	}
	for _, x := range now.settings {
		name, value, _ := strings.Cut(x, " ")
		if old, ok := was[name]; ok && old != value {
			out = append(out, fmt.Sprintf("%s: %s, now %s", name, old, value))
		}
	}
	return out
}

// canaryMagic begins a note. Release 0.1.0-dev wrote "canary 1", of two tokens.
const canaryMagic = "canary 2\n"

// mostCanaryTokens bounds what a note may say.
const mostCanaryTokens = 64

// encode lays the canary out: a line that says so, u32 position, noise (two f32), number of tokens and length of the settings, the tokens
// (u32), the settings in lines, the portrait.
func (c canary) encode() []byte {
	lines := strings.Join(c.settings, "\n")
	lines = lines[:min(len(lines), 1<<10)]
	b := []byte(canaryMagic)
	b = binary.LittleEndian.AppendUint32(b, uint32(c.position))
	b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(c.noise.Most)))
	b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(c.noise.Mean)))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(c.tokens)))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(lines)))
	for _, t := range c.tokens {
		b = binary.LittleEndian.AppendUint32(b, uint32(t))
	}
	return c.portrait.Append(append(b, lines...))
}

// decodeCanary reads what encode wrote. What another release wrote is no canary.
func decodeCanary(b []byte) (c canary, ok bool) {
	if b, ok = bytes.CutPrefix(b, []byte(canaryMagic)); !ok || len(b) < 20 {
		return c, false
	}
	number := func(i int) int { return int(int32(binary.LittleEndian.Uint32(b[4*i:]))) }
	real := func(i int) float64 { return float64(math.Float32frombits(uint32(number(i)))) }
	tokens, lines := number(3), number(4)
	c.position, c.noise = number(0), portrait.Noise{Most: real(1), Mean: real(2)}
	b = b[20:]
	if tokens <= 0 || tokens > mostCanaryTokens || lines < 0 || c.position < 0 || !(c.noise.Most >= 0 && c.noise.Mean >= 0) || len(b)-4*tokens < lines {
		return c, false
	}
	for i := range tokens {
		if c.tokens = append(c.tokens, kv.Token(number(i))); c.tokens[i] < 0 {
			return c, false
		}
	}
	b = b[4*tokens:]
	c.settings = strings.Split(string(b[:lines]), "\n")
	c.portrait, ok = portrait.Decode(b[lines:])
	return c, ok
}

// formatOf is the layout of a blob, whether or not it is kept as rows, and how many bytes follow that it does not describe: the recurrent part of a hybrid, which is
// what can be had of the blob alone. It has no sections if it is not understood.
func (s *Session) formatOf(blob, tail []byte) (f state.Format, rest int) {
	if s.lay != nil {
		if s.lay.recurrent != nil {
			rest = s.lay.recurrent.Size()
		}
		return s.lay.format, rest
	}
	if s.recurs() {
		part, err := state.Body(tail)
		if err != nil || !bytes.HasSuffix(blob, part) {
			return f, 0
		}
		rest = len(part)
	}
	for n := 2; n > 0; n-- {
		if f, err := state.Learn(blob[:len(blob)-rest], n); err == nil {
			return f, rest
		}
	}
	return state.Format{}, 0
}
