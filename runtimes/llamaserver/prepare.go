package llamaserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/internal/modelfile"
	"github.com/dormousekv/dormouse/runtimes/internal/portrait"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/api"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/layout"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/proc"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/weights"
)

// probePrompt is computed once, to see how the server lays out its slots.
const probePrompt = "The dormouse sleeps through the winter, and remembers in spring."

// prepare learns which model the server runs and how its slot files look.
func (s *served) prepare(ctx context.Context) error {
	f := s.shared
	p, err := s.api.Props(ctx)
	if err != nil {
		return err
	}
	if p.Sleeping { // what it has is what it loads when it wakes
		if p, err = s.wake(ctx, p); err != nil {
			return err
		}
	}
	s.shared.answers.Store(true)
	s.hold.meets()
	s.calls(filepath.Base(p.ModelAlias))
	s.guard.meets(p)
	s.table.Resize(p.TotalSlots)
	if s.api.Model != "" {
		command, err := s.api.StartedWith(ctx)
		if err == nil {
			s.args, err = ParseArguments(command, f.args.env)
		}
		if err != nil {
			return fmt.Errorf("%w: %w", request.PassModel, err)
		}
	}
	if f.attached() { // where its arguments are to be seen, they count
		a, err := ParseArguments(proc.StartedAs(f.base))
		if err == nil && a.Refused != "" {
			return fmt.Errorf("%w: %s", request.PassArgs, a.Refused)
		}
		if f.o.ScopeByKey && (a == nil || !a.idle.noRAM) {
			f.log.Warn("for --scope-by-key this server should be started with --cache-ram 0: its own cache in memory gives what one API key has computed to another")
		}
	}
	switch {
	case s.args.Refused != "":
		return fmt.Errorf("%w: %s", request.PassArgs, s.args.Refused)
	case p.TotalSlots == 0:
		return fmt.Errorf("%w: the server has none", request.PassSlots)
	case f.folder.Missing() != nil:
		return fmt.Errorf("%w: %w", request.PassSlots, f.folder.Missing())
	}
	var list []api.Adapter
	if len(s.args.Adapters) > 0 || f.attached() { // it waits for a server that is at work
		if list, err = s.api.Adapters(ctx); err != nil && !api.Unsupported(err) {
			return err
		}
	}
	if f.attached() && p.ModelPath != "" && !filepath.IsAbs(p.ModelPath) {
		return fmt.Errorf("%w: the server names its model %s, in a folder that is not known here: start it with the whole path", request.PassModel, p.ModelPath)
	}
	id, err := s.identity(ctx, p, list)
	if err != nil {
		return err
	}
	store, err := f.shelf.opened(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", request.PassStore, err)
	}
	if !stores(store, id) {
		s.hold.shortens()
	}
	// How slot files look is remembered by what the server was started with: then nothing needs to be computed to see it.
	note := formatNote(s.args, p)
	m, lay, err := recall(store, id, note)
	if err != nil {
		s.shared.log.Warn("reading how slot files look", "err", err)
	}
	known := false
	if m != nil {
		_, err := m.Note(rowsNote)
		known = err == nil
	}
	// What somebody else has started is looked at each time. A server that sleeps is not woken to see whether it reaches the slot folder.
	if !known || f.attached() || !p.Sleeping && !s.reaches(ctx) {
		if m, lay, err = s.learn(ctx, store, id, note); err != nil {
			return err
		}
	}
	if b, err := m.Note(layout.StrictNote(note)); err == nil && len(b) > 0 {
		lay.Strict.Store(true)
	}
	if err := s.files.Sound(ctx); err != nil { // what was seen of rows may be of other files
		if errors.Is(err, request.PassFiles) {
			return err
		}
		return weights.ErrChanging
	}
	k := s.keep(store, m, lay, id, list, p.Defaults.Context, note)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept, s.name = k, m.Descriptor().Name
	return nil
}

// wake has a server that sleeps load its files again.
func (s *served) wake(ctx context.Context, p api.Props) (api.Props, error) {
	if paths, err := weights.FilesOf(p.ModelPath, nil); err == nil && !s.files.Have(paths) {
		s.files.Of(paths)
	}
	if _, err := s.api.Slots(ctx); err != nil {
		return p, err
	}
	return s.api.Props(ctx)
}

// identity reads which model the server runs, and makes sure that the files which are read are those that the server has.
func (s *served) identity(ctx context.Context, p api.Props, list []api.Adapter) (*layout.Identity, error) {
	if p.ModelPath == "" {
		return nil, fmt.Errorf("%w: the server does not name the file of its model", request.PassModel)
	}
	paths, err := weights.FilesOf(p.ModelPath, list)
	if err != nil {
		return nil, fmt.Errorf("%w: the file of the server's model cannot be read here: %w", request.PassModel, err)
	}
	s.files.Of(paths)
	s.files.ListensAt(s.guard.at())
	if err := s.files.Sound(ctx); err != nil && !errors.Is(err, weights.ErrAnew) {
		if errors.Is(err, request.PassHashing) {
			return nil, weights.ErrChanging // it goes on
		}
		return nil, err
	}
	rows := strings.TrimSpace(s.args.Rows + " " + s.shared.o.Variant)
	of := fmt.Sprintf("%q %q %d %q", p.Build, rows, p.Defaults.Context, paths)
	for _, a := range list {
		of += fmt.Sprintf(" %d %q", a.ID, a.Invocation)
	}
	if id := s.files.Known(of); id != nil {
		return id, nil
	}
	s.hold.expectHashing(p.ModelPath, list, s.shared.o.Memo)
	id, err := layout.Identify(ctx, p, rows, list, s.shared.o.Memo, s.shared.opener.Open)
	if err != nil {
		if errors.Is(err, modelfile.ErrChanged) {
			return nil, err
		}
		return nil, fmt.Errorf("%w: %w", request.PassModel, err)
	}
	return id, s.files.Hashed(p.ModelPath, id, of)
}

// learn finds out how slot files look, and remembers it.
func (s *served) learn(ctx context.Context, store *db.Store, id *layout.Identity, note string) (*db.Model, *layout.Layout, error) {
	turn, err := s.table.Take(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer turn.Give()
	lay, desc, rows, err := s.probe(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	m, err := s.part(ctx, store, desc, rows)
	if err != nil {
		return nil, nil, err
	}
	value, err := json.Marshal(lay.Format)
	if err == nil {
		err = m.SetNote(ctx, note, value)
	}
	if err != nil {
		s.shared.log.Warn("remembering how slot files look", "err", err)
	}
	return m, lay, nil
}

// probe computes a few tokens in a slot without adapters, saves it, and reads how it is laid out and what its rows look like.
func (s *served) probe(ctx context.Context, id *layout.Identity) (*layout.Layout, kv.Descriptor, portrait.Portrait, error) {
	fail := func(err error) (*layout.Layout, kv.Descriptor, portrait.Portrait, error) {
		return nil, kv.Descriptor{}, portrait.Portrait{}, err
	}
	tokens, err := s.api.Tokenize(ctx, probePrompt, true)
	if err != nil {
		return fail(err)
	}
	sl, err := s.table.Lease(ctx, kv.Prompt{Tokens: tokens})
	if err != nil {
		return fail(err)
	}
	defer s.table.Release(sl)
	s.table.Forget(sl)
	if err := s.api.Compute(ctx, sl.ID, tokens, id.Adapters); err != nil {
		return fail(err)
	}
	f, done, err := s.reach.save(ctx, sl.ID)
	if err != nil {
		return fail(fmt.Errorf("%w: %w", request.PassSlots, err))
	}
	defer f.Close()
	if done.Saved == 0 {
		return fail(errors.New("a request has cleared the slot meanwhile"))
	}
	format, err := layout.Learn(f.Bytes())
	if err != nil {
		return fail(fmt.Errorf("%w: %w", request.PassSlots, err))
	}
	desc, lay, err := id.Describe(format)
	if err != nil {
		return fail(fmt.Errorf("%w: %w", request.PassModel, err))
	}
	file, err := format.Parse(f.Bytes())
	if err != nil {
		return fail(fmt.Errorf("%w: %w", request.PassSlots, err))
	}
	if !slices.Equal(file.Tokens, tokens) { // its rows would be taken for those of the probe
		return fail(errors.New("another request has been in the slot meanwhile"))
	}
	if err := s.api.Erase(ctx, sl.ID); err != nil && !api.Unsupported(err) {
		s.shared.log.Debug("erasing the slot of the probe", "err", err)
	}
	return lay, desc, lay.Portrait(file), nil
}

// reaches tries whether the server reaches the folder of slot files.
func (s *served) reaches(ctx context.Context) bool {
	turn, err := s.table.Take(ctx)
	if err != nil {
		return true
	}
	defer turn.Give()
	return s.reach.works(ctx)
}
