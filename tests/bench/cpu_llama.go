//go:build (linux && (!android || cgo)) || (darwin && (!ios || cgo)) || windows

package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/ebitengine/purego"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
)

// llamaState is a context of a real model with an evaluated prompt, a session of it with a store, and llama.cpp's own functions for the same.
type llamaState struct {
	context *llama.Context
	session *llamacpp.Session
	store   *db.Store
	dir     string
	prompt  kv.Prompt
	scopes  int
	tokens  []int32
	blob    []byte // the state of sequence 0
	end     []func() error

	save func(ctx uintptr, path string, sequence int32, tokens *int32, n uintptr) uintptr
	load func(ctx uintptr, path string, sequence int32, tokens *int32, capacity uintptr, n *uintptr) uintptr
	size func(ctx uintptr, sequence int32) uintptr
	get  func(ctx uintptr, dst *byte, size uintptr, sequence int32) uintptr
	set  func(ctx uintptr, src *byte, size uintptr, sequence int32) uintptr
}

// llamaLaps are what llama.cpp does to save and load the state of a real model, and what a session does; why says why there are none. end
// gives back what they need.
func (r *run) llamaLaps() (laps []llamaLap, end func(), why string) {
	lib, model := os.Getenv("DORMOUSE_LLAMA_LIB"), os.Getenv("DORMOUSE_LLAMA_SMOL")
	if lib == "" || model == "" {
		return nil, nil, "DORMOUSE_LLAMA_LIB or DORMOUSE_LLAMA_SMOL is not set; tests/llama/fetch.sh fetches the library and a model"
	}
	s := &llamaState{}
	if err := s.open(r, lib, model); err != nil {
		return nil, nil, errors.Join(err, s.close()).Error()
	}
	end = func() {
		if err := s.close(); err != nil {
			r.log("closing llama.cpp: %v", err)
		}
	}
	of := fmt.Sprintf("%s, %d tokens, %d MiB", filepath.Base(model), len(s.tokens), len(s.blob)>>20)
	file := filepath.Join(s.dir, "session")
	all := []struct {
		name  string
		saves bool
		lap   lap
	}{
		{"llama_state_seq_save_file (" + of + ")", true, cpuLap(func() error { return s.ok(s.save(s.context.Pointer(), file, 0, &s.tokens[0], uintptr(len(s.tokens)))) })},
		{"llama_state_seq_load_file (" + of + ")", false, s.emptied(func() error {
			var n uintptr
			return s.ok(s.load(s.context.Pointer(), file, 0, &s.tokens[0], uintptr(len(s.tokens)), &n))
		})},
		{"llama_state_seq_get_data", true, cpuLap(func() error { return s.ok(s.get(s.context.Pointer(), &s.blob[0], uintptr(len(s.blob)), 0)) })},
		{"llama_state_seq_set_data", false, s.emptied(s.put)},
		{"Session.Restore of the adapter", false, s.emptied(func() error {
			got, err := s.session.Restore(ctx, s.prompt, 0)
			if err == nil && got.Tokens != len(s.tokens)-1 {
				err = fmt.Errorf("a session restored %d tokens of %d: %s", got.Tokens, len(s.tokens), got.Reason)
			}
			return err
		})},
		{"Session.Save of the adapter", true, s.saveAnew},
	}
	for _, l := range all {
		laps = append(laps, llamaLap{l.name, l.saves, int64(len(s.blob)), l.lap})
	}
	return laps, end, ""
}

// emptied is the processor time of fn, for an empty sequence.
func (s *llamaState) emptied(fn func() error) lap {
	return func() (time.Duration, error) {
		s.context.Clear()
		if err := s.session.Reset(0); err != nil {
			return 0, err
		}
		return cpuLap(fn)()
	}
}

// saveAnew is the processor time of Session.Save of the prompt for somebody of whom nothing is stored.
func (s *llamaState) saveAnew() (time.Duration, error) {
	s.context.Clear()
	if err := errors.Join(s.put(), s.session.Reset(0)); err != nil {
		return 0, err
	}
	s.scopes++
	p := s.prompt
	p.Scope = fmt.Sprint(s.scopes)
	return cpuLap(func() error { _, err := s.session.Save(ctx, p, 0); return err })()
}

func (s *llamaState) put() error {
	return s.ok(s.set(s.context.Pointer(), &s.blob[0], uintptr(len(s.blob)), 0))
}

func (s *llamaState) ok(n uintptr) error {
	if n == 0 {
		return errors.New("llama.cpp did not save or load a state")
	}
	return nil
}

func (s *llamaState) open(r *run, dir, path string) (err error) {
	lib, err := llama.Load(dir)
	if err != nil {
		return err
	}
	lib.SetLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))
	for name, fn := range map[string]any{
		"llama_state_seq_save_file": &s.save, "llama_state_seq_load_file": &s.load,
		"llama_state_seq_get_size": &s.size, "llama_state_seq_get_data": &s.get, "llama_state_seq_set_data": &s.set,
	} {
		address, err := lib.Lookup(name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		purego.RegisterFunc(fn, address)
	}
	model, err := lib.LoadModel(path, llama.ModelOptions{CPUOnly: true})
	if err != nil {
		return err
	}
	s.end = append(s.end, func() error { model.Close(); return nil })
	n := 64 * r.size.blocks / 16
	if s.context, err = model.NewContext(llama.ContextOptions{Tokens: 2 * n, Batch: 512, MicroBatch: 512, Threads: processors()}); err != nil {
		return err
	}
	s.end = append(s.end, func() error { s.context.Close(); return nil })
	if s.dir, err = r.folder("llama"); err != nil {
		return err
	}
	s.end = append(s.end, func() error { return os.RemoveAll(s.dir) })
	if s.store, err = db.Open(ctx, filepath.Join(s.dir, "store"), options()); err != nil {
		return err
	}
	s.end = append(s.end, s.store.Close)
	api, err := llamacpp.Bind(lib.Lookup)
	if err != nil {
		return err
	}
	if s.session, err = llamacpp.Attach(ctx, s.store, api, s.context.Pointer(), llamacpp.Options{
		Identity: llamacpp.Identity{Path: path}, Decode: s.context.Decode, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}); err != nil {
		return err
	}
	s.prompt.Tokens = tokens(1, n)
	s.tokens = make([]int32, n)
	for i := range s.tokens {
		s.prompt.Tokens[i] %= kv.Token(model.Vocabulary())
		s.tokens[i] = int32(s.prompt.Tokens[i])
	}
	if err := s.session.Prefill(ctx, s.prompt, 0, 0); err != nil {
		return err
	}
	if _, err := s.session.Save(ctx, s.prompt, 0); err != nil {
		return err
	}
	s.blob = make([]byte, s.size(s.context.Pointer(), 0))
	return s.ok(s.get(s.context.Pointer(), &s.blob[0], uintptr(len(s.blob)), 0))
}

func (s *llamaState) close() (err error) {
	for i := len(s.end) - 1; i >= 0; i-- {
		err = errors.Join(err, s.end[i]())
	}
	return err
}
