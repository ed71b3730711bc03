// Package docs checks what README and docs/*.md show: Go code compiles, programs run and print what is said, and figures that stand in several
// places are the same. It builds the programs in a module of its own, as whoever copies them would.
package docs
