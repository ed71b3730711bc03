//go:build linux

package full

import (
	"errors"
	"log/slog"
	"os"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/quant"
)

// At the root of a small volume, with options that say nothing of it, prompts are stored, and the oldest go for the newest. Where others take the
// room, it is still sound, and storing goes on when there is room again.
func TestDefaultsOnSmallVolume(t *testing.T) {
	inSmallFS(t, func(t *testing.T, dir string) {
		for _, o := range []db.Options{{}, {Budget: 12 << 20}, {Budget: 1 << 20, MinFree: 1 << 20}, {MinFree: -1}} {
			o.Codec, o.Logger = quant.Raw, slog.New(slog.DiscardHandler)
			onSmallVolume(t, dir, o)
		}
	})
}

func onSmallVolume(t *testing.T, dir string, o db.Options) {
	s, err := db.Open(ctx, dir, o)
	if err != nil {
		t.Fatal(err)
	}
	registered, err := s.Register(ctx, desc)
	if err != nil {
		t.Fatal(err)
	}
	m := registered.Model
	const last = 150 // of 256 KiB each: more than there is room for
	blocks := 16
	if o.Budget == 1<<20 {
		blocks = 4
	}
	for id := uint64(1); id <= last; id++ {
		if err := put(m, id, 0, blocks); err != nil {
			t.Fatalf("%v: put %d: %v", o, id, err)
		}
	}
	if n, err := found(m, last, blocks); n != blocks || err != nil {
		t.Errorf("%v: of the newest %d blocks are found: %v", o, n, err)
	}
	st, err := s.Stats()
	if err != nil || st.Full || st.KeptFree > 6<<20 || st.DiskFree < st.KeptFree/2 {
		t.Errorf("%v: full %t, %d free, %d kept free: %v", o, st.Full, st.DiskFree, st.KeptFree, err)
	}
	b := newBalloon(t, dir)
	b.fill()
	for id := uint64(1); id <= last; id++ { // those are gone long since
		if err := put(m, id, 0, blocks); err != nil && !full(err) {
			t.Errorf("%v: on a full disk: %v", o, err)
		}
	}
	b.shrink(b.size)
	if err := put(m, last+1, 0, blocks); err != nil {
		t.Errorf("%v: when there is room again: %v", o, err)
	}
	if n, err := found(m, last+1, blocks); n != blocks || err != nil {
		t.Errorf("%v: when there is room again %d blocks are found: %v", o, n, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	r, err := admin.Verify(ctx, dir, admin.VerifyOptions{})
	if err != nil || len(r.Damage) > 0 {
		t.Errorf("%v: %v %v", o, r.Damage, err)
	}
	names, err := os.ReadDir(dir)
	for _, e := range names {
		if e.Name() != "lost+found" {
			err = errors.Join(err, os.RemoveAll(dir+"/"+e.Name()))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Who wants more kept free than the volume has gets a store in which nothing is stored, and which says so.
func TestMoreKeptFreeThanThereIs(t *testing.T) {
	inSmallFS(t, func(t *testing.T, dir string) {
		o := db.Options{MinFree: 256 << 20, Codec: quant.Raw, Logger: slog.New(slog.DiscardHandler)}
		s, m := open(t, dir, o)
		defer s.Close()
		if err := put(m, 1, 0, 16); !errors.Is(err, db.ErrNoSpace) {
			t.Errorf("put: %v", err)
		}
		if st, err := s.Stats(); err != nil || !st.Full || st.KeptFree != 256<<20 || st.DiskFree <= 0 || st.DiskFree > diskBytes {
			t.Errorf("full %t, %d free, %d kept free: %v", st.Full, st.DiskFree, st.KeptFree, err)
		}
	})
}
