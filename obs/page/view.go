package page

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/obs/figures"
)

// figuresView is what assets/*.js draws but for the tree. Times are milliseconds since 1970, durations seconds, 0: not known.
type figuresView struct {
	Title  string      `json:"title"`
	Report bool        `json:"report"`
	At     int64       `json:"at,omitempty"` // of a report
	Store  *storeView  `json:"store"`        // null: there is none just now
	Front  *frontView  `json:"front"`        // null: there is none
	Notes  []noteView  `json:"notes"`
	Times  []timesView `json:"times"`
}

type noteView struct {
	Level string `json:"level"` // fine, warn, bad
	Text  string `json:"text"`
}

// storeView is of db.Stats what people look at.
type storeView struct {
	Matches      int64       `json:"matches"`
	Hits         int64       `json:"hits"`
	TokensAsked  int64       `json:"tokensAsked"`
	TokensReused int64       `json:"tokensReused"`
	Reasons      []countView `json:"reasons"`
	Puts         int64       `json:"puts"`
	Evicted      int64       `json:"evicted"`
	EvictedAge   float64     `json:"evictedAge"` // half of them were used less than that before
	Deleted      int64       `json:"deleted"`
	Blocks       int64       `json:"blocks"`
	Records      int64       `json:"records"`
	LiveBytes    int64       `json:"liveBytes"`
	DiskBytes    int64       `json:"diskBytes"`
	Budget       int64       `json:"budget"` // 0: not known, as of a store that was opened to be looked at
	Sessions     int64       `json:"sessions"`
	OpenMatches  int64       `json:"openMatches"`
}

type countView struct {
	Code  string `json:"code"`
	Words string `json:"words"`
	N     int64  `json:"n"`
}

type timesView struct {
	What string  `json:"what"`
	N    int64   `json:"n"`
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"` // bounds
	P95  float64 `json:"p95"`
}

type frontView struct {
	Since      int64         `json:"since"`
	Total      int64         `json:"total"`
	Hits       int64         `json:"hits"`
	Slotted    int64         `json:"slotted"`
	Misses     int64         `json:"misses"`
	Passed     int64         `json:"passed"`
	Left       int64         `json:"cancelled"`
	Kinds      []kindView    `json:"kinds"`
	Asked      int64         `json:"asked"`
	Reused     int64         `json:"reused"`
	Computed   int64         `json:"computed"`
	Stored     int64         `json:"fromStore"`
	Unknown    int64         `json:"unknown"`
	Restored   int64         `json:"restored"`
	Unused     int64         `json:"unused"`
	Saved      float64       `json:"saved"`
	Ever       float64       `json:"savedEver"` // since everSince, in earlier starts, too
	EverFrom   int64         `json:"everSince"` // 0: nothing is known of earlier starts
	Slots      int           `json:"slots"`
	notStoring bool          // a note says so
	Busy       int           `json:"busy"`
	Restarts   int64         `json:"restarts"`
	Server     string        `json:"server"`
	Rates      []rateView    `json:"rates"`
	Recent     []requestView `json:"recent"`
	Start      int64         `json:"start"`
	Width      float64       `json:"width"`
	Points     [][4]float64  `json:"points"` // requests, tokens asked, tokens reused, seconds saved
}

type kindView struct {
	Outcome string `json:"outcome"`
	countView
}

type rateView struct {
	Model     string  `json:"model"`
	PerSecond float64 `json:"perSecond"`
}

type requestView struct {
	At       int64   `json:"at"`
	Model    string  `json:"model"`
	Client   string  `json:"client"`
	Endpoint string  `json:"endpoint"`
	Outcome  string  `json:"outcome"`
	Why      string  `json:"why"`
	Parted   string  `json:"parted"` // where its prompt parted from the nearest other, in words
	Advice   string  `json:"advice"`
	Known    bool    `json:"known"` // what became of its tokens
	Asked    int     `json:"asked"`
	Reused   int     `json:"reused"`
	First    float64 `json:"firstByte"`
	Saved    float64 `json:"saved"`
}

func requestOf(q figures.Request) requestView {
	v := requestView{
		At: millis(q.Ended), Model: q.Model, Client: q.Client, Endpoint: q.Endpoint, Outcome: q.Outcome.String(), Why: q.Why(), Known: q.Known(),
		Asked: q.Asked, Reused: q.Reused, First: q.FirstByte.Seconds(), Saved: q.Saved.Seconds(),
	}
	if q.Parted != nil {
		v.Parted, v.Advice = q.Parted.Says(q.Asked), q.Parted.Advise()
	}
	return v
}

func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func counts[K comparable](of map[K]int64, view func(K) countView) []countView {
	out := make([]countView, 0, len(of))
	for k, n := range of {
		v := view(k)
		v.N = n
		out = append(out, v)
	}
	slices.SortFunc(out, func(a, b countView) int { return cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(a.Code, b.Code)) })
	return out
}

func coded(code string) countView { return countView{Code: code, Words: figures.Words(code)} }

// addStore fills in what a store says of itself.
func (v *figuresView) addStore(st db.Stats, readOnly bool) {
	v.Store = &storeView{
		Matches: st.Matches, Hits: st.Hits, TokensAsked: st.TokensAsked, TokensReused: st.TokensReused,
		Reasons: counts(st.Reasons, func(c db.ReasonCode) countView { return coded(figures.Code(c)) }),
		Puts:    st.Puts, Evicted: st.Evicted, EvictedAge: st.EvictedAge.Quantile(0.5).Seconds(), Deleted: st.Deleted, Blocks: st.Blocks, Records: st.StoredRecords, LiveBytes: st.LiveBytes,
		DiskBytes: st.DiskBytes, Budget: st.Budget, Sessions: st.Sessions, OpenMatches: st.OpenMatches,
	}
	if readOnly {
		v.Store.Budget = 0
	}
	for _, h := range []struct {
		what string
		h    db.Histogram
	}{{"looking a prompt up", st.Lookup}, {"restoring it", st.Restore}, {"storing it", st.Put}} {
		if h.h.N > 0 {
			v.Times = append(v.Times, timesView{
				h.what, h.h.N, h.h.Sum.Seconds() / float64(h.h.N), h.h.Quantile(0.5).Seconds(), h.h.Quantile(0.95).Seconds(),
			})
		}
	}
	if st.Poisoned {
		v.note(figures.Bad, "The disk failed to keep what was written. Nothing is stored any more until the store is opened again.")
	}
	if st.Full && (v.Front == nil || !v.Front.notStoring) {
		v.note(figures.Warn, "not storing: "+room(st.DiskFree)+" free, "+room(st.KeptFree)+" are kept free")
	}
	if st.Damaged > 0 {
		v.note(figures.Warn, fmt.Sprintf("%s failed a check and %s not used. kvdump verify says where the damage is.", plural(st.Damaged, "record"), was(st.Damaged)))
	}
	if st.Collisions > 0 {
		v.note(figures.Bad, "A key belonged to another prompt: please report it.")
	}
	if st.BesideWriter {
		if st.AsOf.IsZero() {
			v.note(figures.Fine, "Another process has the store open, and has made no checkpoint yet: what it has stored is not seen.")
		} else {
			v.note(figures.Fine, "Another process has the store open: this is what its last checkpoint wrote, at "+st.AsOf.UTC().Format("15:04:05 UTC")+", without what was removed since.")
		}
	}
}

// room is bytes as people read them: 3.9 MiB.
func room(n int64) string {
	x, unit := float64(max(0, n)), "B"
	for _, u := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if x < 1024 {
			break
		}
		x, unit = x/1024, u
	}
	if x < 10 && unit != "B" {
		return fmt.Sprintf("%.1f %s", x, unit)
	}
	return fmt.Sprintf("%.0f %s", x, unit)
}

func was(n int64) string {
	if n == 1 {
		return "was"
	}
	return "were"
}

func plural(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return figures.Comma(n) + " " + what + "s"
}

func (v *figuresView) note(l figures.Level, text string) {
	v.Notes = append(v.Notes, noteView{l.String(), text})
}

// nameModels gives models their names that a runtime's observations have fingerprints of.
func (v *figuresView) nameModels(s *db.Store) {
	if v.Front == nil || !slices.ContainsFunc(v.Front.Recent, func(q requestView) bool { return len(q.Model) == fingerprintDigits }) {
		return
	}
	names := map[string]string{}
	for m, err := range s.Models() {
		if err != nil {
			return
		}
		names[m.Fingerprint.String()] = figures.Name(m.Descriptor.Name)
	}
	for i := range v.Front.Recent {
		q := &v.Front.Recent[i]
		q.Model = cmp.Or(names[q.Model], q.Model)
	}
	for i := range v.Front.Rates {
		r := &v.Front.Rates[i]
		r.Model = cmp.Or(names[r.Model], r.Model)
	}
}

const fingerprintDigits = 2 * len(kv.Fingerprint{})

// addFront fills in what a front says of itself.
func (v *figuresView) addFront(f figures.Front) {
	x := &frontView{
		Since: millis(f.Since), Total: f.Total(), Hits: f.Count(figures.Hit), Slotted: f.Count(figures.Slot), Misses: f.Count(figures.Miss),
		Passed: f.Count(figures.Pass), Left: f.Count(figures.Cancelled), Kinds: []kindView{},
		Asked: f.Asked, Reused: f.Reused, Computed: f.Computed, Stored: f.FromStore, Unknown: f.Unknown, Restored: f.Restored, Unused: f.Unused, Saved: f.Saved.Seconds(),
		Ever: f.SavedEver.Seconds(), EverFrom: millis(f.EverSince),
		Slots: f.Slots, Busy: f.Busy, Restarts: f.Restarts, Server: f.Server, Rates: []rateView{}, Recent: []requestView{},
		Start: millis(f.Series.Start), Width: f.Series.Width.Seconds(), Points: [][4]float64{},
	}
	for k, n := range f.Requests {
		c := coded(k.Reason)
		c.N = n
		x.Kinds = append(x.Kinds, kindView{k.Outcome.String(), c})
	}
	slices.SortFunc(x.Kinds, func(a, b kindView) int {
		return cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(a.Outcome, b.Outcome), cmp.Compare(a.Code, b.Code))
	})
	for _, r := range f.Rates {
		x.Rates = append(x.Rates, rateView{r.Model, r.PerSecond})
	}
	for _, q := range f.Recent {
		x.Recent = append(x.Recent, requestOf(q))
	}
	for _, p := range f.Series.Points {
		requests := p.Hits + p.Slots + p.Misses + p.Passed + p.Cancelled
		x.Points = append(x.Points, [4]float64{float64(requests), float64(p.Asked), float64(p.Reused), p.Saved.Seconds()})
	}
	x.notStoring = f.NotStoring != ""
	v.Front = x
	if f.Store != "" {
		v.note(figures.Warn, f.Store)
	}
	if f.NotStoring != "" {
		v.note(figures.Warn, f.NotStoring)
	}
	for _, n := range f.Notes {
		v.note(n.Level, n.Text)
	}
}

func newFigures(title string) figuresView {
	return figuresView{Title: title, Notes: []noteView{}, Times: []timesView{}}
}

// figures asks for what is now. It never fails: where there is no store, a note says why.
func (o *Options) figures() figuresView {
	v := newFigures(o.Title)
	if o.Front != nil {
		v.addFront(o.Front())
	}
	s := o.store()
	if s == nil {
		return v
	}
	v.nameModels(s)
	st, err := s.Stats()
	switch {
	case err == nil:
		v.addStore(st, s.Options().ReadOnly)
	case errors.Is(err, db.ErrSuspended):
		v.note(figures.Fine, "The store is suspended.")
	case errors.Is(err, db.ErrClosed):
		v.note(figures.Fine, "The store is closed.")
	default:
		v.note(figures.Bad, "The store gives no figures: "+err.Error())
	}
	return v
}

// encode is JSON in one line that is safe inside HTML: encoding/json writes <, > and & as escapes.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil { // a NaN, say: these are our own types
		panic(err)
	}
	return b
}
