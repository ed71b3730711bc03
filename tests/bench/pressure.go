package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// An app under memory pressure: it has so many conversations in its runtime's memory, one of them in front. All but its last turn of
// each is in the store, and the system prompt, with which all begin, is pinned.
const (
	pressedChats  = 6
	pressedTurn   = 1 // blocks
	pressedSystem = 4 // blocks
)

// pressedTokens is how long a conversation is.
func pressedTokens(s sizes) int { return s.blocks / 8 * blockTokens }

// pressedApp is that app.
type pressedApp struct {
	*opened
	desc    kv.Descriptor
	prompts []kv.Prompt
	caches  []*kvCache // the runtime's memory; nil while a conversation is parked
	source  *kvCache
}

// pressures measures what an app's process occupies before and after each level of Store.Pressure, and how long the next answer waits then.
func pressures(r *run) (err error) {
	if _, err := residentSet(); err != nil {
		for _, level := range []db.Pressure{db.Moderate, db.Low, db.Critical} {
			r.skip("pressure_"+level.String(), "%v", err)
		}
		return nil
	}
	for _, level := range []db.Pressure{db.Moderate, db.Low, db.Critical} {
		if name := "pressure_" + level.String(); r.wants(name) {
			if err := r.pressure(name, level); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *run) pressure(name string, level db.Pressure) error {
	var before, after, calls, next, warm []float64
	var was, is residence
	for range max(2, r.size.rounds/2) {
		dir, err := r.folder(name)
		if err != nil {
			return err
		}
		x, err := newPressedApp(dir, r.size)
		if err != nil {
			return errors.Join(err, os.RemoveAll(dir))
		}
		err = func() error {
			answer := x.front
			if level >= db.Low { // the one in front was not parked: the next is another's
				answer = x.parked
			}
			took, err := since(answer)
			if err != nil {
				return err
			}
			warm = append(warm, took.Seconds())
			if was, err = residentSet(); err != nil {
				return err
			}
			took, err = since(func() error { _, err := x.Pressure(ctx, level); return err })
			if err != nil {
				return err
			}
			calls = append(calls, took.Seconds())
			if is, err = residentSet(); err != nil {
				return err
			}
			took, err = since(answer)
			next = append(next, took.Seconds())
			return err
		}()
		if err := errors.Join(err, x.Close(), os.RemoveAll(dir)); err != nil {
			return err
		}
		before, after = append(before, was.all()), append(after, is.all())
	}
	what := fmt.Sprintf("%d tokens", pressedTokens(r.size))
	if level >= db.Low {
		what += " of a conversation that was parked"
	}
	r.emit(figure{
		name: name, unit: "MiB", values: after, ratios: quotients(after, before),
		reference: fmt.Sprintf("resident memory after the call (last round: %s), beside that before it (%s): %d conversations of %d tokens, of 16 MiB of "+
			"f16 for %d; the call: %s; the next answer restores %s: %s, %s before the call",
			is, was, pressedChats, pressedTokens(r.size), 16<<20/(len(descriptor(r.size.layers, kv.F16).Tensors)*width*2),
			ms(calls), what, ms(next), ms(warm)),
	})
	return nil
}

// newPressedApp makes a store in which the conversations are, restores them, and takes one more turn in each.
func newPressedApp(dir string, size sizes) (*pressedApp, error) {
	n := pressedTokens(size)
	desc := descriptor(size.layers, kv.F16)
	s, err := openStore(dir, desc, options())
	if err != nil {
		return nil, err
	}
	x := &pressedApp{opened: s, desc: desc, source: newKVCache(desc, n).fill()}
	err = func() error {
		system := tokens(1, min(pressedSystem*blockTokens, n/2))
		for i := range pressedChats {
			p := kv.Prompt{Tokens: slices.Concat(system, tokens(2+i, n-len(system)))}
			x.prompts = append(x.prompts, p)
			if _, err := s.put(p.Prefix(n-pressedTurn*blockTokens), x.source.rows(n)); err != nil {
				return err
			}
		}
		if err := s.model.SetRef(ctx, "system", kv.Prompt{Tokens: system}, db.RefOptions{Pinned: true}); err != nil {
			return err
		}
		if err := s.Checkpoint(ctx); err != nil {
			return err
		}
		for i := range x.prompts {
			x.caches = append(x.caches, nil)
			if err := x.load(i); err != nil {
				return err
			}
		}
		return nil
	}()
	x.source = nil // the app computed it once; it is in the caches
	s.OnPressure(x.park)
	debug.FreeOSMemory()
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return x, nil
}

// load brings a conversation into the runtime's memory.
func (x *pressedApp) load(i int) error {
	p := x.prompts[i]
	if x.caches[i] == nil {
		x.caches[i] = newKVCache(x.desc, len(p.Tokens))
	}
	m, err := x.model.Match(ctx, p, db.MatchOptions{})
	if err != nil {
		return err
	}
	got, err := m.Restore(ctx, x.caches[i].rows(len(p.Tokens)))
	if err == nil && got.Tokens < len(p.Tokens)-pressedTurn*blockTokens {
		err = fmt.Errorf("a conversation has %d tokens: %s", got.Tokens, got.Reason)
	}
	return errors.Join(err, m.Close())
}

// front restores the conversation in front, as after the runtime was made anew; parked, the one before it.
func (x *pressedApp) front() error  { return x.load(0) }
func (x *pressedApp) parked() error { return x.load(1) }

// park stores what the idle conversations have more than the store, and gives their memory back.
func (x *pressedApp) park(ctx context.Context, _ db.Pressure) error {
	for i, c := range x.caches[1:] {
		if c == nil {
			continue
		}
		if _, err := x.put(x.prompts[1+i], c.rows(c.tokens)); err != nil {
			return err
		}
		x.caches[1+i] = nil
	}
	return nil
}

// residence is what a process has in memory.
type residence struct{ Own, Files float64 } // MiB: its own, and of files that are mapped

func (r residence) all() float64 { return r.Own + r.Files }

func (r residence) String() string {
	return fmt.Sprintf("%.0f MiB, of these %.0f of mapped files", r.all(), r.Files)
}
