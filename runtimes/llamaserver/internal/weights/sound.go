package weights

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dormousekv/dormouse/runtimes/internal/modelfile"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/proc"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
)

// soundTime is how long a request waits for bytes that are read to see whether they are the same.
const soundTime = time.Second

// Sound returns an error unless the server still has the files that were hashed: ErrAnew if it has loaded others, or why nobody can tell. It looks at
// the files' stamps, and at more only where a stamp changed.
func (l *Files) Sound(ctx context.Context) error {
	deadline := time.After(soundTime)
	for {
		wait, err := l.Compare(ctx)
		if wait == nil {
			return err
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return request.PassHashing
		case <-deadline: // others go on meanwhile
			return request.PassHashing
		}
	}
}

// Compare looks once. If it has to read bytes first, it returns a channel that is closed when they are read.
func (l *Files) Compare(ctx context.Context) (wait <-chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := stampsOf(l.paths)
	l.seen = now
	how := modelfile.Unchanged
	var others []string // paths at which another file lies, or lay
	for i, s := range now {
		c := s.Since(l.stamps[i])
		how = max(how, c)
		if c == modelfile.Another || l.strayed[s.Path] {
			others = append(others, s.Path)
		}
	}
	switch {
	case how == modelfile.Unchanged && len(others) == 0 && !l.altered:
		return nil, nil
	case l.hashes == nil: // nothing was hashed since this process is the server
		clean := len(others) == 0 && !l.altered
		switch {
		case clean && how == modelfile.Unchanged:
			return nil, nil
		case clean && how == modelfile.Touched, l.maps(now), l.asleep(ctx):
			return nil, l.anew(now)
		}
		return nil, l.doubt(now)
	}
	if len(others) > 0 {
		switch l.heldOf(others) {
		case proc.OldFile:
			if how == modelfile.Another {
				for _, p := range others {
					l.strayed[p] = true
				}
				if l.altered {
					return nil, l.doubt(now)
				}
				return nil, nil
			}
			l.strayed = map[string]bool{}
		case proc.NewFile:
			return nil, l.anew(now)
		default:
			if l.asleep(ctx) { // it loads what lies there, whatever that is: to read it may take longer than it sleeps
				return nil, l.anew(now)
			}
			if len(l.strayed) == 0 { // the same bytes in another file are the same
				same, wait, err := l.sameBytes(now)
				if wait != nil || err != nil {
					return wait, err
				}
				if same && !l.altered {
					l.stamps = slices.Clone(now)
					return nil, nil
				}
			}
			for _, p := range others {
				l.strayed[p] = true
			}
			return nil, l.doubt(now)
		}
	}
	if how == modelfile.Unchanged && !l.altered {
		return nil, nil
	}
	if l.asleep(ctx) { // it loads what lies there, whatever that is
		return nil, l.anew(now)
	}
	same, wait, err := l.sameBytes(now)
	if wait != nil || err != nil {
		return wait, err
	}
	if same && !l.altered {
		if how == modelfile.Rewritten { // what was computed while they were other bytes is nothing
			l.drops++
			l.foul++
		}
		l.stamps = slices.Clone(now)
		return nil, nil
	}
	l.altered = true
	return nil, l.doubt(now)
}

// anew notes that the server has loaded, or will load, what lies at the paths now.
func (l *Files) anew(now []modelfile.Stamp) error {
	l.forget(l.paths, now)
	return ErrAnew
}

// doubt says what cannot be told.
func (l *Files) doubt(now []modelfile.Stamp) error {
	var what []string
	for i, n := range now {
		switch c := n.Since(l.stamps[i]); {
		case n.File == "":
			what = append(what, n.Path+" is gone")
		case c == modelfile.Another:
			what = append(what, n.Path+" is another file")
		case c == modelfile.Unchanged && l.strayed[n.Path]:
			what = append(what, n.Path+" was another file for a while")
		case c != modelfile.Unchanged || l.altered:
			what = append(what, n.Path+" was written to")
		}
	}
	err := fmt.Errorf("%w: since the server has loaded its files, %s, and which one it has now cannot be seen: start the server again", request.PassFiles, strings.Join(what, ", "))
	if l.said != err.Error() {
		l.said = err.Error()
		l.Log.Warn("requests pass", "err", err)
	}
	l.drops++
	return err
}

// heldOf is which files the server has mapped of some paths. The caller holds l.mu.
func (l *Files) heldOf(paths []string) proc.Held {
	mapped := proc.MappedBy(l.Base)
	out := proc.Held(-1)
	for _, p := range paths {
		h := proc.HeldOf(mapped, p, l.inodes[p])
		if out >= 0 && h != out {
			return proc.Unknown
		}
		out = h
	}
	if out == proc.NewFile && !slices.Equal(stampsOf(l.paths), l.seen) { // it changes just now
		return proc.Unknown
	}
	return out
}

// maps reports whether the server has mapped what lies now at all paths where something may have changed. The caller holds l.mu.
func (l *Files) maps(now []modelfile.Stamp) bool {
	mapped := proc.MappedBy(l.Base)
	for i, n := range now {
		if n.Since(l.stamps[i]) > modelfile.Touched || l.strayed[n.Path] || l.altered {
			if inode, _ := proc.InodeAt(mapped, n.Path); inode == "" {
				return false
			}
		}
	}
	return slices.Equal(stampsOf(l.paths), now)
}

// asleep reports whether the server has given its files up, and will load them again.
func (l *Files) asleep(ctx context.Context) bool {
	p, err := l.API.Props(ctx)
	return err == nil && p.Sleeping
}

// sameBytes compares what is in the files now with what was hashed. The caller holds l.mu.
func (l *Files) sameBytes(now []modelfile.Stamp) (same bool, wait <-chan struct{}, err error) {
	if slices.ContainsFunc(now, func(n modelfile.Stamp) bool { return n.File == "" }) {
		return false, nil, nil
	}
	if l.check == nil || !slices.Equal(l.check.stamps, now) {
		c := &rehash{stamps: now, done: make(chan struct{})}
		l.check = c
		hashes, memo := l.hashes, l.Memo
		l.Work.Go(func() {
			defer close(c.done)
			c.same = true
			for path, want := range hashes {
				h, err := modelfile.WeightsHash(l.Ctx, path, memo)
				c.err = errors.Join(c.err, err)
				c.same = c.same && h == want
			}
		})
	}
	select {
	case <-l.check.done:
	default:
		return false, l.check.done, nil
	}
	c := l.check
	if c.err != nil {
		l.check = nil // it is tried again
		return false, nil, fmt.Errorf("%w: %w", request.PassFiles, c.err)
	}
	return c.same, nil, nil
}
