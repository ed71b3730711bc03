package llamaserver

import (
	"context"
	"errors"
	"fmt"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/kv"
	"github.com/dormousekv/dormouse/runtimes/internal/portrait"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/request"
)

// rowsNote is the note in which a model remembers what its rows look like.
const rowsNote = "llama-server rows of the probe"

// A server that computes other rows than those that are stored under its identity gets a part of the store for itself when it was looked at so
// often, and is that server still. There are so many parts at most.
const (
	sureLooks = 3
	maxParts  = 8
)

// part is the part of the store in which the rows of the server are: that of its identity, or, if the first server with this identity was another one, a
// further part.
func (s *served) part(ctx context.Context, store *db.Store, desc kv.Descriptor, now portrait.Portrait) (*db.Model, error) {
	format, first := desc.StateFormat, error(nil)
	for n := 1; n <= maxParts; n++ {
		if n > 1 {
			desc.StateFormat = fmt.Sprintf("%s, rows of kind %d", format, n)
			if !has(store, desc) && s.shared.refusals.Times(refusedModel{s.api.Model, request.PassRows})+1 < sureLooks {
				break
			}
		}
		registered, err := store.Register(ctx, desc)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", request.PassStore, err)
		}
		if err = s.sameRows(ctx, registered.Model, now); err == nil {
			if n > 1 {
				s.shared.log.Warn("the server computes other rows than the first one that was known as it: they are kept apart", "model", registered.Model.Fingerprint(), "because", first)
			}
			return registered.Model, nil
		}
		if !errors.Is(err, request.PassRows) {
			return nil, err
		}
		if first == nil {
			first = err
		}
	}
	return nil, first
}

// has reports whether a store knows a model.
func has(store *db.Store, desc kv.Descriptor) bool {
	desc, err := desc.Normal()
	if err != nil {
		return false
	}
	_, err = store.Model(desc.Fingerprint())
	return err == nil
}

// sameRows compares the rows that the server has computed for the probe with those of the server whose rows are stored: of a server that
// somebody else started, nobody can see with which arguments. The first one is remembered.
func (s *served) sameRows(ctx context.Context, m *db.Model, now portrait.Portrait) error {
	b, err := m.Note(rowsNote)
	if err != nil && !errors.Is(err, db.ErrNotFound) {
		return fmt.Errorf("%w: %w", request.PassStore, err)
	}
	was, ok := portrait.Decode(b)
	if !ok {
		err := m.SetNote(ctx, rowsNote, now.Append(nil))
		switch {
		case err != nil && s.shared.attached():
			return fmt.Errorf("%w: remembering what rows look like: %w", request.PassStore, err)
		case err != nil: // of this server the arguments are known
			s.shared.log.Warn("remembering what rows look like", "err", err)
		}
		return nil
	}
	d := was.Against(now, portrait.Noise{})
	if d.Times <= 1 {
		return nil
	}
	return fmt.Errorf("%w: %s is %.0f %% off what is stored under this identity: %s. Name these arguments with --variant, or drop what is stored: dormouse purge --model %s",
		request.PassRows, d.Plane, 100*d.Worst, d.Looks, m.Fingerprint())
}
