package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
)

// ctx ends when the user interrupts the program.
var ctx = context.Background()

// options leave a store to do what it is told: nothing is evicted, and no checkpoint begins by itself.
func options() db.Options {
	return db.Options{
		Budget: 1 << 40, CheckpointInterval: -1, CheckpointBytes: 1 << 40, SegmentBytes: 64 << 20,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
}

// opened is a store with one model.
type opened struct {
	*db.Store
	model *db.Model
	desc  kv.Descriptor
}

func openStore(dir string, desc kv.Descriptor, o db.Options) (*opened, error) {
	s, err := db.Open(ctx, dir, o)
	if err != nil {
		return nil, err
	}
	m, err := s.Register(ctx, desc)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return &opened{Store: s, model: m.Model, desc: desc}, nil
}

// put stores a prompt and insists that all of it is.
func (s *opened) put(prompt kv.Prompt, rows kv.Rows) (db.PutResult, error) {
	got, err := s.model.Put(ctx, prompt, rows, db.PutOptions{})
	if err == nil && got.Tokens != len(prompt.Tokens) {
		err = fmt.Errorf("a put stored %d tokens of %d", got.Tokens, len(prompt.Tokens))
	}
	return got, err
}

// restore is what a request for a stored prompt does: match, restore, close. It insists on all of the prompt, and returns
// the stored bytes that were read.
func (s *opened) restore(prompt kv.Prompt, rows kv.Rows) (int64, error) {
	x, err := s.model.Match(ctx, prompt, db.MatchOptions{})
	if err != nil {
		return 0, err
	}
	got, err := x.Restore(ctx, rows)
	if err == nil && got.Tokens != len(prompt.Tokens) {
		err = fmt.Errorf("a restore gave %d tokens of %d: %s", got.Tokens, len(prompt.Tokens), got.Reason)
	}
	return got.Bytes, errors.Join(err, x.Close())
}

// stored is a store with one long prompt in it, and the caller's memory that it came from.
type stored struct {
	*opened
	dir    string
	prompt kv.Prompt
	source *kvCache
	moved  int64 // by compactions
}

// storePrompt makes a store that holds one prompt of so many blocks, checkpointed.
func (r *run) storePrompt(name string, desc kv.Descriptor, blocks int, o db.Options) (*stored, error) {
	dir, err := r.folder(name)
	if err != nil {
		return nil, err
	}
	n := blocks * blockTokens
	s := &stored{dir: dir, prompt: kv.Prompt{Tokens: tokens(1, n)}, source: newKVCache(desc, n).fill()}
	if s.opened, err = openStore(dir, desc, o); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if _, err = s.put(s.prompt, s.source.rows(n)); err == nil {
		err = s.Checkpoint(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.discard())
	}
	return s, nil
}

// discard closes the store and removes it.
func (s *stored) discard() error { return errors.Join(s.Close(), os.RemoveAll(s.dir)) }

// segmentFiles are the paths of a store's segments.
func segmentFiles(dir string) ([]string, error) {
	return filepath.Glob(filepath.Join(dir, "segments", "*.seg"))
}
