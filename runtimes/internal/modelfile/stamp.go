package modelfile

import "strings"

// Stamp changes when one of a model's files does. Where there are inodes it is device, inode, size, and times of modification and of change of each file.
type Stamp string

// StampOf is the stamp of a model's files now, all parts if it is split. It reads none of them.
func StampOf(path string) (Stamp, error) {
	id, err := modelID(path)
	return Stamp(id), err
}

// OnlyStatus reports whether at most the times of change differ: names, owners and rights changed, or the contents under a time of modification that was set back. Their hash
// tells which.
func (s Stamp) OnlyStatus(now Stamp) bool {
	a, b := strings.Split(string(s), "+"), strings.Split(string(now), "+")
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if withoutChange(a[i]) != withoutChange(b[i]) {
			return false
		}
	}
	return true
}

// withoutChange is a fileID without its last field, if that is the time of change.
func withoutChange(id string) string {
	if fields := strings.Split(id, ":"); len(fields) == 5 {
		return strings.Join(fields[:4], ":")
	}
	return id
}
