package db

import "github.com/dormousekv/dormouse/db/internal/folder"

// The names of a store's files, for tests of this package.
const (
	formatName   = folder.FormatName
	lockName     = folder.LockName
	indexName    = folder.IndexName
	bloomName    = folder.BloomName
	unsyncedName = folder.UnsyncedName
	walDir       = folder.LogDir
	segmentsDir  = folder.SegmentsDir
)

// What they know of FORMAT and of the folder.
var (
	decodeFormat = folder.Decode
	readFormat   = folder.Read
)

type storeFormat = folder.Format

const (
	formatMagic  = "DORMOUSE"
	formatBytes  = 88
	storeVersion = folder.Version
)
