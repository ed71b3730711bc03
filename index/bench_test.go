package index

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// benchEntries are n blocks of one model: a few children each, random keys.
func benchEntries(n int) []Entry {
	r := rand.New(rand.NewPCG(11, 12))
	es := make([]Entry, n)
	for i := range es {
		es[i] = Entry{Key: randomKey(r), Model: kv.Fingerprint{1}, Tokens: 64, RowCount: 64, Rank: uint64(i + 1),
			Loc: Loc{Segment: uint64(i / 1000), Offset: int64(i) << 15, Length: 32 << 10}, Hashes: make([]byte, maxHashBytes)}
		if i > 0 {
			es[i].Parent = es[r.IntN(i)].Key
		}
		for j := range es[i].Hashes {
			es[i].Hashes[j] = byte(r.Uint32())
		}
	}
	return es
}

// bench100k are the blocks of the larger benchmarks, made once.
var bench100k = sync.OnceValue(func() []Entry { return benchEntries(100_000) })

func checkpointed(b *testing.B, es []Entry) *Index {
	ix := must(Create(testOptions(b.TempDir()), Applied{}))(b)
	b.Cleanup(func() { ix.Close() })
	putAll(b, ix, es)
	save(b, ix, 1)
	return ix
}

// BenchmarkLookup looks for a block in an index of 100,000, and in an overlay of 10,000. tests/bench has the Bloom filter beside bbolt.
func BenchmarkLookup(b *testing.B) {
	es := bench100k()
	ix := checkpointed(b, es)
	v := ix.View()
	defer v.Release()
	r := rand.New(rand.NewPCG(1, 1))
	absent := make([]kv.Key, 1<<12)
	for i := range absent {
		absent[i] = randomKey(r)
	}
	b.Run("index/present", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if _, ok, _ := v.Get(es[i*7919%len(es)].Key, 0); !ok {
				b.Fatal("missing")
			}
		}
	})
	b.Run("index/absent", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if _, ok, err := v.Get(absent[i%len(absent)], 0); ok || err != nil {
				b.Fatal("found")
			}
		}
	})
	overlay := Memory()
	putAll(b, overlay, es[:10_000])
	ov := overlay.View()
	b.Run("overlay/present", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if _, ok, _ := ov.Get(es[i*7919%10_000].Key, 0); !ok {
				b.Fatal("missing")
			}
		}
	})
}

// BenchmarkNeighbors must not depend on the number of children.
func BenchmarkNeighbors(b *testing.B) {
	for _, n := range []int{10, 100_000} {
		es := benchEntries(n)
		for i := range es {
			es[i].Parent = kv.Key{1}
		}
		for _, where := range []string{"file", "overlay"} {
			b.Run(fmt.Sprintf("%s/%d", where, n), func(b *testing.B) {
				var ix *Index
				if where == "file" {
					ix = checkpointed(b, es)
				} else {
					ix = Memory()
					putAll(b, ix, es)
				}
				v := ix.View()
				defer v.Release()
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if _, _, _, ok, err := v.Neighbors(kv.Key{1}, kv.ScopeID{}, es[i*7919%n].Hashes); !ok || err != nil {
						b.Fatal(ok, err)
					}
				}
			})
		}
	}
}

// BenchmarkPut is one Update of one Put, on top of an index of 100,000 blocks.
func BenchmarkPut(b *testing.B) {
	es := bench100k()
	ix := checkpointed(b, es)
	r := rand.New(rand.NewPCG(1, 1))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		e := es[i%len(es)]
		e.Parent, e.Key = e.Key, randomKey(r)
		ok(b, ix.Update(func(tx *Txn) error { return tx.Put(e) }))
		if i%10_000 == 9_999 {
			b.StopTimer()
			save(b, ix, 0)
			b.StartTimer()
		}
	}
}

// BenchmarkTouch is one Update of one Use.
func BenchmarkTouch(b *testing.B) {
	es := bench100k()
	ix := checkpointed(b, es)
	for i := 0; b.Loop(); i++ {
		ok(b, ix.Update(func(tx *Txn) error { return tx.Use(es[i%10_000].Key, uint64(1_000_000+i), 1, 0) }))
	}
}

// BenchmarkCheckpoint writes 10,000 new blocks to an index of 100,000. Their keys are random, so most of them have pages of
// their own.
func BenchmarkCheckpoint(b *testing.B) {
	es := bench100k()
	ix := checkpointed(b, es)
	r := rand.New(rand.NewPCG(1, 1))
	for b.Loop() {
		b.StopTimer()
		batch := make([]Entry, 10_000)
		for i := range batch {
			batch[i] = es[r.IntN(len(es))]
			batch[i].Parent, batch[i].Key = batch[i].Key, randomKey(r)
		}
		putAll(b, ix, batch)
		b.StartTimer()
		save(b, ix, 2)
	}
	b.ReportMetric(float64(ix.Bytes())/float64(ix.counts.total.Blocks), "file-B/block")
}

// BenchmarkVerify reads all of an index of 100,000 blocks.
func BenchmarkVerify(b *testing.B) {
	ix := checkpointed(b, bench100k())
	b.SetBytes(int64(ix.rows.base.meta.pages) * pageBytes)
	for b.Loop() {
		verifyClean(b, ix)
	}
}
