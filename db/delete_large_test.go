package db

import (
	"fmt"
	"testing"

	"github.com/dormousekv/dormouse/db/internal/engine"
	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/wal"
)

// A frame of as many removals as there may be in one is no longer than the log takes, with all the refs that a store has.
func TestRemovalsFitAFrame(t *testing.T) {
	dead := make([]oplog.Dead, 1000)
	for i := range dead {
		dead[i] = oplog.Dead{Key: kv.Key{15: 1}, Group: 255, Loc: loc.Loc{Segment: 1 << 60, Offset: 1 << 60, Length: 1 << 60, Tier: 255}}
	}
	one := len(oplog.Encode(oplog.Remove{Deleted: true, Dead: dead})) / len(dead)
	t.Logf("%d bytes for a record: %d in a frame", one, wal.MaxPayload/one)
	if n := (engine.RemoveBatch()+256)*(one+1) + MaxHeadBytes; n > wal.MaxPayload {
		t.Fatalf("%d bytes, at most %d", n, wal.MaxPayload)
	}
}

// A deletion that does not fit into one frame is done in several. After each, as after a kill there, every block has its prefix;
// in the end all of it is gone, with the refs on it, and nothing else.
func TestDeletionInSeveralFrames(t *testing.T) {
	const removeBatch = 7
	defer engine.SetRemoveBatch(removeBatch)()
	dir := t.TempDir()
	s := open(t, dir, options())
	m := model(t, s, windowed(24))
	other := kv.Prompt{Tokens: tokens(99, 64)}
	put(t, m, other)
	var prompts []kv.Prompt
	for i := range 6 {
		p := kv.Prompt{Tokens: concat(tokens(1, 64), tokens(2+i/2, 48), tokens(10+i, 40))}
		put(t, m, p)
		if err := m.SetRef(ctx, fmt.Sprint(i), p, RefOptions{Pinned: true}); err != nil {
			t.Fatal(err)
		}
		prompts = append(prompts, p)
	}
	prefix := prompts[0].Prefix(20)
	var out engine.Deleted
	for more := true; more; {
		before := out.Records
		var err error
		if _, more, err = s.eng.Inside().DeleteSome(m.ms, &prefix, &out); err != nil {
			t.Fatal(err)
		}
		if n := out.Records - before; n > removeBatch+1 {
			t.Fatalf("%d records in a frame", n)
		}
		image := copyStore(t, dir)
		if report, err := Verify(ctx, image, VerifyOptions{}); err != nil || len(report.Damage) > 0 {
			t.Fatal(err, report.Damage)
		}
		s := open(t, image, options())
		m := model(t, s, windowed(24))
		expect(t, m, other, 64)
		for i, p := range prompts {
			got, _ := restore(t, m, p)
			_, err := s.Ref(fmt.Sprint(i))
			if (err == nil) != (got == len(p.Tokens)) {
				t.Fatalf("%d of %d tokens are left, and the ref: %v", got, len(p.Tokens), err)
			}
		}
		if _, err := m.Delete(ctx, prefix); err != nil { // once more, as whoever was killed would
			t.Fatal(err)
		}
		if left := s.eng.Counts().Blocks; left != 5 { // of the other one, and the first
			t.Fatalf("%d blocks are left", left)
		}
	}
	if out.Refs != 6 {
		t.Errorf("deleted %+v", out)
	}
	for _, p := range prompts {
		put(t, m, p)
	}
	if out, err := m.Delete(ctx, prefix); err != nil || out.Records < 3*removeBatch {
		t.Fatal(out, err)
	}
	if err := s.Sync(ctx); err != nil {
		t.Fatal(err)
	}
	for _, p := range prompts {
		expect(t, m, p, 16)
	}
	expect(t, m, other, 64)
}
