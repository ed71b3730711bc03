package llamaserver

import (
	"context"
	"fmt"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/internal/vfs"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/llamacpp/state"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/slots"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/trial"
)

// restore writes a slot file of a match and has the server read it. It returns the tokens that the slot holds, and the file's size.
func (s *restorer) restore(ctx context.Context, match *db.Match, sl *slots.Slot, prompt kv.Prompt) (int, int64, error) {
	for {
		n := match.Tokens()
		if n < trial.FewTokens {
			return 0, 0, nil
		}
		got, size, err := s.restoreTokens(ctx, match, sl, prompt, n)
		if err == nil && got < n { // damage
			continue
		}
		return got, size, err
	}
}

func (s *restorer) restoreTokens(ctx context.Context, match *db.Match, sl *slots.Slot, prompt kv.Prompt, n int) (_ int, _ int64, err error) {
	plan := s.lay.File(prompt.Tokens[:n], sl.ID)
	size := s.lay.Format.Size(plan)
	f, err := s.folder.Create(int64(size))
	if err != nil {
		return 0, 0, err
	}
	defer func() {
		if err != nil { // the server may read it later
			f.Close()
		} else {
			s.folder.Done(f)
		}
	}()
	full := func(err error) error { // where slot files lie on a disk
		return fmt.Errorf("slot file %s cannot be written, its disk may be full: %w", f.Path, err)
	}
	var file *state.File
	if err := vfs.Guard(func() error { file, _ = s.lay.Format.Build(f.Bytes(), plan); return nil }); err != nil {
		return 0, 0, full(err)
	}
	got, err := match.Restore(ctx, s.lay.RowsOf(file, n))
	if err != nil || got.Tokens < n {
		return got.Tokens, 0, err
	}
	if err := s.lay.CheckState(file.Recurrent, n); err != nil {
		return 0, 0, err
	}
	if err := vfs.Guard(func() error { s.lay.CopyWindows(file); return nil }); err != nil {
		return 0, 0, full(err)
	}
	done, err := s.api.Act(ctx, "restore", sl.ID, f.Name)
	if err != nil && s.makeRoom(ctx, sl) { // other slots had the cells
		done, err = s.api.Act(ctx, "restore", sl.ID, f.Name)
	}
	if err != nil {
		return 0, 0, err
	}
	if done.Restored != n {
		return 0, 0, fmt.Errorf("the server restored %d tokens of %d", done.Restored, n)
	}
	return n, int64(size), nil
}

// makeRoom empties the idle slots: what they held is stored. It reports whether there were any.
func (s *restorer) makeRoom(ctx context.Context, sl *slots.Slot) (any bool) {
	for _, other := range s.table.ForgetToMakeRoom(sl) {
		if err := s.api.Erase(ctx, other.ID); err == nil {
			any = true
		}
	}
	return any
}
