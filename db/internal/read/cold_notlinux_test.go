//go:build !linux

package read_test

import (
	"testing"

	"github.com/dormousekv/dormouse/db"
)

// cool cannot drop anything from the page cache here.
func cool(t *testing.T, dir string) bool { return false }

func resident(t *testing.T, dir string, b db.Block) bool { return false }
