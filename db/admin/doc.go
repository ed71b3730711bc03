// Package admin is what tools need of a store and programs that use one do not: it verifies and repairs stores, and lists what their files
// hold. kvdump is its first user. Nothing here is needed to put or to restore.
//
// [FindNearest] says where a prompt parts from what is stored. It gives tokens of stored prompts: whoever calls it decides who sees them.
//
// [Repair] copies what is whole of a damaged store into a new one. It recovers the damaged store read-only (repair_open.go), through a file
// system that goes on behind what the disk cannot read (repair_fs.go). It copies each record that passes its checks behind the records of
// its prefix (repair_copy.go), and counts by file what it did not copy (repair_report.go).
package admin
