// Package loc has the place of a record, which segments, log and index have in common.
package loc
