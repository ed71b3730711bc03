//go:build !linux

package proc

import (
	"net/url"
	"time"
)

// This system does not say what runs at an address.

func Listener(*url.URL) string { return "" }

func UserOf(*url.URL) (uid int, ok bool) { return 0, false }

func Sandbox(*url.URL, string) string { return "" }

func MappedBy(*url.URL) []Mapping { return nil }

func StartedAs(*url.URL) (command, environ []string) { return nil, nil }

func StartOf(*url.URL) (time.Time, bool) { return time.Time{}, false }
