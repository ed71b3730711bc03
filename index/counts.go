package index

import "github.com/dormousekv/dormouse/kv"

// Counts is how much is stored: in all, or of one model.
type Counts struct {
	Blocks  int64 // entries of group 0
	Records int64 // entries of all groups
	Bytes   int64 // sum of their records' lengths
}

// SegmentCounts is how much of one segment is alive.
type SegmentCounts struct {
	Records int64
	Bytes   int64
}

// counters are all counts of one version. The rows of models and segments are few (models a handful, segments some
// thousands), so they are held in memory whole, in a treap that versions share.
type counters struct {
	total Counts
	rows  *node // of the tables model and segment
}

func (c *counters) model(fp kv.Fingerprint) Counts {
	var buf [modelKeyBytes]byte
	if n := c.rows.find(appendModelKey(buf[:0], fp)); n != nil {
		counts, _ := decodeCounts(n.val)
		return counts
	}
	return Counts{}
}

func (c *counters) segment(id uint64) SegmentCounts {
	var buf [segKeyBytes]byte
	if n := c.rows.find(appendSegmentKey(buf[:0], id)); n != nil {
		counts, _ := decodeSegmentCounts(n.val)
		return counts
	}
	return SegmentCounts{}
}

// add counts an entry in (sign 1) or out (sign -1).
func (c *counters) add(e *Entry, sign int64, edit uint64) {
	blocks, bytes := int64(0), sign*e.Loc.Length
	if e.Group == 0 {
		blocks = sign
	}
	c.total = Counts{c.total.Blocks + blocks, c.total.Records + sign, c.total.Bytes + bytes}

	m := c.model(e.Model)
	m = Counts{m.Blocks + blocks, m.Records + sign, m.Bytes + bytes}
	c.put(appendModelKey(nil, e.Model), appendCounts(nil, m), m == Counts{}, edit)

	s := c.segment(e.Loc.Segment)
	s = SegmentCounts{s.Records + sign, s.Bytes + bytes}
	c.put(appendSegmentKey(nil, e.Loc.Segment), appendSegmentCounts(nil, s), s == SegmentCounts{}, edit)
}

func (c *counters) put(key, val []byte, gone bool, edit uint64) {
	if gone {
		c.rows = c.rows.drop(key, edit)
	} else {
		c.rows = c.rows.set(key, val, edit)
	}
}
