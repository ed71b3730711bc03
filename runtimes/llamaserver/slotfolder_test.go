package llamaserver_test

import "github.com/dormousekv/dormouse/runtimes/llamaserver/internal/rig"

// soil has the memory of the next slot file full of what no file has.
func soil(r *rig.Rig) {
	r.T.Helper()
	f, err := r.Front.Folder().Create(8 << 20)
	if err != nil {
		r.T.Fatal(err)
	}
	for i := range f.Bytes() {
		f.Bytes()[i] = 0xa5
	}
	r.Front.Folder().DropSpare()
	r.Front.Folder().Done(f)
}
