package chat

import (
	"context"
	"slices"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// Warm computes a prompt between turns, stores it and pins it under a name. The prompt may be a system prompt that conversations without an
// [Options].User will begin with. Turns go first. If a turn needs the room, Warm loads its rows again later, or returns kv.ErrFull if they do not fit. Called
// again, it goes on from there. A prompt of fewer than [kv.OpeningTokens] tokens cannot be pinned, since no lookup finds it: the error is the store's.
func (h *Host) Warm(ctx context.Context, name string, prompt []kv.Token) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return ErrClosed
	}
	if err := h.check(prompt); err != nil {
		return err
	}
	h.done.Add(1) // so that Close waits: after it, the runtime belongs to the caller
	defer h.done.Done()
	w := &warming{seq: -1}
	h.warms = append(h.warms, w)
	h.warmBusy = true
	defer func() {
		h.warmBusy = false
		h.warms = slices.DeleteFunc(h.warms, func(x *warming) bool { return x == w })
		if w.seq >= 0 {
			_ = h.release(w.seq)
		}
	}()
	p := kv.Prompt{Tokens: prompt}
	for at := 0; at < len(prompt); {
		if w.seq < 0 {
			seq, err := h.acquire(nil)
			if err != nil {
				return err
			}
			w.seq = seq
			if at, err = h.loadRows(ctx, nil, p, seq, whole(len(prompt))); err != nil {
				return err
			}
			continue
		}
		end := min(at+slice, len(prompt))
		if _, _, err := h.decode(ctx, nil, w.seq, at, prompt[at:end], false); err != nil {
			return err
		}
		if err := h.rt.Store(ctx, p, w.seq, kv.Range{Start: at, End: end}); err != nil {
			return err
		}
		at = end
		h.warmBusy = false
		h.mu.Unlock() // a turn goes first
		h.mu.Lock()
		if h.closed {
			return ErrClosed
		}
		h.warmBusy = true
	}
	return h.model.SetRef(ctx, name, p, db.RefOptions{Pinned: true})
}
