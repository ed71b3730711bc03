package trial

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// Whatever is switched off comes back by itself, after some requests or some time; one surprise switches nothing off, and what fails again is
// left alone for longer.
func TestRests(t *testing.T) { synctest.Test(t, testRests) }

func testRests(t *testing.T) {
	var r Cases[string]
	for range MaxFailed - 1 {
		if r.Failed("a") || r.Resting("a") {
			t.Fatal("it rests after less than three failures")
		}
	}
	r.Worked("a")
	for range MaxFailed - 1 {
		r.Failed("a")
	}
	if !r.Failed("a") || r.Resting("b") {
		t.Error("three failures in a row are no reason to rest, or one to rest for others")
	}
	requests := func() (n int) {
		for r.Resting("a") {
			n++
		}
		return n
	}
	if n := requests(); n != RestRequests {
		t.Errorf("it rests for %d requests, expected %d", n, RestRequests)
	}
	for i, last := 0, RestRequests; i < 8; i++ {
		if !r.Failed("a") {
			t.Fatal("what was tried and failed does not rest")
		}
		n := requests()
		if n < last || n > RestRequests<<MaxDoubled {
			t.Errorf("it rests for %d requests after %d", n, last)
		}
		last = n
	}
	r.Failed("a")
	time.Sleep(RestTime << MaxDoubled)
	if r.Resting("a") {
		t.Error("time does not end a rest")
	}
	r.Failed("a")
	r.Worked("a")
	if r.Resting("a") || r.Failed("a") {
		t.Error("what worked is held against it")
	}
	for i := range 10 * MaxCases {
		r.Failed(fmt.Sprint(i))
	}
	if r.Size() > MaxCases {
		t.Errorf("%d cases are remembered", r.Size())
	}
}

// One restore that took long says nothing of the next: not as the first, nor among others. What takes long time after time is left alone, by its size,
// and tried again.
func TestCosts(t *testing.T) {
	for _, slowAt := range []int{0, 1, 2, 5, 11} {
		var c Costs
		c.Computed(time.Second, 1000)
		for i := range 12 {
			d := 10 * time.Millisecond
			if i == slowAt {
				d = time.Minute
			}
			if !c.Pays(1000, 1000) {
				t.Errorf("restore %d does not pay, number %d took long", i, slowAt)
			}
			c.Restored(d, 1000, 1000)
		}
		if !c.Pays(1000, 1000) {
			t.Errorf("after restore %d took long, none pays", slowAt)
		}
	}
	var c Costs
	c.Computed(time.Second, 1000)
	for range fewMeasured {
		c.Restored(time.Minute, 1000, 1000)
	}
	tried := 0
	for range 60 {
		if c.Pays(1000, 1000) {
			tried++
			c.Restored(time.Minute, 1000, 1000)
		}
		if !c.Pays(10_000, 10_000) || !c.Pays(100, 100) {
			t.Error("other sizes are left alone, too")
		}
	}
	if tried == 0 || tried > 4 || len(c.Resting()) != 1 {
		t.Errorf("what never pays was tried %d times of 60; left alone: %v", tried, c.Resting())
	}
	for n := 0; !c.Pays(1000, 1000); n++ {
		if n > RestRequests<<MaxDoubled {
			t.Fatal("it is never tried again")
		}
	}
	c.Restored(time.Millisecond, 1000, 1000) // the disk is quick again
	for range 5 {
		if !c.Pays(1000, 1000) || len(c.Resting()) > 0 {
			t.Errorf("what pays again is left alone: %v", c.Resting())
		}
		c.Restored(time.Millisecond, 1000, 1000)
	}
	if c = (Costs{}); c.Pays(31, 31) == false { // how few are too few is not a matter of what it costs
		t.Error("without figures nothing pays")
	}
}
