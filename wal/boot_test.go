package wal

import (
	"fmt"
	"slices"
	"testing"
)

// written is a log of one file with frames 1 to n, none of them synced unless synced says so, and where each frame begins.
func written(t *testing.T, boot uint64, n, synced int) (Options, []byte, []int64) {
	m := newMemFS()
	o := memOptions(m)
	o.Boot = boot
	log := must[*Log](t)(Create(o, 1, 1, nil))
	at := []int64{0}
	for i := 1; i <= n; i++ {
		at = append(at, log.end)
		must[uint64](t)(log.Append(2, fmt.Appendf(nil, "frame %d", i)))
		if i == synced {
			if err := log.Sync(uint64(i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return o, m.names[o.path(1)].now, at
}

func lsns(k kept) (out []uint64) {
	for _, f := range k.frames {
		out = append(out, f.LSN)
	}
	return out
}

// A bad frame with a good one behind it is damage where that was written in this boot of the system: memory loses no frame. Else it is
// what a power cut tore.
func TestABadFrameOfThisBoot(t *testing.T) {
	for bad := 1; bad <= 4; bad++ {
		for _, boot := range []uint64{7, 8, 0} { // of who reads
			o, b, at := written(t, 7, 4, 0)
			b[at[bad]+frameHead] ^= 1
			o.Boot = boot
			k := must[kept](t)(replayAll(o))
			damaged, torn, err := verify(o)
			if err != nil {
				t.Fatal(err)
			}
			want := []uint64{1, 2, 3, 4}
			if boot == 7 && bad < 4 {
				want = slices.Delete(want, bad-1, bad)
				if len(k.rec.Damage) != 1 || k.rec.Damage[0].Offset != at[bad] || len(damaged) != 1 || len(torn) != 0 || k.rec.Torn {
					t.Errorf("frame %d, boot %d: %+v, verify %v and %v", bad, boot, k.rec, damaged, torn)
				}
			} else {
				want = want[:bad-1]
				if len(k.rec.Damage) > 0 || !k.rec.Torn || len(damaged) > 0 || len(torn) != 1 {
					t.Errorf("frame %d, boot %d: %+v, verify %v and %v", bad, boot, k.rec, damaged, torn)
				}
			}
			if !slices.Equal(lsns(k), want) {
				t.Errorf("frame %d, boot %d: frames %v, expected %v", bad, boot, lsns(k), want)
			}
		}
	}
	o, b, at := written(t, 0, 4, 0) // who wrote it did not know its boot
	b[at[2]+frameHead] ^= 1
	if k := must[kept](t)(replayAll(o)); !k.rec.Torn || len(k.frames) != 1 {
		t.Errorf("%v, %+v", lsns(k), k.rec)
	}
}

// Behind damage the log still ends where a power cut tore it, though good frames follow.
func TestATornEndBehindDamage(t *testing.T) {
	o, b, at := written(t, 7, 6, 2)
	b[at[2]+frameHead] ^= 1 // it was durable, as the frames behind it say
	b[at[4]+frameHead] ^= 1
	o.Boot = 8
	k := must[kept](t)(replayAll(o))
	if want := []uint64{1, 3}; !slices.Equal(lsns(k), want) || len(k.rec.Damage) != 1 || k.rec.Damage[0].Offset != at[2] || !k.rec.Torn {
		t.Errorf("frames %v, expected %v: %+v", lsns(k), want, k.rec)
	}
	b[at[3]+frameHead] ^= 1 // nothing shows that this one ever was on the disk: nor may those behind it
	k = must[kept](t)(replayAll(o))
	if want := []uint64{1}; !slices.Equal(lsns(k), want) || len(k.rec.Damage) != 1 || k.rec.LastLSN != 2 || !k.rec.Torn {
		t.Errorf("frames %v, expected %v: %+v", lsns(k), want, k.rec)
	}
}
