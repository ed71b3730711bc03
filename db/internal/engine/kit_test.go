package engine_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/db/internal/write"
	"github.com/dormousekv/dormouse/internal/memdir"
	"github.com/dormousekv/dormouse/kv"
)

func TestMain(m *testing.M) { memdir.Main(m) }

// blank returns rows for n positions that nobody looks at.
func blank(d kv.Descriptor, n int) kv.Rows {
	rows := make(kv.Rows, len(d.Tensors))
	for i, t := range d.Tensors {
		rows[i] = kv.Packed(0, n, make([]byte, n*t.RowBytes()))
	}
	return rows
}

// bulky is plain with blocks of 32 KiB, so that index and log take little beside them.
func bulky() kv.Descriptor {
	d := crashtest.Plain()
	d.Name, d.BlockTokens = "bulky", 64
	for i := range d.Tensors {
		d.Tensors[i].Width = 64
	}
	return d
}

// bulkyPrompt is one of some blocks of bulky.
func bulkyPrompt(i, blocks int) kv.Prompt { return kv.Prompt{Tokens: crashtest.Tokens(i, 64*blocks)} }

// putBlank puts a prompt with rows that nobody looks at.
func putBlank(m *db.Model, p kv.Prompt) (db.PutResult, error) {
	return m.Put(context.Background(), p, blank(m.Descriptor(), len(p.Tokens)), db.PutOptions{})
}

// soundFolder fails the test where Verify finds damage in a folder that nobody has open.
func soundFolder(t *testing.T, dir string) {
	t.Helper()
	if r, err := admin.Verify(t.Context(), dir, admin.VerifyOptions{}); err != nil || len(r.Damage) > 0 {
		t.Error(r.Damage, err)
	}
}

// putNth puts the nth of many prompts of 320 tokens.
func putNth(t *testing.T, m *db.Model, n int) error {
	p := kv.Prompt{Tokens: crashtest.Tokens(n, 320)}
	_, err := m.Put(t.Context(), p, storetest.Filled(crashtest.Plain(), &p, 0, 320), db.PutOptions{})
	return err
}

// inSegments lists the segments in which something lives.
func inSegments(t *testing.T, s *db.Store) (ids []uint64) {
	t.Helper()
	for x, err := range s.Blocks(t.Context()) {
		storetest.OK(t, err)
		ids = append(ids, x.Segment)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// putsEvict are the options of a store whose background evicts nothing: puts do, what they need.
func putsEvict(budget, segmentBytes int64) db.Options {
	o := storetest.Options()
	o.Budget, o.SegmentBytes, o.HighWater, o.LowWater = budget, segmentBytes, 1, 1
	return o
}

// numbered is a model that differs from others in its name and its weights.
func numbered(i int) kv.Descriptor {
	d := crashtest.Plain()
	d.Name = fmt.Sprint("model ", i)
	d.Weights = kv.HashOf(d.Name)
	return d
}

// halfPut is a put of a prompt's rows from first on whose steps the caller does.
func halfPut(t *testing.T, s *db.Store, m *db.Model, p *kv.Prompt, first int) *write.Put {
	t.Helper()
	e := storetest.Engine(s)
	rows := storetest.Filled(m.Descriptor(), p, first, len(p.Tokens))
	w := e.Inside().NewPut(e.Catalog.Model(m.Fingerprint()), rows, nil, write.Options{Codec: storetest.Options().Codec})
	storetest.OK(t, w.Plan(p))
	return w
}
