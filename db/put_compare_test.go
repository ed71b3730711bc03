package db

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
)

// twinOf is a prompt whose first block has other tokens than that of p, and the same key.
func twinOf(p kv.Prompt) kv.Prompt {
	p.Tokens = concat(twinTokens(p.Tokens[:16]), p.Tokens[16:])
	return p
}

// mayFail ends the test for an error that is not that of a put whose prefix is not stored.
func mayFail(t *testing.T, err error) {
	t.Helper()
	var missing *NotStoredError
	if err != nil && !errors.As(err, &missing) && !passing(err) {
		t.Fatal(err)
	}
}

// rowsRight restores each prompt and compares every row that it gets.
func rowsRight(t *testing.T, m *Model, prompts ...kv.Prompt) {
	t.Helper()
	for _, p := range prompts {
		restore(t, m, p)
	}
}

// entryOf is what the index says about block i of a prompt.
func entryOf(t *testing.T, s *Store, m *Model, p kv.Prompt, i int) index.Entry {
	t.Helper()
	v := s.eng.view()
	defer v.Release()
	x, ok, err := v.Get(s.eng.hasher.Chain(m.Fingerprint(), 16, &p).Key(i), 0)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	return x
}

// A put that cannot look at the block below which it stores, for want of file handles, stores nothing there: it may be another
// prompt's.
func TestPutWithoutFilesBelowATwin(t *testing.T) {
	for _, d := range []kv.Descriptor{plain(), windowed(20), opaque()} {
		t.Run(d.Name, func(t *testing.T) {
			var short atomic.Bool
			o := options()
			o.fs = noFilesFS{vfs.OS, &short}
			dir := t.TempDir()
			s := open(t, dir, o)
			p := kv.Tokens(tokens(1, 48)...)
			q := twinOf(p)
			put(t, model(t, s, d), p.Prefix(16))
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = open(t, dir, o)
			m := model(t, s, d)
			put(t, m, kv.Tokens(tokens(2, 64)...)) // so that there is a segment to write to
			short.Store(true)
			_, err := m.Put(ctx, q, filled(d, &q, 0, 48), PutOptions{})
			short.Store(false)
			mayFail(t, err)
			rowsRight(t, m, q, p)
			put(t, m, p)
			rowsRight(t, m, q, p)
		})
	}
}

// A put that is under way when the block on which it rests is deleted, and another prompt's takes its key, does not store
// below that.
func TestPutBesideATwinThatTakesItsPlace(t *testing.T) {
	for _, d := range []kv.Descriptor{plain(), windowed(20), opaque()} {
		for _, stored := range []int{16, 32} {
			t.Run(fmt.Sprint(d.Name, stored), func(t *testing.T) {
				s := open(t, t.TempDir(), options())
				m := model(t, s, d)
				p := kv.Tokens(tokens(1, 48)...)
				q := twinOf(p)
				put(t, m, p.Prefix(stored))
				slow := &putter{e: s.eng, m: m, rows: filled(d, &p, 0, 48), o: PutOptions{Codec: s.eng.o.Codec}}
				if err := slow.plan(&p); err != nil {
					t.Fatal(err)
				}
				n, err := slow.known()
				if err != nil || n > stored/16 {
					t.Fatal(n, err)
				}
				for i := n; i < 3; i++ {
					if err := slow.block(ctx, i); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := m.Delete(ctx, p.Prefix(16)); err != nil {
					t.Fatal(err)
				}
				put(t, m, q.Prefix(stored))
				err = slow.publish(ctx)
				slow.unpin()
				mayFail(t, err)
				rowsRight(t, m, q, p)
			})
		}
	}
}

// The same, where the other prompt's blocks are there before the put looks at the second one.
func TestPutBetweenWhoseBlocksATwinComes(t *testing.T) {
	d := plain()
	s := open(t, t.TempDir(), options())
	m := model(t, s, d)
	p := kv.Tokens(tokens(1, 48)...)
	q := twinOf(p)
	put(t, m, p.Prefix(16))
	slow := &putter{e: s.eng, m: m, rows: filled(d, &p, 0, 48), o: PutOptions{Codec: s.eng.o.Codec}}
	if err := slow.plan(&p); err != nil {
		t.Fatal(err)
	}
	if n, err := slow.known(); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if _, err := m.Delete(ctx, p.Prefix(16)); err != nil {
		t.Fatal(err)
	}
	put(t, m, q.Prefix(32))
	var err error
	for i := 1; i < 3 && err == nil; i++ {
		err = slow.block(ctx, i)
	}
	if err == nil {
		err = slow.publish(ctx)
	}
	slow.unpin()
	slow.giveBack()
	mayFail(t, err)
	rowsRight(t, m, q, p)
}

// spoilTokens damages the first token of a record.
func spoilTokens(t *testing.T, s *Store, x index.Entry) {
	t.Helper()
	f, err := os.OpenFile(s.eng.segmentPath(x.Loc.Segment), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{0xff, 0xff, 0xff, 0xff}, x.Loc.Offset+256); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// Of a large block the index does not know all tokens: when they cannot be read any more, nothing is put below it, and it is
// replaced when nothing hangs below it.
func TestUnreadableLargeBlockAndItsTwin(t *testing.T) {
	d := plain()
	d.Name, d.BlockTokens = "large", 128
	s := open(t, t.TempDir(), options())
	m := model(t, s, d)
	p := kv.Tokens(tokens(1, 256)...)
	q := kv.Tokens(concat(p.Tokens[:80], twinTokens(p.Tokens[80:128]), p.Tokens[128:])...) // a multiple of 16 bytes on
	chain, twin := s.eng.hasher.Chain(m.Fingerprint(), 128, &p), s.eng.hasher.Chain(m.Fingerprint(), 128, &q)
	if chain.Key(0) != twin.Key(0) {
		t.Fatal("the twins have two keys")
	}
	put(t, m, p)
	v := s.eng.view()
	x, ok, err := v.Get(chain.Key(0), 0)
	v.Release()
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	spoilTokens(t, s, x)
	long := kv.Tokens(concat(q.Tokens, tokens(3, 16))...)
	for range 2 {
		_, err = m.Put(ctx, long, filled(d, &long, 0, len(long.Tokens)), PutOptions{})
		mayFail(t, err)
		rowsRight(t, m, long, q, p)
	}
	if _, err := m.Delete(ctx, p); err != nil {
		t.Fatal(err)
	}
	put(t, m, long)
	expect(t, m, long, len(long.Tokens))
	rowsRight(t, m, p)
}

// A block whose tokens cannot be read any more keeps its children, and is replaced by a put of its own prompt only.
func TestUnreadableBlockAndItsTwin(t *testing.T) {
	for _, flagged := range []bool{false, true} {
		t.Run(fmt.Sprint("flagged ", flagged), func(t *testing.T) {
			d := plain()
			s := open(t, t.TempDir(), options())
			m := model(t, s, d)
			p := kv.Tokens(tokens(1, 48)...)
			q := twinOf(p)
			put(t, m, p)
			spoilTokens(t, s, entryOf(t, s, m, p, 0))
			if flagged {
				rowsRight(t, m, p)
			}
			long := kv.Tokens(concat(q.Tokens, tokens(3, 16))...)
			_, err := m.Put(ctx, long, filled(d, &long, 0, 64), PutOptions{})
			mayFail(t, err)
			own := kv.Tokens(concat(p.Tokens, tokens(3, 16))...)
			rowsRight(t, m, q, long, p, own)
			if !flagged {
				rowsRight(t, m, p)
			}
			if got := put(t, m, p); got.Blocks != 1 {
				t.Errorf("%d blocks are written, one was damaged", got.Blocks)
			}
			expect(t, m, p, 48)
			rowsRight(t, m, q, long, own)
		})
	}
}

// Who asks for another prompt with the key of a stored one gets nothing, and takes nothing from it: its block is not damaged.
func TestRestoreOfATwinDamagesNothing(t *testing.T) {
	for _, d := range []kv.Descriptor{plain(), windowed(20), opaque()} {
		t.Run(d.Name, func(t *testing.T) {
			s := open(t, t.TempDir(), options())
			m := model(t, s, d)
			p := kv.Tokens(tokens(1, 48)...)
			put(t, m, p)
			q := kv.Tokens(concat(p.Tokens[:16], twinTokens(p.Tokens[16:32]), p.Tokens[32:])...)
			if n, why := restore(t, m, q); n > 16 || why.Code != Collision && why.Code != StateMissing {
				t.Errorf("%d tokens of another prompt (%v)", n, why)
			}
			if n := s.eng.count.damaged.Load(); n != 0 {
				t.Errorf("%d records are counted as damaged", n)
			}
			expect(t, m, p, 48)
		})
	}
}
