// Package held knows which tokens the sequences of a cache have, position by position. A runtime keeps it beside the cache, which has
// no tokens.
package held
