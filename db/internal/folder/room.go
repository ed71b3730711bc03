package folder

import "github.com/dormousekv/dormouse/internal/vfs"

// MostMinFree is what a store leaves free on its file system by default, but for small file systems.
const MostMinFree = 256 << 20

// MinFree is that default for a store in a directory: 256 MiB of a small volume may be all of it, and then nothing would ever be stored.
func MinFree(dir string) int64 {
	total, err := vfs.VolumeBytes(dir)
	if err != nil || total == 0 { // a file system that does not say
		return MostMinFree
	}
	return int64(min(MostMinFree, max(1, total/16)))
}
