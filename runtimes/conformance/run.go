package conformance

import "testing"

// Run runs all tests, each as a subtest with a new runtime.
func Run(t *testing.T, k Kit) {
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) { c.run(k.begin(t, c.name)) })
	}
}

var checks = []struct {
	name string
	run  func(*check)
}{
	{"limits are enough", limits},
	{"one call decodes as many do", oneCallOrMany},
	{"sequences of one batch do not meet", oneBatch},
	{"a step comes after the last row", stepsInOrder},
	{"copies share and are apart", copies},
	{"a removal is a view without the range", removal},
	{"positions have holes and outgrow the cells", holes},
	{"a full cache changes nothing", full},
	{"rows come back from the store by ranges", storeAndLoad},
	{"a load ends where the store does", loadBeyond},
	{"a load fills a gap", loadGap},
	{"recipe spans keep rows apart", spans},
	{"a scope that cannot begin is refused", scopeThatCannotBegin},
	{"rows that are not there are not stored", storeNothing},
	{"a cancelled call changes nothing", cancelled},
	{"nothing leaks", leaks},
}
