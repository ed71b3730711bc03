package damage_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"testing"

	"github.com/dormousekv/dormouse/internal/damage"
)

// Damage is found, with its place, through whatever wraps it, and answers for its cause too.
func TestIsAndAs(t *testing.T) {
	cause := &fs.PathError{Op: "read", Path: "7.seg", Err: io.ErrUnexpectedEOF}
	for name, err := range map[string]*damage.Error{
		"found":   damage.New("7.seg", 4096, "record magic", uint32(1), uint32(2)),
		"wrapped": damage.Wrap("7.seg", 4096, "record header", cause),
	} {
		t.Run(name, func(t *testing.T) {
			far := fmt.Errorf("open store: %w", errors.Join(errors.New("other"), fmt.Errorf("replay: %w", err)))
			if !errors.Is(far, damage.ErrCorrupt) {
				t.Error("is not ErrCorrupt")
			}
			var e *damage.Error
			if !errors.As(far, &e) || e != err || e.File != "7.seg" || e.Offset != 4096 {
				t.Errorf("As finds %+v", e)
			}
			if errors.Is(far, io.EOF) || errors.Is(io.ErrUnexpectedEOF, damage.ErrCorrupt) {
				t.Error("is what it is not")
			}
		})
	}
	err := error(damage.Wrap("7.seg", 0, "header", cause))
	var path *fs.PathError
	if !errors.Is(err, io.ErrUnexpectedEOF) || !errors.As(err, &path) || path != cause {
		t.Error("the cause is lost")
	}
	if errors.Unwrap(damage.New("f", 0, "w", 1, 2)) != nil {
		t.Error("damage that was found has a cause")
	}
}

// The message names the place, and what was expected and found as far as that is known.
func TestMessage(t *testing.T) {
	for _, c := range []struct {
		err  *damage.Error
		want string
	}{
		{damage.New("1.wal", 24, "frame length", 5, "9"), "1.wal: corrupt frame length at offset 24: expected 5, found 9"},
		{damage.New("", 0, "plane checksum", 1, 2), "corrupt plane checksum at offset 0: expected 1, found 2"},
		{damage.Wrap("1.wal", 8, "head", io.ErrUnexpectedEOF), "1.wal: corrupt head at offset 8: unexpected EOF"},
		{&damage.Error{File: "f", Offset: 1 << 40, What: "page"}, "f: corrupt page at offset 1099511627776"},
		{&damage.Error{File: "f", What: "page", Found: "zeros"}, "f: corrupt page at offset 0: found zeros"},
		{&damage.Error{File: "f", What: "page", Expected: "a", Found: "b", Err: io.EOF}, "f: corrupt page at offset 0: expected a, found b: EOF"},
		{&damage.Error{File: "f", What: "page", Expected: "a"}, "f: corrupt page at offset 0: expected a"},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("message %q, want %q", got, c.want)
		}
	}
}
