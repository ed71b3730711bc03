package llamacpp

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/state"
)

// canaryPosition is where the canary is evaluated, or near the end of what the model was trained for: at position 0 no rotation does
// anything, and at 100 the slow ones of a model with a large frequency base do little.
const canaryPosition = 1000

// canary is what a context computes for two tokens at a position where every setting shows: two, because one attends to itself alone,
// whatever the queries are. Its portrait is stored as a note on the model, once for each set of adapters, and compared by every Attach.
type canary struct {
	tokens   [2]kv.Token
	position int
	settings []string // "name value" of what llama.cpp tells: it does not decide, but helps who looks for the difference
	portrait portrait
}

// IdentityError is an ErrIdentity: the context computes other rows than those that are stored under its identity. Either one may
// be the wrong one, the first that was ever attached, too.
type IdentityError struct {
	Fingerprint kv.Fingerprint
	Adapters    []kv.Adapter
	Difference  float64  // in multiples of what numerics explain: batches, kernels, flash attention, releases
	Plane       string   // that decided: a layer's K or V
	Looks       string   // what it looks like
	Settings    []string // those that llama.cpp tells and that differ: "name: stored, now"
}

func (e *IdentityError) Error() string {
	settings := "all settings that llama.cpp tells are the same; it does not tell RoPE frequency base, scale and YaRN, nor adapters"
	if len(e.Settings) > 0 {
		settings = "of the settings that llama.cpp tells differ " + strings.Join(e.Settings, "; ")
	}
	return fmt.Sprintf("%v: the context computes other rows than those stored under fingerprint %s: they differ %.2g times as much as numerics explain, "+
		"first in %s. %s; %s. Make the context as it was made before, or say in Options what is different (Identity, Adapters); if the stored rows are the wrong ones, "+
		"Options.DiscardCanary or Store.Retire drops them all", ErrIdentity, e.Fingerprint, e.Difference, e.Plane, e.Looks, settings)
}

func (e *IdentityError) Unwrap() error { return ErrIdentity }

// canaryTokens are ordinary ones, from the middle of the vocabulary: the first are control tokens in most.
func (l *Library) canaryTokens(model uintptr) [2]kv.Token {
	n := int32(0)
	if l.Vocabulary != nil && l.VocabularyTokens != nil {
		n = l.VocabularyTokens(l.Vocabulary(model))
	}
	if n < 8 {
		return [2]kv.Token{1, 2}
	}
	return [2]kv.Token{n / 2, n/2 + 1}
}

func (s *Session) newCanary(model uintptr, arch string) canary {
	c := canary{tokens: s.lib.canaryTokens(model), position: canaryPosition}
	if text, ok := s.lib.meta(model, arch+".context_length"); ok { // learned positions end there
		if n, err := strconv.Atoi(text); err == nil && n > 1 {
			c.position = min(c.position, n-2)
		}
	}
	return c
}

// portraitOf is the portrait of a state of the canary.
func (s *Session) portraitOf(blob []byte) portrait {
	rest := 0
	if s.lay != nil && s.lay.recurrent != nil {
		rest = min(s.lay.recurrent.Size(), len(blob))
	}
	return portraitOf(s.canaryFormat, blob[:len(blob)-rest], blob[len(blob)-rest:])
}

// sing evaluates the canary in an empty sequence and returns the state of it. The sequence keeps it.
func (s *Session) sing(c canary, sequence int) ([]byte, error) {
	if s.o.Decode == nil {
		return nil, fmt.Errorf("%w: two tokens are evaluated, to learn the state's format and to compare what the context computes", ErrNeedDecode)
	}
	step := min(len(c.tokens), int(max(1, s.lib.Batch(s.lctx))))
	for i := 0; i < len(c.tokens); i += step {
		if err := s.o.Decode(slices.Clone(c.tokens[i:i+step]), c.position+i, sequence); err != nil {
			return nil, fmt.Errorf("llamacpp: evaluate two tokens to know the model by: %w", err)
		}
	}
	blob, err := s.get(sequence, 0)
	return bytes.Clone(blob), err
}

// in calls f with a sequence that is empty, and empties it afterwards: the given one, or another. If no sequence is empty, the given
// one's tokens are taken out meanwhile, and put back as they were.
func (s *Session) in(sequence int, f func(sequence int) error) (err error) {
	defer s.giveBack()
	free := -1
	for i := range int(s.lib.Sequences(s.lctx)) {
		if i = (i + sequence) % int(s.lib.Sequences(s.lctx)); s.lib.SequenceMax(s.memory, int32(i)) < 0 {
			free = i
			break
		}
	}
	if free >= 0 {
		defer s.clear(free)
		return f(free)
	}
	if !s.fitsAgain() {
		return fmt.Errorf("%w: no sequence is empty, and they share cells: there may be no room to put back what sequence %d holds. Empty one, or make the context "+
			"with one sequence more", ErrRefused, sequence)
	}
	held, err := s.get(sequence, 0)
	if err != nil {
		return err
	}
	held = bytes.Clone(held)
	if !s.clear(sequence) {
		return fmt.Errorf("%w: llama.cpp does not remove sequence %d", ErrRefused, sequence)
	}
	defer func() {
		s.clear(sequence)
		perr := s.set(sequence, held)
		if perr == nil {
			var again []byte
			if again, perr = s.get(sequence, 0); perr == nil && !bytes.Equal(held, again) {
				s.clear(sequence)
				perr = fmt.Errorf("%w: the tokens of sequence %d could not be put back as they were, and it is empty now: attach before anything is evaluated, "+
					"or make the context with one sequence more", ErrState, sequence)
			}
		}
		err = errors.Join(err, perr)
	}()
	return f(sequence)
}

// fitsAgain reports whether every sequence has room for itself: those that share cells (llama_memory_seq_cp) take up more when one of them
// is taken out and put back.
func (s *Session) fitsAgain() bool {
	n, all := int(s.lib.Sequences(s.lctx)), 0
	for i := range n {
		all += s.tokens(i)
	}
	return n == 1 || all <= int(s.lib.ContextTokens(s.lctx)) || s.lib.IsRecurrent(s.lib.GetModel(s.lctx))
}

// adaptersKey is the same for the same adapters in any order.
func adaptersKey(adapters []kv.Adapter) string {
	if len(adapters) == 0 {
		return ""
	}
	var all []string
	for _, a := range adapters {
		all = append(all, fmt.Sprintf("%x %08x", a.Hash, math.Float32bits(a.Scale)))
	}
	sort.Strings(all)
	return fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(all, "\n"))))[:32]
}

// canaryNote is the name of the note.
func canaryNote(adapters []kv.Adapter) string {
	return strings.TrimSpace("llamacpp canary " + adaptersKey(adapters))
}

// verifying is held from the look at the stored canary until there is one: of two sessions that are the first at once, one stores.
var verifying sync.Mutex

// verify compares the canary with the stored one, and stores it if there is none. The adapters are those that the context has now.
func (s *Session) verify(ctx context.Context, store *db.Store, c canary, adapters []kv.Adapter) error {
	verifying.Lock()
	defer verifying.Unlock()
	name := canaryNote(adapters)
	b, err := s.model.Note(name)
	var stored canary
	known := false
	switch {
	case errors.Is(err, db.ErrNotFound):
	case err != nil:
		return err
	default:
		if stored, known = decodeCanary(b); !known {
			s.o.Logger.Warn("the stored canary is of another release, and is replaced", slog.String("model", s.model.Descriptor().Name))
		}
	}
	if known && (stored.tokens != c.tokens || stored.position != c.position) { // a binding with other functions
		settings := c.settings
		c.tokens, c.position = stored.tokens, stored.position
		if err := s.in(s.o.Sequence, func(sequence int) error {
			blob, err := s.sing(c, sequence)
			c.portrait = s.portraitOf(blob)
			return err
		}); err != nil {
			return err
		}
		c.settings = settings
	}
	if known {
		d, settings := stored.portrait.against(c.portrait), stored.differs(c)
		s.deviation = d.times
		if d.times <= 1 {
			if d.worst > unexplained && len(settings) == 0 {
				s.o.Logger.Warn("the context computes a little else than what is stored, with the same settings as far as llama.cpp tells: another device, or an adapter that was not said?",
					slog.String("model", s.model.Descriptor().Name), slog.Float64("difference", d.worst))
			}
			s.sings(adapters, b)
			return nil
		}
		bad := &IdentityError{
			Fingerprint: s.model.Fingerprint(), Adapters: slices.Clone(adapters), Difference: d.times, Plane: d.plane, Looks: d.looks, Settings: settings,
		}
		if !s.o.DiscardCanary {
			return bad
		}
		s.o.Logger.Warn("what was stored under this identity is dropped", slog.Any("why", bad))
		desc := s.model.Descriptor()
		if err := store.Retire(ctx, s.model.Fingerprint()); err != nil {
			return err
		}
		if s.model, err = store.Model(ctx, desc); err != nil {
			return err
		}
		s.deviation = 0
	}
	b = c.encode()
	err = s.model.SetNote(ctx, name, b)
	if errors.Is(err, db.ErrReadOnly) {
		s.o.Logger.Warn("a read-only store has no canary of this model: that the context computes the rows that are stored is not checked")
		b, err = nil, nil
	}
	if err == nil {
		s.sings(adapters, b)
	}
	return err
}

// sings notes that the context computes what is stored.
func (s *Session) sings(adapters []kv.Adapter, note []byte) {
	s.adapters, s.note, s.sung = slices.Clone(adapters), note, true
}

// Recheck compares what the context computes with what is stored, as Attach does. Call it after the context's LoRA adapters have changed
// (llama_set_adapters_lora), with those that it has now, before Save or Prefill of a prompt with them. It evaluates two tokens in a sequence that is
// empty, or takes the tokens of Options.Sequence out and puts them back; the logits of the last decode are lost.
//
// It returns an [IdentityError] as Attach does; until a Recheck succeeds, Save and Prefill then return ErrIdentity. Restore calls it by
// itself for a prompt with other adapters.
func (s *Session) Recheck(ctx context.Context, adapters ...kv.Adapter) error {
	if ctx == nil {
		return errNoContext
	}
	return s.recheckIn(ctx, s.o.Sequence, adapters)
}

func (s *Session) recheckIn(ctx context.Context, sequence int, adapters []kv.Adapter) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.sung = false
	model := s.lib.GetModel(s.lctx)
	c := s.newCanary(model, s.model.Descriptor().Architecture)
	c.settings = s.settings(model)
	if err := s.in(sequence, func(sequence int) error {
		blob, err := s.sing(c, sequence)
		c.portrait = s.portraitOf(blob)
		return err
	}); err != nil {
		return err
	}
	return s.verify(ctx, s.store, c, adapters)
}

// identified refuses a prompt with other adapters than those with which the canary was compared, or if another session has found the
// stored one to be wrong and discarded it since.
func (s *Session) identified(prompt kv.Prompt) error {
	if !s.sung {
		return fmt.Errorf("%w: what the context computes was not found to be what is stored: see what Session.Recheck says", ErrIdentity)
	}
	b, err := s.model.Note(canaryNote(s.adapters))
	switch {
	case err != nil && !errors.Is(err, db.ErrNotFound):
		return err
	case !bytes.Equal(b, s.note):
		return fmt.Errorf("%w: the canary that the context was compared with is not the stored one any more: call Session.Recheck", ErrIdentity)
	case adaptersKey(prompt.Adapters) == adaptersKey(s.adapters):
		return nil
	}
	return fmt.Errorf("%w: the prompt has %d adapters, and the context was checked with others (%d): after llama_set_adapters_lora call Session.Recheck with the "+
		"adapters that are set", ErrIdentity, len(prompt.Adapters), len(s.adapters))
}

// Deviation is how far what the context computes was from what is stored when that was last compared, in multiples of what numerics
// explain: above 1 it is refused. 0 if there was nothing to compare with.
func (s *Session) Deviation() float64 { return s.deviation }

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

// unexplained is by how much of its length a plane does not change while all settings that can be read are the same.
const unexplained = 0.02

const canaryMagic = "canary 1\n"

// encode lays the canary out: a line that says so, u32 position, two tokens and the length of the settings, the settings in lines, the portrait.
func (c canary) encode() []byte {
	lines := strings.Join(c.settings, "\n")
	lines = lines[:min(len(lines), 1<<10)]
	b := []byte(canaryMagic)
	for _, x := range []int{c.position, int(c.tokens[0]), int(c.tokens[1]), len(lines)} {
		b = binary.LittleEndian.AppendUint32(b, uint32(x))
	}
	return c.portrait.append(append(b, lines...))
}

func decodeCanary(b []byte) (c canary, ok bool) {
	if b, ok = bytes.CutPrefix(b, []byte(canaryMagic)); !ok || len(b) < 16 {
		return c, false
	}
	number := func(i int) int { return int(int32(binary.LittleEndian.Uint32(b[4*i:]))) }
	n := number(3)
	c.position, c.tokens = number(0), [2]kv.Token{kv.Token(number(1)), kv.Token(number(2))}
	if n < 0 || n > len(b)-16 || c.position < 0 || c.tokens[0] < 0 || c.tokens[1] < 0 {
		return c, false
	}
	c.settings = strings.Split(string(b[16:16+n]), "\n")
	c.portrait, ok = decodePortrait(b[16+n:])
	return c, ok
}

// formatOf is the layout of a blob, whether or not it is one of rows; without sections if it is not understood.
func formatOf(blob []byte, sections int) state.Format {
	for n := sections; n > 0; n-- {
		if f, err := state.Learn(blob, n); err == nil {
			return f
		}
	}
	return state.Format{}
}
