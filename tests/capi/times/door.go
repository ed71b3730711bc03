//go:build linux && !android

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
)

// doorFlag, as the first argument, makes this program the door of Go.
const doorFlag = "-door"

// host is a context of llama.cpp, from the arguments of a door: the store's folder, model, libraries, file of tokens, threads.
type host struct {
	dir, model string
	file       string
	lib        *llamacpp.Library
	ctx        *llama.Context
}

func newHost(args []string, n int) (*host, error) {
	if len(args) != 5 {
		return nil, fmt.Errorf("%d arguments, expected 5", len(args))
	}
	lib, err := llama.Load(args[2])
	if err != nil {
		return nil, err
	}
	model, err := lib.LoadModel(args[1], llama.ModelOptions{CPUOnly: true})
	if err != nil {
		return nil, err
	}
	threads, err := strconv.Atoi(args[4])
	if err != nil {
		return nil, err
	}
	ctx, err := model.NewContext(llama.ContextOptions{Tokens: n + 64, Batch: 256, MicroBatch: 256, Threads: threads, FullWindow: true})
	if err != nil {
		return nil, err
	}
	bound, err := llamacpp.Bind(lib.Lookup)
	return &host{dir: args[0], model: args[1], file: args[3], lib: bound, ctx: ctx}, err
}

func (h *host) attach(ctx context.Context, store *db.Store) (*llamacpp.Session, error) {
	return llamacpp.Attach(ctx, store, h.lib, h.ctx.Pointer(), llamacpp.Options{
		Identity: llamacpp.Identity{Path: h.model, Memo: h.dir + ".memo"}, Decode: h.ctx.Decode, Logger: slog.New(slog.DiscardHandler),
	})
}

func (h *host) open(ctx context.Context) (*db.Store, error) {
	return db.Open(ctx, h.dir, db.Options{Logger: slog.New(slog.DiscardHandler)})
}

// prepare stores the prompt, and writes its tokens down for all doors.
func prepare(ctx context.Context, args []string, text string) error {
	h, err := newHost(args, len(text)) // a token has a byte at least
	if err != nil {
		return err
	}
	defer h.ctx.Close()
	tokens, err := h.ctx.Model().Tokenize(text, true)
	if err != nil {
		return err
	}
	if err := os.WriteFile(h.file, []byte(strings.Trim(fmt.Sprint(tokens), "[]")), 0o600); err != nil {
		return err
	}
	store, err := h.open(ctx)
	if err != nil {
		return err
	}
	s, err := h.attach(ctx, store)
	if err != nil {
		return errors.Join(err, store.Close())
	}
	prompt := kv.Tokens(tokens...)
	if err = s.Prefill(ctx, prompt, 0, 0); err == nil {
		_, err = s.Save(ctx, prompt, 0)
	}
	return errors.Join(err, store.Close())
}

// door is the Go adapter, asked by lines.
func door(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	text, err := os.ReadFile(args[3])
	if err != nil {
		return err
	}
	var tokens []int32
	for _, field := range strings.Fields(string(text)) {
		n, err := strconv.ParseInt(field, 10, 32)
		if err != nil {
			return err
		}
		tokens = append(tokens, int32(n))
	}
	h, err := newHost(args, len(tokens))
	if err != nil {
		return err
	}
	defer h.ctx.Close()
	for lines := bufio.NewScanner(in); lines.Scan(); {
		t, err := h.turn(ctx, kv.Tokens(tokens...))
		if err != nil {
			return err
		}
		if err := json.NewEncoder(out).Encode(t); err != nil {
			return err
		}
	}
	return nil
}

func (h *host) turn(ctx context.Context, prompt kv.Prompt) (t turn, err error) {
	h.ctx.Clear()
	start := time.Now()
	store, err := h.open(ctx)
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	t.Open = since(start)
	begin := time.Now()
	s, err := h.attach(ctx, store)
	if err != nil {
		return t, err
	}
	t.Attach = since(begin)
	begin = time.Now()
	got, err := s.Restore(ctx, prompt, 0)
	if err != nil {
		return t, err
	}
	t.Reused, t.Restore = got.Tokens, []float64{since(begin)}
	if err := s.Prefill(ctx, prompt, got.Tokens, 0); err != nil {
		return t, err
	}
	for i, l := 0, h.ctx.Logits(-1); i < len(l); i++ {
		if l[i] > l[t.Best] {
			t.Best = int32(i)
		}
	}
	t.First = since(start)
	for range 4 {
		h.ctx.Clear()
		begin := time.Now()
		if _, err := s.Restore(ctx, prompt, 0); err != nil {
			return t, err
		}
		t.Restore = append(t.Restore, since(begin))
	}
	return t, nil
}

func since(t time.Time) float64 { return float64(time.Since(t)) / float64(time.Millisecond) }
