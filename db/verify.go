package db

import (
	"context"
	"errors"
	"log/slog"

	"github.com/dormousekv/dormouse/db/internal/check"
	"github.com/dormousekv/dormouse/db/internal/engine"
)

// Report is what Verify found.
type Report struct {
	Damage  []*CorruptError // bytes that are not what was written, in files that are still needed
	Notes   []string        // what is odd and costs nothing: a torn end after a crash, a missing Bloom filter, a strange file
	Files   int
	Bytes   int64 // that were checked
	Records int   // live ones, every byte of each compared with its checksum
}

// VerifyOptions say how Verify goes about it.
type VerifyOptions struct {
	Progress       func(Progress)
	AllowSharedDir bool
}

// Verify reads every byte of every file of a closed store and compares: checksums, the index with the segments, the
// Bloom filter with the index, every block with its prefix. It changes nothing. The error says that it could not be
// done (ErrLocked, no store there, a cancelled context), or names the files that could not be read, and then the report is of
// the others; damage is no error but in the report.
func Verify(ctx context.Context, dir string, o VerifyOptions) (Report, error) {
	return verifyAlone(ctx, dir, Options{ReadOnly: true, AllowSharedDir: o.AllowSharedDir, Logger: slog.New(slog.DiscardHandler)}, o)
}

// verifyAlone opens the store as a reader that keeps writers out.
func verifyAlone(ctx context.Context, dir string, as Options, o VerifyOptions) (Report, error) {
	as.alone = true
	opened, err := Open(ctx, dir, as)
	var bad *CorruptError
	switch {
	case errors.As(err, &bad) && !errors.Is(err, ErrVersion):
		return Report{Damage: []*CorruptError{bad}}, nil
	case err != nil:
		return Report{}, err
	}
	defer opened.Close()
	return opened.verifyNow(ctx, o)
}

// Verify is the function Verify for an open store; other work goes on meanwhile. Of a store that is open read-only it looks at what the
// files hold now, and returns ErrLocked while another process writes.
func (s *Store) Verify(ctx context.Context, o VerifyOptions) (Report, error) {
	if !s.o.ReadOnly || s.o.alone {
		return s.verifyNow(ctx, o)
	}
	if _, err := s.enter(); err != nil {
		return Report{}, err
	}
	defer s.leave()
	return verifyAlone(ctx, s.dir, s.o, o)
}

func (s *Store) verifyNow(ctx context.Context, o VerifyOptions) (out Report, err error) {
	err = s.using(func(e *engine.Engine) error {
		found, err := check.Run(ctx, e, progress(o.Progress))
		out = Report(found)
		return err
	})
	return out, err
}
