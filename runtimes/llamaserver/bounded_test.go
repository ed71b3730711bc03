package llamaserver

import (
	"fmt"
	"testing"

	"github.com/dormousekv/dormouse/kv"
)

// However many blocks and programs there are, memory is bounded.
func TestAskersAreBounded(t *testing.T) {
	var a askers
	for i := range 100 {
		keys := make([]kv.Key, 2000)
		for j := range keys {
			keys[j] = kv.Key{byte(i), byte(j), byte(j >> 8)}
		}
		a.add(fmt.Sprint("program ", i), keys)
	}
	if len(a.of) > maxAskedKeys || len(a.names) > maxAskers || len(a.of) == 0 {
		t.Errorf("%d blocks, %d programs", len(a.of), len(a.names))
	}
}
