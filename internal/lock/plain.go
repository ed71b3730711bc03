//go:build !lockorder

package lock

import "sync"

// Checked says whether the order is checked.
const Checked = false

// Mutex is a [sync.Mutex] at a place in the order.
type Mutex[P Place] = sync.Mutex

// RWMutex is a [sync.RWMutex] at a place in the order.
type RWMutex[P Place] = sync.RWMutex
