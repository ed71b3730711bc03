package largemem

import "sync"

// keptBytes is the largest memory that waits for the next one who asks: the system takes longer to clear new memory than a state takes to be written into it.
const keptBytes = 64 << 20

// kept is what waits: one for all sessions of the process.
var kept struct {
	sync.Mutex
	b []byte
}

// Make returns n bytes of whatever was there.
func Make(n int) []byte {
	if b := swap(nil); len(b) >= n {
		return b[:n]
	} else if b != nil {
		give(b)
	}
	return take(n)
}

// Free ends what Make returned.
func Free(b []byte) {
	if b = b[:cap(b)]; len(b) <= keptBytes && reclaimable(b) {
		b = swap(b)
	}
	give(b)
}

// Trim gives back what waits.
func Trim() { give(swap(nil)) }

// swap keeps other memory, and returns what was kept.
func swap(b []byte) []byte {
	kept.Lock()
	defer kept.Unlock()
	b, kept.b = kept.b, b
	return b
}
