//go:build !linux

package slotfile

import (
	"errors"
	"os"
)

// memoryPlaces are folders that lie in memory: none that this system tells of.
func memoryPlaces() []string { return nil }

func inMemory(string) bool { return false }

func linksWork() bool { return false }

func linkToMemory(string) (*os.File, error) { return nil, errors.ErrUnsupported }
