// Package examples holds programs that a newcomer copies from: warmstart needs nothing but Go, llamachat a llama.cpp
// library and a model file.
package examples
