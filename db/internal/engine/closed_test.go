package engine_test

import (
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/kv"
)

// What was evicted, replaced or moved is destroyed before a Close writes what the next Open reads: an Open that is closed again has nothing to do, and
// leaves every file as it was.
func TestCloseLeavesNothingToDestroy(t *testing.T) {
	prompt := func(i int) kv.Prompt { return kv.Prompt{Tokens: crashtest.Tokens(i, 640)} }
	for what, work := range map[string]func(s *db.Store, m *db.Model) error{
		"evicted": func(s *db.Store, m *db.Model) error {
			_, err := s.Shrink(t.Context(), storetest.Stats(t, s).DiskBytes/2)
			return err
		},
		"deleted": func(s *db.Store, m *db.Model) error {
			_, err := m.Delete(t.Context(), prompt(1))
			return err
		},
		"replaced": func(s *db.Store, m *db.Model) error {
			storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(9, 30)})
			storetest.Put(t, m, kv.Prompt{Tokens: crashtest.Tokens(9, 60)})
			return nil
		},
		"evicted under a match": func(s *db.Store, m *db.Model) error {
			match := storetest.Match(t, m, prompt(3))
			_, err := s.Shrink(t.Context(), storetest.Stats(t, s).DiskBytes/2)
			match.Close()
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			s := storetest.Open(t, dir, storetest.Options())
			m := storetest.Model(t, s, crashtest.Plain())
			for i := range 8 {
				storetest.Put(t, m, prompt(i))
			}
			storetest.Eventually(t, "the Bloom filter is built", func() bool { return storetest.Stats(t, s).BloomBytes > 0 })
			storetest.OK(t, work(s, m))
			storetest.OK(t, s.Close())
			before := storetest.Tree(t, dir)
			storetest.OK(t, storetest.Open(t, dir, storetest.Options()).Close())
			storetest.SameTree(t, before, storetest.Tree(t, dir), "opened and closed")
		})
	}
}
