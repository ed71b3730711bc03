package db

import (
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// Stats is a snapshot of what a store did since it was opened, and of what it holds.
type Stats struct {
	Matches      int64                // lookups by Match
	Hits         int64                // those that found something
	Reasons      map[ReasonCode]int64 // why matches were not longer
	TokensAsked  int64
	TokensReused int64 // that restores handed out

	Puts, Records, Reused, Replaced int64 // puts; records written, found stored already, replaced
	BytesPut, BytesRestored         int64 // stored bytes

	Evicted, Deleted int64 // blocks
	Damaged          int64 // records that failed a check
	Collisions       int64 // keys that belonged to another prefix
	BloomFalse       int64 // "maybe" for what is not stored
	Checkpoints      int64

	Lookup, Restore, Put Histogram
	LastCheckpoint       time.Duration // how long it took

	Blocks, StoredRecords, LiveBytes int64 // now
	DiskBytes, DiskHighWater         int64 // allocated bytes of all files, and the most they ever were
	Budget                           int64
	// AsOf is when that was so: of a store that is open read-only, when it was opened, or where another process writes to it
	// (BesideWriter), when that one made its last checkpoint. Zero: now.
	AsOf           time.Time
	BesideWriter   bool
	Poisoned       bool  // an fsync has failed: nothing is written any more, see [ErrPoisoned]
	PendingRecords int   // destroyed once no lease can see them
	PendingBytes   int64 // theirs
	OpenMatches    int64
	OldestLease    time.Time // zero if none

	BloomKeys  int64
	BloomFill  float64 // share of bits set
	BloomFPR   float64 // estimated
	BloomBytes int64   // 0 while it is being built

	// WriteAmplification is the bytes that were appended, compaction's copies included, per byte that puts stored.
	WriteAmplification float64
}

// Histogram counts durations by powers of two: Counts[i] are those under 2^i microseconds and at least half of that.
type Histogram struct {
	Counts [32]int64
	N      int64
	Sum    time.Duration
}

// Quantile returns a bound below which the share q of the durations lies; 0 if there are none.
func (h Histogram) Quantile(q float64) time.Duration {
	seen := int64(0)
	for i, n := range h.Counts {
		if seen += n; n > 0 && float64(seen) >= q*float64(h.N) {
			return time.Microsecond << i
		}
	}
	return 0
}

// histogram is a Histogram being counted.
type histogram struct {
	counts [32]atomic.Int64
	nanos  atomic.Int64
}

func (h *histogram) add(d time.Duration) {
	h.counts[min(bits.Len64(uint64(d.Microseconds())), len(h.counts)-1)].Add(1)
	h.nanos.Add(int64(d))
}

func (h *histogram) read() (out Histogram) {
	for i := range h.counts {
		out.Counts[i] = h.counts[i].Load()
		out.N += out.Counts[i]
	}
	out.Sum = time.Duration(h.nanos.Load())
	return out
}

// counters are an engine's part of Stats.
type counters struct {
	matches, hits, tokensAsked, tokensReused atomic.Int64
	reasons                                  [kv.ReasonCodes]atomic.Int64

	puts, records, reused, replaced, bytesPut, bytesRestored, bytesMoved atomic.Int64
	evicted, deleted, damaged, collisions, bloomFalse, checkpoints       atomic.Int64
	checkpointNanos, high                                                atomic.Int64

	lookupTime, restoreTime, putTime histogram
}

// all lists what adds up over the engines of one store.
func (c *counters) all() []*atomic.Int64 {
	out := []*atomic.Int64{
		&c.matches, &c.hits, &c.tokensAsked, &c.tokensReused, &c.puts, &c.records, &c.reused, &c.replaced, &c.bytesPut,
		&c.bytesRestored, &c.bytesMoved, &c.evicted, &c.deleted, &c.damaged, &c.collisions, &c.bloomFalse, &c.checkpoints,
	}
	for i := range c.reasons {
		out = append(out, &c.reasons[i])
	}
	for _, h := range []*histogram{&c.lookupTime, &c.restoreTime, &c.putTime} {
		out = append(out, &h.nanos)
		for i := range h.counts {
			out = append(out, &h.counts[i])
		}
	}
	return out
}

// adopt continues the counts of an engine that was suspended.
func (c *counters) adopt(old *counters) {
	mine := c.all()
	for i, x := range old.all() {
		mine[i].Add(x.Load())
	}
	c.highWater(old.high.Load())
}

func (c *counters) matched(tokens int, why Reason, asked int, d time.Duration) {
	c.matches.Add(1)
	c.tokensAsked.Add(int64(asked))
	if tokens > 0 {
		c.hits.Add(1)
	}
	c.reasons[why.Code].Add(1)
	c.lookupTime.add(d)
}

func (c *counters) restored(got Restored, d time.Duration) {
	c.tokensReused.Add(int64(got.Tokens))
	c.bytesRestored.Add(got.Bytes)
	c.restoreTime.add(d)
}

func (c *counters) put(r PutResult, d time.Duration) {
	c.puts.Add(1)
	c.records.Add(int64(r.Records))
	c.reused.Add(int64(r.Reused))
	c.bytesPut.Add(r.Bytes)
	c.putTime.add(d)
}

func (c *counters) highWater(used int64) {
	for {
		high := c.high.Load()
		if used <= high || c.high.CompareAndSwap(high, used) {
			return
		}
	}
}

// Stats returns what the store did and holds. It asks the file system for sizes.
func (s *Store) Stats() (Stats, error) {
	e, err := s.enter()
	if err != nil {
		return Stats{}, err
	}
	defer s.leave()
	used := e.measure()
	if e.wal == nil { // then nobody counts the log
		if all, err := folder.Bytes(e.fs, e.dir); err == nil {
			used = all
		}
	}
	c := &e.count
	now := e.counts()
	out := Stats{
		Matches: c.matches.Load(), Hits: c.hits.Load(), Reasons: map[ReasonCode]int64{},
		TokensAsked: c.tokensAsked.Load(), TokensReused: c.tokensReused.Load(),
		Puts: c.puts.Load(), Records: c.records.Load(), Reused: c.reused.Load(), Replaced: c.replaced.Load(),
		BytesPut: c.bytesPut.Load(), BytesRestored: c.bytesRestored.Load(),
		Evicted: c.evicted.Load(), Deleted: c.deleted.Load(), Damaged: c.damaged.Load(), Collisions: c.collisions.Load(),
		BloomFalse: c.bloomFalse.Load(), Checkpoints: c.checkpoints.Load(),
		Lookup: c.lookupTime.read(), Restore: c.restoreTime.read(), Put: c.putTime.read(),
		LastCheckpoint: time.Duration(c.checkpointNanos.Load()),
		Blocks:         now.Blocks, StoredRecords: now.Records, LiveBytes: now.Bytes,
		DiskBytes: used, DiskHighWater: c.high.Load(), Budget: e.o.Budget, OpenMatches: s.matches.Load(),
		Poisoned: e.wal != nil && e.poisoned() != nil, AsOf: e.asOf, BesideWriter: e.o.beside,
	}
	for code := range c.reasons {
		if n := c.reasons[code].Load(); n > 0 {
			out.Reasons[ReasonCode(code)] = n
		}
	}
	out.PendingRecords, out.PendingBytes = e.set.Pending()
	_, out.OldestLease = e.set.Leases()
	e.bloomLoad.wait()
	if b := e.bloom.Load(); b != nil {
		out.BloomKeys, out.BloomFill, out.BloomFPR = int64(b.Keys()), b.Fill(), b.EstimatedFPR()
		out.BloomBytes = int64(b.Bits() / 8)
	}
	if out.BytesPut > 0 {
		out.WriteAmplification = 1 + float64(c.bytesMoved.Load())/float64(out.BytesPut)
	}
	return out, nil
}

// ModelStats is how much of one model is stored.
type ModelStats struct {
	Fingerprint kv.Fingerprint
	Descriptor  kv.Descriptor
	Err         error // the descriptor cannot be read; then it has the name only
	Latest      bool  // no newer version of the same name is registered
	Blocks      int64
	Records     int64
	Bytes       int64
}

// modelStats says what is stored of a model whose descriptor was loaded, or could not be.
func modelStats(ms *catalog.Model, err error, latest bool, c index.Counts) ModelStats {
	out := ModelStats{
		Fingerprint: ms.Fingerprint, Descriptor: kv.Descriptor{Name: ms.Name}, Err: err, Latest: latest,
		Blocks: c.Blocks, Records: c.Records, Bytes: c.Bytes,
	}
	if err == nil {
		out.Descriptor = ms.Desc
	}
	return out
}
