package script

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
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

// scriptRun is a script under way: a store, used by what it exports alone, on a disk that can crash.
type scriptRun struct {
	dirs *crashtest.Dirs
	rnd  *rand.Rand // draws what "cut lose any" takes
	went bool       // each power cut is the loss of the volume, in the same boot
	nth  int64      // the call at which an "each" fails

	d       *crashfs.Disk
	s       *db.Store // nil: not open
	m       *db.Model // nil: retired
	o       scriptOptions
	model   string                 // that is used
	put0    map[string]int         // by model and prompt: the longest put
	tried   map[string]int         // and the longest that was begun
	frames  map[string]scriptFrame // by model and prompt: of the last put
	held    map[string]*db.Match
	talks   map[string]*talk // sessions by scope
	wasCut  bool             // the power was, at least once
	before  map[string]bool  // the segments that there were before the last compact
	found   *admin.Report    // of the last reopen
	judged  bool             // verify said what it expects of that
	poison  bool             // a call failed: Close may say so
	faults  scriptFaults
	pending *scriptPending // what was begun; nil: nothing
	through bool           // an "each" found no such call: the series is at its end
}

type scriptOptions struct {
	mode            db.Durability
	noHoles, coarse bool
	budget          int64
}

// scriptFrame is where the frame of a put lies in the log.
type scriptFrame struct {
	file string
	off  int64
	b    []byte
}

func (r *scriptRun) run(x *Script, choice []int) error {
	for i, l := range x.lines {
		if c := l.choices[choice[i]]; c.do != nil {
			if err := r.line(l, c); err != nil {
				return fmt.Errorf("%s:%d: %s: %w", x.file, l.n, l.text, err)
			}
		}
		if r.through {
			return nil
		}
	}
	if err := r.judge(); err != nil {
		return fmt.Errorf("%s: at its end: %w", x.file, err)
	}
	return nil
}

func (r *scriptRun) line(l scriptLine, c scriptChoice) error {
	verb, _, _ := strings.Cut(c.text, " ")
	ends := slices.Contains([]string{"kill", "close", "cut", "reopen"}, verb)
	anytime := ends && verb != "close" || slices.Contains([]string{"fail", "die", "allow", "use", "flip", "zero", "fill", "room", "plug", "unplug"}, verb)
	switch offline := slices.Contains([]string{"open", "drop", "empty"}, verb); {
	case offline && r.s != nil:
		return malformed("the store is open")
	case !offline && !anytime && r.s == nil:
		return malformed("no store is open")
	case r.d.Crashed() && (!ends || verb == "close"):
		return nil // the process died
	}
	if ends && r.s != nil && verb != "close" {
		if err := r.faults.awaited(r); err != nil || r.through {
			return err
		}
	}
	if ends {
		if err := r.judge(); err != nil {
			return err
		}
		if r.d.Crashed() && verb != "kill" {
			if err := r.kill(); err != nil {
				return err
			}
		}
	}
	err := c.do(r, c.args)
	r.wasCut = r.wasCut || verb == "cut"
	if err == nil && !r.d.Crashed() && slices.Contains([]string{"sync", "checkpoint", "suspend", "close"}, verb) {
		r.tellAll()
	}
	if verb == "close" && l.ends == "" && r.poison {
		err = nil // what failed is of the next process
	}
	if verb == "close" && !r.d.Crashed() {
		if err := r.faults.awaited(r); err != nil || r.through {
			return err
		}
		r.poison = false
		r.faults.clear(r)
	}
	switch {
	case IsMalformed(err):
		return err
	case r.d.Crashed(), l.ends == "may fail":
		return nil
	case l.ends == "fails" && err == nil:
		return errors.New("it did not fail")
	case l.ends == "fails poisoned" && !errors.Is(err, db.ErrPoisoned):
		return fmt.Errorf("it did not fail as it does after a failed fsync: %w", err)
	case l.ends != "":
		return nil
	}
	return err
}

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

var ctx = context.Background()

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
