package db

import (
	"sync"

	"github.com/cespare/xxhash/v2"
)

// bootID names the running system: after another boot, bytes that were not synced may be gone. Empty if unknown: then every open is like
// one after a reboot.
var bootID = sync.OnceValue(readBootID)

// bootNumber is bootID as a frame of the log has it; 0 if it is unknown.
var bootNumber = sync.OnceValue(func() uint64 {
	if bootID() == "" {
		return 0
	}
	return max(1, xxhash.Sum64String(bootID()))
})
