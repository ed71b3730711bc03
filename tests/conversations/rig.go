//go:build (linux && (!android || cgo)) || (darwin && (!ios || cgo)) || windows

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"

	"github.com/dormousekv/dormouse/chat"
	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
)

// settings are the flags. 0 is what each subcommand takes by itself.
type settings struct {
	n     int
	seed  uint64
	model string
	dir   string
	wheel string
}

// stories is a trained model of 1 MB that stands in the tree.
const stories = "runtimes/llamacpp/testdata/stories260K-f32.gguf"

// rig is a model that is loaded, from which seats are made.
type rig struct {
	lib     *llama.Lib
	api     *llamacpp.Library
	model   *llama.Model
	path    string
	options llama.ContextOptions
	store   db.Options
}

// load loads a model. exact makes contexts in which nothing but the order of sums makes a difference, and stores that keep every bit.
func load(path string, exact bool, o llama.ContextOptions) (*rig, error) {
	dir := os.Getenv("DORMOUSE_LLAMA_LIB")
	if dir == "" || path == "" {
		return nil, errors.New("no libraries or no model; run: bash tests/llama/fetch.sh && . .cache/llama/env.sh")
	}
	r := &rig{path: path, options: o}
	var err error
	if r.lib, err = llama.Load(dir); err != nil {
		return nil, err
	}
	if r.api, err = llamacpp.Bind(r.lib.Lookup); err != nil {
		return nil, err
	}
	if r.model, err = r.lib.LoadModel(path, llama.ModelOptions{CPUOnly: true}); err != nil {
		return nil, err
	}
	r.options.Unified, r.options.FullWindow = true, true
	if exact {
		no, f32 := false, llama.F32
		r.options.FlashAttention, r.options.CacheK, r.options.CacheV = &no, &f32, &f32
		r.store.Codec = quant.Raw
	}
	if r.options.Threads == 0 {
		r.options.Threads = runtime.NumCPU()
	}
	if r.options.Batch == 0 {
		r.options.Batch, r.options.MicroBatch = 256, 256
	}
	r.store.Logger = slog.New(slog.DiscardHandler)
	return r, nil
}

// seat is a context with a host on it, over a store.
type seat struct {
	c     *llama.Context
	store *db.Store
	model *db.Model
	rt    *llamacpp.Runtime
	host  *chat.Host
}

// sit makes a context and opens the store of a folder. between stands between runtime and host, if it is not nil.
func (r *rig) sit(ctx context.Context, dir string, between func(chat.Runtime) chat.Runtime) (_ *seat, err error) {
	s := &seat{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.c, err = r.model.NewContext(r.options); err != nil {
		return nil, err
	}
	if s.store, err = db.Open(ctx, filepath.Join(dir, "store"), r.store); err != nil {
		return nil, err
	}
	session, err := llamacpp.Attach(ctx, s.store, r.api, s.c.Pointer(), llamacpp.Options{
		Identity: llamacpp.Identity{Path: r.path, Memo: filepath.Join(dir, "memo")}, Decode: s.c.Decode, RowsOnly: true, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	s.model = session.Model()
	if s.rt, err = session.Runtime(llamacpp.RuntimeOptions{Decode: s.c.DecodeSteps, Logits: s.c.Logits}); err != nil {
		return nil, err
	}
	var rt chat.Runtime = s.rt
	if between != nil {
		rt = between(rt)
	}
	s.host, err = chat.NewHost(s.store, s.model, rt)
	return s, err
}

func (s *seat) close() error {
	var errs []error
	if s.host != nil {
		errs = append(errs, s.host.Close())
	}
	if s.store != nil {
		errs = append(errs, s.store.Close())
	}
	if s.c != nil {
		s.c.Close()
	}
	return errors.Join(errs...)
}

// blind is a runtime whose keys do not say where the visible set changed for the first time: what a host must never leave out.
type blind struct{ chat.Runtime }

func (b blind) strip(p kv.Prompt) kv.Prompt {
	p.Spans = p.Spans[min(1, len(p.Spans)):]
	return p
}

func (b blind) Load(ctx context.Context, p kv.Prompt, seq int, rs []kv.Range) (int, error) {
	return b.Runtime.Load(ctx, b.strip(p), seq, rs)
}

func (b blind) Store(ctx context.Context, p kv.Prompt, seq int, r kv.Range) error {
	return b.Runtime.Store(ctx, b.strip(p), seq, r)
}

// tokens turns text into tokens.
func (r *rig) tokens(text string) []kv.Token {
	ids, err := r.model.Tokenize(text, false)
	if err != nil {
		panic(fmt.Sprintf("%q: %v", text, err)) // texts of this program only
	}
	return ids
}
