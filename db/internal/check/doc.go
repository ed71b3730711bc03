// Package check will own what Verify and Explain look at. Its tests judge that through the store.
package check
