package llamaserver

import (
	"github.com/dormousekv/dormouse/internal/gguf"
	"github.com/dormousekv/dormouse/runtimes/internal/modelfile"
)

// head is a model's file that is opened while the server loads it: to walk a large vocabulary takes as long as all else that is done before the first request.
type head struct {
	stamp modelfile.Stamp
	file  *gguf.File
	err   error
	done  chan struct{}
}

// readAhead opens the file that the server will load, if it is known.
func (f *Front) readAhead() {
	if f.args.Router || f.args.Model == "" {
		return
	}
	h := &head{stamp: modelfile.StampOf(f.args.Model), done: make(chan struct{})}
	f.head.Store(h)
	go func() {
		defer close(h.done)
		h.file, h.err = gguf.Open(h.stamp.Path)
	}()
}

// openModel opens a model's file, unless the one that was opened ahead is the same still.
func (f *Front) openModel(path string) (*gguf.File, error) {
	if h := f.head.Swap(nil); h != nil {
		<-h.done
		if h.err == nil && h.stamp.File != "" && h.stamp == modelfile.StampOf(path) {
			return h.file, nil
		}
	}
	return gguf.Open(path)
}
