package oplog

import "github.com/dormousekv/dormouse/index"

// RecordOf is what the log says of an entry of the index.
func RecordOf(x index.Entry) Record {
	return Record{
		Key: x.Key, Group: x.Group, Parent: x.Parent, Model: x.Model, Scope: x.Scope, Loc: x.Loc, First: x.First, Tokens: x.Tokens,
		RowFirst: x.RowFirst, RowCount: x.RowCount, Flags: x.Flags, Seq: x.Seq, Created: x.Created, Hashes: x.Hashes,
	}
}

// Entry is what the index says of the record, but for its rank.
func (x Record) Entry() index.Entry {
	return index.Entry{
		Key: x.Key, Group: x.Group, Parent: x.Parent, Model: x.Model, Scope: x.Scope, Loc: x.Loc, First: x.First, Tokens: x.Tokens,
		RowFirst: x.RowFirst, RowCount: x.RowCount, Flags: x.Flags, Seq: x.Seq, Created: x.Created, Hashes: x.Hashes,
	}
}
