package crashtest

import "github.com/dormousekv/dormouse/internal/vfs"

// NoHoles is a file system that cannot punch holes: what is punched reads as zeros and stays allocated.
type NoHoles struct{ vfs.FS }

type noHolesFile struct{ vfs.File }

func (f NoHoles) Create(name string) (vfs.File, error) {
	file, err := f.FS.Create(name)
	return noHolesFile{file}, err
}

func (f NoHoles) Open(name string, readOnly bool) (vfs.File, error) {
	file, err := f.FS.Open(name, readOnly)
	if err != nil {
		return nil, err
	}
	return noHolesFile{file}, nil
}

func (f noHolesFile) Punch(off, n int64) (bool, error) {
	_, err := f.WriteAt(make([]byte, n), off)
	return false, err
}

// Coarse is a file system on a disk that is given out in larger blocks than most.
type Coarse struct{ vfs.FS }

func (c Coarse) Space(dir string) (free uint64, blockBytes int, err error) {
	free, _, err = c.FS.Space(dir)
	return free, 16 << 10, err
}
