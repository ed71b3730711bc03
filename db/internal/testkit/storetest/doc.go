// Package storetest is what tests of an open store share: stores with small options, rows that are a function of all that a runtime
// conditioned on, so that a row of any other prefix is a wrong row, disks that fail when a test says so, and the end of a process. It
// uses what db exports, and files by the names that docs/format gives them. Models, prompts and disks that know of no store are in
// crashtest.
package storetest
