package db

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/db/internal/engine"
	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/db/internal/tally"
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

	Puts, Records, Reused, Replaced int64 // puts; records written, found stored already, replaced (partial blocks by longer ones among them)
	BytesPut, BytesRestored         int64 // stored bytes

	Evicted, Deleted int64 // blocks
	// EvictedAge is how long before they were evicted blocks were last used or put, or a block behind them was; to the minute. Those of which
	// nobody knows are not in it.
	EvictedAge  Histogram
	Damaged     int64 // records that failed a check
	Collisions  int64 // keys that belonged to another prefix
	BloomFalse  int64 // "maybe" for what is not stored
	Checkpoints int64

	Lookup, Restore, Put Histogram
	LastCheckpoint       time.Duration // how long it took

	Blocks, StoredRecords, LiveBytes int64 // now
	Sessions, SessionBytes           int64 // files of sessions, and their allocated bytes, which DiskBytes has, too
	DiskBytes, DiskHighWater         int64 // allocated bytes of all files, and the most they ever were
	Budget                           int64
	// DiskFree is what is free on the file system, -1 if it does not say, and KeptFree what of that is left free: [Options.MinFree], or what the
	// next checkpoint needs. Full: nothing is stored, whatever is evicted, because that much would not be left.
	DiskFree, KeptFree int64
	Full               bool
	// AsOf is when that was so: of a store that is open read-only, when it was opened, or where another process writes to it
	// (BesideWriter), when that one made its last checkpoint: of what was removed since, nothing is shown. Zero: now; beside a writer, it
	// has made no checkpoint yet.
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

	// Turns sums up what runtimes have told by [Model.Observe] since Open.
	Turns Turns

	// WriteAmplification is the bytes that were appended, compaction's copies included, per byte that puts stored.
	WriteAmplification float64
}

// Observation is what one turn took, from asking for a prompt to the last token of the answer. Where a runtime has no figure, it is 0.
type Observation struct {
	Model kv.Fingerprint // Observe fills it in

	Asked     int // tokens of the prompt
	Found     int // leading tokens of it that a lookup found in the store
	Loaded    int // of these, brought into the runtime's memory
	Reused    int // leading tokens of the prompt that were not computed: loaded, or in the runtime's memory already
	Prefilled int // tokens of the prompt that were computed
	Decoded   int // tokens computed after the prompt
	// Unused are tokens that were restored but not reused: loaded, and computed again all the same, or dropped before anything was computed
	// behind them. Where it grows, prompts are restored too early, or cut.
	Unused int

	Lookup, Load, Prefill, Decode time.Duration
	Reason                        Reason // why no more was loaded; the zero Reason: nothing was looked up
}

// Turns are sums over observations.
type Turns struct {
	Observed                                                 int64 // turns
	Asked, Found, Loaded, Reused, Prefilled, Decoded, Unused int64 // tokens, as in an [Observation]
	Lookup, Load, Prefill, Decode                            time.Duration
}

// Observe is called once a turn by whoever drives it: a runtime, a host of conversations. It counts the observation, and hands it to
// [Options.Observer]. It works in a store that is suspended or closed, too.
func (m *Model) Observe(o Observation) {
	o.Model = m.ms.Fingerprint
	m.s.turns.add(&o)
	if m.s.o.Observer != nil {
		m.s.o.Observer(o)
	}
}

// turns counts observations, in the order of the fields of Turns.
type turns [12]atomic.Int64

func (t *turns) add(o *Observation) {
	for i, n := range [len(t)]int64{
		1, int64(o.Asked), int64(o.Found), int64(o.Loaded), int64(o.Reused), int64(o.Prefilled), int64(o.Decoded), int64(o.Unused),
		int64(o.Lookup), int64(o.Load), int64(o.Prefill), int64(o.Decode),
	} {
		t[i].Add(n)
	}
}

func (t *turns) read() Turns {
	var n [len(t)]int64
	for i := range t {
		n[i] = t[i].Load()
	}
	return Turns{
		n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7],
		time.Duration(n[8]), time.Duration(n[9]), time.Duration(n[10]), time.Duration(n[11]),
	}
}

// Histogram counts durations by powers of two: Counts[i] are those under 2^i microseconds and at least half of that; the last also counts
// all that are longer.
type Histogram struct {
	Counts  [48]int64
	N       int64
	Sum     time.Duration // all of them; the longest time.Duration, 292 years, where they come to more, as the ages of evicted blocks may
	Seconds float64       // the same in seconds, without that limit
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

func histogram(t *tally.Times) (h Histogram) {
	h.Counts, h.N, h.Sum, h.Seconds = t.Read()
	return h
}

// Stats returns what the store did and holds. It asks the file system for sizes.
func (s *Store) Stats() (Stats, error) {
	e, err := s.enter(context.Background())
	if err != nil {
		return Stats{}, err
	}
	defer s.leave()
	return s.stats(e), nil
}

func (s *Store) stats(e *engine.Engine) Stats {
	used := e.Budget.Measure()
	if e.Ledger.ReadOnly() { // then nobody counts the log
		if all, err := folder.Bytes(e.FS, e.Dir); err == nil {
			used = all
		}
	}
	c := e.Count
	now := e.Ledger.Counts()
	out := Stats{
		Matches: c.Matches.Load(), Hits: c.Hits.Load(), Reasons: map[ReasonCode]int64{},
		TokensAsked: c.TokensAsked.Load(), TokensReused: c.TokensReused.Load(),
		Puts: c.Puts.Load(), Records: c.Records.Load(), Reused: c.Reused.Load(), Replaced: c.Replaced.Load(),
		BytesPut: c.BytesPut.Load(), BytesRestored: c.BytesRestored.Load(),
		Evicted: c.Evicted.Load(), Deleted: c.Deleted.Load(), Damaged: c.Damaged.Load(), Collisions: c.Collisions.Load(),
		BloomFalse: c.BloomFalse.Load(), Checkpoints: c.Checkpoints.Load(),
		Lookup: histogram(&c.LookupTime), Restore: histogram(&c.RestoreTime), Put: histogram(&c.PutTime), EvictedAge: histogram(&c.EvictedAge),
		LastCheckpoint: time.Duration(c.CheckpointNanos.Load()),
		Blocks:         now.Blocks, StoredRecords: now.Records, LiveBytes: now.Bytes,
		DiskBytes: used, DiskHighWater: c.High.Load(), Budget: s.o.Budget, OpenMatches: s.matches.Load(),
		Poisoned: !e.Ledger.ReadOnly() && e.Ledger.Poisoned() != nil, Turns: s.turns.read(),
	}
	out.DiskFree, out.KeptFree, out.Full = e.Budget.Room()
	out.AsOf, out.BesideWriter = e.AsOf()
	out.Sessions, out.SessionBytes = e.Journals.Stats()
	for code := range c.Reasons {
		if n := c.Reasons[code].Load(); n > 0 {
			out.Reasons[ReasonCode(code)] = n
		}
	}
	out.PendingRecords, out.PendingBytes = e.Segments.Pending()
	_, out.OldestLease = e.Segments.Leases()
	if b := e.Filter.Loaded(); b != nil {
		out.BloomKeys, out.BloomFill, out.BloomFPR = int64(b.Keys()), b.Fill(), b.EstimatedFPR()
		out.BloomBytes = int64(b.Bits() / 8)
	}
	if out.BytesPut > 0 {
		out.WriteAmplification = 1 + float64(c.BytesMoved.Load())/float64(out.BytesPut)
	}
	return out
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

// Models lists the models of the store by name, the newest version of each name before its older ones. One whose descriptor cannot be read
// says so itself ([ModelStats].Err).
func (s *Store) Models() iter.Seq2[ModelStats, error] { return listed(s.models) }

func (s *Store) models() (out []ModelStats, err error) {
	e, err := s.enter(context.Background())
	if err != nil {
		return nil, err
	}
	defer s.leave()
	v := e.View()
	defer v.Release()
	latest := e.Catalog.Latest()
	for _, m := range byName(e) {
		out = append(out, modelStats(m, m.Load(), latest[m.Fingerprint], v.CountsOf(m.Fingerprint)))
	}
	return out, nil
}

// byName are a store's models, the newest version of each name before its older ones.
func byName(e *engine.Engine) []*catalog.Model {
	all := e.Catalog.Models()
	slices.SortFunc(all, func(a, b *catalog.Model) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(b.Stamp, a.Stamp))
	})
	return all
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
