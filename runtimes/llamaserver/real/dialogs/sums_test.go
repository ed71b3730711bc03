package dialogs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dormousekv/dormouse/obs/figures"
	"github.com/dormousekv/dormouse/runtimes/llamaserver"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/rig"
)

// What 64 clients at once did adds up, though some leave in the middle: each request is counted once, tokens asked are those reused and computed, and who left
// had no hit. Status says what the figures say.
func TestSumsAgree(t *testing.T) {
	r := rig.Start(t, llamaserver.Options{SaveAfter: time.Millisecond}, "-c", "2048", "-np", "4", "--api-key", "k")
	const atOnce, each = 64, 4
	var sent, whole, left atomic.Int64
	var all sync.WaitGroup
	for c := range atOnce {
		all.Go(func() {
			for i := range each {
				ctx, cancel := context.WithCancel(t.Context())
				n := c*each + i
				body := rig.Story(fmt.Sprintf("Once upon a time Ada number %d had a dog.", n%9), 4+n%11)
				body["stream"] = n%2 == 0
				endpoint := []string{"/completion", "/v1/completions", "/v1/messages"}[n%3]
				if endpoint == "/v1/messages" {
					body = rig.Object{"max_tokens": 8, "messages": []rig.Object{{"role": "user", "content": body["prompt"]}}}
				}
				if n%4 == 3 { // it leaves: before the server hears of it, or in the middle
					body["n_predict"] = 400
					time.AfterFunc(time.Duration(n%16)*10*time.Millisecond, cancel)
				}
				b, err := json.Marshal(body)
				if err != nil {
					t.Error(err)
				}
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.URL+endpoint, strings.NewReader(string(b)))
				if err != nil {
					t.Error(err)
				}
				req.Header.Set("Authorization", "Bearer k")
				sent.Add(1)
				if a := rig.Do(req); a.Status == http.StatusOK && a.Err == nil {
					whole.Add(1)
				} else if ctx.Err() != nil {
					left.Add(1)
				} else {
					t.Errorf("%s: %d %v %s", endpoint, a.Status, a.Err, a.Body)
				}
				cancel()
			}
		})
	}
	all.Wait()
	r.Saved()
	r.Web.Close() // all have come to their end, those too whose clients left
	f := r.Front.Figures()
	// One that left before it was heard at all is not counted.
	if n, gone := f.Total(), f.Count(figures.Cancelled); n > sent.Load() || n-gone > whole.Load()+left.Load() || n-gone < whole.Load() {
		t.Errorf("%d requests were sent, %d answered, %d left; counted are %d, %d of them cancelled", sent.Load(), whole.Load(), left.Load(), n, gone)
	}
	if left.Load() == 0 || f.Count(figures.Cancelled) == 0 {
		t.Errorf("%d left, %d are counted as cancelled", left.Load(), f.Count(figures.Cancelled))
	}
	if f.Asked != f.Reused+f.Computed || f.Asked == 0 || f.FromStore > f.Reused {
		t.Errorf("tokens: %+v", f)
	}
	if f.Count(figures.Hit)+f.Count(figures.Slot) == 0 {
		t.Error("nothing was reused")
	}
	for _, q := range f.Recent {
		if q.Cancelled != (q.Outcome == figures.Cancelled) || q.Known() && q.Asked != q.Reused+q.Computed || q.Endpoint == "" || q.Client != "" {
			t.Errorf("%+v", q)
		}
		if q.Outcome == figures.Hit && q.FromStore() == 0 || q.Outcome == figures.Slot && q.Restored > 0 {
			t.Errorf("no %v: %+v", q.Outcome, q)
		}
		if !q.Cancelled && q.FirstByte == 0 {
			t.Errorf("no first byte: %+v", q)
		}
	}
	st, err := r.Front.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	counts := map[figures.Kind]int64{}
	for _, c := range st.Requests {
		for _, o := range figures.Outcomes {
			if o.String() == c.Outcome {
				counts[figures.Kind{Outcome: o, Reason: c.Reason}] += c.N
			}
		}
	}
	if fmt.Sprint(counts) != fmt.Sprint(f.Requests) || st.Asked != f.Asked || st.Reused != f.Reused || st.Computed != f.Computed || st.Unused != f.Unused {
		t.Errorf("status says %+v, the figures %+v", st, f)
	}
}
