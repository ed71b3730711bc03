package llamaserver

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dormousekv/dormouse/db"
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
	shared
	bodies  pace
	rules   normalizer
	traffic traffic
	warming warming
	started atomic.Int64 // how often the server was
	stop    context.CancelFunc

	mu     sync.Mutex
	era    *era
	served map[string]*served        // by model, where the server has several; else by ""
	files  map[string]*weights.Files // likewise
	closed bool

	stilled sync.Mutex // held by who takes the turns of several models
}
