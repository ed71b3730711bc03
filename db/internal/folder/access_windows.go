package folder

import "os"

func accessOf(info os.FileInfo) access { return access{mode: info.Mode()} }

// filesIn looks at nothing on Windows, where mode bits say nothing of others.
func filesIn(string, func(string) bool, func(string, access) error) error { return nil }

// othersWrite is not told by mode bits on Windows: the directory's access list is the user's own affair.
func (access) othersWrite(int) string { return "" }

func (access) othersRead() bool { return false }
