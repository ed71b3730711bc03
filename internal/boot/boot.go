package boot

import (
	"sync"

	"github.com/cespare/xxhash/v2"
)

// Number names this boot, as each frame of the log says it; 0 if the system does not tell.
var Number = sync.OnceValue(func() uint64 {
	id := read()
	if id == "" {
		return 0
	}
	return max(1, xxhash.Sum64String(id))
})
