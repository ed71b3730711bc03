package llamaserver_test

import (
	"errors"
	"testing"

	"github.com/dormousekv/dormouse/runtimes/llamaserver"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/rig"
	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/weights"
)

// A server that sleeps will load what lies there: that is known at once, however long it takes to read the file. Who asks meanwhile wakes it, and then it
// might be in doubt for good.
func TestChangedWhileAsleepIsNoDoubt(t *testing.T) {
	for name, replace := range rig.Replacements {
		t.Run(name, func(t *testing.T) {
			model, other := rig.TwoModels(t)
			r := rig.Start(t, llamaserver.Options{}, "-c", "2048", "-np", "1", "-lm", "none", "-m", model, "--sleep-idle-seconds", "1")
			r.Ask("/completion", rig.Story("First", 8))
			r.Saved()
			r.Asleep()
			replace(t, model, other)
			if wait, err := r.Front.Files().Compare(t.Context()); wait != nil || !errors.Is(err, weights.ErrAnew) {
				t.Errorf("bytes are read first: %v, %v", wait != nil, err)
			}
		})
	}
}
