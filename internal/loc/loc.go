package loc

import "fmt"

// Loc is where a record lies. Length is the whole record, rounded up to the segment's alignment. Tier is always 0: it is
// kept for stores that move cold segments elsewhere.
type Loc struct {
	Segment uint64
	Offset  int64
	Length  int64
	Tier    uint8
}

func (l Loc) String() string {
	return fmt.Sprintf("segment %016x offset %d length %d", l.Segment, l.Offset, l.Length)
}

// End is the offset after the record.
func (l Loc) End() int64 { return l.Offset + l.Length }
