package script

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/kv"
)

// id is a prompt's name together with its model's.
func (r *scriptRun) id(name string) string { return r.model + " " + name }

// length is how long a prompt is: what is said, or 64 tokens of each letter.
func length(name string, said ...string) int {
	if n, ok := number(said...); ok {
		return n
	}
	return 64 * (1 + strings.Count(name, "/"))
}

// put stores a prompt. What was stored of it, or may have been, is what "all" means.
func (r *scriptRun) put(a []string) error {
	name := a[1]
	n := length(name, a[2])
	x := crashtest.Named(r.model, name, max(n, r.put0[r.id(name)]))
	rows := x.Rows(0, n)
	if a[3] != "" {
		for i, tensor := range x.Model.Tensors {
			if x.Model.Groups[tensor.Group].Kind != kv.All {
				rows[i] = kv.TensorRows{}
			}
		}
	}
	return r.logged(name, n, func() error {
		res, err := r.m.Put(ctx, x.Prompt.Prefix(n), rows, db.PutOptions{})
		return stored(n, res, err)
	})
}

func (r *scriptRun) extend(a []string) error {
	name := a[1]
	n := length(name, a[3])
	x := crashtest.Named(r.model, name, max(n, r.put0[r.id(name)]))
	match, err := r.m.Match(ctx, x.Prompt.Prefix(n), db.MatchOptions{})
	if err != nil {
		return err
	}
	defer match.Close()
	from := match.Tokens()
	for _, g := range x.Model.Groups { // of a window the runtime gives what it has: all that a restore gives it
		from = max(0, from-g.Window)
	}
	return r.logged(name, n, func() error {
		res, err := match.Extend(ctx, x.Prompt.Prefix(n), x.Rows(from, n), db.PutOptions{})
		return stored(n, res, err)
	})
}

func stored(n int, res db.PutResult, err error) error {
	if err == nil && res.Tokens != n {
		err = fmt.Errorf("%d of %d tokens were stored", res.Tokens, n)
	}
	return err
}

// logged does a put, and remembers its frame and what it stored.
func (r *scriptRun) logged(name string, n int, put func() error) error {
	before := crashtest.FilesIn(r.d, logFolder)
	r.tried[r.id(name)] = max(n, r.tried[r.id(name)])
	err := put()
	if !r.d.Crashed() {
		r.put0[r.id(name)] = max(n, r.put0[r.id(name)])
	}
	if f, ok := newFrame(before, crashtest.FilesIn(r.d, logFolder)); ok {
		r.frames[r.id(name)] = f
	}
	return err
}

func (r *scriptRun) delete(a []string) error {
	from, _ := number(a[2])
	_, err := r.m.Delete(ctx, r.chat(a[1]).Prompt.Prefix(from+1))
	return err
}

func (r *scriptRun) deleteScope(a []string) error {
	x := r.talks[a[1]]
	if x != nil {
		x.may = append(x.may, nil)
	}
	_, err := r.s.DeleteScope(ctx, a[1])
	if err == nil && x != nil && !r.d.Crashed() {
		x.acknowledged(nil, 0)
		x.open = nil
	}
	return err
}

func (r *scriptRun) upkeep(a []string) error {
	switch a[1] {
	case "sync":
		return r.s.Sync(ctx)
	case "checkpoint":
		return r.s.Checkpoint(ctx)
	case "compact":
		r.before = maps.Collect(func(yield func(string, bool) bool) {
			for name := range crashtest.Files(r.d) {
				yield(name, true)
			}
		})
		_, err := r.s.Compact(ctx, db.CompactOptions{All: true})
		return err
	case "retire":
		return r.s.Retire(ctx, r.m.Fingerprint())
	case "suspend":
		return r.s.Suspend(ctx)
	case "resume":
		return r.s.Resume(ctx)
	case "evict all":
		_, err := r.s.Shrink(ctx, 1)
		return err
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

func (r *scriptRun) hold(a []string) error {
	id, open := r.id(a[2]), r.held[r.id(a[2])]
	if (a[1] == "hold") != (open == nil) {
		return malformed("it is held: %t", open != nil)
	}
	if open != nil {
		delete(r.held, id)
		defer open.Close()
		_, err := restored(r.chat(a[2]), open)
		return err
	}
	match, err := r.m.Match(ctx, r.chat(a[2]).Prompt, db.MatchOptions{})
	if err == nil {
		r.held[id] = match
	}
	return err
}

func (r *scriptRun) ref(a []string) error {
	p := r.chat(a[2]).Prompt
	return r.m.SetRef(ctx, a[1], p.Prefix(length(a[2], a[3])), db.RefOptions{Pinned: a[4] != "", Meta: refMeta(a[1])})
}

// refMeta is what nothing but that ref says.
func refMeta(name string) []byte { return []byte("what only the ref <" + name + "> says") }

func (r *scriptRun) expectRefBytes(a []string) error { return r.expectIn(refMeta(a[1]), a[2]) }

// expectIn says that some file has b, or none.
func (r *scriptRun) expectIn(b []byte, want string) error {
	for name, all := range crashtest.Files(r.d) {
		if bytes.Contains(all, b) {
			if want == "none" {
				return fmt.Errorf("%s still has it", name)
			}
			return nil
		}
	}
	if want == "some" {
		return errors.New("no file has it")
	}
	return nil
}

func (r *scriptRun) unref(a []string) error { return r.s.DeleteRef(ctx, a[1]) }

func (r *scriptRun) note(a []string) error { return r.m.SetNote(ctx, a[1], []byte(a[2])) }

func (r *scriptRun) expectNamed(a []string) error {
	var got string
	var err error
	if a[1] == "ref" {
		var ref db.Ref
		ref, err = r.s.Ref(a[2])
		got = fmt.Sprint(ref.Tokens)
	} else {
		var note []byte
		note, err = r.m.Note(a[2])
		got = string(note)
	}
	switch {
	case errors.Is(err, db.ErrNotFound) && a[3] == "none":
		return nil
	case err == nil && got != a[3]:
		return fmt.Errorf("it says %q", got)
	}
	return err
}

func (r *scriptRun) chat(name string) *crashtest.Chat {
	return crashtest.Named(r.model, name, max(r.put0[r.id(name)], length(name)))
}

// all is chat with what was not acknowledged, too.
func (r *scriptRun) all(name string) *crashtest.Chat {
	return crashtest.Named(r.model, name, max(r.tried[r.id(name)], length(name)))
}

func (r *scriptRun) expect(a []string) error {
	name := a[1]
	want, said := number(a[2])
	if !said && a[2] == "all" {
		if want = r.put0[r.id(name)]; want == 0 {
			return malformed("it was never put")
		}
	}
	x := r.chat(name)
	match, err := r.m.Match(ctx, x.Prompt, db.MatchOptions{})
	if err != nil {
		return err
	}
	defer match.Close()
	got, err := restored(x, match)
	if err == nil && got != want && !(a[len(a)-1] == " or more" && got > want) {
		_, why, _ := r.m.Probe(ctx, x.Prompt, db.MatchOptions{})
		err = fmt.Errorf("%d tokens were restored (%v), expected %d", got, why, want)
	}
	return err
}

// restored restores all of a match, and compares every row.
func restored(x *crashtest.Chat, match *db.Match) (int, error) {
	rows := x.Room()
	got, err := match.Restore(ctx, rows)
	if err == nil {
		err = x.Check(rows, got.Tokens)
	}
	return got.Tokens, err
}

func (r *scriptRun) expectBytes(a []string) error {
	x, files := r.all(a[1]), crashtest.Files(r.d)
	at := crashtest.BytesOf(x, files)
	if len(at) > 0 && a[2] == "none" {
		return fmt.Errorf("%d pieces are left, the first in %s at %d", len(at), at[0].File, at[0].From)
	}
	var prompt []byte
	for _, tok := range x.Prompt.Tokens {
		prompt = binary.LittleEndian.AppendUint32(prompt, uint32(tok))
	}
	var tokens, rows bool
	for _, s := range at {
		isTokens := bytes.Contains(prompt, files[s.File][s.From:s.To])
		tokens, rows = tokens || isTokens, rows || !isTokens
	}
	if a[2] == "some" && !(tokens && rows) {
		return fmt.Errorf("tokens found: %t, rows found: %t", tokens, rows)
	}
	return nil
}

// harm turns a bit in the middle of a frame, or in the rows or the head of a prompt's record, the first one if none is said; or clears that one's
// first page.
func (r *scriptRun) harm(a []string) error {
	files := crashtest.Files(r.d)
	var at crashtest.Span
	if a[2] == "frame" {
		s, err := r.frame(a[3])
		if err != nil {
			return err
		}
		at = s
	} else {
		spans := crashtest.RecordsOf(r.all(a[3]), files)
		if from, said := number(a[4:]...); said {
			spans = slices.DeleteFunc(spans, func(s crashtest.Span) bool { return crashtest.FirstOf(files, s) != uint32(from) })
		}
		if len(spans) == 0 {
			return malformed("it has no such record")
		}
		slices.SortFunc(spans, func(a, b crashtest.Span) int {
			return cmp.Or(cmp.Compare(crashtest.FirstOf(files, a), crashtest.FirstOf(files, b)), strings.Compare(b.File, a.File), cmp.Compare(b.From, a.From))
		})
		at = spans[0] // of several the newest
	}
	off := (at.From + at.To) / 2
	switch a[2] {
	case "record":
		off = at.From + 1024 // in its rows
	case "head":
		off = at.From + 20
	}
	if a[1] == "zero" {
		return r.write(at.File, at.From, make([]byte, 4096))
	}
	return r.write(at.File, off, []byte{files[at.File][off] ^ 4})
}
