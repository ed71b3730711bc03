package db

import "os"

// othersWrite is not told by mode bits on Windows: the directory's access list is the user's own affair.
func othersWrite(os.FileInfo) string { return "" }

func othersRead(os.FileInfo) bool { return false }
