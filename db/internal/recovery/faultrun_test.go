package recovery_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
	"github.com/dormousekv/dormouse/kv"
)

// faultRun works a store on a disk of which one call fails, or all from one on.
type faultRun struct {
	t     *testing.T
	dirs  *crashtest.Dirs
	k     crashMode
	seed  uint64
	fault diskFault
	at    int

	mu     sync.Mutex
	fires  firings
	must   []int // by chat: what was acknowledged and not deleted since
	most   []int // by chat: what may be there
	log    []string
	images int
	failed bool
}

// firings are the calls that failed: the store's background works, too.
type firings struct {
	n      int
	first  crashfs.Op
	synced bool // one of them was a sync of the log, or of segments
}

func (f *faultRun) so() firings {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fires
}

func (f *faultRun) errorf(format string, args ...any) {
	f.t.Helper()
	if !f.failed {
		first := f.so().first
		f.t.Errorf("%v, %s at call %d (%s %s), DORMOUSE_CRASH_SEED=%d\n\t%s", f.k, f.fault.name, f.at, first.Kind, first.Name,
			f.seed, strings.Join(f.log[max(0, len(f.log)-12):], "\n\t"))
	}
	f.failed = true
	f.t.Errorf("\t"+format, args...)
}

// arm lets the disk fail at call number at, counted from now.
func (f *faultRun) arm(d *crashfs.Disk, at int) {
	now, _ := d.Ops()
	at += now
	f.fires = firings{}
	d.Before(func(op crashfs.Op) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if op.N < at || f.fires.n > 0 && !f.fault.stays || f.fault.kinds != "" && !strings.Contains(" "+f.fault.kinds+" ", " "+op.Kind+" ") {
			return nil
		}
		if f.fires.n++; f.fires.n == 1 {
			f.fires.first = op
		}
		inside := strings.HasPrefix(op.Name, storetest.SegmentsDir) || strings.HasPrefix(op.Name, storetest.LogDir)
		f.fires.synced = f.fires.synced || inside && (op.Kind == "sync" || op.Kind == "syncdir")
		if strings.HasPrefix(f.fault.name, "half") {
			return &crashfs.Short{Bytes: op.Len / 2, Err: f.fault.err}
		}
		return f.fault.err
	})
}

// run reports whether the script ended before the fault.
func (f *faultRun) run() (ended bool) {
	dir := f.dirs.Next()
	defer os.RemoveAll(dir)
	d := crashtest.NewDisk(dir)
	w := &crashRun{d: d, k: f.k, sparse: true, j: newCrashJournal(f.k)}
	defer w.kill()
	f.must, f.most = make([]int, len(crashChats())), make([]int, len(crashChats()))
	f.arm(d, f.at)
	for _, o := range append([]crashOp{{kind: "open"}}, f.k.script(f.seed)...) {
		if o.kind != "open" && w.closed() { // an earlier one could not open it, or not resume it
			w.kill()
			if err := w.open(); err != nil {
				if f.so().n == 0 || !f.fault.stays {
					f.errorf("open anew: %v", err)
				}
				break
			}
		}
		if f.step(w, o); f.failed {
			return false
		}
	}
	if f.so().n == 0 {
		return true
	}
	d.Before(nil)
	w.kill()
	f.images++
	f.image(storetest.Must(d.Kill(f.dirs.Next()))(f.t), "kill", true)
	rnd := rand.New(rand.NewPCG(f.seed, uint64(f.at)))
	for range 2 {
		f.images++
		f.image(storetest.Must(crashtest.Cut(d, rnd, f.dirs))(f.t), "power cut", f.k.power)
	}
	return false
}

// closed reports whether no store is open.
func (w *crashRun) closed() bool {
	if w.s == nil {
		return true
	}
	_, err := w.s.Stats()
	return errors.Is(err, db.ErrClosed)
}

// suspended reports whether the store is, as it is after a Resume that failed.
func (w *crashRun) suspended() bool {
	if w.s == nil {
		return false
	}
	_, err := w.s.Stats()
	return errors.Is(err, db.ErrSuspended)
}

// step does one operation, and once more if it failed.
func (f *faultRun) step(w *crashRun, o crashOp) {
	before := f.so().n
	err := f.do(w, o)
	hit := f.so().n > before
	if errors.Is(err, errWrongRow) {
		f.errorf("%v: %v", o, err)
		return
	}
	if err == nil || w.expected(o, err) {
		return
	}
	if !hit && f.so().n == 0 {
		f.errorf("%v: %v, though no call failed", o, err)
		return
	}
	if hit && errors.Is(f.fault.err, syscall.ENOSPC) && errors.Is(err, db.ErrNotStored) && f.evicted(w) > 0 {
		return // to make room, it evicted what a ref was to name
	}
	if hit && errors.Is(f.fault.err, syscall.ENOSPC) && !errors.Is(err, db.ErrNoSpace) {
		f.errorf("%v: on a full disk: %v", o, err)
		return
	}
	if w.closed() || w.suspended() {
		f.comeBack(w)
		return
	}
	if e := storetest.Engine(w.s); f.so().synced || e.Ledger.WAL != nil && e.Index.Err() != nil {
		f.poisoned(w, o)
		return
	}
	if f.fault.stays || f.isPoisoned(w) {
		return
	}
	err = f.do(w, o)
	if o.kind == "retire" && errors.Is(err, db.ErrNotFound) { // it was done, all but the end
		return
	}
	if err != nil && !w.expected(o, err) && !f.isPoisoned(w) {
		f.errorf("%v, once more: %v", o, err)
	}
}

// comeBack opens or resumes the store, where an operation that does so failed.
func (f *faultRun) comeBack(w *crashRun) {
	var err error
	if w.suspended() {
		if err = w.s.Resume(context.Background()); err == nil {
			return
		}
	}
	w.kill()
	if err = w.open(); err != nil && !f.fault.stays {
		f.errorf("open after a failure: %v", err)
	}
}

func (f *faultRun) isPoisoned(w *crashRun) bool {
	if w.closed() {
		return false
	}
	e := storetest.Engine(w.s)
	return e.Ledger.WAL != nil && e.Ledger.Poisoned() != nil
}

// poisoned checks a store of which a sync has failed during o, if it is the one that is open: whatever would write fails
// with that error, and reads go on.
func (f *faultRun) poisoned(w *crashRun, o crashOp) {
	if !f.isPoisoned(w) {
		return
	}
	w.release()
	reads := func() {
		if f.fault.stays && f.fault.kinds == "" {
			return // nor can anything be read
		}
		for c, x := range crashChats() {
			n, err := x.restore(w.model(c))
			if errors.Is(err, db.ErrRetired) {
				continue
			}
			if err != nil || n < f.must[c] {
				f.errorf("restore after a sync failed: chat %d has %d of %d tokens, %v", c, n, f.must[c], err)
			}
		}
	}
	reads()
	x := crashChats()[1]
	p := kv.Prompt{Tokens: crashtest.Tokens(77, 50)} // that was never put
	m := w.model(1)
	writes := map[string]error{
		"put":        second(m.Put(context.Background(), p, x.Rows(0, 50), db.PutOptions{})),
		"checkpoint": w.s.Checkpoint(context.Background()),
		"sync":       w.s.Sync(context.Background()),
		"trim":       second(w.s.Pressure(context.Background(), db.Moderate)),
	}
	writes["model"] = second(w.s.Register(context.Background(), crashtest.Windowed(77)))
	writes["ref"] = f.anyRef(w)
	writes["note"] = m.SetNote(context.Background(), "after", []byte("a sync failed"))
	writes["compact"] = second(w.s.Compact(context.Background(), db.CompactOptions{}))
	writes["shrink"] = second(w.s.Shrink(context.Background(), 1))
	writes["delete scope"] = second(w.s.DeleteScope(context.Background(), "alice"))
	if refs, err := db.Collect(w.s.Refs()); err == nil {
		for _, ref := range refs {
			writes["delete ref"] = w.s.DeleteRef(context.Background(), ref.Name)
			break
		}
	}
	writes["retire"] = w.s.Retire(context.Background(), m.Fingerprint())
	for what, err := range writes {
		if (!errors.Is(err, f.fault.cause()) || !errors.Is(err, db.ErrPoisoned)) && !errors.Is(err, db.ErrRetired) {
			f.errorf("%s after a sync failed: %v", what, err)
		}
	}
	reads()
	if st, err := w.s.Stats(); err != nil || !st.Poisoned {
		f.errorf("stats after a sync failed: %v, poisoned %v", err, st.Poisoned)
	}
	if f.at%2 == 1 {
		if err := w.s.Suspend(context.Background()); !errors.Is(err, f.fault.cause()) || !errors.Is(err, db.ErrPoisoned) {
			f.errorf("suspend after a sync failed: %v", err)
		}
	} else if err := w.s.Close(); !errors.Is(err, f.fault.cause()) || !errors.Is(err, db.ErrPoisoned) {
		f.errorf("close after a sync failed: %v", err)
	}
	w.kill()
	if err := w.open(); err != nil && !f.fault.stays {
		f.errorf("open after a sync failed: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

// anyRef sets a ref on something that is stored.
func (f *faultRun) anyRef(w *crashRun) error {
	for c, x := range crashChats() {
		if n, _, err := w.model(c).Probe(context.Background(), x.p, db.MatchOptions{}); err == nil && n >= kv.OpeningTokens {
			return w.model(c).SetRef(context.Background(), "after", x.p.Prefix(n), db.RefOptions{})
		}
	}
	return errors.Join(db.ErrPoisoned, f.fault.cause()) // there is nothing to ask with
}

// do is crashRun.do, and keeps must and most.
func (f *faultRun) do(w *crashRun, o crashOp) error {
	f.log = append(f.log, o.String())
	for c := range crashChats() {
		if _, takes := o.takes(c, false); takes {
			f.must[c] = 0
		}
	}
	storing := o.kind == "put" || o.kind == "extend"
	if storing {
		f.most[o.chat] = max(f.most[o.chat], o.n)
		for c := range crashChats() {
			f.most[c] = max(f.most[c], crashSystem) // what it shares with others
		}
	}
	evicted := f.evicted(w)
	err := w.do(o)
	w.d.Settle()
	f.log[len(f.log)-1] += fmt.Sprint(" -> ", err)
	defer func() {
		if n := f.evicted(w); n != evicted && n > 0 && errors.Is(f.fault.err, syscall.ENOSPC) {
			f.log[len(f.log)-1] += fmt.Sprintf(", %d evicted by now", n)
			f.makeDoWith(w)
		}
	}()
	switch {
	case err != nil:
	case storing:
		if !f.k.small { // else it may be evicted
			f.must[o.chat] = max(f.must[o.chat], o.n)
		}
	case o.kind == "delete":
		f.most[o.chat] = min(f.most[o.chat], o.n-1)
	case o.kind == "scope":
		for c, x := range crashChats() {
			if x.p.Scope == o.name {
				f.most[c] = min(f.most[c], crashSystem)
			}
		}
	}
	return err
}

// evicted is how many blocks the open store has evicted.
func (f *faultRun) evicted(w *crashRun) int64 {
	if w.closed() {
		return 0
	}
	return storetest.Engine(w.s).Count.Evicted.Load()
}

// makeDoWith lowers must to what the store still has of each chat: on a full disk it evicted.
func (f *faultRun) makeDoWith(w *crashRun) {
	if w.suspended() {
		clear(f.must)
		return
	}
	for c, x := range crashChats() {
		n, err := x.restore(w.model(c))
		if err != nil {
			n = 0
		}
		f.must[c] = min(f.must[c], n)
	}
}

// image compares what the next process finds: once as it is, and once after an open during which the disk failed.
func (f *faultRun) image(image *crashfs.Disk, how string, strong bool) {
	defer os.RemoveAll(image.Dir())
	w := &crashRun{d: image, k: f.k, sparse: true, j: newCrashJournal(f.k)}
	defer w.kill()
	f.arm(image, rand.IntN(120))
	if err := w.open(); err == nil {
		if w.s.Close() == nil {
			w.s = nil
		}
	} else if f.so().n == 0 {
		f.errorf("open after %s: %v", how, err)
	}
	w.kill()
	image.Before(nil)
	first := f.so().first
	how += fmt.Sprintf(", and an open during which %s %s failed", first.Kind, first.Name)
	if err := w.open(); err != nil {
		f.errorf("open after %s: %v", how, err)
		return
	}
	for c, x := range crashChats() {
		n, err := x.restore(w.model(c))
		if err != nil || strong && n < f.must[c] || n > f.most[c] {
			_, reason, _ := w.model(c).Probe(context.Background(), x.p, db.MatchOptions{})
			f.errorf("after %s: chat %d has %d tokens, expected %d to %d: %v, %v", how, c, n, f.must[c], f.most[c], err, reason)
		}
	}
	all := map[kv.Key]bool{}
	for b := range w.s.Blocks(context.Background()) {
		all[b.Key] = true
	}
	for b, err := range w.s.Blocks(context.Background()) {
		if err != nil || b.First > 0 && !all[b.Parent] {
			f.errorf("after %s: block %s at %d is stored without its prefix, %v", how, b.Key, b.First, err)
		}
	}
	for c, x := range crashChats() {
		o := crashOp{kind: "put", chat: c, n: len(x.p.Tokens)}
		if err := w.do(o); err != nil && !w.expected(o, err) {
			f.errorf("after %s: %v: %v", how, o, err)
		}
	}
	if err := w.close(); err != nil {
		f.errorf("after %s: close: %v", how, err)
	}
}
