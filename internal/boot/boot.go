package boot

import (
	"sync"

	"github.com/cespare/xxhash/v2"
)

// ID names this boot. Empty if unknown: then every open is like one after a reboot.
var ID = sync.OnceValue(read)

// Number is ID as a frame of the log has it; 0 if it is unknown.
var Number = sync.OnceValue(func() uint64 {
	if ID() == "" {
		return 0
	}
	return max(1, xxhash.Sum64String(ID()))
})
