package largemem

import "golang.org/x/sys/unix"

// huge asks for huge pages: a fault for each 4 KiB takes more time than all that is then done with the memory.
func huge(b []byte) { unix.Madvise(b, unix.MADV_HUGEPAGE) } // where it is refused, the pages are small

// reclaimable lets the system have pages without a word until they are written again, and reports whether it knows how to.
func reclaimable(b []byte) bool { return unix.Madvise(b, unix.MADV_FREE) == nil }
