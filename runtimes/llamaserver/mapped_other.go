//go:build !linux

package llamaserver

import (
	"net/url"
	"time"
)

// mappedBy cannot be told here.
func mappedBy(*url.URL) []mapping { return nil }

// startedAs cannot be told here.
func startedAs(*url.URL) (command, environ []string) { return nil, nil }

// startOf cannot be told here.
func startOf(*url.URL) (time.Time, bool) { return time.Time{}, false }
