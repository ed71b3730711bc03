package engine_test

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// Somebody deletes what one match rests on: other matches keep nothing of what is evicted afterwards.
func TestDeletionUnderOneMatchOfTwo(t *testing.T) {
	d := crashtest.Plain()
	s, m := storetest.Fresh(t, putsEvict(6<<20, 256<<10), d)
	a, b := kv.Prompt{Tokens: crashtest.Tokens(1, 160)}, kv.Prompt{Tokens: crashtest.Tokens(2, 160)}
	storetest.Put(t, m, a)
	storetest.Put(t, m, b)
	xa := storetest.Match(t, m, a)
	xb := storetest.Match(t, m, b)
	defer xb.Close()
	storetest.Must(m.Delete(t.Context(), a.Prefix(16)))(t)
	storetest.OK(t, xa.Close())
	for i := range 400 {
		if err := putNth(t, m, 100+i); err != nil {
			st := storetest.Stats(t, s)
			t.Fatalf("put %d: %v\n(evicted %d, blocks %d)", i, err, st.Evicted, storetest.Engine(s).Ledger.Counts().Blocks)
		}
	}
}

// What puts give up is no match's, unless one rests on it: an open match of another prompt keeps none of it, and the store goes on taking puts.
func TestGivenUpUnderAnotherMatch(t *testing.T) {
	for _, c := range []struct {
		what string
		d    kv.Descriptor
		puts func(t *testing.T, m *db.Model)
	}{
		{"states", crashtest.Opaque(), putManyStates},
		{"partial blocks that longer ones take the place of", crashtest.Plain(), func(t *testing.T, m *db.Model) {
			for turn := 1; turn <= 3000; turn++ {
				storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(50+turn/100, 1+turn%100)})
			}
		}},
		{"records of a put that lost against another of the same prompt", crashtest.Plain(), putManyTwice},
		{"partial blocks that a match itself put, and then replaced", crashtest.Plain(), extendByOne},
	} {
		for _, open := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, open %t", c.what, open), func(t *testing.T) {
				s, m := storetest.Fresh(t, putsEvict(6<<20, 256<<10), c.d)
				other := kv.Prompt{Tokens: crashtest.Tokens(7, 64)}
				storetest.PutState(t, m, other, 0)
				if open {
					x := storetest.Match(t, m, other)
					defer x.Close()
				}
				c.puts(t, m)
				storetest.OK(t, storetest.Engine(s).Checkpoints.Reclaim(t.Context()))
			})
		}
	}
}

// putManyStates puts a chat whose every turn gives up the state of the turn before the last.
func putManyStates(t *testing.T, m *db.Model) {
	d, chat := m.Descriptor(), crashtest.Tokens(9, 64*20)
	for turn := 1; turn <= 200; turn++ {
		p := kv.Prompt{Tokens: crashtest.Concat(chat, crashtest.Tokens(50, 6*turn))}
		rows := storetest.Filled(d, &p, 0, len(p.Tokens))
		for i, tensor := range d.Tensors {
			if d.Groups[tensor.Group].Kind == kv.StateAt {
				big := make([]byte, 100<<10)
				copy(big, rows[i].Pieces[0].Mem)
				rows[i] = kv.Packed(len(p.Tokens), 1, big)
			}
		}
		storetest.Must(m.Put(t.Context(), p, rows, db.PutOptions{KeepStates: 2}))(t)
	}
}

// putManyTwice has four at a time put the same prompt.
func putManyTwice(t *testing.T, m *db.Model) {
	for i := 0; i < 60 && !t.Failed(); i++ {
		p := kv.Prompt{Tokens: crashtest.Tokens(100+i, 320)}
		rows := storetest.Filled(m.Descriptor(), &p, 0, 320)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if _, err := m.Put(t.Context(), p, rows, db.PutOptions{}); err != nil {
					t.Errorf("put %d: %v", i, err)
				}
			})
		}
		wg.Wait()
	}
}

// extendByOne has matches that found nothing extended a token at a time.
func extendByOne(t *testing.T, m *db.Model) {
	for chat := range 30 {
		all := crashtest.Tokens(50+chat, 101)
		y := storetest.Must(m.Match(t.Context(), kv.Prompt{Tokens: all[:1]}, db.MatchOptions{NoLookup: true}))(t)
		for n := 1; n <= 100; n++ {
			p := kv.Prompt{Tokens: all[:n]}
			if _, err := y.Extend(t.Context(), p, storetest.Filled(m.Descriptor(), &p, 0, n), db.PutOptions{}); err != nil {
				t.Fatalf("chat %d, %d tokens: %v", chat, n, err)
			}
		}
		storetest.OK(t, y.Close())
	}
}

// A match on a disk where holes cannot be punched lets puts evict.
func TestMatchWithoutHoles(t *testing.T) {
	for _, c := range []struct {
		name      string
		high, low float64
		open      bool
	}{{"puts, none open", 1, 1, false}, {"puts", 1, 1, true}, {"background", 0.7, 0.6, true}} {
		t.Run(c.name, func(t *testing.T) {
			o := storetest.Options()
			o.Budget, o.SegmentBytes = 16<<20, 256<<10
			o.HighWater, o.LowWater = c.high, c.low
			s := storetest.OpenOn(t, crashtest.NoHoles{FS: vfs.OS}, t.TempDir(), o)
			d := crashtest.Plain()
			m := storetest.Model(t, s, d)
			p := kv.Prompt{Tokens: crashtest.Tokens(1, 32)}
			storetest.Put(t, m, p)
			for k := range 30 {
				storetest.OK(t, putNth(t, m, 5000+k))
			}
			var x *db.Match
			if c.open {
				x = storetest.Match(t, m, p)
			}
			n := 0
			for ; n < 100; n++ {
				if err := putNth(t, m, 10000+n); err != nil {
					t.Errorf("put %d: %v", n, err)
					break
				}
			}
			if x != nil {
				storetest.OK(t, x.Close())
			}
		})
	}
}

// A callback of layers that takes its time keeps nothing from the puts of others.
func TestPutsBesideSlowLayers(t *testing.T) {
	d := crashtest.Plain()
	s, m := storetest.Fresh(t, putsEvict(6<<20, 256<<10), d)
	a := kv.Prompt{Tokens: crashtest.Tokens(1, 160)}
	n := 100
	for storetest.Stats(t, s).Evicted == 0 {
		storetest.OK(t, putNth(t, m, n))
		n++
	}
	storetest.Put(t, m, a)
	x := storetest.Match(t, m, a)
	defer x.Close()
	in, out := make(chan bool), make(chan bool)
	done := make(chan error)
	go func() {
		first := true
		_, err := x.RestoreLayers(t.Context(), storetest.Empty(d, 160), func(layer, tokens int) {
			if first {
				first = false
				close(in)
				<-out
			}
		})
		done <- err
	}()
	<-in
	start := time.Now()
	for range 5 {
		err := putNth(t, m, n)
		n++
		if err != nil {
			t.Errorf("a put beside a slow restore, after %v: %v (no space: %v)", time.Since(start), err, errors.Is(err, db.ErrNoSpace))
			break
		}
	}
	close(out)
	storetest.OK(t, <-done)
}

// A match that was extended keeps what it found, also where the next extension goes on from elsewhere.
func TestExtensionElsewhere(t *testing.T) {
	d := crashtest.Plain()
	_, m := storetest.Fresh(t, putsEvict(6<<20, 256<<10), d)
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 100)}
	storetest.Put(t, m, p)
	x := storetest.Match(t, m, p)
	defer x.Close()
	for _, q := range []kv.Prompt{{Tokens: crashtest.Concat(p.Tokens, crashtest.Tokens(2, 100))}, {Tokens: crashtest.Concat(p.Tokens[:90], crashtest.Tokens(3, 100))}, {Tokens: crashtest.Tokens(3, 100)}} {
		storetest.Must(x.Extend(t.Context(), q, storetest.Filled(d, &q, 0, len(q.Tokens)), db.PutOptions{}))(t)
		for i := range 30 {
			storetest.OK(t, putNth(t, m, 100+i))
		}
		rows := storetest.Empty(d, 100)
		got, err := x.Restore(t.Context(), rows)
		if err != nil || got.Tokens != 100 {
			t.Errorf("%d %v %v", got.Tokens, got.Reason, err)
		}
	}
}

// A state that is deleted stays with the matches that found it.
func TestDeletedStateOfAMatch(t *testing.T) {
	for _, d := range []kv.Descriptor{crashtest.Hybrid(), crashtest.Opaque()} {
		for _, restored := range []bool{true, false} {
			_, m := storetest.Fresh(t, storetest.Options(), d)
			p := kv.Tokens(crashtest.Tokens(1, 64)...)
			storetest.PutState(t, m, p, 0)
			x := storetest.Match(t, m, p)
			if restored {
				rows := storetest.Empty(d, 64)
				got, err := x.Restore(t.Context(), rows)
				if err != nil || got.Tokens != 64 {
					t.Fatal(got, err)
				}
			}
			storetest.Must(m.Delete(t.Context(), p))(t)
			rows := storetest.Empty(d, 64)
			got := storetest.Must(x.Restore(t.Context(), rows))(t)
			if restored && got.Tokens != 64 {
				t.Errorf("%s: an open match gave 64 tokens, and after a deletion %d: %v", d.Name, got.Tokens, got.Reason)
			}
			if got.Tokens == 0 && got.Reason.Code != db.Gone {
				t.Errorf("%s: the reason is %q", d.Name, got.Reason)
			}
			x.Close()
		}
	}
}

// What is deleted and stored anew is not what a match found: it gives what is before that, before and after an eviction.
func TestStoredAnewUnderAMatch(t *testing.T) {
	d := crashtest.Plain()
	s, m := storetest.Fresh(t, storetest.Options(), d)
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 160)}
	storetest.Put(t, m, p)
	x := storetest.Match(t, m, p)
	storetest.Must(m.Delete(t.Context(), p.Prefix(70)))(t)
	storetest.Put(t, m, p)
	for _, when := range []string{"at first", "after an eviction"} {
		rows := storetest.Empty(d, 160)
		got, err := x.Restore(t.Context(), rows)
		if err != nil || got.Tokens != 64 || got.Reason.Code != db.Gone {
			t.Errorf("%s: %d tokens, %v, %v", when, got.Tokens, got.Reason, err)
		}
		storetest.CheckRows(t, d, &p, rows, got.Tokens)
		_, _, err = storetest.Engine(s).Space.Shrink(t.Context(), 0)
		storetest.OK(t, err)
	}
	storetest.OK(t, x.Close())
}

// What a match put and somebody deletes is none that it found: it waits for no other match.
func TestDeletedExtensionOfAMatch(t *testing.T) {
	d := crashtest.Plain()
	s, m := storetest.Fresh(t, storetest.Options(), d)
	other := kv.Prompt{Tokens: crashtest.Tokens(7, 64)}
	storetest.Put(t, m, other)
	x := storetest.Match(t, m, other)
	defer x.Close()
	p := kv.Tokens(crashtest.Tokens(1, 160)...)
	y := storetest.Match(t, m, p)
	if y.Tokens() != 0 {
		t.Fatal(y.Tokens())
	}
	storetest.Must(y.Extend(t.Context(), p, storetest.Filled(d, &p, 0, 160), db.PutOptions{}))(t)
	storetest.Must(m.Delete(t.Context(), p.Prefix(16)))(t)
	storetest.OK(t, y.Close())
	err := s.Sync(t.Context())
	if held := storetest.Engine(s).Segments.Held(); held != 0 || err != nil {
		t.Errorf("%d bytes held of what no match found; Sync: %v", held, err)
	}
}

// What rested on a first block that was deleted rests on nothing.
func TestPinOnADeletedFirstBlock(t *testing.T) {
	d := crashtest.Plain()
	s, m := storetest.Fresh(t, storetest.Options(), d)
	p := kv.Tokens(crashtest.Tokens(1, 160)...)
	storetest.Put(t, m, p)
	x := storetest.Match(t, m, p)
	defer x.Close()
	storetest.Must(m.Delete(t.Context(), p.Prefix(16)))(t)
	if n, _ := storetest.Engine(s).Pins.Counts(); n != 0 || storetest.Engine(s).Ledger.Counts().Blocks != 0 {
		t.Errorf("%d pinned blocks, %d stored", n, storetest.Engine(s).Ledger.Counts().Blocks)
	}
}

// A put that fails takes nothing from the match that it extends.
func TestFailedExtensionKeepsPins(t *testing.T) {
	full := false
	disk := storetest.Failing(func(c storetest.Call) error {
		if full && c.InLog() && (c.Kind == "write" || c.Kind == "create") {
			return vfs.ErrNoSpace
		}
		return nil
	})
	s := storetest.OpenOn(t, disk, t.TempDir(), storetest.Options())
	d := crashtest.Plain()
	m := storetest.Model(t, s, d)
	e := storetest.Engine(s)
	q := kv.Tokens(crashtest.Tokens(1, 48)...)
	p := q.Prefix(40)
	storetest.Put(t, m, p)
	x := storetest.Match(t, m, p)
	defer x.Close()
	got := storetest.Must(x.Restore(t.Context(), storetest.Empty(d, 40)))(t)
	first := got.Tokens
	chain := e.Hasher.Chain(m.Fingerprint(), 16, &q)
	last := chain.Key(2)
	if !e.Pins.Leave(last) { // as an eviction of that block, which has left commitMu, and not yet called End
		t.Fatal("pinned")
	}
	full = true
	_, err := x.Extend(t.Context(), q, storetest.Filled(d, &q, 0, 48), db.PutOptions{})
	full = false
	if err == nil {
		t.Error("the extension has not failed: nothing is tested")
	}
	e.Pins.End([]kv.Key{last})
	storetest.Must(e.Inside().EvictBlocks(1))(t)
	storetest.OK(t, e.Checkpoints.Reclaim(t.Context()))
	got = storetest.Must(x.Restore(t.Context(), storetest.Empty(d, 40)))(t)
	if got.Tokens != first {
		t.Errorf("an open match gave %d tokens, now %d: %v", first, got.Tokens, got.Reason)
	}
}

// A deletion under an open match takes what the match rests on: it rests on what is before that then, and nobody evicts that.
func TestDeletionAndEvictionUnderAMatch(t *testing.T) {
	o := storetest.Options()
	d := crashtest.Plain()
	s, m := storetest.Fresh(t, o, d)
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 160)}
	storetest.Put(t, m, p)
	x := storetest.Match(t, m, p)
	viewed := 0
	err := x.View(t.Context(), func(plane db.StoredPlane) error {
		if viewed++; viewed == 1 {
			before := bytes.Clone(plane.Bytes)
			storetest.Meanwhile(func() {
				storetest.Must(m.Delete(t.Context(), p.Prefix(150)))(t)
				_, _, err := storetest.Engine(s).Space.Shrink(t.Context(), 0)
				storetest.OK(t, err)
				storetest.OK(t, s.Checkpoint(t.Context()))
			})
			if left := storetest.Engine(s).Ledger.Counts().Blocks; left != 9 {
				t.Errorf("%d blocks are left, not the 9 before the one that was deleted", left)
			}
			if !bytes.Equal(before, plane.Bytes) {
				t.Error("a plane that is being looked at has other bytes")
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	storetest.OK(t, x.Close())
	storetest.OK(t, s.Sync(t.Context()))
	if held := storetest.Engine(s).Segments.Held(); held != 0 {
		t.Errorf("%d bytes are held", held)
	}
}
