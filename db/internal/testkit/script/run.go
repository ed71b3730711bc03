package script

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/inside"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/quant"
)

// open opens what the disk has. If a store is open it is closed first. What is there was verified before, read-only.
func (r *scriptRun) open(a []string) error {
	again, readOnly := a[1] == "reopen", false
	if again && r.s != nil {
		if err := r.end([]string{"close", "close"}); err != nil && !r.poison {
			return err
		}
		r.poison = false
		r.faults.clear(r)
	}
	for words := strings.Fields(a[2]); len(words) > 0; words = words[1:] {
		switch words[0] {
		case "power":
			r.o.mode = db.Power
		case "process":
			r.o.mode = db.Process
		case "no-holes":
			r.o.noHoles = true
		case "coarse":
			r.o.coarse = true
		case "read-only":
			readOnly = true
		case "budget":
			n, _ := strconv.Atoi(words[1])
			r.o.budget, words = int64(n)<<20, words[1:]
		}
	}
	if again {
		rep, err := r.look()
		if err != nil {
			return err
		}
		r.found, r.judged = rep, false
	}
	s, err := r.store(readOnly)
	if err != nil {
		return err
	}
	r.s = s
	if err = r.use([]string{"use", r.model}); err != nil || !again {
		return err
	}
	return r.whole()
}

func (r *scriptRun) use(a []string) (err error) {
	r.model = a[1]
	if r.s != nil {
		var m db.Registered
		m, err = r.s.Register(ctx, crashtest.Model(r.model))
		r.m = m.Model
	}
	return err
}

func (r *scriptRun) store(readOnly bool) (*db.Store, error) {
	var f vfs.FS = r.d
	if r.o.noHoles {
		f = crashtest.NoHoles{FS: f}
	}
	if r.o.coarse {
		f = crashtest.Coarse{FS: f}
	}
	return db.Open(ctx, r.d.Dir(), db.Options{
		ReadOnly: readOnly, Durability: r.o.mode, Budget: r.o.budget, SegmentBytes: 256 << 10, MinFree: -1, CheckpointInterval: -1,
		Codec: quant.Raw, Logger: slog.New(slog.DiscardHandler), Inside: inside.Options{FS: f},
	})
}

// look verifies what is on the disk and changes nothing of it.
func (r *scriptRun) look() (*admin.Report, error) {
	s, err := r.store(true)
	var bad *db.CorruptError
	switch {
	case errors.As(err, &bad):
		return &admin.Report{Damage: []*db.CorruptError{bad}}, nil
	case err != nil && r.faults.armed():
		return &admin.Report{}, nil // it was to fail
	case err != nil:
		return nil, fmt.Errorf("read-only: %w", err)
	}
	defer s.Close()
	rep, err := admin.VerifyStore(ctx, s, admin.VerifyOptions{})
	if err != nil && r.faults.armed() {
		err = nil
	}
	return &rep, err
}

// whole compares every block with its prefix.
func (r *scriptRun) whole() error {
	ends := map[kv.Key]int{}
	var all []db.Block
	for b, err := range r.s.Blocks(ctx) {
		if err != nil {
			return err
		}
		ends[b.Key] = b.First + b.Tokens
		all = append(all, b)
	}
	for _, b := range all {
		if b.First > 0 && ends[b.Parent] != b.First {
			return fmt.Errorf("block %s at %d is stored without its prefix", b.Key, b.First)
		}
	}
	return nil
}

// judge expects that the last reopen found no damage, unless a verify was asked about it.
func (r *scriptRun) judge() error {
	if r.found == nil || r.judged || r.d.Crashed() {
		return nil
	}
	return r.verify([]string{"", "clean", ""})
}

func (r *scriptRun) verify(a []string) error {
	if r.found == nil {
		return malformed("nothing was opened again")
	}
	r.judged = true
	switch a[1] {
	case "any":
		return nil
	case "damaged":
		for _, d := range r.found.Damage {
			if d.File != "" && d.Offset >= 0 && strings.HasSuffix(d.File, a[2]) {
				return nil
			}
		}
		return fmt.Errorf("no such damage was found: %v, %q", r.found.Damage, r.found.Notes)
	}
	if bad := crashtest.Unexpected(r.d, r.found.Damage); len(bad) > 0 {
		return fmt.Errorf("found when it was opened again: %v", bad)
	}
	if r.s == nil || r.faults.armed() {
		return nil
	}
	rep, err := admin.VerifyStore(ctx, r.s, admin.VerifyOptions{})
	if bad := crashtest.Unexpected(r.d, rep.Damage); err == nil && len(bad) > 0 {
		err = fmt.Errorf("found: %v", bad)
	}
	st, serr := r.s.Stats()
	switch {
	case errors.Is(err, db.ErrSuspended):
		return nil
	case err == nil && serr == nil && st.Damaged > 0:
		return fmt.Errorf("%d records that are sound were taken for damaged", st.Damaged)
	}
	return err
}

// end ends the process.
func (r *scriptRun) end(a []string) error {
	if a[1] == "kill" {
		return r.kill()
	}
	err := r.s.Close()
	if errors.Is(err, db.ErrLeased) {
		return malformed("%v", err)
	}
	r.s, r.m = nil, nil
	return err
}

// die ends the process on the disk that is there.
func (r *scriptRun) die() {
	r.d.Crash()
	if p := r.pending; p != nil {
		close(p.dead)
		<-p.ended
		r.pending = nil
	}
	for name, x := range r.held {
		x.Close()
		delete(r.held, name)
	}
	if r.s != nil {
		r.s.Close() // no call reaches the disk any more
	}
	r.s, r.m, r.poison = nil, nil, false
	r.faults.clear(r)
}

// kill ends the process; the next one finds all that it wrote.
func (r *scriptRun) kill() error {
	r.die()
	return r.onto(r.d.Kill(r.dirs.Next()))
}

func (r *scriptRun) onto(d *crashfs.Disk, err error) error {
	if err != nil {
		return malformed("%v", err)
	}
	os.RemoveAll(r.d.Dir())
	r.d = d
	return nil
}
