package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"time"
)

// unplugged cuts by a power cut of the machine that the store is on. It counts what the cuts did.
type unplugged struct {
	m       *machine
	options string // of the mount
	rnd     *rand.Rand
	back    *exec.Cmd // writes back; nil: nobody
	cuts    cutCounts
	went    bool // the volume did, and came back in the same boot, at least once
}

// newUnplugged makes a machine with that file system below dir, and boots it.
func newUnplugged(ctx context.Context, fs fileSystem, dir string, boots *bootID, seed uint64) (*unplugged, error) {
	u := &unplugged{rnd: rand.New(rand.NewPCG(seed, 4))}
	u.options = fs.mount[u.rnd.IntN(len(fs.mount))]
	var err error
	if u.m, err = newMachine(ctx, fs, dir, boots); err != nil {
		return nil, err
	}
	if err := u.boot(); err != nil {
		return nil, errors.Join(err, u.Close())
	}
	return u, nil
}

func (u *unplugged) Dir() string { return filepath.Join(u.m.mnt, "store") }

func (u *unplugged) boot() error { return u.on(u.m.On) }

// on lets the disk work again.
func (u *unplugged) on(on func(options string) (dir string, err error)) error {
	if _, err := on(u.options); err != nil {
		return err
	}
	if u.rnd.IntN(3) == 0 { // the kernel is left alone
		return nil
	}
	cmd, err := again(order{Back: &backOrder{Dir: u.Dir(), Seed: u.rnd.Uint64()}})
	if err != nil {
		return err
	}
	if _, err := cmd.StdinPipe(); err != nil { // it ends when this process does
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	u.back = cmd
	return nil
}

// Cut lets the power fail within the next writes and flushes, kills the child while nothing is answered, so that it
// acknowledges nothing that the disk does not have, and boots again. As often only the volume goes, and comes back in the same boot.
func (u *unplugged) Cut(c *child) (left, error) {
	disk := u.m.disk
	if err := disk.Arm(ArmOrder{N: u.rnd.Int64N(1 << u.rnd.IntN(9)), Full: u.rnd.IntN(2) == 0}); err != nil {
		return left{}, err
	}
	failed := make(chan error, 1)
	go func() { failed <- disk.Failed() }()
	var err error
	select {
	case err = <-failed:
	case <-time.After(50 * time.Millisecond): // it writes too little
		err = errors.Join(disk.Fail(), <-failed)
	}
	if err != nil {
		return left{}, err
	}
	c.cmd.Process.Kill() // it dies when its system calls return, which they do from Resume on
	loss := losses[u.rnd.IntN(len(losses))]
	cut, err := disk.Settle(SettleOrder{Loss: loss, Seed: u.rnd.Uint64()})
	if err := errors.Join(err, u.stopBack(), disk.Resume(), c.Kill(), u.waitBack(), u.m.Off()); err != nil {
		return left{}, err
	}
	u.cuts.add(cut)
	if err := u.m.keep(); err != nil {
		return left{}, err
	}
	what, on := "power cut", u.m.On
	if u.rnd.IntN(2) == 0 {
		what, on, u.went = "volume lost", u.m.plug, true
	}
	note := fmt.Sprintf("%s -o %q, %s after %d writes and %d flushes, loss %s: of %d unflushed blocks %d were kept, %d in an older version",
		u.m.fs.name, u.options, what, cut.Writes, cut.Flushes, loss, cut.Unflushed, cut.Kept+cut.Stale, cut.Stale)
	if err := u.on(on); err != nil {
		return left{}, fmt.Errorf("%s: %w", note, err)
	}
	return left{Dir: u.Dir(), Power: true, Went: u.went, Note: note}, nil
}

func (u *unplugged) stopBack() error {
	if u.back == nil {
		return nil
	}
	return u.back.Process.Kill()
}

func (u *unplugged) waitBack() error {
	if u.back != nil {
		u.back.Wait() // says that it was killed
		u.back = nil
	}
	return nil
}

// Off ends everything but the images.
func (u *unplugged) Off() error {
	return errors.Join(u.stopBack(), u.m.resume(), u.waitBack(), u.m.Off())
}

func (u *unplugged) Close() error { return errors.Join(u.Off(), u.m.Close()) }
