package db

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
	"github.com/dormousekv/dormouse/kv"
)

// scriptRun is a script under way: a store, used by what it exports alone, on a disk that can crash.
type scriptRun struct {
	dirs *crashDirs
	rnd  *rand.Rand // draws what "cut lose any" takes

	d       *crashfs.Disk
	s       *Store // nil: not open
	m       *Model
	mode    Durability
	put0    map[string]int         // by prompt: the longest put
	frames  map[string]scriptFrame // by prompt: of the last put
	held    map[string]*Match
	before  map[string]bool // the segments that there were before the last compact
	found   *Report         // of the last reopen
	judged  bool            // verify said what it expects of that
	poison  bool            // an fsync failed: Close says so
	failing *atomic.Int64   // calls that a fail let fail; nil: none is awaited
	paused  *pausedSync     // nil: none is under way
}

// scriptFrame is where the frame of a put lies in the log.
type scriptFrame struct {
	file string
	off  int64
	b    []byte
}

func runScript(t *testing.T, x *script) error {
	first, runs := uint64(0), uint64(1)
	if x.any {
		seed, all := crashSeed(t)
		if first, runs = seed, 8; all {
			runs = 200
		}
	}
	dirs := newCrashDirs(t)
	for seed := first; seed < first+runs; seed++ {
		r := &scriptRun{
			dirs: dirs, rnd: rand.New(rand.NewPCG(seed, 7)), d: newCrashDisk(dirs.next()),
			put0: map[string]int{}, frames: map[string]scriptFrame{}, held: map[string]*Match{},
		}
		err := r.run(x)
		r.die()
		os.RemoveAll(r.d.Dir())
		if err != nil && x.any {
			err = fmt.Errorf("%w, cut %d", err, seed)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *scriptRun) run(x *script) error {
	for _, l := range x.lines {
		if err := r.line(l); err != nil {
			return fmt.Errorf("%s:%d: %s: %w", x.file, l.n, l.text, err)
		}
	}
	if err := r.judge(); err != nil {
		return fmt.Errorf("%s: at its end: %w", x.file, err)
	}
	return nil
}

func (r *scriptRun) line(l scriptLine) error {
	verb, _, _ := strings.Cut(l.text, " ")
	ends := verb == "kill" || verb == "close" || verb == "cut" || verb == "reopen"
	switch offline := verb == "open" || verb == "flip" || verb == "drop"; {
	case offline && r.s != nil:
		return malformed("the store is open")
	case !offline && r.s == nil && verb != "reopen" && verb != "cut" && verb != "fail":
		return malformed("no store is open")
	case ends && r.s != nil && r.failing != nil && r.failing.Load() == 0:
		return malformed("what was to fail never came")
	}
	if ends {
		if err := r.judge(); err != nil {
			return err
		}
	}
	err := l.do(r, l.args)
	switch {
	case isMalformed(err):
		return err
	case l.fails && err == nil:
		return errors.New("it did not fail")
	case l.fails:
		return nil
	}
	return err
}

// open opens what the disk has. If a store is open it is closed first. What is there was verified before, read-only.
func (r *scriptRun) open(a []string) error {
	again := strings.HasPrefix(a[0], "reopen")
	if again && r.s != nil {
		if err := r.end([]string{"close", "close"}); err != nil {
			return err
		}
	}
	switch a[1] {
	case " power":
		r.mode = Power
	case " process":
		r.mode = Process
	}
	if again {
		rep, err := r.look()
		if err != nil {
			return err
		}
		r.found, r.judged = rep, false
	}
	o := r.options()
	s, err := Open(ctx, r.d.Dir(), o)
	if err != nil {
		return err
	}
	r.s = s
	if r.m, err = s.Model(ctx, scriptModel()); err != nil || !again {
		return err
	}
	return r.whole()
}

func (r *scriptRun) options() Options {
	o := options()
	o.fs, o.Durability, o.Budget, o.SegmentBytes = r.d, r.mode, 16<<20, 256<<10
	return o
}

// look verifies what is on the disk and changes nothing of it.
func (r *scriptRun) look() (*Report, error) {
	o := r.options()
	o.ReadOnly = true
	s, err := Open(ctx, r.d.Dir(), o)
	var bad *CorruptError
	if errors.As(err, &bad) {
		return &Report{Damage: []*CorruptError{bad}}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read-only: %w", err)
	}
	defer s.Close()
	rep, err := s.Verify(ctx, VerifyOptions{})
	return &rep, err
}

// whole compares every block with its prefix.
func (r *scriptRun) whole() error {
	ends := map[kv.Key]int{}
	var all []Block
	for b, err := range r.s.Blocks() {
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
	if r.found == nil || r.judged {
		return nil
	}
	return r.verify([]string{"", "clean"})
}

func (r *scriptRun) verify(a []string) error {
	if r.found == nil {
		return malformed("nothing was opened again")
	}
	r.judged = true
	if a[1] == "damaged" {
		for _, d := range r.found.Damage {
			if d.File != "" && d.Offset >= 0 {
				return nil
			}
		}
		return fmt.Errorf("no damage was found: %q", r.found.Notes)
	}
	if len(r.found.Damage) > 0 {
		return fmt.Errorf("found when it was opened again: %v", r.found.Damage)
	}
	if r.s == nil {
		return nil
	}
	rep, err := r.s.Verify(ctx, VerifyOptions{})
	if err == nil && len(rep.Damage) > 0 {
		err = fmt.Errorf("found: %v", rep.Damage)
	}
	return err
}

func (r *scriptRun) fail(a []string) error {
	at := map[string]func(op crashfs.Op) bool{
		"fsync":        func(op crashfs.Op) bool { return op.Kind == "sync" && strings.HasPrefix(op.Name, segmentsDir) },
		"log-fsync":    func(op crashfs.Op) bool { return op.Kind == "sync" && strings.HasPrefix(op.Name, walDir) },
		"index-fsync":  func(op crashfs.Op) bool { return op.Kind == "syncdir" && op.Name == "." },
		"index-rename": func(op crashfs.Op) bool { return op.Kind == "rename" && strings.HasPrefix(op.Name, indexName) },
	}[a[1]]
	failed := new(atomic.Int64)
	r.failing, r.poison = failed, true
	r.d.Before(func(op crashfs.Op) error {
		if at(op) && (failed.Add(1) == 1 || a[1] == "index-rename") {
			return errDisk
		}
		return nil
	})
	return nil
}

// pausedSync is a Sync that waits to write its barrier, and then to go on behind that.
type pausedSync struct {
	waits, goOn, dead chan struct{}
	ended             chan error
}

// barrier pauses a Sync between the fsync of the segments and its barrier, or lets it go on until that is durable.
func (r *scriptRun) barrier(a []string) error {
	p := r.paused
	if a[1] == "go" {
		if p == nil {
			return malformed("there is none")
		}
		p.waits = make(chan struct{})
		r.d.Before(p.before(segmentsDir))
		close(p.goOn)
	} else {
		p = &pausedSync{waits: make(chan struct{}), goOn: make(chan struct{}), dead: make(chan struct{}), ended: make(chan error, 1)}
		r.paused = p
		r.d.Before(p.before(walDir))
		go func() { p.ended <- r.s.Sync(ctx) }()
	}
	select {
	case <-p.waits:
		return nil
	case err := <-p.ended:
		r.paused = nil
		if a[1] == "go" {
			return err
		}
		return malformed("it did not come to its barrier: %v", err)
	}
}

// before waits at the next sync of a file in dir, behind one of a segment.
func (p *pausedSync) before(dir string) func(op crashfs.Op) error {
	var synced, once atomic.Bool
	waits, goOn := p.waits, p.goOn
	if dir == segmentsDir {
		synced.Store(true)
		goOn = nil // not until the process dies
	}
	return func(op crashfs.Op) error {
		at := op.Kind == "sync" && strings.HasPrefix(op.Name, dir) && synced.Load()
		if op.Kind == "sync" && strings.HasPrefix(op.Name, segmentsDir) {
			synced.Store(true)
		}
		if !at || !once.CompareAndSwap(false, true) {
			return nil
		}
		close(waits)
		select {
		case <-goOn:
			return nil
		case <-p.dead:
			return crashfs.ErrCrashed
		}
	}
}

// end ends the process.
func (r *scriptRun) end(a []string) error {
	if a[1] == "kill" {
		return r.kill()
	}
	err := r.s.Close()
	if errors.Is(err, ErrLeased) {
		return malformed("%v", err)
	}
	if r.poison {
		err = nil // the failed fsync: what it failed to do is of the next process
	}
	r.s, r.poison, r.failing = nil, false, nil
	r.d.Before(nil)
	return err
}

// die ends the process on the disk that is there.
func (r *scriptRun) die() {
	r.d.Crash()
	if r.paused != nil {
		close(r.paused.dead)
		<-r.paused.ended
		r.paused = nil
	}
	for name, x := range r.held {
		x.Close()
		delete(r.held, name)
	}
	if r.s != nil {
		r.s.Close() // no call reaches the disk any more
	}
	r.s, r.poison, r.failing = nil, false, nil
}

// kill ends the process; the next one finds all that it wrote.
func (r *scriptRun) kill() error {
	r.die()
	return r.onto(r.d.Kill(r.dirs.next()))
}

func (r *scriptRun) onto(d *crashfs.Disk, err error) error {
	if err != nil {
		return malformed("%v", err)
	}
	os.RemoveAll(r.d.Dir())
	r.d = d
	return nil
}

func (r *scriptRun) chat(name string) *crashChat {
	return scriptChat(name, max(r.put0[name], 64*(1+strings.Count(name, "/"))))
}

func (r *scriptRun) expect(a []string) error {
	name := a[1]
	want, said := number(a[2])
	if !said && a[2] == "all" {
		if want = r.put0[name]; want == 0 {
			return malformed("it was never put")
		}
	}
	got, err := r.chat(name).restore(r.m)
	if err == nil && got != want {
		_, why, _ := r.m.Probe(ctx, r.chat(name).p, MatchOptions{})
		err = fmt.Errorf("%d tokens were restored (%v), expected %d", got, why, want)
	}
	return err
}

func (r *scriptRun) drop(a []string) error {
	name := filepath.Join(r.d.Dir(), a[1])
	if err := errors.Join(r.d.Remove(name), r.d.SyncDir(filepath.Dir(name))); err != nil {
		return malformed("%v", err)
	}
	return nil
}
