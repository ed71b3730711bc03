package chat

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// Host holds conversations on one runtime: it hands out the runtime's sequences and calls it from one goroutine at a time. Its
// methods, and those of its conversations and turns, may be called from several.
type Host struct {
	store *db.Store
	model *db.Model
	rt    Runtime
	lim   kv.Limits

	mu        sync.Mutex // the runtime, and all that follows, conversations and turns included
	free      []int      // sequences
	open      map[string]*Conversation
	turns     int // open ones, of all conversations
	clock     uint64
	closed    bool
	tidier    bool // the goroutine that rewrites between turns is there
	tidySlice int  // what it computes at a time
	warms     []*warming
	warmBusy  bool // one of them is at work: none gives anything back
	done      sync.WaitGroup
	stop      context.CancelFunc
	ctx       context.Context
	calm      func() // takes the answer to db.Pressure out of the store
}

// NewHost takes over a runtime, whose sequences are empty. It returns [kv.ErrUnsupported], and what is missing, if conversations cannot be
// held on it. A conversation of the default size takes up to 6,144 cells beside others: 2 x (facts + ring) + reserve + branches + window.
func NewHost(store *db.Store, model *db.Model, rt Runtime) (*Host, error) {
	h := &Host{store: store, model: model, rt: rt, lim: rt.Limits(), open: map[string]*Conversation{}, tidySlice: tidySlice}
	const least = 3 // the rows of a conversation, a turn's view of them, and a rewrite or a branch
	switch {
	case h.lim.Missing != "":
		return nil, fmt.Errorf("%w: conversations on this runtime: %s", kv.ErrUnsupported, h.lim.Missing)
	case h.lim.Sequences < least:
		return nil, fmt.Errorf("%w: conversations need %d sequences, this runtime has %d", kv.ErrUnsupported, least, h.lim.Sequences)
	case h.lim.Batch < 1:
		return nil, fmt.Errorf("%w: a batch has %d steps", kv.ErrUnsupported, h.lim.Batch)
	}
	for seq := h.lim.Sequences - 1; seq >= 0; seq-- {
		h.free = append(h.free, seq)
	}
	h.ctx, h.stop = context.WithCancel(context.Background())
	h.calm = store.OnPressure(func(context.Context, db.Pressure) error { h.parkIdle(); return nil })
	return h, nil
}

// Scope is the name of a conversation's scope in the store (db.Store.DeleteScope).
func Scope(id string) string { return "conversation/" + id }

// Info is a conversation as a list shows it.
type Info struct {
	ID       string
	Open     bool
	Bytes    int64 // of its file
	Created  time.Time
	Modified time.Time
	Meta     []byte // what [Conversation.SetMeta] was given; only of open ones and of [Inspect]
}

// List lists the conversations of the store, those of other models included.
func (h *Host) List(ctx context.Context) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		for s, err := range h.store.Sessions(ctx) {
			var i Info
			if err == nil {
				i, err = h.info(s)
			}
			if !yield(i, err) {
				return
			}
		}
	}
}

func (h *Host) info(s db.SessionInfo) (Info, error) {
	i := Info{Bytes: s.Bytes, Modified: s.Modified}
	if s.First.Kind != headFrame {
		return i, nil // made, and nothing written yet
	}
	head, err := decodeHead(s.First.Body)
	if err != nil {
		return i, fmt.Errorf("conversation of scope %v: %w", s.Scope, err)
	}
	i.ID, i.Created = head.id, head.created
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.open[i.ID]; c != nil {
		i.Open, i.Meta = true, slices.Clone(c.log.meta)
	}
	return i, nil
}

// Delete deletes a conversation for good, file and rows. It must not be open, in this host or in another one of the store: [ErrOpen]. After the
// store's next Sync nothing of it is in any file, but the system prompt, which is everybody's. One that is a user's own ([Options].User) goes with
// the last conversation of that user.
func (h *Host) Delete(ctx context.Context, id string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closed:
		return ErrClosed
	case h.open[id] != nil:
		return fmt.Errorf("%w: %q", ErrOpen, id)
	}
	file, err := h.store.OpenSession(ctx, Scope(id)) // held until it is gone
	if errors.Is(err, db.ErrSessionOpen) {
		return fmt.Errorf("%w: %q: %w", ErrOpen, id, err)
	}
	if err == nil { // one that is damaged goes, too
		defer file.Close()
	}
	h.clear()
	if err := h.deleteSystem(ctx, id); err != nil { // before the file goes, which says that there is something to delete
		return err
	}
	_, err = h.store.DeleteScope(ctx, Scope(id))
	return err
}

// deleteSystem deletes the system prompt of a conversation, if it is a user's own, and no other conversation of that user is left. It is in no
// conversation's scope.
func (h *Host) deleteSystem(ctx context.Context, id string) error {
	var own *head
	others := map[string]bool{} // users
	for s, err := range h.store.Sessions(ctx) {
		if err != nil {
			return err
		}
		if s.First.Kind != headFrame {
			continue
		}
		switch x, err := decodeHead(s.First.Body); {
		case err != nil: // its user is not known
		case x.id == id:
			own = &x
		default:
			others[x.user] = true
		}
	}
	if own == nil || own.user == "" || others[own.user] || len(own.system) == 0 {
		return nil
	}
	first := newLog(Scope(id), own.user, own.system).prompt()
	models, err := db.Collect(h.store.Models())
	if err != nil {
		return err
	}
	for _, x := range models { // the first token says whose it is: so also what the prompt was before it was changed
		m, err := h.store.Model(x.Fingerprint)
		if errors.Is(err, db.ErrNotFound) || errors.Is(err, db.ErrCorrupt) {
			continue // of such a one nothing can be read
		}
		if err == nil {
			_, err = m.Delete(ctx, first.Prefix(1))
		}
		if err != nil && !errors.Is(err, db.ErrRetired) {
			return err
		}
	}
	return nil
}

// clear drops rows that the runtime has kept of what nobody computes now.
func (h *Host) clear() {
	if rt, ok := h.rt.(interface{ Clear() }); ok {
		rt.Clear()
	}
}

// Trim parks idle conversations, those that were used longest ago first, until so many cells are free: their rows are in the store, and are
// loaded when they go on.
func (h *Host) Trim(ctx context.Context, cells int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return ErrClosed
	}
	for h.lim.Cells-h.used() < cells {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !h.parkOldest(nil) {
			return fmt.Errorf("%w: %d cells are free, the rest is in use", kv.ErrFull, max(0, h.lim.Cells-h.used()))
		}
	}
	return nil
}

// parkIdle parks all conversations of which no turn is open.
func (h *Host) parkIdle() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.parkOldest(nil) {
	}
}

// used estimates the cells in use from above: branches and views share cells with the conversation.
func (h *Host) used() (n int) {
	for _, c := range h.open {
		n += c.cells()
	}
	return n
}

// Close ends what goes on in the background and closes all conversations; open turns are aborted. The runtime's sequences are empty then.
func (h *Host) Close() error {
	h.stop()
	h.calm()
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil
	}
	h.closed = true
	var errs []error
	for _, c := range h.open {
		errs = append(errs, c.close())
	}
	h.mu.Unlock()
	h.done.Wait()
	return errors.Join(errs...)
}

// acquire hands out an empty sequence; if there is none, an idle conversation other than keep is parked.
func (h *Host) acquire(keep *Conversation) (int, error) {
	for len(h.free) == 0 {
		if !h.parkOldest(keep) {
			return 0, fmt.Errorf("%w: all %d sequences are in use", kv.ErrFull, h.lim.Sequences)
		}
	}
	seq := h.free[len(h.free)-1]
	h.free = h.free[:len(h.free)-1]
	return seq, nil
}

// everything is all positions there can be.
var everything = kv.Range{Start: 0, End: math.MaxInt32}

// release empties a sequence and takes it back. One that the runtime does not empty is not handed out again.
func (h *Host) release(seq int) error {
	err := h.rt.Remove(seq, everything)
	if err == nil {
		h.free = append(h.free, seq)
	}
	return err
}

// parkOldest frees some of the cache: it parks the idle conversation that was used longest ago, or else takes what a Warm has, or a rewrite
// that waits for the end of a turn, or else has keep give what it can. It says whether there was something.
func (h *Host) parkOldest(keep *Conversation) bool {
	var oldest *Conversation
	for _, c := range h.open {
		if c != keep && c.turn == nil && (c.seq >= 0 || c.re != nil) && (oldest == nil || c.used < oldest.used) {
			oldest = c
		}
	}
	if oldest == nil {
		return h.cool() || h.dropRewrite(keep) || keep != nil && keep.give()
	}
	oldest.park()
	return true
}

// dropRewrite gives up a rewrite of a conversation other than keep, of which a turn is open, and says whether there was one.
func (h *Host) dropRewrite(keep *Conversation) bool {
	for _, c := range h.open {
		if c != keep && c.re != nil && !c.stepping {
			c.dropRewrite()
			return true
		}
	}
	return false
}

// steps decodes one batch. If the cache is full, idle conversations other than keep are parked.
func (h *Host) steps(ctx context.Context, keep *Conversation, steps []kv.Step) error {
	for {
		err := h.rt.Decode(ctx, steps)
		if !errors.Is(err, kv.ErrFull) || !h.parkOldest(keep) {
			return err
		}
	}
}

// slice is how many tokens are decoded before a context is looked at.
const slice = 256

// decode computes tokens from a position on and returns the scores after the last one, in the runtime's memory, if they are wanted, and
// how many were computed.
func (h *Host) decode(ctx context.Context, keep *Conversation, seq, pos int, tokens []kv.Token, want bool) ([]float32, int, error) {
	n := 0
	var steps []kv.Step
	for n < len(tokens) {
		if err := ctx.Err(); err != nil {
			return nil, n, err
		}
		steps = steps[:0]
		for k := n; k < min(len(tokens), n+min(slice, h.lim.Batch)); k++ {
			steps = append(steps, kv.Step{Token: tokens[k], Pos: pos + k, Seq: seq, Logits: want && k == len(tokens)-1})
		}
		if err := h.steps(ctx, keep, steps); err != nil {
			return nil, n, err
		}
		n += len(steps)
	}
	if !want || n == 0 {
		return nil, n, nil
	}
	return h.rt.Logits(len(steps) - 1), n, nil
}

// check returns ErrOptions if there is a token that the model is known not to have: one that is in a log could never be computed.
func (h *Host) check(tokens []kv.Token) error {
	for _, t := range tokens {
		if v := h.lim.Vocabulary; t < 0 || v > 0 && int(t) >= v {
			return fmt.Errorf("%w: token %d, and the model has %d", ErrOptions, t, v)
		}
	}
	return nil
}
