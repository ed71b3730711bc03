package llamaserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/slotfile"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/weights"
)

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
	ctx, stop := context.WithCancel(context.Background())
	transport := newTransport()
	f := &Front{
		shared: shared{o: o, args: args, log: o.Logger, base: base, client: &http.Client{Transport: transport}, folder: folder, shelf: newShelf(o.Dir, o.Logger), ctx: ctx},
		bodies: bodyPace, rules: rules, stop: stop, era: &era{}, served: map[string]*served{}, files: map[string]*weights.Files{},
	}
	f.ledger.log = o.Logger
	f.ledger.record.Read() // counts are since now
	f.proxy = f.newProxy(transport)
	f.work.Go(f.tendStore)
	return f, nil
}

// newTransport reaches the server.
func newTransport() *http.Transport {
	return &http.Transport{
		DialContext: (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext, DisableCompression: true,
		// A connection that is kept holds one of the server's few threads for 5 s, in which others wait, and ends in the middle of a request.
		DisableKeepAlives: true,
		// The server behind is on this machine, on a port that we chose, with a certificate for the name that clients use.
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, ClientSessionCache: tls.NewLRUClientSessionCache(0)},
	}
}

// newProxy hands requests on to the server as they are.
func (f *Front) newProxy(transport *http.Transport) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1, ErrorLog: slog.NewLogLogger(f.log.Handler(), slog.LevelDebug),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = f.base.Scheme, f.base.Host
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
}
