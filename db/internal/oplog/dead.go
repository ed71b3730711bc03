package oplog

import (
	"fmt"

	"github.com/dormousekv/dormouse/internal/loc"
	"github.com/dormousekv/dormouse/internal/packed"
	"github.com/dormousekv/dormouse/kv"
)

// Dead is a record that nothing names any more, and whose bytes are to be destroyed.
type Dead struct {
	Key    kv.Key
	Group  uint8
	Loc    loc.Loc
	Unseen bool // no open match can have found it; not logged
}

const deadBytes = 17 + placeBytes

// dead = key 16 | u8 group | place
func appendDead(b []byte, d Dead) []byte {
	b = append(b, d.Key[:]...)
	return appendPlace(append(b, d.Group), d.Loc)
}

func (r *reader) dead() []Dead {
	return packed.List(&r.Reader, deadBytes, func() Dead {
		b := r.Take(deadBytes)
		if b == nil {
			return Dead{}
		}
		return Dead{Key: kv.Key(b[:16]), Group: b[16], Loc: r.placeIn(b[17:])}
	})
}

func seeDead(dead []Dead, see func(loc.Loc, Use)) {
	for _, d := range dead {
		see(d.Loc, UseDead)
	}
}

// count is a number of things in words.
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
