package wal

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dormousekv/dormouse/internal/damage"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// longFrame makes a log of thirty longer than what is read at a time.
var longFrame = []byte(strings.Repeat("r", windowBytes/20))

// eachBlockSick calls try for each block of a log of 30 frames, which cannot be read because of why; end is where the frames end.
func eachBlockSick(t *testing.T, why error, try func(o Options, block, end int64)) {
	t.Helper()
	m := newMemFS()
	o := memOptions(m)
	log := must[*Log](t)(Create(o, 1, 1, nil))
	for range 30 {
		must[uint64](t)(log.Append(2, longFrame))
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	size := int64(len(m.names[o.path(1)].now))
	for block := int64(0); block < size; block += blockBytes {
		o.FS = sickFS{m, block, why}
		try(o, block, log.end)
	}
}

// A log of which a block cannot be read is not replayed without it, wherever that is: what the disk does not say now it may say
// later. The error has file and offset.
func TestReplayOfAnUnreadableBlock(t *testing.T) {
	sick := errors.New("input/output error")
	eachBlockSick(t, sick, func(o Options, block, _ int64) {
		k, err := replayAll(o)
		var bad *damage.Error
		if !errors.Is(err, sick) || !errors.As(err, &bad) || bad.File != o.path(1) || bad.Offset != block || len(k.rec.Damage) > 0 {
			t.Errorf("block %d: %v, damage %v", block, err, k.rec.Damage)
		}
	})
}

// An error that says nothing about the bytes is no damage to them, for Verify either.
func TestLogUnreadableForAMoment(t *testing.T) {
	for _, why := range vfs.PassingErrors {
		eachBlockSick(t, why, func(o Options, block, _ int64) {
			k, err := replayAll(o)
			damaged, torn, verr := verify(o)
			if n := len(k.rec.Damage) + len(damaged) + len(torn); n > 0 {
				t.Errorf("block %d: %v, %v, %v", block, k.rec.Damage, damaged, torn)
			}
			for _, err := range []error{err, verr} {
				var bad *damage.Error
				if !errors.Is(err, why) || errors.As(err, &bad) || !strings.Contains(err.Error(), fmt.Sprintf("%s: offset %d", o.path(1), block)) {
					t.Errorf("block %d: %v", block, err)
				}
			}
		})
	}
}

// Verify calls a block that cannot be read damage, and goes on behind it.
func TestVerifyOfAnUnreadableBlock(t *testing.T) {
	sick := errors.New("input/output error")
	eachBlockSick(t, sick, func(o Options, block, end int64) {
		damaged, torn, err := verify(o)
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, d := range damaged {
			if errors.Is(d, sick) && d.Offset == block {
				found++
			}
		}
		if found != 1 {
			t.Errorf("block %d: damage %v", block, damaged)
		}
		if block > end && len(damaged)+len(torn) != 1 {
			t.Errorf("block %d behind the end: %v, %v", block, damaged, torn)
		}
	})
}

// A full disk has the log go on in the newest file, but not where that cannot be read to its end: nothing is written then.
func TestResumeInAnUnreadableFile(t *testing.T) {
	for _, why := range []error{errors.New("input/output error"), vfs.PassingErrors[0]} {
		eachBlockSick(t, why, func(o Options, block, _ int64) {
			m := o.FS.(sickFS).FS.(*memFS)
			before := string(m.names[o.path(1)].now)
			later := must[*Log](t)(CreateLater(o, 2, 31, func() []byte { return nil }))
			later.mu.Lock()
			err := later.resume(nil)
			later.mu.Unlock()
			if !errors.Is(err, why) || later.Err() != nil || string(m.names[o.path(1)].now) != before {
				t.Errorf("block %d: resumed: %v, poisoned: %v", block, err, later.Err())
			}
		})
	}
}
