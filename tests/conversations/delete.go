//go:build (linux && (!android || cgo)) || (darwin && (!ios || cgo)) || windows

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/dormousekv/dormouse/chat"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/llama"
)

// deletion has two conversations over one system prompt, deletes one, and looks for its tokens in every file.
func deletion(ctx context.Context, s settings, out io.Writer) error {
	r, err := load(stories, true, llama.ContextOptions{Tokens: 2048, Sequences: 8, Threads: 1})
	if err != nil {
		return err
	}
	dir := filepath.Join(s.dir, "delete")
	seat, err := r.sit(ctx, dir, nil)
	if err != nil {
		return err
	}
	defer func() { seat.close() }()
	rnd := rand.New(rand.NewPCG(s.seed, 0))
	o := chat.Options{System: letters(rnd, 100), Reserve: 30}
	said := map[string][]kv.Token{}
	for _, id := range []string{"stays", "goes"} {
		c, err := seat.host.Open(ctx, id, o)
		if err != nil {
			return err
		}
		fact := letters(rnd, 12)
		if err := c.SetFact(ctx, "secret", fact); err != nil {
			return err
		}
		said[id] = append(said[id], fact...)
		for range 6 {
			message, answer := letters(rnd, 40), letters(rnd, 20)
			t, err := c.Begin(ctx, message, chat.BeginOptions{})
			if err != nil {
				return err
			}
			if err := errors.Join(t.Append(ctx, answer), last(t.Logits(ctx)), t.Commit(ctx)); err != nil {
				return err
			}
			said[id] = append(append(said[id], message...), answer...)
		}
		if err := c.Close(); err != nil {
			return err
		}
	}
	if err := seat.store.Sync(ctx); err != nil {
		return err
	}
	hit, err := r.loaded(ctx, seat, "stays", o)
	if err != nil {
		return err
	}
	before, err := found(dir, said["goes"])
	if err != nil {
		return err
	}
	if err := seat.host.Delete(ctx, "goes"); err != nil {
		return err
	}
	if err := seat.store.Sync(ctx); err != nil {
		return err
	}
	after, err := found(dir, said["goes"])
	if err != nil {
		return err
	}
	kept, err := found(dir, said["stays"])
	if err != nil {
		return err
	}
	again, err := r.loaded(ctx, seat, "stays", o)
	if err != nil {
		return err
	}
	report, err := admin.VerifyStore(ctx, seat.store, admin.VerifyOptions{})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "delete: %d runs of its tokens in the files before, %d after; %d of the other's; the other loads %d rows before, %d after; verify: %d damaged of %d files\n",
		before, after, kept, hit, again, len(report.Damage), report.Files)
	switch {
	case before == 0 || kept == 0:
		return errors.New("nothing was found before: the search is blind")
	case after > 0:
		return fmt.Errorf("%d runs of tokens of the deleted conversation are in the files", after)
	case hit != again || hit == 0:
		return fmt.Errorf("the other conversation loaded %d rows, and now %d", hit, again)
	case len(report.Damage) > 0:
		return report.Damage[0]
	}
	return nil
}

func letters(rnd *rand.Rand, n int) []kv.Token {
	t := make([]kv.Token, n)
	for i := range t {
		t[i] = kv.Token(3 + rnd.IntN(500))
	}
	return t
}

// loaded opens a conversation on an empty cache and says how many rows came from the store.
func (r *rig) loaded(ctx context.Context, s *seat, id string, o chat.Options) (int, error) {
	c, err := s.host.Open(ctx, id, o)
	if err != nil {
		return 0, err
	}
	t, err := c.Begin(ctx, []kv.Token{5}, chat.BeginOptions{Reserve: 1})
	if err != nil {
		return 0, err
	}
	return t.Stats().Loaded, errors.Join(t.Abort(ctx), c.Close())
}

// found counts the runs of eight tokens that stand in a file of the folder, as a list of words or of varints.
func found(dir string, tokens []kv.Token) (n int, err error) {
	const run = 8
	var keys [][]byte
	for i := 0; i+run <= len(tokens); i += run {
		var words, varints []byte
		for _, t := range tokens[i : i+run] {
			words = binary.LittleEndian.AppendUint32(words, uint32(t))
			varints = binary.AppendUvarint(varints, uint64(t))
		}
		keys = append(keys, words, varints)
	}
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		for _, k := range keys {
			n += bytes.Count(b, k)
		}
		return err
	})
	return n, err
}
