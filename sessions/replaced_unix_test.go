//go:build unix

package sessions

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"github.com/dormousekv/dormouse/internal/vfs"
)

// Where somebody removes the folder of an open store and makes another store there, nothing comes to the other's session of the same scope.
func TestAnotherStoresSessionIsNotWrittenTo(t *testing.T) {
	scope := [16]byte{1}
	open := func(dir string, uuid byte) (Options, *File) {
		o := Options{Dir: dir, UUID: [16]byte{uuid}, Grew: func(int64) {}, Poisoned: func(error) {}}
		f, err := Create(o, scope, 1, Frame{Kind: 1, Body: []byte("a")})
		if err != nil {
			t.Fatal(err)
		}
		return o, f
	}
	ours, f := open(t.TempDir(), 1)
	theirs, other := open(t.TempDir(), 2)
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	vfs.WithHandle(func() error { return syscall.EMFILE }) // somebody needs the handles that rest
	if err := os.Rename(theirs.Path(scope), ours.Path(scope)); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(ours.Path(scope))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Append(Frame{Kind: 1, Body: []byte("ours")}, true); !errors.Is(err, vfs.ErrForeign) {
		t.Error(err)
	}
	f.Close()
	if after, err := os.ReadFile(ours.Path(scope)); err != nil || string(after) != string(before) {
		t.Errorf("the other store's session was changed: %v", err)
	}
}
