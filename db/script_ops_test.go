package db

import (
	"errors"
	"fmt"
	"strings"
)

func (r *scriptRun) put(a []string) error {
	name := a[1]
	n, said := number(a[3], a[4])
	if !said {
		n = 64 * (1 + strings.Count(name, "/"))
	}
	before := r.files()
	x := scriptChat(name, max(n, r.put0[name]))
	put := func() error {
		res, err := r.m.Put(ctx, x.p.Prefix(n), x.rows(0, n), PutOptions{})
		if err == nil && res.Tokens != n {
			err = fmt.Errorf("%d of %d tokens were stored", res.Tokens, n)
		}
		return err
	}
	var err error
	if a[5] != "" {
		err = r.dying(dieUnnamed, put)
	} else {
		err = put()
	}
	if err == nil || a[5] == "" {
		r.put0[name] = max(n, r.put0[name])
	}
	if f, ok := newFrame(before, r.files()); ok {
		r.frames[name] = f
	}
	return err
}

func (r *scriptRun) delete(a []string) error {
	from, _ := number(a[3])
	del := func() error { _, err := r.m.Delete(ctx, r.chat(a[1]).p.Prefix(from+1)); return err }
	if a[4] != "" {
		return r.dying(dieDestroying, del)
	}
	return del()
}

func (r *scriptRun) upkeep(a []string) error {
	if strings.HasPrefix(a[1], "compact") {
		r.before = map[string]bool{}
		for name := range r.files() {
			r.before[name] = true
		}
	}
	compact := func() error { _, err := r.s.Compact(ctx, CompactOptions{All: true}); return err }
	switch a[1] {
	case "sync":
		return r.s.Sync(ctx)
	case "checkpoint":
		return r.s.Checkpoint(ctx)
	case "checkpoint die-rotated":
		return r.dying(dieRotated, func() error { return r.s.Checkpoint(ctx) })
	case "compact":
		return compact()
	case "compact die-moved":
		return r.dying(dieMoved, compact)
	}
	return r.evict()
}

// evict asks for less than the store occupies until a block goes: what the background gives back meanwhile is none.
func (r *scriptRun) evict() error {
	before, err := r.s.Stats()
	for range 8 {
		var used int64
		if err == nil {
			used, err = r.s.Shrink(ctx, 1<<60) // what it is now
		}
		if err == nil {
			_, err = r.s.Shrink(ctx, used-1)
		}
		now, serr := r.s.Stats()
		if err = errors.Join(err, serr); err != nil || now.Blocks < before.Blocks {
			return err
		}
	}
	return fmt.Errorf("none of %d blocks was evicted", before.Blocks)
}

func (r *scriptRun) room(a []string) error {
	if r.d.SetBytes(0); a[1] == "fill" {
		r.d.SetBytes(r.d.Used())
	}
	return nil
}

func (r *scriptRun) hold(a []string) error {
	name, open := a[2], r.held[a[2]]
	if (a[1] == "hold") != (open == nil) {
		return malformed("it is held: %t", open != nil)
	}
	if open != nil {
		delete(r.held, name)
		defer open.Close()
		_, err := r.chat(name).check(open)
		return err
	}
	match, err := r.m.Match(ctx, r.chat(name).p, MatchOptions{})
	if err == nil {
		r.held[name] = match
	}
	return err
}
