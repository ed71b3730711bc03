package script

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dormousekv/dormouse/db"
)

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
