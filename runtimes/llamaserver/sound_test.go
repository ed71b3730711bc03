package llamaserver

import (
	"errors"
	"testing"

	"github.com/dormousekv/dormouse/runtimes/llamaserver/internal/weights"
)

// A server that sleeps will load what lies there: that is known at once, however long it takes to read the file. Who asks meanwhile wakes it, and then it
// might be in doubt for good.
func TestChangedWhileAsleepIsNoDoubt(t *testing.T) {
	for name, replace := range replacements {
		t.Run(name, func(t *testing.T) {
			model, other := two(t)
			r := start(t, Options{}, "-c", "2048", "-np", "1", "-lm", "none", "-m", model, "--sleep-idle-seconds", "1")
			r.ask("/completion", story("First", 8))
			r.saved()
			r.asleep()
			replace(t, model, other)
			s := r.front.servedFor("")
			if wait, err := s.files.Compare(t.Context()); wait != nil || !errors.Is(err, weights.ErrAnew) {
				t.Errorf("bytes are read first: %v, %v", wait != nil, err)
			}
		})
	}
}
