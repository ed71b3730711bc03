package db_test

import (
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/catalog"
	"github.com/dormousekv/dormouse/db/internal/folder"
	"github.com/dormousekv/dormouse/db/internal/inside"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
)

// Every number in an options struct is taken or refused as its doc comment says, at the call that takes the options; a refusal
// names the field and the value. A field of a new number fails here until it is listed.
func TestOptionsAreChecked(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	p := kv.Tokens(crashtest.Tokens(1, 32)...)
	storetest.Put(t, m, p)
	finite := func(low, high float64) func(float64) bool {
		return func(x float64) bool { return x == 0 || x >= low && x <= high }
	}
	atLeast := func(low float64) func(float64) bool { return finite(low, math.Inf(1)) }
	codec := func(x float64) bool { return x <= float64(quant.ByteSplit) || x == float64(quant.Q4R) }
	compression := func(x float64) bool { return x <= float64(quant.Huff0) }
	share := finite(math.SmallestNonzeroFloat64, 1)
	for _, x := range []struct {
		options any
		call    func(o any) error
		allowed map[string]func(float64) bool
	}{
		{db.Options{}, func(o any) error { return o.(db.Options).Validate() }, map[string]func(float64) bool{
			"Budget":             finite(1<<20, 1<<60),
			"MinFree":            func(x float64) bool { return x <= 1<<60 },
			"MaxBlocks":          atLeast(0),
			"HighWater":          share,
			"LowWater":           finite(math.SmallestNonzeroFloat64, 0.7),
			"Durability":         finite(0, float64(db.Power)),
			"CheckpointInterval": func(x float64) bool { return x <= 0 || x >= float64(time.Millisecond) },
			"CheckpointBytes":    atLeast(0),
			"Codec":              codec,
			"Compression":        compression,
			"SegmentBytes":       finite(64<<10, 1<<40),
			"BloomFPR":           finite(1e-9, 0.5),
		}},
		{db.PutOptions{}, func(o any) error {
			_, err := m.Put(t.Context(), p, storetest.Filled(m.Descriptor(), &p, 0, 32), o.(db.PutOptions))
			return err
		}, map[string]func(float64) bool{"Codec": codec, "Compression": compression, "KeepStates": func(float64) bool { return true }}},
		{db.MatchOptions{}, func(o any) error {
			_, _, err := m.Probe(t.Context(), p, o.(db.MatchOptions))
			_, again := m.Explain(t.Context(), p, o.(db.MatchOptions))
			_, third := m.Prefetch(t.Context(), p, o.(db.MatchOptions))
			x, fourth := m.Match(t.Context(), p, o.(db.MatchOptions))
			if fourth == nil {
				x.Close()
			}
			if (err == nil) != (again == nil) || (err == nil) != (third == nil) || (err == nil) != (fourth == nil) {
				return fmt.Errorf("four calls disagree: %v; %v; %v; %v", err, again, third, fourth)
			}
			return err
		}, map[string]func(float64) bool{"Limit": atLeast(0)}},
		{db.RefOptions{}, func(o any) error { return m.SetRef(t.Context(), "name", p, o.(db.RefOptions)) }, map[string]func(float64) bool{
			"Priority": func(x float64) bool { return x < catalog.ClassPinned },
			"TTL":      atLeast(0),
		}},
		{db.CompactOptions{}, func(o any) error { _, err := s.Compact(t.Context(), o.(db.CompactOptions)); return err }, map[string]func(float64) bool{
			"LiveShare": share,
		}},
		{admin.VerifyOptions{}, nil, nil},
		{admin.RepairOptions{}, nil, nil},
	} {
		of := reflect.TypeOf(x.options)
		for i := range of.NumField() {
			f := of.Field(i)
			values := extremes(f.Type)
			allowed := x.allowed[f.Name]
			if values == nil || !f.IsExported() {
				continue
			}
			if allowed == nil {
				t.Errorf("%s.%s is a number, and nothing says here which are allowed", of.Name(), f.Name)
				continue
			}
			for _, value := range values {
				o := reflect.New(of).Elem()
				o.Field(i).Set(value)
				err := x.call(o.Interface())
				number := value.Convert(reflect.TypeFor[float64]()).Float()
				if ok := allowed(number); ok != (err == nil) {
					t.Errorf("%s.%s of %v: %v; allowed is %v", of.Name(), f.Name, value, err, ok)
				}
				if says := fmt.Sprintf("%s.%s is %v", of.Name(), f.Name, plainly(value)); err != nil && !strings.Contains(err.Error(), says) {
					t.Errorf("%v: want it to say %q", err, says)
				}
			}
		}
	}
}

// plainly is a number without the String method of an enumeration; times keep theirs.
func plainly(v reflect.Value) any {
	if v.Kind() == reflect.Uint8 {
		return v.Uint()
	}
	return v.Interface()
}

// extremes are values of a number's type that callers come to by mistake; nil for other types.
func extremes(of reflect.Type) (out []reflect.Value) {
	add := func(v any) { out = append(out, reflect.ValueOf(v).Convert(of)) }
	switch of.Kind() {
	case reflect.Uint8:
		for v := range 256 {
			add(uint8(v))
		}
	case reflect.Int, reflect.Int32, reflect.Int64:
		for _, v := range []int64{math.MinInt64, -1 << 32, -4, -1, 0, 1, 1 << 16, 1 << 30, math.MaxInt64} {
			add(v)
		}
	case reflect.Float32, reflect.Float64:
		for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, -0.1, math.Copysign(0, -1), 0, 1e-300, 0.3, 0.5, 0.9, 1, 1.1, 1e300} {
			add(v)
		}
	case reflect.Uint, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Struct, reflect.Array, reflect.Slice:
		if of != reflect.TypeFor[[]byte]() && of != reflect.TypeFor[inside.Options]() {
			panic(fmt.Sprintf("%s: say here what its extremes are", of))
		}
	}
	return out
}

// Options that contradict each other, or lie in other values, are refused by Open itself.
func TestOptionsAreRefusedByOpen(t *testing.T) {
	for says, change := range map[string]func(*db.Options){
		"Options.LowWater is 0.8: expected a share of the budget, over 0 and up to HighWater, which is 0.5": func(o *db.Options) { o.LowWater, o.HighWater = 0.8, 0.5 },
		"Options.BloomFPR is NaN":               func(o *db.Options) { o.BloomFPR = math.NaN() },
		"Options.HighWater is NaN":              func(o *db.Options) { o.HighWater = math.NaN() },
		"Options.Policy: DepthCap(-4)":          func(o *db.Options) { o.Policy = db.DepthCap(-4) },
		"Options.Codec is 4":                    func(o *db.Options) { o.Codec = quant.Q8C },
		"q8c is reserved":                       func(o *db.Options) { o.Codec = quant.Q8C },
		"Options.Codec is 77: quant: codec not": func(o *db.Options) { o.Codec = 77 },
	} {
		o := db.Options{Logger: slog.New(slog.DiscardHandler)}
		change(&o)
		s, err := db.Open(t.Context(), t.TempDir(), o)
		if err == nil {
			s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want it to say %q", err, says)
		}
	}
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	p := kv.Tokens(crashtest.Tokens(1, 32)...)
	storetest.Put(t, m, p)
	storetest.OK(t, m.SetRef(t.Context(), "name", p, db.RefOptions{TTL: math.MaxInt64}))
	if r, err := s.Ref("name"); err != nil || !r.Expires.After(time.Now()) {
		t.Errorf("a ref of the longest life ends at %v (%v)", r.Expires, err)
	}
}

// What is observed is handed on as it is, with the model's name, and summed up; Suspend and Resume lose none of it, and a store without an
// observer counts the same.
func TestObserver(t *testing.T) {
	var mu sync.Mutex
	var told []db.Observation
	for _, observer := range []func(db.Observation){nil, func(o db.Observation) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, o)
	}} {
		o := storetest.Options()
		o.Observer = observer
		s, m := storetest.Fresh(t, o, crashtest.Plain())
		turn := db.Observation{
			Asked: 100, Found: 80, Loaded: 70, Reused: 60, Prefilled: 40, Decoded: 30, Unused: 10,
			Lookup: 1, Load: 2, Prefill: 3, Decode: 4, Reason: db.Reason{Code: db.Ends, At: 80},
		}
		var workers sync.WaitGroup
		for range 4 {
			workers.Go(func() {
				for range 5 {
					m.Observe(turn)
				}
			})
		}
		workers.Wait()
		storetest.OK(t, s.Suspend(t.Context()))
		m.Observe(turn) // a turn may end then
		storetest.OK(t, s.Resume(t.Context()))
		const n = 21
		want := db.Turns{
			Observed: n, Asked: n * 100, Found: n * 80, Loaded: n * 70, Reused: n * 60, Prefilled: n * 40, Decoded: n * 30, Unused: n * 10,
			Lookup: n * 1, Load: n * 2, Prefill: n * 3, Decode: n * 4,
		}
		if got := storetest.Stats(t, s).Turns; got != want {
			t.Errorf("summed up: %+v, expected %+v", got, want)
		}
		turn.Model = m.Fingerprint()
		if observer != nil && !slices.Equal(told, slices.Repeat([]db.Observation{turn}, n)) {
			t.Errorf("told %d times: %+v", len(told), told)
		}
	}
}

// Segments suit the budget: small in a small store, and not many in a large one.
func TestSegmentsSuitTheBudget(t *testing.T) {
	for budget, want := range map[int64]int64{8 << 20: 1 << 20, 256 << 20: 16 << 20, 4 << 30: 64 << 20, 64 << 30: 512 << 20, 1 << 40: 1 << 30} {
		o := storetest.Options()
		o.Budget, o.SegmentBytes = budget, 0
		s, m := storetest.Fresh(t, o, crashtest.Plain())
		dir := s.Dir()
		storetest.Put(t, m, kv.Tokens(crashtest.Tokens(1, 100)...))
		files := storetest.Must(filepath.Glob(filepath.Join(dir, folder.SegmentsDir, "*")))(t)
		for _, f := range files {
			info := storetest.Must(os.Stat(f))(t)
			if info.Size() != want { // sparse
				t.Errorf("budget %d MiB: a segment of %d MiB, not %d", budget>>20, info.Size()>>20, want>>20)
			}
		}
		if len(files) != 1 {
			t.Errorf("budget %d MiB: %d segments", budget>>20, len(files))
		}
	}
}
