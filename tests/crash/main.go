package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	ordered()
	if err := command(); err != nil {
		fmt.Fprintln(os.Stderr, "crash:", err)
		os.Exit(1)
	}
}

// errFound is how a run with findings ends; they are printed before.
var errFound = errors.New("what was promised does not hold")

func command() (err error) {
	p := plan{newCutter: newKilled, every: 50}
	p.log = func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
	asJSON := flag.Bool("json", false, "print one JSON object")
	flag.IntVar(&p.loops, "loops", 50, "how often a child is killed")
	flag.IntVar(&p.lives, "lives", 6, "how often in the same store")
	flag.Uint64Var(&p.seed, "seed", 0, "of modes and scripts; 0: another one every time")
	flag.IntVar(&p.lines, "lines", 3400, "of journal, the most that a child writes before; an operation takes two")
	flag.DurationVar(&p.span, "span", 5*time.Second, "the longest time that a child works")
	only := flag.String("only", "", "`part` of the names of the modes to run; default: all")
	flag.StringVar(&p.dir, "dir", "", "`folder` for the stores; default: a new temporary one")
	power := flag.String("power", "", "cut the power under these `file systems` (ext4,xfs,btrfs), -loops times in each durability mode; needs root")
	other := flag.String("stead", "", "a `command` that is started, killed and asked in place of this program: qemu-aarch64 crash.arm64")
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected arguments: %v", flag.Args())
	}
	if stead = strings.Fields(*other); len(stead) > 0 && *power != "" {
		return errors.New("-stead and -power: disks are served and cut by this program itself")
	}
	if p.loops < 1 || p.lives < 1 || p.lines < 1 || p.span <= 0 {
		return errors.New("-loops, -lives, -lines and -span must be positive")
	}
	if p.modes, err = modesOf(*only); err != nil {
		return err
	}
	if p.seed == 0 {
		p.seed = uint64(time.Now().UnixNano())
	}
	if *power != "" {
		return p.powerCommand(strings.Split(*power, ","), *asJSON)
	}
	rep, err := p.inFolder()
	if err != nil {
		return err
	}
	if rep.bad() {
		fmt.Fprint(os.Stderr, rep.explain())
		err = errFound
	}
	if *asJSON {
		return errors.Join(rep.writeJSON(os.Stdout), err)
	}
	return errors.Join(rep.writeTable(os.Stdout), err)
}

// inFolder runs in a folder of its own, which stays if something was found.
func (p *plan) inFolder() (rep *report, err error) {
	stop, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	if p.dir != "" {
		if err := os.MkdirAll(p.dir, 0o700); err != nil {
			return nil, err
		}
	}
	if p.dir, err = os.MkdirTemp(p.dir, "dormouse-crash-"); err != nil {
		return nil, err
	}
	if p.dir, err = filepath.Abs(p.dir); err != nil {
		return nil, err
	}
	rep, err = p.run(stop)
	if err == nil && rep.Loops < p.loops && !rep.bad() {
		err = fmt.Errorf("interrupted after %s", rep.progress(p.loops, time.Duration(rep.Seconds*float64(time.Second))))
		return rep, errors.Join(err, os.RemoveAll(p.dir))
	}
	if err == nil && !rep.bad() {
		return rep, os.RemoveAll(p.dir)
	}
	return rep, err
}
