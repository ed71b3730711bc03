// Package logits compares what two runs of a model predict, over the same tokens: how often they find the same token likeliest, and how
// far their probabilities are apart. It knows nothing of models or runtimes.
package logits
