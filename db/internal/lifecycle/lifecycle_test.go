package lifecycle

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// An owner has the store to itself, whoever comes and goes meanwhile.
func TestLife(t *testing.T) {
	l := New()
	var inside, owners int
	var mu sync.Mutex
	var wait sync.WaitGroup
	refused := errors.New("refused")
	for g := range 8 {
		wait.Go(func() {
			for i := range 2000 {
				if (i+g)%16 == 0 {
					var refuse error
					if i%2 == 0 {
						refuse = refused
					}
					l.Own(t.Context(), refuse)
					mu.Lock()
					if owners++; inside > 0 || owners != 1 {
						t.Errorf("an owner among %d operations and %d owners", inside, owners)
					}
					owners--
					mu.Unlock()
					l.Disown()
					continue
				}
				if err := l.Enter(t.Context(), g%2 == 0); err != nil {
					if g%2 == 0 || err != refused {
						t.Errorf("enter: %v", err)
					}
					continue
				}
				mu.Lock()
				if inside++; owners > 0 {
					t.Error("an operation beside an owner")
				}
				inside--
				mu.Unlock()
				l.Leave()
			}
		})
	}
	wait.Wait()
}

// Whoever rebuilds the index gets the store, however busy it is.
func TestOwnerIsNotStarved(t *testing.T) {
	l := New()
	var users sync.WaitGroup
	var stop atomic.Bool
	inside := make(chan struct{}, 8)
	for range 8 {
		users.Go(func() {
			for !stop.Load() {
				if err := l.Enter(t.Context(), false); err != nil {
					t.Error(err)
					return
				}
				inside <- struct{}{}
				for len(inside) < 2 && !stop.Load() && l.underWay() > 1 { // rather two at a time than none
					runtime.Gosched()
				}
				time.Sleep(time.Millisecond)
				<-inside
				l.Leave()
			}
		})
	}
	owned := make(chan struct{})
	go func() {
		for range 3 {
			l.Own(t.Context(), nil)
			l.Disown()
		}
		close(owned)
	}()
	select {
	case <-owned:
	case <-time.After(20 * time.Second):
		t.Error("after 20 s of operations that overlap, nobody owns the store")
	}
	stop.Store(true)
	users.Wait()
	<-owned
}

// An operation's callbacks may use the store as often as they like while somebody waits to have it to himself: the wait is
// between the two of them, not for each call.
func TestManyCallsFromACallback(t *testing.T) {
	l := New()
	if err := l.Enter(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	var owner sync.WaitGroup
	owner.Go(func() {
		l.Own(t.Context(), nil)
		l.Disown()
	})
	for l.state.Load() < held { // the owner does not wait yet
		time.Sleep(time.Millisecond)
	}
	var inside sync.WaitGroup
	for range 3 {
		inside.Go(func() {
			for range 1000 {
				if err := l.Enter(t.Context(), false); err != nil {
					t.Error(err)
				}
				l.Leave()
			}
		})
	}
	inside.Wait()
	l.Leave()
	owner.Wait()
	if n := l.underWay(); n != 0 {
		t.Errorf("%d operations are under way", n)
	}
}

// Who waits no longer than he may leaves no trace: neither who came first, nor one who waits for another owner.
func TestOwnerGivesUp(t *testing.T) {
	l := New()
	if err := l.Enter(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	refused, enough := errors.New("refused"), errors.New("enough")
	first, stopFirst := context.WithCancelCause(t.Context())
	second, stopSecond := context.WithCancelCause(t.Context())
	var owners sync.WaitGroup
	owners.Go(func() {
		if err := l.Own(first, refused); err != enough {
			t.Errorf("the first owner: %v", err)
		}
	})
	for l.state.Load() < held { // the owner does not wait yet
		time.Sleep(time.Millisecond)
	}
	owners.Go(func() {
		if err := l.Own(second, nil); err != enough {
			t.Errorf("the second owner: %v", err)
		}
	})
	time.Sleep(10 * time.Millisecond)
	stopSecond(enough)
	if err := l.Enter(t.Context(), false); err != refused {
		t.Errorf("an operation while the first owner waits: %v", err)
	}
	stopFirst(enough)
	owners.Wait()
	if err := l.Enter(t.Context(), false); err != nil || l.state.Load() >= held {
		t.Errorf("an operation afterwards: %v", err)
	}
	l.Leave()
	l.Leave()
	if err := l.Own(first, nil); err != nil { // there is nothing to wait for
		t.Fatal(err)
	}
	l.Disown()
}

// An operation that waits for an owner ends with its context, and is not under way then.
func TestEnterGivesUp(t *testing.T) {
	l := New()
	if err := l.Own(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	enough := errors.New("enough")
	ctx, stop := context.WithCancelCause(t.Context())
	var operation sync.WaitGroup
	operation.Go(func() {
		if err := l.Enter(ctx, false); !errors.Is(err, enough) {
			t.Errorf("an operation: %v", err)
		}
	})
	stop(enough)
	operation.Wait()
	if n := l.underWay(); n != 0 {
		t.Errorf("%d operations are under way", n)
	}
	l.Disown()
	if err := l.Enter(ctx, false); err != nil { // there is nothing to wait for
		t.Fatal(err)
	}
	l.Leave()
}

// An owner owns, or has an error, whoever comes meanwhile only to be refused and comes again at once: who is on his way in is no operation, and keeps no
// owner waiting.
func TestOwnBesideRefused(t *testing.T) {
	l := New()
	refused := errors.New("refused")
	var wait sync.WaitGroup
	var stop atomic.Bool
	for range 16 {
		wait.Go(func() {
			for !stop.Load() {
				if l.Enter(t.Context(), false) == nil {
					time.Sleep(10 * time.Microsecond)
					l.Leave()
				}
			}
		})
	}
	for i := range 10 {
		if err := l.Own(t.Context(), refused); err != nil {
			t.Fatal(err)
		}
		l.mu.Lock()
		owned := l.owned
		l.mu.Unlock()
		if !owned {
			t.Errorf("round %d: Own returned nil, and nobody owns the store", i)
			break
		}
		l.Disown()
		time.Sleep(time.Millisecond)
	}
	stop.Store(true)
	wait.Wait()
}
