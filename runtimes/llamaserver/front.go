package llamaserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/gguf"
	"github.com/dormousekv/dormouse/obs/figures"
	"github.com/dormousekv/dormouse/runtimes/internal/modelfile"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/layout"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/slotfile"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/trial"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/weights"
)

// Options say how a front works. Dir is needed; everything else has a default.
type Options struct {
	Dir string     // the store's folder; it is made if need be
	DB  db.Options // of the store
	// Memo is a file that remembers hashes of model files, so that each is read once. Empty: they are read at every start.
	Memo string
	// Attach is the address of a server that somebody else runs, and APIKey one that it accepts. SlotDir is its --slot-save-path then. Else SlotDir is
	// where a folder for slot files is made; empty: in memory if some folder there can be written to, and on the store's volume if no other can.
	Attach, SlotDir, APIKey string
	// Variant is told of a server that the front has not started: whatever in its arguments changes rows (RoPE, overrides). Servers with
	// different variants share nothing.
	Variant string
	// ScopeByKey keeps what requests with one API key computed from those with another, in the store, in slots and in the server's memory. System prompts are
	// shared all the same. A server that New is told of is started without its cache in memory then.
	ScopeByKey bool
	// SaveAfter is how long a slot is idle before it is saved. 0: 300 ms.
	SaveAfter time.Duration
	// Normalize are rules that change requests before they are rendered and forwarded: sets by name ("claude-code"), or files.
	Normalize []string
	// MaxBody bounds the bodies that are looked at; larger ones pass. 0: 32 MiB.
	MaxBody int64
	// Explain keeps in memory the texts around the places where the last 20 prompts parted from stored ones, for [Front.Explain].
	Explain bool
	Logger  *slog.Logger // nil: slog.Default()
}

// Front is a reverse proxy before a llama-server that keeps what the server has computed. It is an http.Handler.
type Front struct {
	o       Options
	args    *Arguments
	log     *slog.Logger
	base    *url.URL
	client  *http.Client
	proxy   *httputil.ReverseProxy
	folder  *slotfile.Folder
	record  figures.Recorder
	totals  totals
	bodies  pace
	rules   normalizer
	traffic traffic
	warming warming
	askers  askers

	db      atomic.Pointer[db.Store]
	dbState atomic.Value           // openError: why there is no store
	tried   chan struct{}          // closed when it is known for the first time whether there is one
	noRoom  atomic.Pointer[string] // why nothing could be stored the last time; nil: it could
	started atomic.Int64           // how often the server was
	answers atomic.Bool            // it has answered once
	opener  layout.Opener          // of the model's file
	waking  atomic.Bool            // a store that was suspended is to go on

	mu     sync.Mutex
	served map[string]*served        // by model, where the server has several; else by ""
	loaded map[string]*weights.Files // likewise
	closed bool

	refusals trial.Cases[refusedModel] // models of which nothing is kept

	explained explanations // where prompts parted, with their texts

	stilled sync.Mutex // held by who takes the turns of several models

	work sync.WaitGroup
	ctx  context.Context // ends with Close
	stop context.CancelFunc
}

// ErrOpening is what Opened gives while the store is being opened.
var ErrOpening = errors.New("the store is being opened")

// New makes a front for a server at base that was, or will be, started with these arguments. It opens the store in the background:
// until then requests pass.
func New(base *url.URL, args *Arguments, o Options) (*Front, error) {
	if o.Dir == "" {
		return nil, errors.New("llamaserver: Options.Dir is empty: where is the store to be?")
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.SaveAfter <= 0 {
		o.SaveAfter = 300 * time.Millisecond
	}
	if o.MaxBody <= 0 {
		o.MaxBody = 32 << 20
	}
	if o.ScopeByKey && o.APIKey == "" && args.APIKey == "" {
		o.Logger.Warn("no API key of the server is given: for --scope-by-key a key is whatever a client says it is, and who sends none shares with all others who send none")
	}
	if o.ScopeByKey && o.Attach == "" {
		args.startsWithoutRAM(o.Logger)
	}
	rules, err := newNormalizer(o.Normalize, o.Logger)
	if err != nil {
		return nil, fmt.Errorf("llamaserver: Options.Normalize: %w", err)
	}
	slots, in := args.Slots, o.SlotDir
	if o.Attach != "" {
		if slots, in = o.SlotDir, ""; slots == "" {
			return nil, errors.New("llamaserver: Options.SlotDir is empty: it is the folder of the server's --slot-save-path")
		}
	}
	if slots != "" && in != "" {
		return nil, fmt.Errorf("llamaserver: %s (--slot-save-path) and %s (--slot-dir) both name the folder of slot files: name one", slots, in)
	}
	folder, err := slotfile.NewFolder(slots, in, o.Dir)
	switch {
	case err != nil && in != "":
		return nil, fmt.Errorf("llamaserver: no folder for slot files can be made in %s (Options.SlotDir, --slot-dir): %w", in, err)
	case err != nil: // nowhere: the server is as it would be without a front
		o.Logger.Warn("no folder for slot files: nothing is kept", "err", err)
		folder = &slotfile.Folder{}
		folder.Without(fmt.Errorf("no folder for slot files can be made: %w", err))
	case folder.OnDisk():
		o.Logger.Warn("slot files lie on a disk: what slots hold is written there for a moment", "folder", folder.Path)
	default:
		o.Logger.Info("slot files", "are", folder.String())
	}
	f := &Front{o: o, args: args, log: o.Logger, base: base, folder: folder, rules: rules, served: map[string]*served{}, loaded: map[string]*weights.Files{}, tried: make(chan struct{}), bodies: bodyPace}
	f.ctx, f.stop = context.WithCancel(context.Background())
	f.dbState.Store(stateOf(ErrOpening))
	f.record.Read() // counts are since now
	transport := &http.Transport{
		DialContext: (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext, DisableCompression: true,
		// A connection that is kept holds one of the server's few threads for 5 s, in which others wait, and ends in the middle of a request.
		DisableKeepAlives: true,
		// The server behind is on this machine, on a port that we chose, with a certificate for the name that clients use.
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, ClientSessionCache: tls.NewLRUClientSessionCache(0)},
	}
	f.client = &http.Client{Transport: transport}
	f.proxy = &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1, ErrorLog: slog.NewLogLogger(f.log.Handler(), slog.LevelDebug),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = base.Scheme, base.Host
			r.Out.Host, r.Out.URL.RawQuery = r.In.Host, r.In.URL.RawQuery                                         // as it is, with what Go does not understand
			for _, h := range []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded"} { // as the client sent them
				if v, ok := r.In.Header[h]; ok {
					r.Out.Header[h] = v
				}
			}
		},
		ModifyResponse: func(resp *http.Response) error {
			if x, ok := resp.Request.Context().Value(exchangeKey{}).(*exchange); ok {
				x.answered(resp)
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if x, ok := r.Context().Value(exchangeKey{}).(*exchange); ok {
				x.failed()
			}
			if wasSlow(r) {
				writeSlow(w)
				return
			}
			if r.Context().Err() != nil { // the client went
				return
			}
			if !api.BrokeOff(err) { // the request cannot be sent: what it says is no HTTP
				writeError(w, http.StatusBadRequest, "invalid_request_error", err.Error())
				return
			}
			f.lostServer()
			writeError(w, http.StatusServiceUnavailable, "unavailable_error", "llama-server does not answer: "+err.Error())
		},
	}
	f.work.Add(1)
	go f.openStore()
	return f, nil
}

// again has models prepared anew that could not be before.
func (f *Front) again() {
	f.mu.Lock()
	for key, s := range f.served {
		if _, _, err := s.ready(); errors.Is(err, request.PassStore) {
			s.lost()
			delete(f.served, key)
		}
	}
	f.mu.Unlock()
	f.Prepare()
}

// Started says that the server was started, or started again: nothing is known of it.
func (f *Front) Started() {
	if !f.args.Router && f.args.Model != "" {
		f.opener.Ahead(f.args.Model)
	}
	files := f.willLoad()
	f.started.Add(1)
	f.mu.Lock()
	f.loaded = files
	f.mu.Unlock()
	f.reset()
	f.Prepare()
}

func (f *Front) reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.served {
		s.lost()
	}
	f.served = map[string]*served{}
}

// lostServer is called when the server does not answer. What waits for its first answer goes on waiting: it may be starting.
func (f *Front) lostServer() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, s := range f.served {
		select {
		case <-s.prepared:
		default:
			if s.answers.Load() == 0 {
				continue
			}
		}
		s.lost()
		delete(f.served, key)
		if f.o.Attach != "" && !s.loaded.Doubtful() { // another process may come in its place. That it has come, a doubt needs to see
			s.loaded.Restarted()
		}
	}
}

// api speaks to the server of a model.
func (f *Front) api(model string) *api.Client {
	key := f.args.APIKey
	if f.o.APIKey != "" {
		key = f.o.APIKey
	}
	return &api.Client{Base: f.base.JoinPath(f.args.Prefix), Key: key, Model: model, Client: f.client}
}

// servedFor is the state of a model; it is prepared when it is asked for first.
func (f *Front) servedFor(model string) *served {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.served[model]; s != nil {
		return s
	}
	s := newServed(f, f.api(model))
	f.served[model] = s
	if f.closed {
		s.refused = request.PassServer
		close(s.prepared)
		return s
	}
	f.work.Add(1)
	go func() {
		defer f.work.Done()
		defer close(s.prepared)
		opened := false
		for pause, most := 10*time.Millisecond, loadPause; ; pause = min(2*pause, most) {
			err := s.prepare(f.ctx)
			var p request.Pass
			switch {
			case f.ctx.Err() != nil || s.gone.Load():
				return
			case err == nil:
				f.keptOf(model)
				f.log.Info("prompts of this model are kept", "model", s.name, "slots", s.usable, "fingerprint", s.model.Fingerprint())
				return
			case errors.As(err, &p):
				s.refuse(err)
				if _, e := f.store(); p == request.PassStore && e == nil && !opened { // it was opened meanwhile, and again may have come before the refusal
					opened = true
					s.refuse(nil)
					continue
				}
				f.wakes(err)
				f.refusedFor(model, p)
				f.log.Warn("nothing is kept of this model", "reason", p, "err", err)
				return
			case api.Refuses(err) && !s.stranger(err):
				s.refuse(fmt.Errorf("%w: %w", request.PassModel, err))
				f.refusedFor(model, request.PassModel)
				f.log.Warn("the server refuses to be looked at", "model", model, "err", err)
				if model != "" { // a router has no such model, at least now
					f.drop(model, s)
				}
				return
			}
			f.log.Debug("looking at the server", "model", model, "err", err)
			s.strange(err)
			if most = loadPause; s.stranger(err) {
				most = strangerPause
			}
			s.hold.pause(f.ctx, pause) // it is being started
		}
	}()
	return s
}

// How long the front waits at most between two looks at a server that is being started, and at something of somebody's that is none.
const (
	loadPause     = 100 * time.Millisecond
	strangerPause = 2 * time.Second
)

// drop forgets a model.
func (f *Front) drop(model string, s *served) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.served[model] == s {
		delete(f.served, model)
	}
}

// Prepare begins to look at the server's model before a request comes.
func (f *Front) Prepare() {
	if !f.args.Router {
		f.servedFor("")
	}
}

// stillTime is how long the end of what is done to slots is waited for.
const stillTime = 10 * time.Second

// still waits until nothing is done to slots and nothing is on its way from them into the store, and keeps it so until resume.
func (f *Front) still(ctx context.Context) (resume func()) {
	f.stilled.Lock()
	ctx, cancel := context.WithTimeout(ctx, stillTime)
	defer cancel()
	var taken []*served
	for _, s := range f.models() {
		if s.take(ctx) != nil {
			continue
		}
		taken = append(taken, s)
		s.stored(ctx, func(*saved) bool { return true })
	}
	return func() {
		for _, s := range taken {
			s.give()
		}
		f.stilled.Unlock()
	}
}

// Close saves what only slots have, as long as the server answers and ctx lasts, and closes the store.
func (f *Front) Close(ctx context.Context) error {
	f.mu.Lock()
	f.closed = true
	list := make([]*served, 0, len(f.served))
	for _, s := range f.served {
		list = append(list, s)
	}
	f.mu.Unlock()
	f.warming.drop(func(*warmJob) bool { return true }) // nobody waits for it
	for _, s := range list {
		if _, _, err := s.ready(); err == nil && !s.gone.Load() {
			s.unbusy(ctx)
			if err := s.flush(ctx); err != nil {
				f.log.Warn("saving slots", "err", err)
			}
		}
		s.gone.Store(true) // nothing is saved any more
		s.wait.Wait()
	}
	f.stop()
	f.work.Wait()
	var err error
	if store := f.db.Load(); store != nil {
		f.keepTotals(ctx)
		err = store.Close()
	}
	return errors.Join(err, f.folder.Close())
}

// Answered reports whether the server has ever answered.
func (f *Front) Answered() bool { return f.answers.Load() }

// loadedBy is what is known of the files of a model. The caller holds f.mu.
func (f *Front) loadedBy(model string) *weights.Files {
	l := f.loaded[model]
	if l == nil {
		l = f.newLoaded(model)
		f.loaded[model] = l
	}
	return l
}

// willLoad is what a server that was just started will load. Files that are not there yet, it fetches itself.
func (f *Front) willLoad() map[string]*weights.Files {
	l := f.newLoaded("")
	if paths, err := gguf.Splits(f.args.Model); err == nil && f.args.Model != "" && !f.args.Router {
		l.Of(slices.DeleteFunc(append(paths, f.args.Adapters...), func(p string) bool { return modelfile.StampOf(p).File == "" }))
	}
	return map[string]*weights.Files{"": l}
}

// soils is [weights.Files.Soils] of all models.
func (f *Front) soils() (ended func()) {
	f.mu.Lock()
	list := slices.Collect(maps.Values(f.loaded))
	f.mu.Unlock()
	var all []func()
	for _, l := range list { // it may be waiting for the server
		all = append(all, l.Soils())
	}
	return func() {
		for _, end := range all {
			end()
		}
	}
}

func (f *Front) newLoaded(model string) *weights.Files {
	return weights.New(weights.Server{API: f.api(model), Base: f.base, Attached: f.o.Attach != "", Memo: f.o.Memo, Log: f.log, Work: &f.work, Ctx: f.ctx})
}
