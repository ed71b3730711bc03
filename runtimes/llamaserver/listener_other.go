//go:build !linux

package llamaserver

import "net/url"

// listener cannot be told here.
func listener(*url.URL) string { return "" }
