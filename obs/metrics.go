package obs

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/obs/figures"
)

// Front is what a front has counted; figures.Recorder makes one.
type Front = figures.Front

// Metric describes one metric: a row of docs/metrics.md.
type Metric struct {
	Name   string
	Kind   string // counter, gauge, histogram
	Labels []string
	Help   string
}

// family is a metric and how it is read off. Each of the functions may be nil.
type family struct {
	Metric
	desc  *prometheus.Desc
	store func(*db.Stats) float64
	hist  func(*db.Stats) (h db.Histogram, first, last, step int) // powers of two microseconds
	front func(*Front) float64
	many  func(*sample, func(value float64, labels ...string))
}

// sample is all that one scrape looks at. Without a store, stats is nil; without a front, front is.
type sample struct {
	stats  *db.Stats
	front  *Front
	models []db.ModelStats
	scopes []scopeBytes
}

func bit(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func counter(name, help string, read func(*db.Stats) float64) family {
	return family{Metric: Metric{Name: "dormouse_store_" + name, Kind: "counter", Help: help}, store: read}
}

func gauge(name, help string, read func(*db.Stats) float64) family {
	return family{Metric: Metric{Name: "dormouse_store_" + name, Kind: "gauge", Help: help}, store: read}
}

// times are the buckets of what takes microseconds to a minute, ages those of what takes a minute to months.
func times(h db.Histogram) (db.Histogram, int, int, int) { return h, 4, 26, 2 }
func ages(h db.Histogram) (db.Histogram, int, int, int)  { return h, 26, 43, 1 }

func histogram(name, help string, read func(*db.Stats) (db.Histogram, int, int, int)) family {
	return family{Metric: Metric{Name: "dormouse_store_" + name, Kind: "histogram", Help: help}, hist: read}
}

func ofFront(kind, name, help string, read func(*Front) float64) family {
	return family{Metric: Metric{Name: "dormouse_front_" + name, Kind: kind, Help: help}, front: read}
}

func labelled(kind, name, help string, labels []string, read func(*sample, func(float64, ...string))) family {
	return family{Metric: Metric{Name: "dormouse_" + name, Kind: kind, Help: help, Labels: labels}, many: read}
}

// families are all metrics, in the order of docs/metrics.md.
func families() []family {
	return []family{
		// What was asked of the store.
		labelled("counter", "store_matches_total", "Lookups, by the reason why no more was found; the sum is all lookups.", []string{"reason"}, func(s *sample, emit func(float64, ...string)) {
			if s.stats != nil {
				for code := range db.ReasonCode(kv.ReasonCodes) { // those that were not given, too: rate() needs a 0 to begin at
					if n := s.stats.Reasons[code]; n > 0 || code != db.NoReason {
						emit(float64(n), figures.Code(code))
					}
				}
			}
		}),
		counter("hits_total", "Lookups that found something.", func(s *db.Stats) float64 { return float64(s.Hits) }),
		counter("tokens_asked_total", "Tokens of the prompts that were looked up.", func(s *db.Stats) float64 { return float64(s.TokensAsked) }),
		counter("tokens_reused_total", "Tokens that were restored.", func(s *db.Stats) float64 { return float64(s.TokensReused) }),
		counter("puts_total", "Puts.", func(s *db.Stats) float64 { return float64(s.Puts) }),
		counter("put_bytes_total", "Bytes that puts stored.", func(s *db.Stats) float64 { return float64(s.BytesPut) }),
		counter("restored_bytes_total", "Stored bytes that restores read.", func(s *db.Stats) float64 { return float64(s.BytesRestored) }),
		histogram("lookup_seconds", "Time of a lookup.", func(s *db.Stats) (db.Histogram, int, int, int) { return times(s.Lookup) }),
		histogram("restore_seconds", "Time of a restore.", func(s *db.Stats) (db.Histogram, int, int, int) { return times(s.Restore) }),
		histogram("put_seconds", "Time of a put.", func(s *db.Stats) (db.Histogram, int, int, int) { return times(s.Put) }),

		// What is stored.
		labelled("gauge", "store_open", "1 while a store can be used; 0 if there is none, or it is suspended or closed.", nil, func(s *sample, emit func(float64, ...string)) {
			emit(bit(s.stats != nil))
		}),
		gauge("blocks", "Stored blocks.", func(s *db.Stats) float64 { return float64(s.Blocks) }),
		gauge("records", "Stored records: each block has one for each group of its model.", func(s *db.Stats) float64 { return float64(s.StoredRecords) }),
		gauge("live_bytes", "Bytes of all stored records.", func(s *db.Stats) float64 { return float64(s.LiveBytes) }),
		gauge("disk_bytes", "Allocated bytes of all files.", func(s *db.Stats) float64 { return float64(s.DiskBytes) }),
		gauge("disk_high_water_bytes", "The most that disk_bytes ever was since the store was opened.", func(s *db.Stats) float64 { return float64(s.DiskHighWater) }),
		gauge("budget_bytes", "The most that disk_bytes may be.", func(s *db.Stats) float64 { return float64(s.Budget) }),
		labelled("gauge", "store_model_blocks", "Stored blocks by model.", []string{"model", "fingerprint"}, func(s *sample, emit func(float64, ...string)) {
			for _, m := range boundModels(s.models) {
				emit(float64(m.blocks), m.name, m.fingerprint)
			}
		}),
		labelled("gauge", "store_model_bytes", "Bytes of stored records by model.", []string{"model", "fingerprint"}, func(s *sample, emit func(float64, ...string)) {
			for _, m := range boundModels(s.models) {
				emit(float64(m.bytes), m.name, m.fingerprint)
			}
		}),
		labelled("gauge", "store_scope_bytes", "Bytes of stored records by model and scope: shared, the largest by the beginning of their id, and other. Counted at most once a minute.", []string{"model", "fingerprint", "scope"}, func(s *sample, emit func(float64, ...string)) {
			for _, x := range s.scopes {
				emit(float64(x.bytes), x.model, x.fingerprint, x.scope)
			}
		}),
		gauge("sessions", "Stored sessions of conversations.", func(s *db.Stats) float64 { return float64(s.Sessions) }),
		gauge("session_bytes", "Allocated bytes of their files.", func(s *db.Stats) float64 { return float64(s.SessionBytes) }),

		// What goes.
		counter("evicted_blocks_total", "Blocks that were evicted.", func(s *db.Stats) float64 { return float64(s.Evicted) }),
		histogram("eviction_age_seconds", "Time since a block was last used, when it was evicted; to the minute.", func(s *db.Stats) (db.Histogram, int, int, int) { return ages(s.EvictedAge) }),
		counter("deleted_blocks_total", "Blocks that were deleted.", func(s *db.Stats) float64 { return float64(s.Deleted) }),
		gauge("pending_bytes", "Bytes of records that will be destroyed once no match can see them.", func(s *db.Stats) float64 { return float64(s.PendingBytes) }),
		gauge("open_matches", "Matches that are open.", func(s *db.Stats) float64 { return float64(s.OpenMatches) }),
		gauge("oldest_lease_seconds", "How long the oldest match has been open; 0 if none is.", func(s *db.Stats) float64 {
			if s.OldestLease.IsZero() {
				return 0
			}
			return time.Since(s.OldestLease).Seconds()
		}),

		// How the store is.
		gauge("poisoned", "1 if an fsync has failed: nothing is stored any more.", func(s *db.Stats) float64 { return bit(s.Poisoned) }),
		counter("damaged_records_total", "Records that failed a check.", func(s *db.Stats) float64 { return float64(s.Damaged) }),
		counter("collisions_total", "Keys that belonged to another prefix: report it.", func(s *db.Stats) float64 { return float64(s.Collisions) }),
		counter("checkpoints_total", "Checkpoints.", func(s *db.Stats) float64 { return float64(s.Checkpoints) }),
		gauge("last_checkpoint_seconds", "How long the last checkpoint took.", func(s *db.Stats) float64 { return s.LastCheckpoint.Seconds() }),
		counter("bloom_false_total", "Times that the Bloom filter said maybe for a key that is not stored.", func(s *db.Stats) float64 { return float64(s.BloomFalse) }),
		gauge("bloom_false_positive_ratio", "Estimated rate of such false positives.", func(s *db.Stats) float64 { return s.BloomFPR }),
		gauge("write_amplification_ratio", "Bytes appended, copies of compaction included, divided by bytes that puts stored.", func(s *db.Stats) float64 { return s.WriteAmplification }),

		// What runtimes tell with Model.Observe.
		labelled("counter", "turns_total", "Turns that runtimes have reported.", nil, func(s *sample, emit func(float64, ...string)) {
			if s.stats != nil {
				emit(float64(s.stats.Turns.Observed))
			}
		}),
		labelled("counter", "turn_tokens_total", "Tokens of these turns: asked, found, loaded, reused, prefilled, decoded, unused (restored but not reused).", []string{"kind"}, func(s *sample, emit func(float64, ...string)) {
			if s.stats != nil {
				t := s.stats.Turns
				for _, x := range []struct {
					kind string
					n    int64
				}{{"asked", t.Asked}, {"found", t.Found}, {"loaded", t.Loaded}, {"reused", t.Reused}, {"prefilled", t.Prefilled}, {"decoded", t.Decoded}, {"unused", t.Unused}} {
					emit(float64(x.n), x.kind)
				}
			}
		}),
		labelled("counter", "turn_seconds_total", "Time of these turns by stage: lookup, load, prefill, decode.", []string{"stage"}, func(s *sample, emit func(float64, ...string)) {
			if s.stats != nil {
				t := s.stats.Turns
				emit(t.Lookup.Seconds(), "lookup")
				emit(t.Load.Seconds(), "load")
				emit(t.Prefill.Seconds(), "prefill")
				emit(t.Decode.Seconds(), "decode")
			}
		}),

		// What a front counts.
		labelled("counter", "front_requests_total", "Requests by outcome (hit: from the store; slot: the server still had it; miss; pass; cancelled: the client left) and by why no more was reused, or why it was passed through.", []string{"outcome", "reason"}, func(s *sample, emit func(float64, ...string)) {
			if s.front != nil {
				for k, n := range s.front.Requests {
					emit(float64(n), k.Outcome.String(), k.Reason)
				}
			}
		}),
		ofFront("counter", "tokens_asked_total", "Tokens of prompts whose outcome is known: reused and computed together.", func(f *Front) float64 { return float64(f.Asked) }),
		ofFront("counter", "tokens_reused_total", "Tokens of prompts that were not computed: from the store, or still in the server's memory.", func(f *Front) float64 { return float64(f.Reused) }),
		ofFront("counter", "tokens_computed_total", "Tokens of prompts that were computed.", func(f *Front) float64 { return float64(f.Computed) }),
		ofFront("counter", "tokens_from_store_total", "Reused tokens that came from the store.", func(f *Front) float64 { return float64(f.FromStore) }),
		ofFront("counter", "tokens_unknown_total", "Tokens of prompts whose outcome is not known, such as cancelled requests.", func(f *Front) float64 { return float64(f.Unknown) }),
		ofFront("counter", "tokens_restored_total", "Tokens that were restored from the store.", func(f *Front) float64 { return float64(f.Restored) }),
		ofFront("counter", "tokens_unused_total", "Tokens that were restored but not reused.", func(f *Front) float64 { return float64(f.Unused) }),
		ofFront("counter", "saved_seconds_total", "Time in which the measured prefill rate would have computed what was restored and used, less lookup and restore.", func(f *Front) float64 { return f.Saved.Seconds() }),
		ofFront("counter", "lookup_seconds_total", "Time of all lookups.", func(f *Front) float64 { return f.Lookup.Seconds() }),
		ofFront("counter", "restore_seconds_total", "Time of all restores.", func(f *Front) float64 { return f.Restore.Seconds() }),
		ofFront("counter", "prefill_seconds_total", "Time of computing prompts.", func(f *Front) float64 { return f.Prefill.Seconds() }),
		labelled("gauge", "front_prefill_tokens_per_second", "Measured prefill rate by model.", []string{"model"}, func(s *sample, emit func(float64, ...string)) {
			if s.front != nil {
				for _, r := range s.front.Rates {
					emit(r.PerSecond, figures.Name(r.Model))
				}
			}
		}),
		ofFront("gauge", "slots", "Slots of the server.", func(f *Front) float64 { return float64(f.Slots) }),
		ofFront("gauge", "slots_busy", "Slots that are busy.", func(f *Front) float64 { return float64(f.Busy) }),
		ofFront("counter", "server_restarts_total", "Times that the front has restarted the server.", func(f *Front) float64 { return float64(f.Restarts) }),
	}
}

// Metrics lists all metrics, in the order of docs/metrics.md.
func Metrics() (out []Metric) {
	for _, f := range families() {
		out = append(out, f.Metric)
	}
	return out
}
