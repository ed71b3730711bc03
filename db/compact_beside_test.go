package db

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// Every put ends with success while a compaction after the other moves the blocks that it rests on.
func TestPutsBesideCompactions(t *testing.T) {
	rounds := 15
	if n, err := strconv.Atoi(os.Getenv("DORMOUSE_BESIDE")); err == nil {
		rounds = n
	}
	for _, d := range []kv.Descriptor{plain(), windowed(20), opaque()} {
		t.Run(d.Name, func(t *testing.T) {
			o := options()
			o.SegmentBytes = 1 << 20
			s := open(t, t.TempDir(), o)
			m := model(t, s, d)
			const talks = 3
			var done atomic.Bool
			var puts, moving sync.WaitGroup
			moving.Go(func() {
				for !done.Load() {
					if _, err := s.Compact(ctx, CompactOptions{All: true}); err != nil {
						t.Error(err)
						return
					}
				}
			})
			last := make([]kv.Prompt, talks)
			for n := range talks {
				puts.Go(func() {
					p := kv.Tokens(tokens(7, 32)...)
					for i := range rounds {
						p = kv.Tokens(concat(p.Tokens, tokens(100*n+i, 24))...)
						if _, err := m.Put(ctx, p, filled(d, &p, 0, len(p.Tokens)), PutOptions{}); err != nil {
							t.Error(fmt.Errorf("put %d of talk %d: %w", i, n, err))
							return
						}
					}
					last[n] = p
				})
			}
			puts.Wait()
			done.Store(true)
			moving.Wait()
			for _, p := range last {
				if len(p.Tokens) > 0 {
					expect(t, m, p, len(p.Tokens))
				}
			}
			t.Logf("%d bytes moved", s.eng.count.bytesMoved.Load())
		})
	}
}
