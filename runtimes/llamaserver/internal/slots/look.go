package slots

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
)

// Look asks the server for its slots, and corrects the table by what it says.
type Look struct {
	Table *Table
	API   *api.Client
	Log   *slog.Logger
	Ctx   context.Context // of the front: what a request has begun is looked at after its client has gone, too
	// KeepsIdle says that the server keeps idle slots when a request begins in another.
	KeepsIdle bool
}

// list is what the server says; nil if it says nothing.
func (l *Look) list(ctx context.Context) []api.Slot {
	list, err := l.API.Slots(ctx)
	if err != nil {
		l.Log.Debug("looking at the slots", "err", err)
		return nil
	}
	return list
}

// Believe corrects what idle slots hold, and the leased one. It reports whether the server has loaded its model again. The caller has the turn.
func (l *Look) Believe(ctx context.Context, leased *Slot) (slept bool) {
	return l.Table.Believe(l.list(ctx), leased)
}

// Unchanged reports whether a slot is as its last request has left it, as far as the server says, and whether the server has loaded its model again. The
// caller has the turn.
func (l *Look) Unchanged(ctx context.Context, sl *Slot) (same, slept bool) {
	return l.Table.Unchanged(l.list(ctx), sl)
}

// Avoid exchanges a leased slot at which somebody else is at work for an idle one, if there is one. The caller has the turn.
func (l *Look) Avoid(ctx context.Context, leased *Slot) {
	if list := l.list(ctx); list != nil {
		l.Table.avoid(list, leased)
	}
}

// Taken reports whether somebody else works in an idle slot, which is forgotten then.
func (l *Look) Taken(ctx context.Context, sl *Slot) bool {
	if !working(l.list(ctx), sl) {
		return false
	}
	l.Table.Forget(sl)
	return true
}

// working reports whether the server works in a slot, as its list says.
func working(list []api.Slot, sl *Slot) bool {
	return slices.ContainsFunc(list, func(st api.Slot) bool { return st.ID == sl.ID && st.Processing })
}

// Ended returns those of some slots in which the server does not work any more: it may clear them.
func (l *Look) Ended(ctx context.Context, slots []*Slot) []*Slot {
	if len(slots) == 0 {
		return nil
	}
	list := l.list(ctx)
	return slices.DeleteFunc(slots, func(sl *Slot) bool {
		return !slices.ContainsFunc(list, func(st api.Slot) bool { return st.ID == sl.ID && !st.Processing })
	})
}

// Newest returns the number of the last task that began in any slot.
func (l *Look) Newest(ctx context.Context) (task int) {
	for _, st := range l.list(ctx) {
		task = max(task, st.Task())
	}
	return task
}

// Launched waits until a request that was sent works in its slot, its answer has begun, or the client has gone: what is done to slots
// afterwards comes after it. It returns what the server says of its slots if the request is seen there.
func (l *Look) Launched(ctx context.Context, sl *Slot, answering <-chan struct{}) []api.Slot {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		select {
		case <-answering:
			return nil
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		list := l.list(ctx)
		for _, st := range list {
			if st.ID == sl.ID && st.Processing {
				l.Table.began(sl, st.Task())
				return list
			}
		}
	}
}

// Chosen waits until a request that cannot name its slot is in one, which becomes the leased one. Its task began after the given one. If nobody can tell
// which slot it is, Chosen returns false and forgets what idle slots hold. The caller has the turn.
func (l *Look) Chosen(ctx context.Context, leased *Slot, after int, answering <-chan struct{}) bool {
	answered := false
	for pause := time.Millisecond; !answered && ctx.Err() == nil; pause = min(2*pause, 50*time.Millisecond) {
		select {
		case <-answering:
			answered = true
		case <-ctx.Done():
		case <-time.After(pause):
		}
		begun := slices.DeleteFunc(l.list(l.Ctx), func(st api.Slot) bool { return st.Task() <= after })
		if len(begun) == 1 && l.Table.move(leased, begun[0].ID, begun[0].Task()) {
			return true
		}
		if len(begun) > 0 { // requests that passed are there, too
			break
		}
	}
	l.Table.forgetIf(func(sl *Slot) bool { return !sl.Busy || sl == leased })
	return false
}

// ForgetEmptied forgets what the server has emptied since a request began in a slot: it may empty all slots in which it does not work. list is what the
// server says of its slots since then; nil: it is asked.
func (l *Look) ForgetEmptied(ctx context.Context, begun *Slot, list []api.Slot) {
	if l.KeepsIdle {
		return
	}
	if list == nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), api.SlotTime)
		defer cancel()
		list = l.list(ctx)
	}
	l.Table.forgetEmptied(list, begun)
}

// hearing is how long the server is left in peace. It looks whether a client is still there when it has had nothing to answer to anybody for a second:
// who asks it about its slots more often keeps it at work to the end.
const hearing = 1500 * time.Millisecond

// Stopped waits until the server works in a slot no more. When it hears that the client has gone, it ends the batch at which it is, however long that
// takes. Until then it puts off whatever is asked of the slot. Stopped returns false if the server does not answer, or the front ends.
func (l *Look) Stopped(sl *Slot, gone func() bool) bool {
	for {
		list, err := l.API.Slots(l.Ctx)
		if err != nil || gone() {
			return false
		}
		if !working(list, sl) {
			return true
		}
		select {
		case <-l.Ctx.Done():
			return false
		case <-time.After(hearing):
		}
	}
}
