package house

import "testing"

func TestNothing(t *testing.T) { _ = Roof{} }
