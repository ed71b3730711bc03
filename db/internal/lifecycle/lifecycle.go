package lifecycle

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dormousekv/dormouse/internal/lock"
)

// Lifecycle counts the operations under way on a store, and gives the store to one owner at a time: Suspend, Resume, Close, a
// rebuild of the index. An owner waits for the operations to end. Unlike with a sync.RWMutex, an operation that begins
// while an owner waits does not wait for that owner for ever: it may be one that a callback of another operation calls. It
// gives way for a moment only, so that in a busy store there comes one without operations.
type Lifecycle struct {
	state atomic.Int64 // operations under way, and held

	mu     lock.Mutex[lock.Lifecycle]
	change *sync.Cond // of state, owner, owned and refuse while an owner waits
	owner  bool       // guarded by mu: there is an owner, or one who waits to be it; another one waits for him
	owned  bool       // guarded by mu
	wanted bool       // guarded by mu: an owner waits, and operations that begin give way
	refuse error      // guarded by mu: what operations get that begin now; nil lets them in, or wait for the owner
}

// Courtesy is how long operations give way to an owner who waits, and then he to them: longer than most of them take.
const Courtesy = time.Second

// New is that of a store that nobody uses yet.
func New() *Lifecycle {
	l := &Lifecycle{}
	l.change = sync.NewCond(&l.mu)
	return l
}

// held is in state while somebody owns the store or waits for it: operations begin under mu then.
const held = 1 << 62

func (l *Lifecycle) underWay() int64 { return l.state.Load() &^ held }

// Enter begins an operation. It waits while somebody owns the store, or until ctx ends. always is for what gives something back: nobody refuses it.
func (l *Lifecycle) Enter(ctx context.Context, always bool) error {
	for n := l.state.Load(); n < held; n = l.state.Load() {
		if l.state.CompareAndSwap(n, n+1) {
			return nil
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.wakeAfter(ctx)()
	for {
		if l.refuse != nil && !always {
			return l.refuse
		}
		// An owner who waits for nobody any more is about to own the store.
		if !l.owned && (always || !l.owner || !l.wanted && l.underWay() > 0) {
			l.state.Add(1)
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("the index is being rebuilt, or the store resumes: %w", context.Cause(ctx))
		}
		l.change.Wait()
	}
}

// wakeAfter wakes whoever waits for a change when ctx ends, until stop is called.
func (l *Lifecycle) wakeAfter(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.change.Broadcast()
	})
}

// Leave ends an operation.
func (l *Lifecycle) Leave() {
	if l.state.Add(-1) == held { // the last one, and somebody waits
		l.mu.Lock()
		l.change.Broadcast()
		l.mu.Unlock()
	}
}

// Own waits until no operation is under way and keeps all out until Disown. Operations that come meanwhile get refuse; with
// nil those that come before the last has ended give way for a moment and are then let in, the others wait. If ctx ends
// first, nobody owns the store, and operations go on; where there is nothing to wait for, ctx does not count.
func (l *Lifecycle) Own(ctx context.Context, refuse error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.wakeAfter(ctx)()
	for l.owner {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		l.change.Wait()
	}
	l.claim(refuse)
	return l.await(ctx)
}

// OwnLater has do own the store, in the background, and returns at once. Operations that begin after that give way to do, as to an owner who
// waits in Own.
func (l *Lifecycle) OwnLater(do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := !l.owner
	if first {
		l.claim(nil)
	}
	go func() {
		l.mu.Lock()
		if !first {
			for l.owner {
				l.change.Wait()
			}
			l.claim(nil)
		}
		l.await(context.Background())
		l.mu.Unlock()
		defer l.Disown()
		do()
	}()
}

// claim is the first step of owning the store: operations that begin give way from now on.
func (l *Lifecycle) claim(refuse error) {
	l.owner, l.refuse, l.wanted = true, refuse, true
	l.state.Add(held)
}

// await is the second step: it waits until no operation is under way.
func (l *Lifecycle) await(ctx context.Context) error {
	if l.underWay() > 0 {
		// By turns: one moment for the owner, who gets his way if what is under way ends, and one for operations.
		waits := true // guarded by mu
		var turn *time.Timer
		turn = time.AfterFunc(Courtesy, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			if waits {
				l.wanted = !l.wanted
				l.change.Broadcast()
				turn.Reset(Courtesy)
			}
		})
		for l.underWay() > 0 && ctx.Err() == nil {
			l.change.Wait()
		}
		waits = false
		turn.Stop()
		if l.underWay() > 0 { // it only falls while mu is held
			l.letIn()
			return context.Cause(ctx)
		}
	}
	l.owned, l.wanted = true, false
	return nil
}

// Disown ends what Own began.
func (l *Lifecycle) Disown() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.letIn()
}

func (l *Lifecycle) letIn() {
	l.owner, l.owned, l.wanted, l.refuse = false, false, false, nil
	l.state.Add(-held)
	l.change.Broadcast()
}
