package obs

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/dormousekv/dormouse/db"
)

// Options say what is collected. The functions are called at each scrape, by several goroutines at a time where several scrape.
type Options struct {
	// Store is the store, or nil while there is none. Nil: there never is one.
	Store func() *db.Store
	// Front has the figures of the front. Nil: there is none, and none of its metrics.
	Front func() Front
	// Scopes is how many scopes of a model have a series of their own, the largest first. 0: 10; negative: none. At most 20.
	Scopes int
}

// Collector is a prometheus.Collector. It is safe for concurrent use.
type Collector struct {
	o        Options
	families []family
	scopes   scopeCount
}

// New makes a collector.
func New(o Options) *Collector {
	switch {
	case o.Scopes == 0:
		o.Scopes = 10
	case o.Scopes < 0:
		o.Scopes = 0
	}
	o.Scopes = min(o.Scopes, 20)
	c := &Collector{o: o, families: families()}
	for i := range c.families {
		f := &c.families[i]
		f.desc = prometheus.NewDesc(f.Name, f.Help, f.Labels, nil)
	}
	return c
}

// Handler serves the metrics of one collector, and nothing else, to whoever asks.
func Handler(o Options) http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(New(o))
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{MaxRequestsInFlight: 8})
}

// Describe is a method of prometheus.Collector.
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	for i := range c.families {
		out <- c.families[i].desc
	}
}

// Collect is a method of prometheus.Collector. Where there is no store, or it is suspended, its metrics are missing but for
// dormouse_store_open.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	var s sample
	if c.o.Front != nil {
		f := c.o.Front()
		s.front = &f
	}
	if c.o.Store != nil {
		if store := c.o.Store(); store != nil {
			if st, err := store.Stats(); err == nil {
				s.stats = &st
				s.models, _ = db.Collect(store.Models()) // closed meanwhile: there are none
				s.scopes = c.scopes.of(store, s.models, c.o.Scopes)
			}
		}
	}
	for i := range c.families {
		c.families[i].collect(&s, out)
	}
}

func (f *family) collect(s *sample, out chan<- prometheus.Metric) {
	kind := prometheus.GaugeValue
	if f.Kind == "counter" {
		kind = prometheus.CounterValue
	}
	switch {
	case f.store != nil && s.stats != nil:
		out <- prometheus.MustNewConstMetric(f.desc, kind, f.store(s.stats))
	case f.front != nil && s.front != nil:
		out <- prometheus.MustNewConstMetric(f.desc, kind, f.front(s.front))
	case f.hist != nil && s.stats != nil:
		h, first, last, step := f.hist(s.stats)
		out <- prometheus.MustNewConstHistogram(f.desc, uint64(h.N), h.Seconds, buckets(h, first, last, step))
	case f.many != nil:
		f.many(s, func(value float64, labels ...string) {
			out <- prometheus.MustNewConstMetric(f.desc, kind, value, labels...)
		})
	}
}

// buckets are cumulative counts up to 2^i microseconds.
func buckets(h db.Histogram, first, last, step int) map[float64]uint64 {
	out := map[float64]uint64{}
	sum := int64(0)
	for i, n := range h.Counts {
		sum += n
		if i >= first && i <= last && (i-first)%step == 0 {
			out[(time.Microsecond << i).Seconds()] = uint64(sum)
		}
	}
	return out
}
