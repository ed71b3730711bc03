package recovery

import (
	"slices"

	"github.com/dormousekv/dormouse/db/internal/oplog"
	"github.com/dormousekv/dormouse/index"
	"github.com/dormousekv/dormouse/kv"
)

// Where frames of the log are damaged, the index is built anew, and nobody knows what they said: they may have put, moved or removed what
// the frames behind them are about. So what the segments hold counts as stored, unless a frame that can be read removes it.

// removeBelow takes out, where the log is damaged, what was stored under the keys that op removes, wherever it lies by now, with all that
// hangs below it. What was stored after the removal has a later sequence number, and stays: a frame that is lost may have put it.
func (r *run) removeBelow(t *index.Txn, op oplog.Remove) error {
	if !r.Log.Damaged() {
		return nil
	}
	for _, d := range op.Dead {
		keys := []kv.Key{d.Key}
		if d.Group == 0 {
			var err error
			if keys, err = Below(t, d.Key); err != nil {
				return err
			}
		}
		for _, k := range slices.Backward(keys) {
			var gone []index.Entry
			if err := t.Groups(k, func(x index.Entry) bool {
				if x.Seq <= op.Seq && (d.Group == 0 || x.Group == d.Group) {
					gone = append(gone, x)
				}
				return true
			}); err != nil {
				return err
			}
			for _, x := range slices.Backward(gone) {
				if err := r.take(t, x); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// hasYounger reports whether the scan entered a copy of a record that no frame names, and that came after the one that a frame names: one
// that is lost may have put it there, and then the older one may be destroyed.
func (r *run) hasYounger(t *index.Txn, x index.Entry) (bool, error) {
	if !r.Log.Damaged() || !r.Rebuilt {
		return false, nil
	}
	cur, ok, err := t.Get(x.Key, x.Group)
	_, named := r.named.Put[cur.Loc]
	if err != nil || !ok || named || cur.Seq <= x.Seq {
		return false, err
	}
	return r.intact(&cur), nil
}
