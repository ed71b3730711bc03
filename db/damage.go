package db

import (
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// reportDamage logs a record that failed a check, and flags it, so that matches stop before it and a put of the same
// prefix replaces it. Its children stay.
func (e *engine) reportDamage(key kv.Key, group uint8, loc index.Loc, cause error) {
	e.count.damaged.Add(1)
	e.log.Error("record is damaged; it will not be used", "block", key.String(), "group", group,
		"segment", loc.Segment, "offset", loc.Offset, "error", cause)
	if e.wal == nil {
		return
	}
	if _, err := e.commit(frameFlag, func(t *index.Txn) (any, error) {
		cur, ok, err := t.Get(key, group)
		if err != nil || !ok || cur.Loc != loc || cur.Flags&index.FlagDamaged != 0 {
			return nil, err
		}
		op := opFlag{Key: key, Group: group, Loc: toOpLoc(loc), Flags: cur.Flags | index.FlagDamaged}
		return op, t.SetFlags(key, group, op.Flags)
	}); err != nil {
		e.log.Error("damage could not be recorded", "error", err)
	}
}
