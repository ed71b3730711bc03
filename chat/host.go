package chat

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// NewHost returns a host for a runtime, whose sequences must be empty and which nobody else uses from now on. If the runtime lacks something that
// conversations need, the error is [kv.ErrUnsupported] and names it. A conversation of the default size takes up to 6,144 cells beside others:
// 2 x (facts + ring) + reserve + branches + window.
func NewHost(store *db.Store, model *db.Model, rt Runtime) (*Host, error) {
	h := &Host{store: store, model: model, rt: rt, lim: rt.Limits(), open: map[string]*Conversation{}, tidySlice: tidySlice}
	const least = 3 // one for the rows of a conversation, one for a turn's view, one for a rewrite or a branch
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

// Info describes a conversation in a list.
type Info struct {
	ID       string
	Open     bool
	Bytes    int64 // of its file
	Created  time.Time
	Modified time.Time
	Meta     []byte // what [Conversation.SetMeta] was given; only for open conversations
}

// List lists all conversations of the store, those of other models too.
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
		return i, nil // new: nothing is written yet
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

// Delete deletes a conversation for good: its file and its rows. If it is open in any host of the store, the error is [ErrOpen]. After the store's
// next Sync no file has anything of it but the system prompt, which others share. The last conversation of a user ([Options].User) takes the user's
// system prompt along.
func (h *Host) Delete(ctx context.Context, id string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closed:
		return ErrClosed
	case h.open[id] != nil:
		return fmt.Errorf("%w: %q", ErrOpen, id)
	}
	file, err := h.store.OpenSession(ctx, Scope(id)) // so that nobody opens it meanwhile
	if errors.Is(err, db.ErrSessionOpen) {
		return fmt.Errorf("%w: %q: %w", ErrOpen, id, err)
	}
	if err == nil { // a damaged file is deleted, too
		defer file.Close()
	}
	h.clear()
	if err := h.deleteSystem(ctx, id); err != nil { // first, because the file says what is to be deleted
		return err
	}
	_, err = h.store.DeleteScope(ctx, Scope(id))
	return err
}

// deleteSystem deletes the system prompt of a user's last conversation. That prompt is in no conversation's scope, so deleting the scope leaves it.
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
		case err != nil: // nobody can know its user
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
	for _, x := range models { // the first token names the user, so this also deletes earlier versions of the prompt
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

// Trim parks idle conversations until so many cells are free, the one that was used longest ago first. Their rows are in the store, and are loaded
// when they go on.
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

// parkIdle parks all conversations without an open turn.
func (h *Host) parkIdle() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.parkOldest(nil) {
	}
}

// Close ends the work in the background, aborts open turns and closes all conversations. It leaves the runtime's sequences empty.
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
