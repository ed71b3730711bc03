package script

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dormousekv/dormouse/db"
)

const talkKind = 7

func (r *scriptRun) talk(scope string) *talk {
	if r.talks[scope] == nil {
		r.talks[scope] = &talk{}
	}
	return r.talks[scope]
}

// session is a scope's session, which is opened if it is not.
func (r *scriptRun) session(scope string) (*talk, error) {
	x := r.talk(scope)
	if x.open != nil && x.of == r.s {
		return x, nil
	}
	if x.is == nil {
		x.may = append(x.may, []string{})
	}
	s, err := r.s.OpenSession(ctx, scope)
	if err != nil {
		return x, err
	}
	x.open, x.of = s, r.s
	if x.is == nil {
		x.acknowledged([]string{}, 0)
	}
	return x, nil
}

func (x *talk) acknowledged(is []string, sure int) { x.is, x.may, x.sure = is, nil, sure }

// say appends a frame.
func (r *scriptRun) say(a []string) error {
	x, err := r.session(a[1])
	if err != nil {
		return err
	}
	next := append(slices.Clone(x.is), a[2])
	x.may = append(x.may, next)
	if err := x.open.Append(ctx, talkKind, spoken(a[1], a[2])); err != nil {
		return err
	}
	sure := x.sure
	if r.o.mode == db.Power {
		sure = len(next)
	}
	x.acknowledged(next, sure)
	return nil
}

// retell puts one frame in the place of all.
func (r *scriptRun) retell(a []string) error {
	x, err := r.session(a[1])
	if err != nil {
		return err
	}
	x.may = append(x.may, []string{a[2]})
	if err := x.open.Replace(ctx, []db.SessionFrame{{Kind: talkKind, Body: spoken(a[1], a[2])}}); err != nil {
		return err
	}
	x.acknowledged([]string{a[2]}, 1)
	return nil
}

// leave closes a session.
func (r *scriptRun) leave(a []string) error {
	x := r.talk(a[1])
	if x.open == nil || x.of != r.s {
		return malformed("it is not open")
	}
	err := x.open.Close()
	x.open = nil
	if err == nil {
		x.sure = len(x.is)
	}
	return err
}

// spoken is long enough to lie in several sectors, and is in no other session.
func spoken(scope, text string) []byte {
	return bytes.Repeat([]byte(fmt.Sprintf("in %s was said %s. ", scope, text)), 40)
}

// tellAll notes what a sync, or an end, of the store makes durable.
func (r *scriptRun) tellAll() {
	for _, x := range r.talks {
		if x.open != nil {
			x.sure = len(x.is)
		}
	}
}

// expectSession reads a session: what was acknowledged is there, or what was under way when the process ended. After a power cut what was
// not synced may be missing.
func (r *scriptRun) expectSession(a []string) error {
	x := r.talk(a[1])
	got, err := r.told(a[1])
	if err != nil {
		return err
	}
	for _, want := range append(x.may, x.is) {
		if got == nil && want == nil || got != nil && want != nil && slices.Equal(got, want) {
			return r.settle(x, got)
		}
		if cut := r.wasCut && got != nil && len(got) >= x.sure && len(got) <= len(want); cut && slices.Equal(got, want[:len(got)]) {
			return r.settle(x, got)
		}
	}
	return fmt.Errorf("it has %q, expected %q, of which %d are durable, or one of %q", got, x.is, x.sure, x.may)
}

func (r *scriptRun) settle(x *talk, got []string) error {
	x.is, x.may = got, nil
	x.sure = min(x.sure, len(got))
	return nil
}

// told are the frames of a session's file; nil if there is none.
func (r *scriptRun) told(scope string) ([]string, error) {
	id, err := r.s.ScopeID(scope)
	if err != nil {
		return nil, err
	}
	got := []string{}
	for f, err := range r.s.ReadSession(ctx, id) {
		if errors.Is(err, db.ErrNotFound) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		_, text, _ := strings.Cut(string(f.Body), " was said ")
		text, _, _ = strings.Cut(text, ".")
		if f.Kind != talkKind || !bytes.Equal(f.Body, spoken(scope, text)) {
			return nil, fmt.Errorf("a frame of kind %d has %.40q", f.Kind, f.Body)
		}
		got = append(got, text)
	}
	return got, nil
}

// expectSessionAfter reads a session, which a deletion of its scope takes after the rows.
func (r *scriptRun) expectSessionAfter(a []string) error {
	if got, err := r.told(a[1]); err != nil || got != nil {
		return err
	}
	return r.expect([]string{"", a[2], "none", ""})
}

// expectSessionBytes looks for what was ever said in a session.
func (r *scriptRun) expectSessionBytes(a []string) error {
	return r.expectIn([]byte("in "+a[1]+" was said"), a[2])
}
