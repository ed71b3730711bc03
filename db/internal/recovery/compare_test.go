package recovery_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/admin"
	"github.com/dormousekv/dormouse/db/internal/testkit/crashtest"
	"github.com/dormousekv/dormouse/db/internal/testkit/storetest"
	"github.com/dormousekv/dormouse/internal/vfs/crashfs"
	"github.com/dormousekv/dormouse/kv"
)

// compare opens the store on d and compares it with the journal. weak: after a power cut in Process mode. It leaves the
// store open in w.
func (j *crashJournal) compare(w *crashRun, weak bool) error {
	if err := w.open(); err != nil {
		return fmt.Errorf("open: %w", err)
	}
	if err := storetest.DeadIsFound(w.s); err != nil {
		return err
	}
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	rep, err := admin.VerifyStore(context.Background(), w.s, admin.VerifyOptions{})
	if err != nil {
		bad("verify: %w", err)
	}
	for _, d := range crashtest.Unexpected(w.d, rep.Damage) {
		bad("verify: %w (recovered %v)", d, storetest.Engine(w.s).Checkpoints.Leftovers())
	}
	found := make([]int, len(crashChats()))
	for c, x := range crashChats() {
		n, err := x.restore(w.model(c))
		if err != nil {
			bad("chat %d: %w", c, err)
		}
		found[c] = n
		if least := j.least(c, weak); n < least && !j.k.small {
			_, reason, _ := w.model(c).Probe(context.Background(), x.p, db.MatchOptions{})
			bad("chat %d: %d tokens are found (%v), at least %d were acknowledged", c, n, reason, least)
		}
	}
	for c, at := range j.gone {
		if most := max(at, crashSystem); found[c] > most {
			bad("chat %d: %d tokens are found, all behind %d were deleted", c, found[c], most)
		}
	}
	all, groups := map[kv.Key]db.Block{}, []db.Block{}
	for b, err := range w.s.Blocks(context.Background()) {
		if err != nil {
			bad("blocks: %w", err)
		}
		groups = append(groups, b)
		if b.Group == 0 {
			all[b.Key] = b
		}
		if by, dead := j.dead[b.Key]; dead {
			bad("block %s [%d, %d) is back, which %q took", b.Key, b.First, b.First+b.Tokens, by)
		}
	}
	for _, b := range groups {
		parent, ok := all[b.Parent]
		if b.First > 0 && (!ok || parent.First+parent.Tokens != b.First && b.Group == 0) || b.Group > 0 && all[b.Key].Key != b.Key {
			bad("block %s at %d, group %d, is stored without its prefix", b.Key, b.First, b.Group)
		}
	}
	j.compareRefs(w, weak, found, bad)
	j.compareNotes(w, weak, bad)
	stats, err := w.s.Stats()
	if err != nil || stats.Blocks != int64(len(all)) && !j.k.small { // eviction goes on meanwhile
		bad("%d blocks are counted, %d found, %v", stats.Blocks, len(all), err)
	}
	if stats.DiskBytes > stats.Budget {
		bad("%d bytes are used of a budget of %d", stats.DiskBytes, stats.Budget)
	}
	if found := j.grep(w.d); len(found) > 0 {
		bad("deleted bytes are in %d places: %v", len(found), found[0])
	}
	if n := len(errs); n > 3 {
		errs = append(errs[:3:3], fmt.Errorf("and %d more", n-3))
	}
	return errors.Join(errs...)
}

func (j *crashJournal) compareRefs(w *crashRun, weak bool, found []int, bad func(string, ...any)) {
	want := j.refs
	if weak {
		want = j.refSafe
	}
	for name, r := range want {
		if f := j.flight; f != nil {
			_, takes := f.takes(r.chat, false)
			if f.name == name || takes {
				continue
			}
		}
		got, err := w.s.Ref(name)
		if err != nil || got.Tokens != r.n {
			bad("ref %s is %+v, %v, expected %d tokens of chat %d", name, got, err, r.n, r.chat)
			continue
		}
		least := r.n
		if least <= crashSystem {
			least = min(least, crashSystem/crashBlock*crashBlock) // see least
		}
		if found[r.chat] < least && !j.hollow {
			bad("pinned ref %s holds %d tokens of chat %d, expected %d", name, found[r.chat], r.chat, r.n)
		}
	}
	refs, err := db.Collect(w.s.Refs())
	if err != nil {
		bad("refs: %w", err)
		return
	}
	for _, r := range refs {
		if _, ok := want[r.Name]; !ok && !weak && (j.flight == nil || j.flight.name != r.Name) {
			bad("ref %s is back: %+v", r.Name, r)
		}
	}
}

func (j *crashJournal) compareNotes(w *crashRun, weak bool, bad func(string, ...any)) {
	found := crashNotes(w)
	want := j.notes
	if weak {
		want = j.noteSafe
	}
	underWay := func(name string) bool {
		f := j.flight
		return f != nil && (f.kind == "note" && f.note() == name || f.kind == "retire" && strings.HasPrefix(name, crashChats()[f.chat].d.Name+" "))
	}
	for name, value := range want {
		if found[name] != value && !underWay(name) {
			bad("note %s is %.6s of %d bytes, expected %.6s of %d", name, found[name], len(found[name]), value, len(value))
		}
	}
	for name, value := range found {
		if _, ok := want[name]; !ok && !weak && !underWay(name) {
			bad("note %s is back", name)
		}
		model, _, _ := strings.Cut(name, " ")
		if n, err := strconv.Atoi(value[:6]); err != nil || n < j.retired[model] {
			bad("note %s is back from before its model was retired: %.6s", name, value)
		}
	}
}

// grep finds bytes in the files of a disk that a Sync said are in none.
func (j *crashJournal) grep(d *crashfs.Disk) (found []string) {
	if len(j.wiped) == 0 {
		return nil
	}
	want := &crashtest.Chat{Find: map[[16]byte]int{}} // by the chat that they are of
	for c, at := range j.wiped {
		for b, pos := range crashChats()[c].Find {
			if pos >= at {
				want.Find[b] = c
			}
		}
	}
	files := crashtest.Files(d)
	for _, at := range crashtest.BytesOf(want, files) {
		found = append(found, fmt.Sprintf("%s at %d: of chat %d", at.File, at.From, want.Find[[16]byte(files[at.File][at.From:])]))
	}
	return found
}
