package layout

import (
	"sync/atomic"

	"github.com/dormousekv/dormouse/internal/gguf"
	"github.com/dormousekv/dormouse/runtimes/internal/modelfile"
)

// Opener opens the files of models. It can open one ahead, while the server loads it: walking a large vocabulary takes as long as everything else that is
// done before the first request. The zero value is ready.
type Opener struct {
	next atomic.Pointer[opening]
}

type opening struct {
	stamp modelfile.Stamp
	file  *gguf.File
	err   error
	done  chan struct{}
}

// Ahead begins to open a file in the background.
func (o *Opener) Ahead(path string) {
	h := &opening{stamp: modelfile.StampOf(path), done: make(chan struct{})}
	o.next.Store(h)
	go func() {
		defer close(h.done)
		h.file, h.err = gguf.Open(h.stamp.Path)
	}()
}

// Open returns the file that was opened ahead if it is still the one that lies at the path. Otherwise it opens the file.
func (o *Opener) Open(path string) (*gguf.File, error) {
	if h := o.next.Swap(nil); h != nil {
		<-h.done
		if h.err == nil && h.stamp.File != "" && h.stamp == modelfile.StampOf(path) {
			return h.file, nil
		}
	}
	return gguf.Open(path)
}
