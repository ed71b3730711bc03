//go:build !linux

package llamaserver

import "net/url"

// userOf is not told by this system.
func userOf(*url.URL) (uid int, ok bool) { return 0, false }

func sandbox(*url.URL, string) string { return "" }
