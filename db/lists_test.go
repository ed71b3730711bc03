package db_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/crashtest"
	"github.com/dormousekv/dormouse/db/internal/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// Every list is asked for in one way: it ends with its error, its loop body may call the store, and what reads the disk can be cancelled.
func TestLists(t *testing.T) {
	s, m := storetest.Fresh(t, storetest.Options(), crashtest.Plain())
	for i := range 3 {
		p := kv.Tokens(crashtest.Tokens(i+1, 32)...)
		storetest.Put(t, m, p)
		storetest.OK(t, errors.Join(m.SetRef(t.Context(), fmt.Sprint("ref ", i), p, db.RefOptions{}), m.SetNote(t.Context(), fmt.Sprint("note ", i), []byte{1})))
	}
	blocks, err := db.Collect(s.Blocks(t.Context()))
	if err != nil || len(blocks) != 6 {
		t.Fatalf("%d blocks, %v", len(blocks), err)
	}
	lists := func(ctx context.Context) map[string]func() (int, error) {
		return map[string]func() (int, error){
			"Models": walk(s, s.Models()), "Refs": walk(s, s.Refs()), "Notes": walk(s, m.Notes()), "Tombstones": walk(s, admin.Tombstones(s)),
			"Blocks": walk(s, s.Blocks(ctx)), "Planes": walk(s, admin.Planes(ctx, s, blocks[0])), "Segments": walk(s, admin.Segments(ctx, s)), "Log": walk(s, admin.Log(ctx, s)),
		}
	}
	want := map[string]int{"Models": 1, "Refs": 3, "Notes": 3, "Blocks": 6, "Planes": len(crashtest.Plain().Tensors), "Segments": 1, "Log": 1}
	for name, list := range lists(t.Context()) {
		if n, err := list(); n != want[name] || err != nil {
			t.Errorf("%s: %d, %v, expected %d", name, n, err, want[name])
		}
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, list := range lists(cancelled) {
		reads := slices.Contains([]string{"Blocks", "Planes", "Segments", "Log"}, name)
		if n, err := list(); errors.Is(err, context.Canceled) != reads || reads && n > 0 {
			t.Errorf("%s, cancelled: %d, %v", name, n, err)
		}
	}
	for ref, err := range s.Refs() {
		storetest.OK(t, errors.Join(err, s.DeleteRef(t.Context(), ref.Name)))
		if ref.Name == "ref 1" {
			break
		}
	}
	if left, err := db.Collect(s.Refs()); err != nil || len(left) != 1 || left[0].Name != "ref 2" {
		t.Errorf("refs %v, %v", left, err)
	}
	storetest.OK(t, s.Close())
	for name, list := range lists(t.Context()) {
		if n, err := list(); n > 0 || !errors.Is(err, db.ErrClosed) {
			t.Errorf("%s of a closed store: %d, %v", name, n, err)
		}
	}
}

// walk counts a list, and calls the store from within.
func walk[T any](s *db.Store, list iter.Seq2[T, error]) func() (int, error) {
	return func() (n int, err error) {
		for _, err := range list {
			if err != nil {
				return n, err
			}
			if _, err := s.Stats(); err != nil {
				return n, err
			}
			n++
		}
		return n, nil
	}
}
