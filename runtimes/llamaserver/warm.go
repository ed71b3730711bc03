package llamaserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
)

// idleBefore is how long no request may have been under way before a prefix is computed that nobody waits for.
const idleBefore = 3 * time.Second

// Pauses after a prefix could not be computed, or kept: twice as long each time.
const (
	warmPause     = 10 * time.Second
	mostWarmPause = 30 * time.Minute
)

// traffic knows whether requests are under way. The zero value is ready.
type traffic struct {
	mu     sync.Mutex
	under  int
	last   time.Time
	giveUp context.CancelFunc // what the front does at idle
}

// begin counts a request, which ends with what is returned. What the front does at idle is given up for it.
func (t *traffic) begin() (end func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.under++
	if t.giveUp != nil {
		t.giveUp()
	}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.under--
		t.last = time.Now()
	}
}

// idle waits until no request has been under way for a time. It gives a context that ends when one comes.
func (t *traffic) idle(ctx context.Context, since time.Duration) (context.Context, context.CancelFunc, error) {
	for {
		t.mu.Lock()
		wait := since - time.Since(t.last)
		if t.under == 0 && wait <= 0 {
			ctx, cancel := context.WithCancel(ctx)
			t.giveUp = cancel
			t.mu.Unlock()
			return ctx, cancel, nil
		}
		if t.under > 0 {
			wait = since
		}
		t.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-time.After(wait):
		}
	}
}

// warmJob is a prefix that is to be computed.
type warmJob struct {
	keep Keep
	req  *request.Request
	ctx  context.Context // ends when it is dropped
	drop context.CancelFunc
	why  string // it has not been computed yet
}

// warming are the prefixes that are to be computed, one at a time. The zero value is ready.
type warming struct {
	mu   sync.Mutex
	jobs []*warmJob
	turn sync.Mutex
}

// add replaces what was to be computed under the name.
func (w *warming) add(j *warmJob) {
	w.drop(func(o *warmJob) bool { return o.keep.Name == j.keep.Name })
	w.mu.Lock()
	defer w.mu.Unlock()
	w.jobs = append(w.jobs, j)
}

// drop gives up what is not to be computed any more.
func (w *warming) drop(which func(*warmJob) bool) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var left []*warmJob
	for _, j := range w.jobs {
		if which(j) {
			j.drop()
			n++
		} else {
			left = append(left, j)
		}
	}
	w.jobs = left
	return n
}

func (w *warming) says(j *warmJob, why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	j.why = why
}

func (w *warming) list() (out []Kept) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, j := range w.jobs {
		out = append(out, Kept{Name: j.keep.Name, Pinned: j.keep.Pin, State: j.why})
	}
	return out
}

// Warm has the prefix of a request computed and stored when no request has been under way for some seconds. If it is stored, it only gets the name.
func (f *Front) Warm(ctx context.Context, k Keep) (Kept, error) {
	req, err := f.read(&k)
	if err != nil {
		return Kept{}, err
	}
	out := Kept{Name: k.Name, Pinned: k.Pin, State: fmt.Sprintf("waits until no request has been under way for %v", idleBefore)}
	s, p, err := f.prefix(ctx, &k, req)
	_, unready := s.ready()
	switch {
	case err == nil:
		var missing *db.NotStoredError
		if done, err := s.keepAs(ctx, &k, p); !errors.As(err, &missing) {
			f.warming.drop(func(j *warmJob) bool { return j.keep.Name == k.Name })
			return done, err
		}
		out.Model, out.Tokens = s.named(), len(p.Tokens)
	case unready == nil: // the request is at fault
		return Kept{}, inWords(err)
	}
	j := &warmJob{keep: k, req: req, why: out.State}
	j.ctx, j.drop = context.WithCancel(f.ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return Kept{}, errors.New("the front is ending")
	}
	f.warming.add(j)
	f.work.Add(1)
	go func() {
		defer f.work.Done()
		f.warm(j)
	}()
	return out, nil
}

// warm computes a prefix at idle, as often as it takes.
func (f *Front) warm(j *warmJob) {
	pause := warmPause
	for {
		err := f.warmAtIdle(j)
		switch {
		case err == nil:
			f.warming.drop(func(o *warmJob) bool { return o == j })
			return
		case j.ctx.Err() != nil:
			return
		case errors.Is(err, errBusy):
			continue
		}
		f.log.Warn("a prefix is not computed yet", "name", j.keep.Name, "err", err, "again in", pause)
		f.warming.says(j, fmt.Sprintf("tried again at %s: %v", time.Now().Add(pause).Format(time.TimeOnly), err))
		select {
		case <-j.ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, mostWarmPause)
	}
}

// errBusy says that a request came while the front did something at idle.
var errBusy = errors.New("a request came")

func (f *Front) warmAtIdle(j *warmJob) error {
	f.warming.turn.Lock()
	defer f.warming.turn.Unlock()
	ctx, cancel, err := f.traffic.idle(j.ctx, idleBefore)
	if err != nil {
		return err
	}
	defer cancel()
	f.warming.says(j, "is being computed")
	err = f.warmNow(ctx, j)
	if err != nil && ctx.Err() != nil && j.ctx.Err() == nil {
		f.warming.says(j, fmt.Sprintf("waits until no request has been under way for %v", idleBefore))
		return errBusy
	}
	return err
}

// warmNow has the server compute a prefix, up to its last token, and names it. It goes the way of every request: what is stored of it is restored.
func (f *Front) warmNow(ctx context.Context, j *warmJob) (err error) {
	s, p, err := f.prefix(ctx, &j.keep, j.req)
	if err != nil {
		return inWords(err)
	}
	if _, err = s.keepAs(ctx, &j.keep, p); err == nil {
		return nil // somebody has asked for it meanwhile
	}
	if missing := new(db.NotStoredError); !errors.As(err, &missing) {
		return err
	}
	fields := map[string]any{"prompt": p.Tokens, "n_predict": 0, "cache_prompt": true}
	for _, key := range []string{"lora", "model"} {
		if j.req.Has(key) {
			fields[key] = j.req.Fields[key]
		}
	}
	body, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	req, err := request.Parse(request.Completion, body)
	if err != nil {
		return inWords(err)
	}
	r, err := http.NewRequestWithContext(context.WithValue(ctx, ownKey{}, p), http.MethodPost, f.args.Prefix+"/completion", strings.NewReader(string(body)))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	v, r := f.ledger.arrives(r, f.args.Prefix)
	v.own = true
	key := j.keep.Key
	if key == "" {
		key = s.api.Key
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	answer := &sink{header: http.Header{}, status: http.StatusOK}
	func() {
		defer func() { // an answer that breaks off ends like this
			if p := recover(); p != nil {
				err = fmt.Errorf("the answer broke off: %v", p)
			}
		}()
		f.complete(answer, r, s, req, false)
	}()
	if err == nil && answer.status != http.StatusOK {
		err = fmt.Errorf("llama-server: %d %s", answer.status, answer.said)
	}
	if err != nil || ctx.Err() != nil {
		return errors.Join(err, ctx.Err())
	}
	_, err = s.keepAs(ctx, &j.keep, p)
	return err
}

// sink takes an answer that nobody reads.
type sink struct {
	header http.Header
	status int
	said   []byte
}

func (s *sink) Header() http.Header { return s.header }

func (s *sink) WriteHeader(status int) { s.status = status }

func (s *sink) Write(b []byte) (int, error) {
	if room := 1000 - len(s.said); room > 0 {
		s.said = append(s.said, b[:min(room, len(b))]...)
	}
	return len(b), nil
}
