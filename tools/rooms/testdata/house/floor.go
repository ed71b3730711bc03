package house

import "sync"

type Floor struct {
	depth int
	cellar
	mu sync.Mutex
}

type cellar struct{}

func (cellar) wine() {}

func (f *Floor) lay() { _ = (*Roof).Snow }
