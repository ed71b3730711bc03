package engine_test

import (
	"math/rand/v2"
	"testing"

	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// The Bloom filter's file knows what the index of the same checkpoint has, although the filter was built anew while the checkpoint
// was written and does not know what was evicted meanwhile: a power cut can take the frame that says so.
func TestFilterBuiltDuringACheckpoint(t *testing.T) {
	dirs := crashtest.NewDirs(t)
	d := crashtest.NewDisk(dirs.Next())
	o := storetest.Options()
	s := storetest.OpenOn(t, d, d.Dir(), o)
	m, e := storetest.Model(t, s, crashtest.Plain()), storetest.Engine(s)
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 32)}
	storetest.Put(t, m, p)
	storetest.OK(t, s.Checkpoint(t.Context()))
	storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(2, 32)})

	e.Inside().CkptMu().Lock()
	finish := storetest.Must(e.Inside().Freeze())(t)
	for range 2 {
		if n, err := e.Inside().EvictBlocks(1); err != nil || n != 1 {
			t.Fatal(n, err)
		}
	}
	storetest.OK(t, e.RebuildBloom(t.Context()))
	err := finish(t.Context())
	e.Inside().CkptMu().Unlock()
	storetest.OK(t, err)

	back := 0
	for seed := range uint64(12) {
		image := storetest.Must(d.PowerCut(rand.New(rand.NewPCG(seed, 1)), dirs.Next()))(t)
		storetest.OK(t, crashtest.Reboot(image, image.Dir()))
		s := storetest.OpenOn(t, image, image.Dir(), o)
		storetest.Stats(t, s) // waits for the filter
		if storetest.Engine(s).Counts().Blocks == 4 {
			back++
		}
		var v index.View
		filter := storetest.Engine(s).Search.Look(&v)
		storetest.OK(t, v.Blocks(kv.Key{}, 0, func(x index.Entry) bool {
			if filter != nil && !filter.MayContain(x.Key) {
				t.Errorf("image %d: the filter denies block %s, which is stored", seed, x.Key)
			}
			return true
		}))
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
	s := storetest.Open(t, dir, storetest.Options())
	m := storetest.Model(t, s, crashtest.Plain())
	storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(1, 64)})
	storetest.OK(t, s.Checkpoint(t.Context()))
	p := kv.Prompt{Tokens: crashtest.Tokens(2, 64)}
	storetest.Put(t, m, p)
	e := storetest.Engine(s)
	storetest.OK(t, e.Inside().HalfCheckpoint(t.Context()))
	storetest.Crash(s)
	s = storetest.Open(t, dir, storetest.Options())
	storetest.Expect(t, storetest.Model(t, s, crashtest.Plain()), p, 64)
}
