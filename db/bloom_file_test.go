package db

import (
	"math/rand/v2"
	"testing"

	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// The Bloom filter's file knows what the index of the same checkpoint has, although the filter was built anew while the checkpoint
// was written and does not know what was evicted meanwhile: a power cut can take the frame that says so.
func TestFilterBuiltDuringACheckpoint(t *testing.T) {
	dirs := newCrashDirs(t)
	d := newCrashDisk(dirs.Next())
	o := options()
	o.fs = d
	s := open(t, d.Dir(), o)
	m, e := model(t, s, plain()), s.eng
	p := kv.Prompt{Tokens: tokens(1, 32)}
	put(t, m, p)
	if err := s.Checkpoint(ctx); err != nil {
		t.Fatal(err)
	}
	put(t, m, kv.Prompt{Tokens: tokens(2, 32)})

	e.Inside().CkptMu().Lock()
	finish, err := e.Inside().Freeze()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if n, err := e.Inside().EvictBlocks(1); err != nil || n != 1 {
			t.Fatal(n, err)
		}
	}
	if err := e.RebuildBloom(ctx); err != nil {
		t.Fatal(err)
	}
	err = finish(ctx)
	e.Inside().CkptMu().Unlock()
	if err != nil {
		t.Fatal(err)
	}

	back := 0
	for seed := range uint64(12) {
		image, err := d.PowerCut(rand.New(rand.NewPCG(seed, 1)), dirs.Next())
		if err != nil {
			t.Fatal(err)
		}
		if err := rebooted(image); err != nil {
			t.Fatal(err)
		}
		o.fs = image
		s := open(t, image.Dir(), o)
		s.eng.Bloom()
		if s.eng.Counts().Blocks == 4 {
			back++
		}
		var v index.View
		filter := s.eng.Search.Look(&v)
		if err := v.Blocks(kv.Key{}, 0, func(x index.Entry) bool {
			if filter != nil && !filter.MayContain(x.Key) {
				t.Errorf("image %d: the filter denies block %s, which is stored", seed, x.Key)
			}
			return true
		}); err != nil {
			t.Fatal(err)
		}
		v.Release()
	}
	if back == 0 {
		t.Fatal("the evictions are durable in every image")
	}
}

// A crash between the index's commit and the Bloom filter's file leaves a filter that is older than the index. It must not
// deny what the index has.
func TestBloomFileOlderThanIndex(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, options())
	m := model(t, s, plain())
	put(t, m, kv.Prompt{Tokens: tokens(1, 64)})
	if err := s.Checkpoint(ctx); err != nil {
		t.Fatal(err)
	}
	p := kv.Prompt{Tokens: tokens(2, 64)}
	put(t, m, p)
	e := s.eng
	if err := e.Inside().HalfCheckpoint(ctx); err != nil {
		t.Fatal(err)
	}
	crash(s)
	s = open(t, dir, options())
	expect(t, model(t, s, plain()), p, 64)
}
