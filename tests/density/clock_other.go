//go:build !linux

package main

import "time"

// seconds is the time that f takes.
func seconds(f func() error) (float64, error) {
	start := time.Now()
	err := f()
	return time.Since(start).Seconds(), err
}
