package llamacpp

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/dormousekv/dormouse/runtimes/internal/portrait"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/internal/canary"
)

// canaryMaker has a context compute the canary.
type canaryMaker struct {
	cells    *cells
	form     *form
	deferred *deferred
	sequence int // the one to take, if it is empty
}

// plan is the canary of this context, not yet computed.
func (m *canaryMaker) plan(arch string) canary.Canary {
	model := m.cells.model()
	c := canary.Canary{Tokens: m.cells.ordinaryTokens(canary.Length), Position: canary.Position}
	if n := m.cells.lib.trained(model, arch); n > canary.Length { // learned positions end there
		c.Position = min(c.Position, n-canary.Length)
	}
	return c
}

// settings are those that llama.cpp tells of a context.
func (m *canaryMaker) settings() []string {
	l, lctx, model := m.cells.lib, m.cells.lctx, m.cells.model()
	out := []string{
		fmt.Sprint("n_ctx ", l.ContextTokens(lctx)), fmt.Sprint("n_batch ", l.Batch(lctx)), fmt.Sprint("n_ubatch ", l.MicroBatch(lctx)),
		fmt.Sprint("n_seq_max ", l.Sequences(lctx)), fmt.Sprint("rope_freq_scale_train ", l.RopeScale(model)), fmt.Sprint("n_swa ", l.Window(model)),
		fmt.Sprint("LLAMA_ATTN_ROT_DISABLE ", rotationDisabled()), fmt.Sprint("state ", m.form.shape),
	}
	if l.Version != nil {
		out = append(out, "llama_version "+l.Version())
	}
	if l.ModelBytes != nil && l.ModelValues != nil {
		out = append(out, fmt.Sprint("llama_model_size ", l.ModelBytes(model)), fmt.Sprint("llama_model_n_params ", l.ModelValues(model)))
	}
	return out
}

// evaluate evaluates the canary in an empty sequence, so many tokens at a time, and returns the state of it. The sequence keeps it.
func (m *canaryMaker) evaluate(c canary.Canary, sequence, step int) ([]byte, error) {
	if m.deferred.decode == nil {
		return nil, fmt.Errorf("%w: %d tokens are evaluated, to learn the state's format and to compare what the context computes", ErrNeedDecode, len(c.Tokens))
	}
	step = max(1, min(step, int(m.cells.lib.Batch(m.cells.lctx))))
	for i := 0; i < len(c.Tokens); i += step {
		if err := m.deferred.evaluate(slices.Clone(c.Tokens[i:min(i+step, len(c.Tokens))]), c.Position+i, sequence); err != nil {
			return nil, fmt.Errorf("%w: %d tokens at position %d: %w", errNotEvaluated, len(c.Tokens), c.Position, err)
		}
	}
	blob, err := m.cells.get(sequence, 0)
	return bytes.Clone(blob), err
}

// portrait is that of what the context computes now, so many tokens at a time. The sequence is the one to take if it is empty.
func (m *canaryMaker) portrait(c canary.Canary, sequence, step int) (p portrait.Portrait, err error) {
	err = m.deferred.borrow(sequence, func(sequence int) error {
		blob, err := m.evaluate(c, sequence, step)
		p = m.form.portrait(blob)
		return err
	})
	return p, err
}

// like returns c as the context computes it with the tokens and the position of the stored one, which a binding with other
// functions chose.
func (m *canaryMaker) like(c, stored canary.Canary) (canary.Canary, error) {
	if slices.Equal(stored.Tokens, c.Tokens) && stored.Position == c.Position {
		return c, nil
	}
	var err error
	c.Tokens, c.Position = stored.Tokens, stored.Position
	c.Portrait, err = m.portrait(c, m.sequence, canary.Length)
	return c, err
}

// noise measures how far rounding moves the rows of this model: with the canary at other positions. Attention sees distances
// only. So V and recurrent states are the same there but for the rounding of the rotations, and what becomes of that on its
// way through the layers is what becomes of any rounding: of other batches, kernels, flash attention. Where positions are
// not rotated, that shows nothing, and the canary is evaluated token by token instead. 0 says that nothing shows it.
func (m *canaryMaker) noise(c canary.Canary) (most portrait.Noise, err error) {
	for _, position := range []int{c.Position / 2, c.Position - c.Position/10} {
		moved := c
		moved.Position = position
		if moved.Portrait, err = m.portrait(moved, m.sequence, canary.Length); err != nil {
			return most, err
		}
		n := c.Portrait.Rounding(moved.Portrait)
		most = portrait.Noise{Most: max(most.Most, n.Most), Mean: max(most.Mean, n.Mean)}
	}
	if most.Most == 0 {
		p, err := m.portrait(c, m.sequence, 1)
		return c.Portrait.Rounding(p), err
	}
	return most, nil
}

// probe returns the state of a sequence that holds the canary, and checks that llama.cpp takes it back. Of a model with a
// window, and of a hybrid, it has the last part alone, too, if that can be had.
func (m *canaryMaker) probe(c canary.Canary) (blob, tail []byte, err error) {
	if err := m.cells.has(m.sequence); err != nil {
		return nil, nil, err
	}
	err = m.deferred.borrow(m.sequence, func(sequence int) error {
		if blob, err = m.evaluate(c, sequence, canary.Length); err != nil {
			return err
		}
		if !m.cells.clear(sequence) {
			return fmt.Errorf("%w: llama.cpp does not remove sequence %d", ErrRefused, sequence)
		}
		if err := m.cells.set(sequence, blob); err != nil {
			return fmt.Errorf("%w: llama.cpp does not take back its own state: %w", ErrRefused, err)
		}
		again, err := m.cells.get(sequence, 0)
		if err != nil {
			return err
		}
		if !bytes.Equal(blob, again) {
			return fmt.Errorf("%w: a state of %d bytes that was given back reads differently", ErrRefused, len(blob))
		}
		lib, model := m.cells.lib, m.cells.model()
		if lib.Window(model) > 0 || lib.IsHybrid != nil && lib.IsHybrid(model) {
			if b, err := m.cells.get(sequence, FlagPartial); err == nil {
				tail = bytes.Clone(b)
			}
		}
		return nil
	})
	return blob, tail, err
}
