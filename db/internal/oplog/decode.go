package oplog

import (
	"fmt"

	"github.com/dormousekv/dormouse/internal/packed"
	"github.com/dormousekv/dormouse/internal/vfs"
)

// kinds has the zero value of each operation at the place of its kind.
var kinds = [...]Op{
	KindSnapshot: Snapshot{},
	KindPut:      Put{},
	KindRemove:   Remove{},
	KindMove:     Move{},
	KindModel:    Model{},
	KindRetire:   Retire{},
	KindRef:      Ref{},
	KindUnref:    Unref{},
	KindFlag:     Flag{},
	KindNote:     Note{},
	KindBarrier:  Barrier{},
}

// Kinds lists the zero value of each operation, in the order of their kinds.
func Kinds() []Op { return append([]Op(nil), kinds[1:]...) }

// Encode returns the payload of an operation's frame.
func Encode(op Op) []byte { return op.append(nil) }

// Decode reads the payload of a frame. The operation shares no memory with the payload. The error is ErrPayload, or vfs.ErrVersion for what
// another release wrote.
func Decode(kind uint8, payload []byte) (Op, error) {
	if kind == 0 || int(kind) >= len(kinds) {
		return nil, fmt.Errorf("%w: kind %d, expected 1 to %d", vfs.ErrVersion, kind, len(kinds)-1)
	}
	r := &reader{packed.NewReader(payload)}
	op := kinds[kind].read(r)
	if err := r.End(); err != nil {
		return nil, err
	}
	return op, nil
}
