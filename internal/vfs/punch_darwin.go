package vfs

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// punch makes a hole of whole blocks: macOS and iOS refuse all others. APFS has holes, HFS+ and exFAT have none.
func punch(f *os.File, off, n int64) (bool, error) {
	var st unix.Statfs_t
	if err := retry(f, func(fd int) error { return unix.Fstatfs(fd, &st) }); err != nil {
		return false, err
	}
	return punchBlocks(f, off, n, max(int64(st.Bsize), 1), func(from, to int64) error {
		err := retry(f, func(fd int) error {
			return unix.FcntlFstore(uintptr(fd), unix.F_PUNCHHOLE, &unix.Fstore_t{Offset: from, Length: to - from})
		})
		for _, none := range []error{unix.ENOTSUP, unix.EOPNOTSUPP, unix.ENOSYS, unix.ENOTTY, unix.EINVAL} {
			if errors.Is(err, none) {
				return errNoHoles
			}
		}
		return err
	})
}

// The call takes a fpunchhole_t: two words of 32 bits, which are 0, an offset and a length of 64. A Fstore_t begins like one, and
// golang.org/x/sys/unix has no other call of fcntl that takes a pointer. These do not compile if that changes.
var (
	_ [unsafe.Offsetof(unix.Fstore_t{}.Offset)]byte = [8]byte{}
	_ [unsafe.Offsetof(unix.Fstore_t{}.Length)]byte = [16]byte{}
)
