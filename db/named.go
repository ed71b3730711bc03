package db

import "github.com/dormousekv/dormouse/kv"

// logNames are what the log says of the places that its frames name, for a rebuild and after a reboot.
type logNames struct {
	put      map[opLoc]bool       // those that something was put in, or moved to
	what     map[opLoc]opDead     // that something
	dead     map[opLoc]bool       // those that were given up
	removed  map[opLoc]bool       // those among them that were removed for good
	replaced map[opLoc]bool       // those among them that have something in their place
	next     map[opLoc]opLoc      // where the same key lies after them, if it was moved or replaced
	over     map[opLoc][]opRecord // what was put with the longer block that took their place
	group    map[opLoc]uint8      // of those
	moved    map[opLoc]opMove     // by From
	from     map[opLoc]opLoc      // by To
	parents  map[opLoc]kv.Key     // the block before that in a place
}

// nameRecords notes the records that the log's frames name.
func (r *recovery) nameRecords() {
	r.named = logNames{
		put: map[opLoc]bool{}, what: map[opLoc]opDead{}, dead: map[opLoc]bool{}, removed: map[opLoc]bool{}, replaced: map[opLoc]bool{},
		next: map[opLoc]opLoc{}, over: map[opLoc][]opRecord{}, group: map[opLoc]uint8{}, moved: map[opLoc]opMove{}, from: map[opLoc]opLoc{}, parents: map[opLoc]kv.Key{},
	}
	n := &r.named
	for _, f := range r.frames {
		switch f.Kind {
		case framePut:
			if op, err := decodeOp[opPut](f); err == nil {
				n.addPut(op)
			}
		case frameRemove:
			if op, err := decodeOp[opRemove](f); err == nil {
				for _, d := range op.Dead {
					n.dead[d.Loc], n.removed[d.Loc] = true, true
				}
			}
		case frameMove:
			if op, err := decodeOp[opMove](f); err == nil {
				n.put[op.To], n.what[op.To] = true, opDead{Key: op.Key, Group: op.Group, Loc: op.To}
				n.dead[op.From], n.replaced[op.From] = true, true
				n.next[op.From], n.moved[op.From], n.from[op.To] = op.To, op, op.From
				delete(n.over, op.From)
			}
		}
	}
}

func (n *logNames) addPut(op opPut) {
	for _, rec := range op.Records {
		n.put[rec.Loc], n.parents[rec.Loc] = true, rec.Parent
		n.what[rec.Loc] = opDead{Key: rec.Key, Group: rec.Group, Loc: rec.Loc}
	}
	for _, d := range op.Dead {
		n.dead[d.Loc], n.replaced[d.Loc] = true, true
		delete(n.next, d.Loc)
		n.over[d.Loc], n.group[d.Loc] = op.Records, d.Group
		for _, rec := range op.Records {
			if rec.Key == d.Key && rec.Group == d.Group {
				n.next[d.Loc] = rec.Loc
				delete(n.over, d.Loc)
			}
		}
	}
}

// bornUnder notes which block comes before that at l, if the log may ask.
func (r *recovery) bornUnder(l opLoc, parent kv.Key) {
	if _, moved := r.named.moved[l]; moved || r.named.dead[l] {
		r.named.parents[l] = parent
	}
}

// after is what took the place of the record at l: it was moved or replaced, or a longer block begins with it.
func (n *logNames) after(l opLoc) (opLoc, bool) {
	if next, ok := n.next[l]; ok {
		return next, true
	}
	first := l
	for range len(n.from) {
		from, ok := n.from[first]
		if !ok {
			break
		}
		first = from
	}
	parent, ok := n.parents[first]
	over := n.over[l]
	for _, rec := range over {
		if ok && rec.Group == 0 && rec.Parent == parent {
			l, group := rec.Loc, n.group[l]
			for _, same := range over { // rows of a group are in the block's record of that group
				if same.Key == rec.Key && same.Group == group {
					l = same.Loc
				}
			}
			return l, true
		}
	}
	return opLoc{}, false
}

// lost reports whether a power cut took the record at l and all that took its place since, so that what was there before must
// stand in. What was removed for good is not lost. No place is used twice, so that the chain of them ends.
func (r *recovery) lost(l opLoc) bool {
	n := &r.named
	for range len(n.dead) + 1 {
		if r.scanned[l] || n.removed[l] {
			return false
		}
		if !n.dead[l] {
			return true
		}
		next, ok := n.after(l)
		if !ok {
			return false
		}
		if !r.hasBlock(l, next, func(block opLoc) bool { return !r.lost(block) }) {
			return true
		}
		l = next
	}
	return false
}

// outlived reports whether the record at l, which is not whole any more, is no loss: it was removed for good since, or something that
// took its place is whole.
func (r *recovery) outlived(l opLoc) bool {
	n := &r.named
	for range len(n.dead) + 1 {
		if n.removed[l] {
			return true
		}
		next, ok := n.after(l)
		if !ok || !n.dead[l] {
			return false
		}
		if !r.hasBlock(l, next, func(block opLoc) bool { return r.intact(n.what[block].Key, 0, block) || r.outlived(block) }) {
			return false
		}
		if x, ok := n.what[next]; ok && r.intact(x.Key, x.Group, next) {
			return true
		}
		l = next
	}
	return false
}

// hasBlock reports whether the record at next is of use where a longer block took the place of the one at l: rows of a group are none
// without their block, which came with them.
func (r *recovery) hasBlock(l, next opLoc, there func(block opLoc) bool) bool {
	n := &r.named
	if _, same := n.next[l]; same || n.what[next].Group == 0 {
		return true
	}
	for _, rec := range n.over[l] {
		if rec.Group == 0 && rec.Key == n.what[next].Key {
			return there(rec.Loc)
		}
	}
	return false
}

// renewed reports whether the same record is whole in a place that it was moved to, or put in again, later.
func (r *recovery) renewed(l opLoc) bool {
	for range len(r.named.next) {
		next, ok := r.named.next[l]
		if !ok {
			return false
		}
		if x, ok := r.named.what[next]; ok && r.intact(x.Key, x.Group, next) {
			return true
		}
		l = next
	}
	return false
}

// onward returns the move that brought a record to where it is whole, if one did: the places before that were destroyed since, and
// no power cut took them.
func (r *recovery) onward(key kv.Key, group uint8, l opLoc) (last opMove, ok bool) {
	var left []opDead
	for range len(r.named.moved) {
		left = append(left, opDead{Key: key, Group: group, Loc: l})
		if last, ok = r.named.moved[l]; !ok {
			return last, false
		}
		if r.intact(key, group, last.To) {
			r.giveUp(left, true)
			return last, true
		}
		l = last.To
	}
	return last, false
}

// movedOn returns the move that brought the record at l to where the scan found it, if one did: places on the way may be
// destroyed when the first is not yet.
func (r *recovery) movedOn(l opLoc) (last opMove, ok bool) {
	for range len(r.named.moved) {
		if last, ok = r.named.moved[l]; !ok || r.scanned[last.To] {
			return last, ok
		}
		l = last.To
	}
	return last, false
}
