// Package crashtest is what the tests of crashes share, inside package db and outside: disks in memory and what a power cut leaves of
// them, as the next boot finds it, models, and conversations whose every row can be computed.
package crashtest
