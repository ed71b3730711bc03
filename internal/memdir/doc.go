// Package memdir hands out folders to tests that write much and whose subject is not what the disk keeps. They are in memory
// where the system has such a place with room, because there a sync costs nothing: Main for a whole package, Dir for a test.
package memdir
