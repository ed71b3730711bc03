package admin

import (
	"context"
	"errors"
	"log/slog"

	"github.com/dormousekv/dormouse/db"
	"github.com/dormousekv/dormouse/db/internal/check"
)

// Report is what Verify found:
//
//	type Report struct {
//		Damage  []*db.CorruptError // bytes that are not what was written, in files that are still needed
//		Notes   []string           // what is odd and costs nothing: a torn end after a crash, a missing Bloom filter, a strange file
//		Files   int
//		Bytes   int64 // that were checked
//		Records int   // live ones, every byte of each compared with its checksum
//	}
type Report = check.Report

// VerifyOptions say how Verify goes about it.
type VerifyOptions struct {
	Progress       func(db.Progress)
	AllowSharedDir bool
}

// Verify reads every byte of every file of a closed store and compares: checksums, the index with the segments, the
// Bloom filter with the index, every block with its prefix. It changes nothing. The error says that it could not be
// done (ErrLocked, no store there, a cancelled context), or names the files that could not be read, and then the report is of
// the others; damage is no error but in the report.
func Verify(ctx context.Context, dir string, o VerifyOptions) (Report, error) {
	return verifyAlone(ctx, dir, db.Options{AllowSharedDir: o.AllowSharedDir, Logger: slog.New(slog.DiscardHandler)}, o)
}

// verifyAlone opens the store as a reader that keeps writers out.
func verifyAlone(ctx context.Context, dir string, as db.Options, o VerifyOptions) (Report, error) {
	as.ReadOnly, as.Inside.KeepOut = true, true
	s, err := db.Open(ctx, dir, as)
	var bad *db.CorruptError
	switch {
	case errors.As(err, &bad) && !errors.Is(err, db.ErrVersion):
		return Report{Damage: []*db.CorruptError{bad}}, nil
	case err != nil:
		return Report{}, err
	}
	defer s.Close()
	e, leave, err := s.Enter(ctx)
	if err != nil {
		return Report{}, err
	}
	defer leave()
	return check.Run(ctx, e, o.Progress)
}

// VerifyStore is Verify for an open store; other work goes on meanwhile. Of a store that is open read-only it looks at what the files hold
// now, and returns ErrLocked while another process writes.
func VerifyStore(ctx context.Context, s *db.Store, o VerifyOptions) (Report, error) {
	e, leave, err := s.Enter(ctx)
	if err != nil {
		return Report{}, err
	}
	defer leave()
	if !e.Ledger.ReadOnly() {
		return check.Run(ctx, e, o.Progress)
	}
	as := s.Options()
	as.AllowSharedDir = as.AllowSharedDir || o.AllowSharedDir
	return verifyAlone(ctx, s.Dir(), as, o)
}
