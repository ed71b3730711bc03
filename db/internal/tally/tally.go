package tally

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/dormousekv/dormouse/kv"
)

// Counters are what db.Stats counts. What KeepStates gives up is counted nowhere.
type Counters struct {
	Matches, Hits, TokensAsked, TokensReused atomic.Int64
	Reasons                                  [kv.ReasonCodes]atomic.Int64

	Puts, Records, Reused, Replaced, BytesPut, BytesRestored, BytesMoved atomic.Int64
	Evicted, Deleted, Damaged, Collisions, BloomFalse, Checkpoints       atomic.Int64
	CheckpointNanos, High                                                atomic.Int64

	LookupTime, RestoreTime, PutTime Times
	EvictedAge                       Times // since the last use
}

// Matched counts a match of so many tokens.
func (c *Counters) Matched(tokens int, why kv.ReasonCode, asked int, d time.Duration) {
	c.Matches.Add(1)
	c.TokensAsked.Add(int64(asked))
	if tokens > 0 {
		c.Hits.Add(1)
	}
	c.Reasons[why].Add(1)
	c.LookupTime.Add(d)
}

// Restored counts a restore of so many tokens that were not counted before, which read so many stored bytes.
func (c *Counters) Restored(tokens int, bytes int64, d time.Duration) {
	c.TokensReused.Add(int64(tokens))
	c.BytesRestored.Add(bytes)
	c.RestoreTime.Add(d)
}

// Put counts a put that wrote so many records and bytes, and found so many records stored.
func (c *Counters) Put(records, reused int, bytes int64, d time.Duration) {
	c.Puts.Add(1)
	c.Records.Add(int64(records))
	c.Reused.Add(int64(reused))
	c.BytesPut.Add(bytes)
	c.PutTime.Add(d)
}

// RaiseHigh notes what the files occupied at most.
func (c *Counters) RaiseHigh(used int64) {
	for {
		high := c.High.Load()
		if used <= high || c.High.CompareAndSwap(high, used) {
			return
		}
	}
}

// buckets of a histogram: the last one begins at two years.
const buckets = 48

// Times is a histogram of durations that is being counted: by powers of two microseconds. Their sum is kept in two parts, since the ages of
// evicted blocks come to more than the 292 years that a time.Duration holds.
type Times struct {
	counts         [buckets]atomic.Int64
	seconds, nanos atomic.Int64 // the whole seconds of each duration, and what is left of them
}

// Add counts a duration. A clock that was put back makes none.
func (h *Times) Add(d time.Duration) {
	d = max(0, d)
	h.counts[min(bits.Len64(uint64(d.Microseconds())), len(h.counts)-1)].Add(1)
	h.seconds.Add(int64(d / time.Second))
	h.nanos.Add(int64(d % time.Second))
}

// Read returns the counts, how many they are, and the sum of the durations in seconds and, up to what a duration can be, as one.
func (h *Times) Read() (counts [buckets]int64, n int64, sum time.Duration, seconds float64) {
	for i := range h.counts {
		counts[i] = h.counts[i].Load()
		n += counts[i]
	}
	whole, nanos := h.seconds.Load(), time.Duration(h.nanos.Load())
	seconds = float64(whole) + nanos.Seconds()
	if whole > int64((math.MaxInt64-nanos)/time.Second) {
		return counts, n, math.MaxInt64, seconds
	}
	return counts, n, time.Duration(whole)*time.Second + nanos, seconds
}

// Progress is how far long work has come: db.Progress.
type Progress struct {
	What        string
	Done, Total int64
}
