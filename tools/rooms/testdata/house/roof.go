// Package house is for the test of rooms. Roof stands on wall, wall on floor, and floor looks back up at roof.
package house

type Roof struct {
	Wall            // 2 methods and a function that are promoted
	open   func()   // a field that holds a function
	*Floor          // 1 method, and 1 that it gets itself
	attic  []func() // holds functions, and is none
}

func (r *Roof) Rain() { r.lay(); _ = Height + r.Floor.depth }

func (r *Roof) Snow() { r.Rain() }
