package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
)

// worker is one goroutine.
type worker struct {
	*crew
	id    int
	r     *rand.Rand
	held  []held
	bufs  buffers
	count int // restores that were compared
}

// held is a match that stays open while other things happen.
type held struct {
	x *db.Match
	c *chat
}

// do journals an operation, does it, and journals how it ended. What one must not end in ends the child.
func (w *worker) do(o op, fn func(id int) error) {
	id := w.log.begin(o)
	err := fn(id)
	if err != nil && !w.expected(o.kind, err) {
		w.log.complain(findError, "%s of chat %d, %d tokens, %s: %v", o.kind, o.chat, o.n, o.name, err)
		os.Exit(3)
	}
	w.log.end(id, err == nil)
}

// expected reports whether an operation may be refused so.
func (w *worker) expected(kind opKind, err error) bool {
	switch {
	case errors.Is(err, db.ErrSuspended):
		time.Sleep(time.Millisecond) // another worker has it
		return true
	case errors.Is(err, db.ErrRetired):
		return true
	case errors.Is(err, db.ErrNotStored), errors.Is(err, db.ErrNotFound):
		return kind == opPut || kind == opRef || kind == opUnref || kind == opRetire // a deletion was faster
	case errors.Is(err, db.ErrNoSpace):
		return w.order.Mode.Small
	}
	return false
}

// model is the handle for a chat. One of a model that was retired is replaced before it is used again.
func (w *worker) model(c *chat) *db.Model { return w.models[c.model].Load() }

func (w *worker) run() {
	for {
		w.life.RLock()
		reopen := w.step()
		w.life.RUnlock()
		if reopen {
			w.reopen()
		}
	}
}

// step does one thing. It reports whether the store is to be closed and opened again.
func (w *worker) step() (reopen bool) {
	c := w.w.chats[w.r.IntN(chatCount)]
	n := c.p.Clip(kv.OpeningTokens + w.r.IntN(len(c.p.Tokens)-kv.OpeningTokens+1))
	if n < kv.OpeningTokens || w.r.IntN(3) > 0 { // mostly most of it
		n = c.p.Clip(len(c.p.Tokens) - w.r.IntN(1+len(c.p.Tokens)/3))
	}
	tidy := w.order.Mode.Checkpoints > 0
	switch x := w.r.IntN(1000); {
	case x < 360:
		w.put(c, n)
	case x < 600:
		w.extend(c, n)
	case x < 720:
		w.restore(c, n)
	case x < 760:
		w.hold(c, n)
	case x < 800:
		w.release(1)
	case x < 850:
		w.ref(c, n)
	case x < 860:
		o := op{kind: opNote, chat: c.id, n: w.r.IntN(4) * 700, name: fmt.Sprint("note-", w.id, "-", w.r.IntN(workerRefs))}
		w.do(o, func(id int) error { return w.model(c).SetNote(ctx, o.name, metaOf(id, o.n)) })
	case x < 880:
		name := fmt.Sprint("ref-", w.id, "-", w.r.IntN(workerRefs))
		w.do(op{kind: opUnref, name: name}, func(int) error { return w.store.DeleteRef(ctx, name) })
	case x < 945:
		w.remove(c, n)
	case x < 953:
		if s := scopes[w.r.IntN(len(scopes))]; s != "" {
			w.do(op{kind: opScope, name: s}, func(int) error { _, err := w.store.DeleteScope(ctx, s); return err })
		}
	case x < 955:
		w.retire(c)
	case x < 963:
		w.other(nameSync, func() error {
			err := w.store.Sync(ctx)
			if pending := (*db.PendingError)(nil); errors.As(err, &pending) {
				return nil
			}
			return err
		})
	case x < 967:
		w.stats()
	case x < 972 && w.order.Mode.Small:
		w.other("shrink", func() error {
			_, err := w.store.Shrink(ctx, w.order.Mode.Budget*int64(20+w.r.IntN(60))/100)
			return err
		})
	case x < 980 && tidy:
		w.durable("checkpoint", func() error { return w.store.Checkpoint(ctx) })
	case x < 983 && tidy:
		w.durable("trim", func() error { _, err := w.store.Pressure(ctx, db.Moderate); return err })
	case x < 993 && tidy:
		w.other("compact", func() error { _, err := w.store.Compact(ctx, db.CompactOptions{All: true}); return err })
	case x < 997 && tidy:
		w.durable("suspend", func() error { return w.store.Suspend(ctx) })
		w.other("resume", func() error { return w.store.Resume(ctx) })
	default:
		return tidy
	}
	return false
}

func (w *worker) durable(name string, fn func() error) {
	w.do(op{kind: opDurable, name: name}, func(int) error { return fn() })
}

func (w *worker) other(name string, fn func() error) {
	w.do(op{kind: opOther, name: name}, func(int) error { return fn() })
}

func (w *worker) options() db.PutOptions {
	switch w.r.IntN(6) {
	case 0:
		return db.PutOptions{Codec: quant.Raw}
	case 1:
		return db.PutOptions{Codec: quant.Q8_0, Compression: quant.Zstd}
	case 2:
		return db.PutOptions{Codec: quant.ByteSplit, Compression: quant.Huff0}
	}
	return db.PutOptions{}
}

func (w *worker) put(c *chat, n int) {
	w.do(op{kind: opPut, chat: c.id, n: n}, func(int) error {
		got, err := w.model(c).Put(ctx, c.p.Prefix(n), c.rows(0, n), w.options())
		return w.stored(c, n, got, err)
	})
}

// stored checks what an acknowledged put says of itself.
func (w *worker) stored(c *chat, n int, got db.PutResult, err error) error {
	if err == nil && got.Tokens != n {
		w.log.complain(findError, "a put of %d tokens of chat %d is acknowledged with %+v", n, c.id, got)
	}
	return err
}

func (w *worker) extend(c *chat, n int) {
	w.do(op{kind: opPut, chat: c.id, n: n}, func(int) error {
		p := c.p.Prefix(n)
		x, err := w.model(c).Match(ctx, p, db.MatchOptions{})
		if err != nil {
			return err
		}
		defer x.Close()
		from := x.Tokens()
		if has(&c.d, kv.Window) { // of a window the runtime gives what it has: all that a restore gives it
			from = max(0, from-windowRows)
		}
		got, err := x.Extend(ctx, p, c.rows(from, n), w.options())
		return w.stored(c, n, got, err)
	})
}

func (w *worker) ref(c *chat, n int) {
	n, _, err := w.model(c).Probe(ctx, c.p.Prefix(n), db.MatchOptions{})
	if err != nil || n < kv.OpeningTokens {
		return
	}
	o := op{
		kind: opRef, chat: c.id, n: n, name: fmt.Sprint("ref-", w.id, "-", w.r.IntN(workerRefs)),
		pinned: w.r.IntN(4) > 0, priority: uint8(w.r.IntN(5)), meta: w.r.IntN(200),
	}
	switch w.r.IntN(20) {
	case 0:
		o.ttl = 1 // over before anybody looks
	case 1, 2:
		o.ttl = 3600_000
	case 3:
		o.meta = db.MaxRefMeta
	}
	w.do(o, func(id int) error {
		return w.model(c).SetRef(ctx, o.name, c.p.Prefix(n), db.RefOptions{
			Pinned: o.pinned, Priority: o.priority, TTL: time.Duration(o.ttl) * time.Millisecond, Meta: metaOf(id, o.meta),
		})
	})
}

func (w *worker) remove(c *chat, n int) {
	switch w.r.IntN(12) {
	case 0: // what others have in common with it, too
		n = c.p.Clip(kv.OpeningTokens + w.r.IntN(60))
	case 1, 2, 3, 4: // all that is its own
		n = c.p.Clip(systemA + 1 + w.r.IntN(20))
	}
	if n < 1 {
		return
	}
	w.do(op{kind: opDelete, chat: c.id, n: n}, func(int) error {
		_, err := w.model(c).Delete(ctx, c.p.Prefix(n))
		return err
	})
}

func (w *worker) retire(c *chat) {
	fp := w.w.models[c.model].Fingerprint()
	w.do(op{kind: opRetire, chat: c.id, n: 1}, func(int) error { return w.store.Retire(ctx, fp) })
	for {
		err := w.register(c.model)
		if err == nil {
			return
		}
		full := errors.Is(err, db.ErrNoSpace) && w.order.Mode.Small // until a match is closed that keeps what was retired
		if !errors.Is(err, db.ErrSuspended) && !full {
			w.log.complain(findError, "model: %v", err)
			os.Exit(3)
		}
		time.Sleep(time.Millisecond)
	}
}

// restore compares what a match gives with the truth, whatever it is.
func (w *worker) restore(c *chat, n int) {
	x, err := w.model(c).Match(ctx, c.p.Prefix(n), db.MatchOptions{})
	if err != nil {
		w.unexpected("match", err)
		return
	}
	w.compare(held{x, c})
}

func (w *worker) hold(c *chat, n int) {
	if len(w.held) > 3 {
		w.release(2)
	}
	x, err := w.model(c).Match(ctx, c.p.Prefix(n), db.MatchOptions{})
	if err != nil {
		w.unexpected("match", err)
		return
	}
	w.held = append(w.held, held{x, c})
}

func (w *worker) release(n int) {
	for ; n > 0 && len(w.held) > 0; n-- {
		h := w.held[0]
		w.held = w.held[1:]
		w.compare(h)
	}
}

// compare restores a match and closes it.
func (w *worker) compare(h held) {
	defer h.x.Close()
	_, _, err := h.c.compare(h.x, &w.bufs)
	if wrong := (*wrongError)(nil); errors.As(err, &wrong) {
		w.log.complain(findWrong, "chat %d: %v", h.c.id, err)
		os.Exit(3)
	}
	w.unexpected("restore", err)
	if w.count++; w.count%16 == 0 {
		w.log.compared(16)
	}
}

func (w *worker) unexpected(what string, err error) {
	if err == nil || errors.Is(err, db.ErrSuspended) || errors.Is(err, db.ErrRetired) {
		return
	}
	w.log.complain(findError, "%s: %v", what, err)
	os.Exit(3)
}

func (w *worker) stats() {
	s, err := w.store.Stats()
	if err != nil {
		w.unexpected("stats", err)
		return
	}
	if s.DiskHighWater > s.Budget {
		w.log.complain(findBudget, "%d bytes were in use, of a budget of %d", s.DiskHighWater, s.Budget)
		os.Exit(3)
	}
}

// reopen closes the store in an orderly way and opens it again.
func (w *worker) reopen() {
	w.life.Lock()
	defer w.life.Unlock()
	for _, m := range w.members {
		for _, h := range m.held {
			h.x.Close()
		}
		m.held = nil
	}
	w.durable("close", func() error { return w.store.Close() })
	w.other("open", func() error { return w.open() })
}
