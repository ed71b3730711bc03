package lifecycle

import (
	"context"
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
	users atomic.Int64 // operations under way
	sure  atomic.Bool  // nobody owns the store or waits for it: the way in that takes no lock

	mu     lock.Mutex[lock.Lifecycle]
	change *sync.Cond // of users, owner, owned and refuse while an owner waits
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
	l.sure.Store(true)
	return l
}

// Enter begins an operation. always lets it in where it would be refused: what gives something back.
func (l *Lifecycle) Enter(always bool) error {
	l.users.Add(1)
	if l.sure.Load() {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users.Add(-1) == 0 { // who waits is not under way
		l.change.Broadcast()
	}
	for {
		if l.refuse != nil && !always {
			return l.refuse
		}
		if !l.owned && (always || !l.wanted) {
			l.users.Add(1)
			return nil
		}
		l.change.Wait()
	}
}

// Leave ends an operation.
func (l *Lifecycle) Leave() {
	if l.users.Add(-1) == 0 && !l.sure.Load() {
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
	defer context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.change.Broadcast()
	})()
	for l.owner {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		l.change.Wait()
	}
	l.owner, l.refuse, l.wanted = true, refuse, true
	l.sure.Store(false)
	if l.users.Load() > 0 {
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
		gone := l.users.Load() == 0 // asked once a turn: who is on his way to find the store owned counts for a moment, too
		for !gone && ctx.Err() == nil {
			l.change.Wait()
			gone = l.users.Load() == 0
		}
		waits = false
		turn.Stop()
		if !gone {
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
	l.sure.Store(true)
	l.change.Broadcast()
}
