package db

import (
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// recordID names a record in the index.
type recordID struct {
	key   kv.Key
	group uint8
}

func idOf(x *index.Entry) recordID { return recordID{x.Key, x.Group} }

// needs is the record that must be stored for x to be of use; ok is false for the first block of a prompt.
func needs(x *index.Entry) (id recordID, ok bool) {
	if x.Group > 0 {
		return recordID{x.Key, 0}, true
	}
	return recordID{x.Parent, 0}, x.First > 0
}
