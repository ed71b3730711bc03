//go:build !((linux && (!android || cgo)) || (darwin && (!ios || cgo)) || windows)

package main

import "errors"

// llamaLaps: there is no way to llama.cpp here without cgo.
func (r *run) llamaLaps() (laps []llamaLap, end func(), why string) {
	return nil, nil, "package llama is not built for this system without cgo"
}

func (r *run) measureRecompute(*costs) error {
	return errors.New("package llama is not built for this system without cgo")
}
