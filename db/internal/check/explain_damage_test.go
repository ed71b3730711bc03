package check_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/segments"
)

// explained is what Explain promises of p in a store that was opened read-only, as kvdump opens it.
func explained(t *testing.T, dir string, d kv.Descriptor, p kv.Prompt) db.Explanation {
	t.Helper()
	o := storetest.Options()
	o.ReadOnly = true
	s := storetest.Open(t, dir, o)
	m := storetest.Must(s.Model(fingerprint(t, d)))(t)
	x := storetest.Must(m.Explain(t.Context(), p, db.MatchOptions{}))(t)
	if got, why := storetest.Restore(t, m, p); got != x.Tokens || why.Code != x.Reason.Code || why.At != x.Reason.At {
		t.Errorf("%s: explain promises %d tokens (%v), and %d are restored (%v)", d.Name, x.Tokens, x.Reason, got, why)
	}
	storetest.OK(t, s.Close())
	return x
}

func fingerprint(t *testing.T, d kv.Descriptor) kv.Fingerprint {
	t.Helper()
	d = storetest.Must(d.Normal())(t)
	return d.Fingerprint()
}

// Whatever bit of a segment is wrong, Explain promises what a restore gives, and it changes nothing to know that.
func TestExplainPromisesWhatIsRestored(t *testing.T) {
	hybrid := crashtest.Windowed(24)
	hybrid.Name, hybrid.Groups = "hybrid", append(hybrid.Groups, kv.Group{Kind: kv.StateAt})
	hybrid.Tensors = append(hybrid.Tensors, kv.Tensor{Layer: 3, Role: kv.RoleState, DType: kv.Bytes, Group: 2})
	models := []kv.Descriptor{crashtest.Plain(), crashtest.Windowed(24), crashtest.Opaque(), hybrid}
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 90)}
	dir := t.TempDir()
	s := storetest.Open(t, dir, storetest.Options())
	for _, d := range models {
		m := storetest.Model(t, s, d)
		for _, n := range []int{48, 70, 90} { // states at three positions, and tails
			storetest.Put(t, m, p.Prefix(n))
		}
	}
	storetest.OK(t, s.Close())
	files, err := filepath.Glob(filepath.Join(dir, storetest.SegmentsDir, "*.seg"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	short := 0
	for _, d := range models {
		if x := explained(t, dir, d, p); x.Tokens != 90 || x.Reason.Code != db.Complete {
			t.Fatalf("%s, sound: %+v", d.Name, x)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	flips := 100
	if testing.Short() {
		flips = 25
	}
	for range flips {
		file := files[r.IntN(len(files))]
		b := storetest.Must(os.ReadFile(file))(t)
		at := r.IntN(len(b))
		for b[at] == 0 {
			at = r.IntN(len(b))
		}
		storetest.Flip(t, file, int64(at), r.IntN(8), func() {
			for _, d := range models {
				if explained(t, dir, d, p).Tokens < 90 {
					short++
				}
			}
		})
	}
	if short == 0 {
		t.Error("no bit that was flipped made a difference")
	}
}

// A segment that is gone is said to be, of each record that lay in it; and what another model holds "elsewhere" is what it can give.
func TestExplainOfMissingSegment(t *testing.T) {
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 90)}
	dir := t.TempDir()
	s := storetest.Open(t, dir, storetest.Options())
	other := crashtest.Plain()
	other.Name, other.Weights = "other", kv.HashOf("other")
	storetest.Put(t, storetest.Model(t, s, other), p.Prefix(40))
	storetest.Put(t, storetest.Model(t, s, crashtest.Plain()), p)
	storetest.OK(t, s.Close())
	if x := explained(t, dir, other, p); x.Tokens != 40 || len(x.Elsewhere) != 1 || x.Elsewhere[0].Tokens != 90 {
		t.Fatalf("sound: %+v", x)
	}
	storetest.OK(t, os.Remove(storetest.SegmentPath(dir, 2)))
	x := explained(t, dir, crashtest.Plain(), p)
	if x.Tokens != 0 || x.Reason.Code != db.Damaged || !errors.Is(x.Reason.Err, segments.ErrMissing) || len(x.Blocks) == 0 {
		t.Errorf("%+v", x)
	}
	for _, b := range x.Blocks {
		if len(b.Groups) != 1 || b.Groups[0] != "damaged" {
			t.Errorf("block [%d, %d) of a segment that is gone: %v", b.Start, b.End, b.Groups)
		}
	}
	if x := explained(t, dir, other, p); x.Tokens != 40 || len(x.Elsewhere) != 0 {
		t.Errorf("the other model: %+v", x)
	}
}

// What cannot be read at the moment is no damage: it is said to be unreadable, and can be read the next time.
func TestExplainOfUnreadableSegment(t *testing.T) {
	var shut atomic.Bool
	o := storetest.Options()
	disk := storetest.Shut(vfs.OS, "0000000000000001.seg", &shut, syscall.EACCES)
	dir := t.TempDir()
	s := storetest.OpenOn(t, disk, dir, o)
	p := kv.Prompt{Tokens: crashtest.Tokens(1, 32)}
	storetest.Put(t, storetest.Model(t, s, crashtest.Plain()), p)
	storetest.OK(t, s.Close())
	s = storetest.OpenOn(t, disk, dir, o)
	m := storetest.Model(t, s, crashtest.Plain())
	shut.Store(true)
	x, err := m.Explain(t.Context(), p, db.MatchOptions{})
	shut.Store(false)
	if err != nil || x.Tokens != 0 || !errors.Is(x.Reason.Err, syscall.EACCES) || len(x.Blocks) != 2 || x.Blocks[0].Groups[0] != "unreadable" {
		t.Errorf("%+v, %v", x, err)
	}
	if x, err := m.Explain(t.Context(), p, db.MatchOptions{}); err != nil || x.Tokens != 32 {
		t.Errorf("%+v, %v", x, err)
	}
}
