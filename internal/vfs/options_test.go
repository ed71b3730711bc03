package vfs

import "testing"

type hidden struct{ disk FS }

// An options struct gets its file system from On alone; one that has none says so at once.
func TestOptionsOnAFileSystem(t *testing.T) {
	Hide(func(o *hidden, f FS) { o.disk = f })
	if got := On(OS, hidden{}); got.disk != OS {
		t.Errorf("%v", got)
	}
	defer func() {
		if recover() == nil {
			t.Error("a struct without a file system took one")
		}
	}()
	On(OS, struct{}{})
}
